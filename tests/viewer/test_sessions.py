"""Logged in: a session of its own, known to every process, that ends; behind TLS, and behind proxies."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from romancy import App
from romancy.app import http_app
from romancy.core.model import SECOND
from romancy.testing import ManualClock
from romancy.viewer.session import own_path

TOKEN = "the-secret-token"
HTTP, HTTPS = "http://shop.example", "https://shop.example"


class Browser:
    """Keeps cookies as browsers do, and says which page asks."""

    def __init__(self, app: Any, url: str = HTTP, origin: str | None = None, **scope: Any) -> None:
        transport = httpx2.ASGITransport(app, **scope)
        self.client = httpx2.AsyncClient(transport=transport, base_url=url)
        self.client.headers["origin"] = origin or url

    async def log_in(self, token: str = TOKEN, root: str = "", **fields: str) -> httpx2.Response:
        return await self.client.post(f"{root}/viewer/login", data={"token": token, **fields})

    async def sees(self, path: str = "/viewer/") -> int:
        return (await self.client.get(path)).status_code

    @property
    def cookies(self) -> dict[str, str]:
        return {cookie.name: cookie.value or "" for cookie in self.client.cookies.jar}


@asynccontextmanager
async def running(path: Path, clock: ManualClock | None = None, **options: Any) -> AsyncIterator[App]:
    app = App(path / "viewer.db", **{"tokens": [TOKEN, "read:looks"], "worker": False, **options})
    app._runtime.clock = clock or app._runtime.clock
    async with app:
        yield app


async def test_the_cookie_has_nothing_to_do_with_the_token(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        values = set[str]()
        for _ in range(3):
            browser = Browser(app)
            answer = await browser.log_in()
            assert answer.status_code == 303
            (value,) = browser.cookies.values()
            for text in (answer.headers["set-cookie"], base64.urlsafe_b64decode(value + "==").decode("latin-1")):
                assert TOKEN not in text
            values.add(value)
            assert await browser.sees() == 200
        assert len(values) == 3
        assert all(re.fullmatch(r"[\w-]{43}", value) for value in values), "256 random bits each"


async def test_the_database_knows_neither_the_session_nor_the_token(tmp_path: Path) -> None:
    import hashlib
    import sqlite3

    async with running(tmp_path) as app:
        browser = Browser(app)
        await browser.log_in()
        (value,) = browser.cookies.values()
        connection = sqlite3.connect(tmp_path / "viewer.db")
        ((key, proof, _),) = connection.execute("SELECT * FROM romancy_sessions").fetchall()
        connection.close()
    assert value.encode() not in key + proof
    assert hashlib.sha256(TOKEN.encode()).digest() not in (key, proof)


async def test_logging_out_ends_it_everywhere(tmp_path: Path) -> None:
    async with running(tmp_path) as app, running(tmp_path) as other:
        browser = Browser(app)
        await browser.log_in()
        stolen = {"cookie": "; ".join(f"{name}={value}" for name, value in browser.cookies.items())}
        thieves = [Browser(app), Browser(other)]
        assert [(await thief.client.get("/api/instances", headers=stolen)).status_code for thief in thieves] == [
            200
        ] * 2
        answer = await browser.client.post("/viewer/logout")
        assert (answer.status_code, answer.headers["location"]) == (303, "/viewer/login")
        assert "Max-Age=0" in answer.headers["set-cookie"]
        assert [(await thief.client.get("/api/instances", headers=stolen)).status_code for thief in thieves] == [
            401
        ] * 2


async def test_logging_in_again_ends_the_session_before(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        browser = Browser(app)
        await browser.log_in()
        before = {"cookie": "; ".join(f"{name}={value}" for name, value in browser.cookies.items())}
        await browser.log_in("looks")
        assert (await Browser(app).client.get("/viewer/", headers=before)).status_code == 401
        assert await browser.sees() == 200


async def test_several_processes_and_restarts(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        browser = Browser(app)
        await browser.log_in()
        async with running(tmp_path) as other:
            again = Browser(other)
            again.client.cookies = browser.client.cookies
            assert await again.sees() == 200
    async with running(tmp_path) as restarted:
        again = Browser(restarted)
        again.client.cookies = browser.client.cookies
        assert await again.sees() == 200


async def test_it_ends_by_itself(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(tmp_path, clock) as app:
        browser = Browser(app)
        await browser.log_in()
        clock.turn_to(clock.now() + (12 * 3600 - 1) * SECOND)
        assert await browser.sees() == 200
        clock.turn_to(clock.now() + SECOND)
        answer = await browser.client.get("/viewer/")
        assert answer.status_code == 401
        assert "Your session has ended" in answer.text
        assert "Your session has ended" not in (await Browser(app).client.get("/viewer/")).text
        refused = (await browser.client.get("/api/instances")).json()
        assert "log in again" in refused["error"]


async def test_a_token_that_is_removed_takes_its_sessions_along(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        browser, looker = Browser(app), Browser(app)
        await browser.log_in()
        await looker.log_in("looks")
    async with running(tmp_path, tokens=["a-new-token", "read:looks"]) as app:
        for known, status in ((browser, 401), (looker, 200)):
            again = Browser(app)
            again.client.cookies = known.client.cookies
            assert await again.sees() == status


async def test_a_session_may_what_its_token_may(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        looker = Browser(app)
        await looker.log_in("looks")
        assert await looker.sees() == 200
        assert (await looker.client.post("/cancel/x")).status_code == 403
        bearer = {"authorization": "Bearer wrong"}
        assert (await looker.client.get("/viewer/", headers=bearer)).status_code == 401, "a token that is shown counts"


@pytest.mark.parametrize("value", ["", "x" * 43, "x" * 44, '"; DROP TABLE sessions', TOKEN])
async def test_what_is_no_session(tmp_path: Path, value: str) -> None:
    async with running(tmp_path) as app:
        browser = Browser(app)
        assert (await browser.client.get("/viewer/", headers={"cookie": f"romancy={value}"})).status_code == 401


async def test_a_stream_ends_with_its_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romancy.http.stream._BEAT", 0.01)
    async with running(tmp_path) as app:
        browser = Browser(app)
        await browser.log_in()
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items()).encode()
        scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/api/stream", "query_string": b""}
        scope["headers"] = [(b"host", b"shop.example"), (b"cookie", cookie)]
        beats = 0
        enough, never = asyncio.Event(), asyncio.Event()

        async def send(message: Any) -> None:
            nonlocal beats
            beats += message.get("body", b"").startswith(b"event: beat")
            if beats >= 5:
                enough.set()

        async def receive() -> Any:
            await never.wait()

        stream = asyncio.create_task(http_app(app)(scope, receive, send))
        await asyncio.wait_for(enough.wait(), 20)
        assert not stream.done(), "it goes on while the session lasts"
        await browser.client.post("/viewer/logout")
        await asyncio.wait_for(stream, 20)


# --- TLS ------------------------------------------------------------------------------------------------------------
def flags(answer: httpx2.Response) -> tuple[str, set[str]]:
    name, *rest = answer.headers["set-cookie"].split("; ")
    return name.partition("=")[0], set(rest)


@pytest.mark.parametrize("mounted", ["", "/romancy"])
async def test_behind_tls_the_cookie_is_the_hosts_own(tmp_path: Path, mounted: str) -> None:
    """The public URL says it where the proxy speaks plain HTTP to us; else the server does."""
    async with running(tmp_path, public_url=f"{HTTPS}{mounted}/") as public, running(tmp_path) as plain:
        for app, url in ((public, HTTP), (public, HTTPS), (plain, HTTPS)):
            browser = Browser(app, url, HTTPS, root_path=mounted)
            name, found = flags(await browser.log_in(root=mounted))
            assert name.startswith("__Host-romancy")
            assert found == {"Path=/", "HttpOnly", "SameSite=Strict", "Secure"}
            cookie = {"cookie": "; ".join(f"{name}={value}" for name, value in browser.cookies.items())}
            assert (await browser.client.get(f"{mounted}/viewer/", headers=cookie)).status_code == 200
            planted = {"cookie": cookie["cookie"].replace("__Host-", "")}
            browser.client.cookies.clear()
            assert (await browser.client.get(f"{mounted}/viewer/", headers=planted)).status_code == 401


async def test_without_tls(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        name, found = flags(await Browser(app).log_in())
        assert (name, found) == ("romancy", {"Path=/", "HttpOnly", "SameSite=Strict"})
        name, found = flags(await Browser(app, root_path="/shop").log_in(root="/shop"))
        assert "Path=/shop" in found


async def test_servers_on_one_host_do_not_end_each_others_sessions(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        names = {flags(await Browser(app, f"http://localhost:{port}").log_in())[0] for port in (8001, 8002)}
        names |= {flags(await Browser(app, root_path=root).log_in(root=root))[0] for root in ("/a", "/b")}
        assert len(names) == 4


@pytest.mark.parametrize(
    "wrong", ["shop.example", "ftp://shop.example", "https://", "https://a@b", "https://a?b", 7, ""]
)
def test_public_urls_that_are_none(wrong: Any) -> None:
    with pytest.raises(ValueError, match="public_url must be"):
        App(":memory:", public_url=wrong)


# --- proxies that change the Host -----------------------------------------------------------------------------------
async def test_a_proxy_that_changes_the_host_is_explained(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        browser = Browser(app, "http://127.0.0.1:8001", HTTPS)
        for path, body in (("/viewer/login", {"token": TOKEN}), ("/viewer/logout", {})):
            answer = await browser.client.post(path, data=body)
            assert answer.status_code == 403
            for words in ("https://shop.example", "127.0.0.1:8001", "proxy_set_header Host", "public_url"):
                assert words in answer.text
            assert "set-cookie" not in answer.headers
        evil = await browser.client.post(
            "/viewer/login", data={"token": TOKEN}, headers={"sec-fetch-site": "cross-site"}
        )
        assert evil.status_code == 403
        assert "public_url" not in evil.text, "no advice to let another site in"


async def test_with_the_public_url_such_a_proxy_is_fine(tmp_path: Path) -> None:
    async with running(tmp_path, public_url=f"{HTTPS}:443/x") as app:
        browser = Browser(app, "http://127.0.0.1:8001", HTTPS)
        assert (await browser.log_in()).status_code == 303
        cookie = {"cookie": "; ".join(f"{name}={value}" for name, value in browser.cookies.items())}
        assert (await browser.client.post("/cancel/x", headers=cookie)).status_code == 404, (
            "no such instance, but let in"
        )
        for other in ("https://evil.example", "http://shop.example", "https://shop.example:8443", "null"):
            answer = await browser.client.post("/cancel/x", headers={**cookie, "origin": other})
            assert answer.status_code == 403, other


async def test_an_address_at_which_no_session_would_be_kept_says_so(tmp_path: Path) -> None:
    async with running(tmp_path, public_url=HTTPS) as app:
        there = "Use this app at"
        assert there in (await Browser(app, "http://10.0.0.5:8001").client.get("/viewer/login")).text
        assert there not in (await Browser(app, HTTPS).client.get("/viewer/login")).text
        assert there not in (await Browser(app, HTTP).client.get("/viewer/login")).text, "the proxy passes the Host on"


# --- where to go afterwards -----------------------------------------------------------------------------------------
LEAVING = [
    "/viewer/../../x",
    "/viewer/..",
    "/viewer/.",
    "/viewer/./x",
    "/viewer/a/../../../x",
    "/viewer/%2e%2e/x",
    "/viewer/%2E%2E%2fx",
    "/viewer/.%2e/x",
    "/viewer/%252e%252e/x",
    "/viewer/%25252e%25252e/x",
    "/viewer/..%5c..%5cx",
    "/viewer/..\\x",
    "/viewer/..;/x",
    "/viewer//evil.example",
    "/viewer/%2f%2fevil.example",
    "/viewer/a//b",
    "//evil.example/viewer/",
    "/\\evil.example",
    "\\\\evil.example",
    "/viewer/\t/x",
    "/viewer/%0d%0aset-cookie:a=b",
    "/viewer/é",
    "/viewer",
    "/viewers/",
    "https://evil.example/viewer/",
    "javascript:alert(1)",
    "",
]
STAYING = [
    "/viewer/",
    "/viewer/waiting",
    "/viewer/instances/nap",
    "/viewer/instances/a%2Fb",
    "/viewer/instances/a/b",
    "/viewer/instances/100%25",
    "/viewer/instances/..a",
    "/viewer/events?type=x",
    "/viewer/instances?text=../..&status=running",
    "/viewer/instances?text=a//b",
]


@pytest.mark.parametrize("path", LEAVING)
def test_nothing_leads_out_of_the_viewer(path: str) -> None:
    assert own_path(path) == "/viewer/"


@pytest.mark.parametrize("path", STAYING)
def test_pages_of_the_viewer_are_kept(path: str) -> None:
    assert own_path(path) == path


async def test_the_form_and_the_redirect_keep_to_it(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        for path in ("/viewer/../../x", "/viewer/%2e%2e/x", "//evil.example"):
            browser = Browser(http_app(app))
            form = await browser.client.get("/viewer/login", params={"next": path})
            assert 'name="next" value="/viewer/"' in form.text
            assert (await browser.log_in(next=path)).headers["location"] == "/viewer/"
        assert (await browser.log_in(next="/viewer/waiting")).headers["location"] == "/viewer/waiting"
