"""An app without tokens answers this machine only, under every server, on every route, unless it is told to be open."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI

from romancy import App
from romancy.app import http_app
from romancy.http.stream import Hub
from romancy.options import HTTPOptions
from romancy.viewer.routes import ROUTES as VIEWER
from tests.helpers import eventually
from tests.http.conftest import CE, WORKFLOWS, assert_error, event

HEALTH = ("/health/live", "/health/ready")
ROUTES = [
    (route.method, route.path.format(instance_id="x", name="nap", version="v", path="nothing", number=1, topic="t"))
    for route in (*http_app(App(":memory:")).routes, Hub().route, *VIEWER)
    if not route.is_public
]
UNKNOWN = [("GET", "/nothing"), ("PUT", "/"), ("DELETE", "/api/instances"), ("GET", "/health/"), ("GET", "/")]


@pytest.fixture(autouse=True)
def no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROMANCY_TOKENS", raising=False)


def own_address() -> str:
    """An address of this machine that is not loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return probe.getsockname()[0]


def asking(app: Any, client: tuple[str, int] | None = ("203.0.113.7", 4000), **more: Any) -> httpx2.AsyncClient:
    """A client whose requests arrive from an address."""
    transport = httpx2.ASGITransport(app, client=client)  # pyright: ignore[reportArgumentType] - None is a Unix socket
    return httpx2.AsyncClient(transport=transport, base_url="http://shop.example", **more)


@contextmanager
def served(app: Any, host: str | None = "0.0.0.0", **options: Any) -> Iterator[uvicorn.Server]:
    """Any ASGI application under uvicorn as users run it, with its own defaults."""
    bound = None
    if host is not None:
        bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        bound.bind((host, 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, **options))
    thread = threading.Thread(target=lambda: server.run(None if bound is None else [bound]))
    thread.start()
    try:
        eventually(lambda: server.started, 20, "uvicorn")
        server.port = 0 if bound is None else bound.getsockname()[1]  # type: ignore[attr-defined]
        yield server
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def ask_all(url: str) -> dict[tuple[str, str], int]:
    with httpx2.Client(base_url=url, timeout=20) as client:
        return {(method, path): client.request(method, path).status_code for method, path in (*ROUTES, *UNKNOWN)}


def mounted(app: App) -> FastAPI:
    api = FastAPI(lifespan=app.lifespan)
    api.mount("/romancy", app)
    return api


@pytest.mark.parametrize("mount", [False, True])
def test_under_uvicorn_other_machines_get_nothing(tmp_path: Path, mount: bool) -> None:
    app = App(tmp_path / "a.db", workflows=WORKFLOWS)
    root = "/romancy" if mount else ""
    with served(mounted(app) if mount else app) as server:
        elsewhere = f"http://{own_address()}:{server.port}{root}"  # type: ignore[attr-defined]
        here = f"http://127.0.0.1:{server.port}{root}"  # type: ignore[attr-defined]
        assert set(ask_all(elsewhere).values()) == {403}
        refused = assert_error(httpx2.post(f"{elsewhere}/", json=event(), headers=CE), 403, "Forbidden")
        assert f"came from {own_address()}" in refused["error"]
        assert "ROMANCY_TOKENS" in refused["error"]
        assert "HTTPOptions(open=True)" in refused["error"]
        assert [httpx2.get(elsewhere + path).status_code for path in HEALTH] == [200, 200]
        assert httpx2.post(f"{here}/", json=event(), headers=CE).status_code == 202
        assert httpx2.get(f"{here}/viewer/").status_code == 200
        assert len(httpx2.get(f"{here}/api/events").json()["items"]) == 1, "nothing came from elsewhere"


def test_it_can_be_opened(tmp_path: Path) -> None:
    with served(App(tmp_path / "a.db", workflows=WORKFLOWS, http=HTTPOptions(open=True))) as server:
        elsewhere = f"http://{own_address()}:{server.port}"  # type: ignore[attr-defined]
        assert httpx2.post(f"{elsewhere}/", json=event(), headers=CE).status_code == 202
        assert httpx2.get(f"{elsewhere}/viewer/").status_code == 200
        forwarded = {"x-forwarded-for": "203.0.113.7"}
        assert httpx2.get(f"{elsewhere}/api/instances", headers=forwarded).status_code == 200
        evil = {"origin": "https://evil.example"}
        assert_error(httpx2.post(f"{elsewhere}/", json=event(), headers=CE | evil), 403)


