"""The viewer as others serve it: alone, below a path, to many at a time; and the stream that keeps it live."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from romancy import App
from romancy.app import http_app
from romancy.errors import StorageError
from romancy.http import stream
from tests.helpers import eventually
from tests.http.conftest import Live
from tests.viewer.conftest import WORKFLOWS


async def test_a_face_that_only_shows_refuses_to_act(tmp_path: Any) -> None:
    async with App(tmp_path / "x.db") as app:
        transport = httpx2.ASGITransport(http_app(app, ("read",)))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/viewer/")).status_code == 200
            for path in ("/cancel/x", "/", "/api/workflows/x/start", "/api/instances/x/resume"):
                answer = await client.post(path, json={})
                assert answer.status_code == 403
                assert "--allow-actions" in answer.json()["error"]


async def test_below_a_path_every_link_keeps_it(tmp_path: Path) -> None:
    async with App(tmp_path / "x.db", workflows=WORKFLOWS) as app:
        await app.start_workflow("approval", "ada", instance_id="a/b c")
        transport = httpx2.ASGITransport(app, root_path="/shop")
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for path in ("/shop/viewer/", "/shop/viewer/waiting", "/shop/viewer/instances/a%2Fb%20c"):
                answer = await client.get(path)
                assert answer.status_code == 200
                links = re.findall(r'(?:href|src|action)="([^"]*)"', answer.text)
                assert [link for link in links if not link.startswith(("/shop/viewer", "#", "?"))] == []
                assert 'data-root="/shop"' in answer.text
            assert (await client.get("/shop/viewer")).headers["location"] == "/shop/viewer/"


# --- the stream -----------------------------------------------------------------------------------------------------
class Listening:
    """A stream that is read in the background."""

    def __init__(self, live: Live) -> None:
        self.messages: list[dict[str, Any]] = []
        self.beats: list[bool] = []
        self.ended = False
        self._live = live

    async def run(self) -> None:
        async with httpx2.AsyncClient(base_url=self._live.url, timeout=30) as client:
            async with client.stream("GET", "/api/stream") as answer:
                assert answer.headers["content-type"] == "text/event-stream"
                kind = ""
                async for line in answer.aiter_lines():
                    kind = line[7:] if line.startswith("event: ") else kind if line else ""
                    if line.startswith("data: ") and kind == "beat":
                        self.beats.append(json.loads(line[6:])["database"])
                    elif line.startswith("data: "):
                        self.messages.append(json.loads(line[6:]))
        self.ended = True


@pytest.fixture
async def listening(live: Live) -> AsyncIterator[Listening]:
    made = Listening(live)
    task = asyncio.create_task(made.run())
    await _until(lambda: bool(live.app._runtime._engine.changes.watchers))
    yield made
    task.cancel()


async def _until(condition: Callable[[], Any]) -> None:
    await asyncio.to_thread(eventually, condition, 10)


async def test_changes_are_told_by_name_with_counts(live: Live, listening: Listening) -> None:
    await asyncio.to_thread(live.start, "approval", "ada", id="a")
    await _until(lambda: any("a" in (m["changed"] or ()) for m in listening.messages))
    await _until(lambda: listening.messages[-1]["counts"]["waiting_for_event"] == 1)
    await asyncio.to_thread(live.send, "e", "approved", subject="ada", data=1)
    await _until(lambda: listening.messages[-1]["counts"]["completed"] == 1)
    assert sum(message["events"] for message in listening.messages) == 1
    assert sum(message["started"] for message in listening.messages) == 1


async def test_however_much_happens_messages_are_few(live: Live, listening: Listening) -> None:
    async def many() -> None:
        for n in range(1500):
            await live.app.start_workflow("echo", n)

    begun = asyncio.get_running_loop().time()
    await asyncio.to_thread(live.on_loop, many)
    took = asyncio.get_running_loop().time() - begun
    await _until(lambda: listening.messages and listening.messages[-1]["counts"]["completed"] == 1500)
    assert len(listening.messages) <= 3 * (took + 1.5)
    assert all(m["changed"] is None or len(m["changed"]) < 3000 for m in listening.messages)


async def test_a_quiet_stream_tells_that_it_lives_and_whether_the_database_can_be_read(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_BEAT", 0.1)
    monkeypatch.setattr(stream, "_POLL", 0.1)
    made = Listening(live)
    task = asyncio.create_task(made.run())
    await _until(lambda: made.beats[-2:] == [True, True])
    count = type(live.app._runtime._engine.storage.catalog).counts

    async def away(*_: Any) -> Any:
        raise StorageError("the database is away")

    monkeypatch.setattr(type(live.app._runtime._engine.storage.catalog), "counts", away)
    await _until(lambda: made.beats[-1] is False)
    monkeypatch.setattr(type(live.app._runtime._engine.storage.catalog), "counts", count)
    await _until(lambda: made.beats[-1] is True)
    hangs = asyncio.Event()

    async def hanging(*_: Any) -> Any:
        await hangs.wait()

    monkeypatch.setattr(stream, "_PATIENCE", 0.2)
    monkeypatch.setattr(type(live.app._runtime._engine.storage.catalog), "counts", hanging)
    await _until(lambda: made.beats[-1] is False)
    task.cancel()


async def test_many_messages_leave_no_room_for_silence_about_the_database(
    live: Live, listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is told of changes is no sign that the database can be read."""

    async def away(*_: Any) -> Any:
        raise StorageError("the database is away")

    monkeypatch.setattr(type(live.app._runtime._engine.storage.catalog), "counts", away)
    await asyncio.to_thread(live.start, "approval", "ada", id="a")
    await _until(lambda: listening.messages and listening.messages[-1]["database"] is False)


async def test_nobody_listening_costs_nothing(live: Live) -> None:
    made = Listening(live)
    task = asyncio.create_task(made.run())
    feed = live.app._runtime._engine.changes
    await _until(lambda: bool(feed.watchers))
    task.cancel()
    await _until(lambda: not feed.watchers)


async def test_streams_end_when_the_server_stops(live: Live, listening: Listening) -> None:
    await asyncio.to_thread(live.drain)
    await _until(lambda: listening.ended)


async def test_another_process_is_noticed(live: Live, listening: Listening) -> None:
    async with App(live.app.database, worker=False) as other:
        await other.start_workflow("approval", "bob", instance_id="elsewhere")
        await _until(lambda: listening.messages and listening.messages[-1]["counts"]["waiting_for_event"] == 1)


def test_there_is_room_for_so_many_streams(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MOST", 1)
    with live.client.stream("GET", "/api/stream") as first:
        assert first.status_code == 200
        parts = first.iter_raw()  # to be kept: when it goes, the stream is closed
        assert next(parts) == b"retry: 2000\n\n"
        assert live.client.get("/api/stream").status_code == 503
