"""The app as an ASGI application: its life, mounted in another one, and what importing it costs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from romancy import App
from romancy.app import http_app
from romancy.options import HTTPOptions
from tests.http.conftest import CE, WORKFLOWS, assert_error, event, pay


async def exchange(app: Any, messages: list[str]) -> list[dict[str, Any]]:
    """Speak the lifespan protocol."""
    sent: list[dict[str, Any]] = []
    waiting = iter(messages)

    async def receive() -> dict[str, Any]:
        return {"type": f"lifespan.{next(waiting)}"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "lifespan"}, receive, send)
    return sent


async def test_the_server_starts_and_stops_the_app(tmp_path: Path) -> None:
    app = App(tmp_path / "a.db")
    for _ in range(2):
        sent = await exchange(app, ["startup", "shutdown"])
        assert [message["type"] for message in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        assert not app.is_running


async def test_an_app_that_can_not_start_says_why(tmp_path: Path) -> None:
    (sent,) = await exchange(App(tmp_path / "missing" / "a.db"), ["startup"])
    assert sent["type"] == "lifespan.startup.failed"
    assert "missing" in sent["message"]


async def test_an_app_that_runs_already_is_left_running(tmp_path: Path) -> None:
    async with App(tmp_path / "a.db") as app:
        await exchange(app, ["startup", "shutdown"])
        assert app.is_running


async def test_a_web_process_starts_what_it_has_not_registered(tmp_path: Path) -> None:
    app = App(tmp_path / "a.db", worker=False)
    api = FastAPI(lifespan=app.lifespan)

    @api.post("/orders/{id}")
    async def place(id: str) -> bool:
        return (await app.start_workflow(pay.options(instance_id=id))).created

    async with (
        api.router.lifespan_context(api),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(api), base_url="http://test") as client,
        App(tmp_path / "a.db", workflows=[pay]) as worker,
    ):
        assert (await client.post("/orders/o1")).json() is True
        await worker.send_event("paid", "bank", {"amount": 9.5})
        assert await app.handle("o1", pay).result(timeout=5) == 9.5


async def test_mounted_in_fastapi(tmp_path: Path) -> None:
    app = App(tmp_path / "a.db", workflows=WORKFLOWS)
    api = FastAPI(lifespan=app.lifespan)
    api.mount("/romancy", app)

    @api.get("/own")
    def own() -> str:
        return "mine"

    transport = httpx2.ASGITransport(api)
    async with (
        api.router.lifespan_context(api),
        httpx2.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        assert app.is_running
        assert (await client.get("/own")).json() == "mine"
        assert (await client.post("/romancy/", content=json.dumps(event()), headers=CE)).status_code == 202
        body = {"instance_id": "a/b"}
        assert (await client.post("/romancy/api/workflows/nap/start", json=body)).status_code == 201
        for id in ("a/b", "a%2Fb"):
            assert (await client.get(f"/romancy/api/instances/{id}/history")).json()["instance_id"] == "a/b"
        assert (await client.get("/romancy/health/ready")).status_code == 200
        assert_error(await client.get("/romancy/own"), 404)
    assert not app.is_running


@pytest.mark.parametrize(
    ("scope", "found"),
    [
        ({"path": "/", "raw_path": b"/"}, "/"),
        ({"path": "/x/a/b", "raw_path": b"/x/a%2Fb", "root_path": "/x"}, "/a%2Fb"),
        ({"path": "/x", "raw_path": b"/x", "root_path": "/x"}, "/"),
        ({"path": "/x", "root_path": "/x/"}, "/"),
        ({"path": "/xy", "raw_path": b"/xy", "root_path": "/x"}, "/xy"),
        ({"path": "/ü/a", "raw_path": b"/%C3%BC/a", "root_path": "/ü"}, "/a"),
        ({"path": "/a", "raw_path": None, "root_path": "/x"}, "/a"),
    ],
)
def test_the_path_below_the_mount(scope: dict[str, Any], found: str) -> None:
    from romancy.http.routes import path_of

    assert path_of(scope) == found


async def test_websockets_are_turned_away() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await http_app(App(":memory:"))({"type": "websocket"}, asyncio.Event().wait, send)  # pyright: ignore
    assert sent == [{"type": "websocket.close"}]


async def test_without_raw_path_it_still_works(tmp_path: Path) -> None:
    """Some servers do not say how a path was sent."""
    async with App(tmp_path / "a.db", workflows=WORKFLOWS) as app:

        async def bare(scope: Any, receive: Any, send: Any) -> None:
            scope.pop("raw_path")
            await app(scope, receive, send)

        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(bare), base_url="http://test") as client:
            await client.post("/api/workflows/nap/start", json={"instance_id": "a/b"})
            assert (await client.get("/api/instances/a%2Fb")).json()["instance_id"] == "a/b"


def test_importing_romancy_does_not_import_the_web() -> None:
    program = (
        "import sys, romancy\n"
        "romancy.App(':memory:')\n"
        "print([m for m in sys.modules if m.startswith(('starlette', 'uvicorn', 'httpx2', 'httpx', 'romancy.http'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_face_itself_needs_no_framework() -> None:
    program = (
        "import sys, romancy.http.asgi\n"
        "print([m for m in sys.modules if m.partition('.')[0] in ('starlette', 'uvicorn', 'httpx2', 'httpx')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: HTTPOptions(accepted_status=404), "accepted_status"),
    (lambda: HTTPOptions(max_body=0), "max_body"),
    (lambda: HTTPOptions(max_batch=True), "max_batch"),
    (lambda: HTTPOptions(max_requests=1.5), "max_requests"),  # type: ignore[arg-type]
    (lambda: HTTPOptions(allowed_rate=0), "allowed_rate"),
    (lambda: HTTPOptions(body_timeout=0), "body_timeout"),
    (lambda: HTTPOptions(header_timeout=-1), "header_timeout"),
    (lambda: HTTPOptions(allowed_origins="x"), "allowed_origins"),
    (lambda: HTTPOptions(allowed_hosts="x"), "allowed_hosts"),
]


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_options_that_make_no_sense(case: int) -> None:
    make, says = WRONG[case]
    with pytest.raises(ValueError, match=says):
        make()