def test_with_tokens_it_does_not_matter_where_a_request_comes_from(tmp_path: Path) -> None:
    with served(App(tmp_path / "a.db", tokens=["secret"])) as server:
        elsewhere = f"http://{own_address()}:{server.port}"  # type: ignore[attr-defined]
        bearer = {"authorization": "Bearer secret", "x-forwarded-for": "203.0.113.7"}
        assert httpx2.get(f"{elsewhere}/api/instances", headers=bearer).status_code == 200
        assert httpx2.get(f"{elsewhere}/api/instances").status_code == 401


def test_loopback_over_an_ipv6_socket(tmp_path: Path) -> None:
    """A socket on [::] calls IPv4's loopback ::ffff:127.0.0.1."""
    try:
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True).close()
    except (OSError, ValueError):
        pytest.skip("no IPv6 here")
    with served(App(tmp_path / "a.db"), "::") as server:
        assert httpx2.get(f"http://127.0.0.1:{server.port}/api/instances").status_code == 200  # type: ignore[attr-defined]
        assert httpx2.get(f"http://[::1]:{server.port}/api/instances").status_code == 200  # type: ignore[attr-defined]
        mapped = f"http://{own_address()}:{server.port}/api/instances"  # type: ignore[attr-defined]
        assert_error(httpx2.get(mapped), 403)


def test_a_unix_socket_is_not_loopback(tmp_path: Path) -> None:
    """At its other end there is nearly always a proxy, and not every proxy says that it is one."""
    path = str(tmp_path / "s")
    for app, status in ((App(tmp_path / "a.db"), 403), (App(tmp_path / "b.db", http=HTTPOptions(open=True)), 200)):
        with served(app, None, uds=path), httpx2.Client(transport=httpx2.HTTPTransport(uds=path)) as client:
            answer = client.get("http://localhost/api/instances")
            assert answer.status_code == status, answer.text
            assert status == 200 or "Unix socket" in answer.text
            assert client.get("http://localhost/health/ready").status_code == 200


FORWARDED = [
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-real-ip",
    "x-client-ip",
    "x-original-forwarded-for",
    "cf-connecting-ip",
    "true-client-ip",
    "x-envoy-external-address",
]


def test_what_a_proxy_passes_on_does_not_come_from_this_machine(tmp_path: Path) -> None:
    """Neither does a proxy on this machine make everybody local, nor may a forged header."""
    with served(App(tmp_path / "a.db"), "127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.port}"  # type: ignore[attr-defined]
        for header, value in [(name, value) for name in FORWARDED for value in ("203.0.113.7", "127.0.0.1", "")]:
            refused = assert_error(httpx2.get(f"{url}/api/instances", headers={header: value}), 403, "Forbidden")
            said = refused["error"]
            assert header in said or (value and f"came from {value}" in said), "uvicorn believes some of them"
        assert httpx2.get(f"{url}/health/live", headers={"x-forwarded-for": "203.0.113.7"}).status_code == 200
        assert httpx2.get(f"{url}/api/instances").status_code == 200


@pytest.mark.parametrize(
    ("client", "status"),
    [
        (("127.0.0.1", 1), 200),
        (("127.8.9.10", 1), 200),
        (("::1", 1), 200),
        (("::ffff:127.0.0.1", 1), 200),
        (("::ffff:10.0.0.1", 1), 403),
        (("10.0.0.1", 1), 403),
        (("0.0.0.0", 1), 403),
        (("::", 1), 403),
        (("fe80::1%eth0", 1), 403),
        (("localhost", 1), 403),
        (("testclient", 50000), 403),
        (("", 0), 403),
        (None, 403),
    ],
)
async def test_the_peer_is_what_the_server_says(tmp_path: Path, client: Any, status: int) -> None:
    async with App(tmp_path / "a.db") as app, asking(app, client) as there:
        assert (await there.get("/api/instances")).status_code == status
        assert (await there.get("/health/ready")).status_code == 200


async def test_a_server_that_says_nothing_of_the_peer(tmp_path: Path) -> None:
    async with App(tmp_path / "a.db") as app:

        async def bare(scope: Any, receive: Any, send: Any) -> None:
            del scope["client"]
            await app(scope, receive, send)

        async with asking(bare) as there:
            assert_error(await there.get("/api/instances"), 403)


async def test_the_first_refusal_is_told_to_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "romancy")
    logger = logging.getLogger("romancy")
    assert (logger.propagate, logger.disabled) == (True, False), "another test left the logger changed"
    async with App(tmp_path / "a.db") as app, asking(app) as there:
        assert {(await there.get("/api/instances")).status_code for _ in range(5)} == {403}
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == 1
    assert "203.0.113.7" in told[0]
    assert "open=True" in told[0]


async def test_health_says_nothing_of_the_database_to_strangers(tmp_path: Path) -> None:
    from romancy.errors import StorageError

    async def broken(id: str) -> None:
        raise StorageError("no server answers at db.internal:5432")

    for tokens, client, headers, knows in (
        ((), ("127.0.0.1", 1), {}, True),
        ((), ("203.0.113.7", 1), {}, False),
        (("secret",), ("127.0.0.1", 1), {}, False),
        (("secret",), ("203.0.113.7", 1), {"authorization": "Bearer secret"}, True),
    ):
        async with App(tmp_path / "a.db", tokens=tokens) as app, asking(app, client) as there:
            app._runtime.engine.storage.existing = broken  # type: ignore[method-assign]
            found = assert_error(await there.get("/health/ready", headers=headers), 503)
            assert ("db.internal" in found["error"]) is knows, (tokens, client)


# --- a variable that is set but empty -------------------------------------------------------------------------------
@pytest.mark.parametrize("empty", ["", " ", "\n\t "])
def test_a_variable_that_is_set_but_empty_is_an_error(monkeypatch: pytest.MonkeyPatch, empty: str) -> None:
    monkeypatch.setenv("ROMANCY_TOKENS", empty)
    with pytest.raises(ValueError, match=r"ROMANCY_TOKENS is set but contains no token.*unset it"):
        App(":memory:")
    assert len(App(":memory:", tokens=["mine"])._runtime.tokens) == 1


def test_an_empty_text_is_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="a token is a secret"):
        App(":memory:", tokens="")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty one, as `romancy migrate` makes it."""
    path = tmp_path_factory.mktemp("made") / "a.db"
    subprocess.run([sys.executable, "-m", "romancy", "migrate", "-d", str(path)], check=True, capture_output=True)
    return path


@pytest.mark.parametrize("words", [("serve", "shop"), ("serve", "own:app"), ("worker", "own:app"), ("viewer",)])
def test_the_command_line_says_so(tmp_path: Path, database: Path, words: tuple[str, ...]) -> None:
    done = _with_an_empty_variable(tmp_path, database, words)
    assert done.returncode in (1, 2), done.stderr
    assert "ROMANCY_TOKENS is set but contains no token" in done.stderr
    assert "unexpected" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert "own:app" not in words or done.stderr.endswith("own.py:4)\n"), "the line of the App, not one of ours"


@pytest.mark.parametrize("words", [("list",), ("top", "--once"), ("run", "shop:w")])
def test_commands_that_speak_no_http_do_not_care(tmp_path: Path, database: Path, words: tuple[str, ...]) -> None:
    done = _with_an_empty_variable(tmp_path, database, words)
    assert done.returncode == 0, done.stderr
    assert "ROMANCY_TOKENS" not in done.stderr


def _with_an_empty_variable(tmp_path: Path, database: Path, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    flow = "from romancy import *\n@workflow\nasync def w(ctx: WorkflowContext) -> None: ...\n"
    (tmp_path / "shop.py").write_text(flow)
    (tmp_path / "own.py").write_text(f"{flow}app = App('own.db', workflows=[w])\n")
    kept: dict[str, str] = {k: v for k, v in os.environ.items() if not k.startswith("ROMANCY_")}
    environment = kept | {"ROMANCY_TOKENS": "", "ROMANCY_DATABASE": "a.db"}
    shutil.copy(database, tmp_path / "a.db")
    command = [sys.executable, "-m", "romancy", *words]
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)


def test_open_is_a_choice() -> None:
    with pytest.raises(ValueError, match="open must be True or False"):
        HTTPOptions(open="no")  # type: ignore[arg-type]
