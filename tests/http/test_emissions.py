"""What instances emit, over a real socket: streams that can be resumed, pages, and the client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from romancy import ActivityContext, Client, RetryPolicy, WorkflowContext, activity, emit, wait_event, workflow
from romancy.http import emissions
from romancy.service import runtime_of
from romancy.sync import App as SyncApp
from romancy.sync import Client as SyncClient
from tests.http.conftest import Live, assert_error, nap


@activity
async def count(ctx: ActivityContext, upto: int, fails: int) -> int:
    for n in range(upto):
        await emit(ctx, n, topic="numbers/a b")
        if n % 10 == 0:
            await asyncio.sleep(0.01)
    if ctx.attempt <= fails:
        raise ValueError("once more")
    return upto


@workflow
async def counting(ctx: WorkflowContext, upto: int = 30, fails: int = 0, waits: bool = False) -> int:
    await emit(ctx, {"upto": upto}, topic="plan")
    if waits:
        await wait_event(ctx, "go")
    return await count(ctx, upto, fails)


@pytest.fixture
def live(serve: Callable[..., Live]) -> Live:
    soon = RetryPolicy(max_attempts=3, initial=timedelta(milliseconds=10))
    return serve(workflows=[counting, nap], retry=soon)


TOPIC = "numbers%2Fa%20b"


def events(answer: httpx2.Response, most: int | None = None) -> list[dict[str, Any]]:
    """The events of a stream, each with its fields."""
    found: list[dict[str, Any]] = []
    fields: dict[str, Any] = {}
    for line in answer.iter_lines():
        name, _, text = line.partition(": ")
        if line and name:
            fields[name] = json.loads(text) if name == "data" else text
        elif not line and "data" in fields:
            found.append(fields)
            if len(found) == most:
                break
        if not line:
            fields = {}
    return found


def stream(live: Live, path: str, most: int | None = None, **options: Any) -> list[dict[str, Any]]:
    with live.client.stream("GET", f"/api/instances/{path}", **options) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        return events(answer, most)


def test_a_stream_can_be_resumed_and_ends_with_the_instance(live: Live) -> None:
    live.start("counting", id="c/1", fails=1)
    path = f"c%2F1/emitted/{TOPIC}"
    first = stream(live, path, 7)
    rest = stream(live, f"{path}?after=3", headers={"last-event-id": first[-1]["id"]})
    *values, end = first + rest
    assert [int(event["id"]) for event in values] == list(range(1, 62))
    assert [event.get("event") for event in values].index("restart") == 30
    restart = values[30]["data"]
    assert (restart["kind"], restart["activity_id"], restart["attempt"], restart["value"]) == (
        "restart", "count:1", 2, None,
    )  # fmt: skip
    assert [event["data"]["value"] for event in values[31:]] == list(range(30))
    assert (end["event"], end["data"]) == ("end", {"status": "completed"})
    assert [event["data"]["topic"] for event in stream(live, "c%2F1/emitted", 2)] == ["plan", "numbers/a b"]
    assert [event["data"] for event in stream(live, f"{path}?after=61")] == [{"status": "completed"}]


def test_a_page_of_json(live: Live) -> None:
    live.start("counting", id="c")
    live.result("c")
    page = live.client.get(f"/api/instances/c/emitted/{TOPIC}?limit=20", headers={"accept": "application/json"}).json()
    assert ([item["n"] for item in page["items"]], page["next"], page["status"]) == (
        list(range(1, 21)), 20, "completed",
    )  # fmt: skip
    more = {"after": page["next"], "limit": 1000}
    rest = live.client.get("/api/instances/c/emitted", params=more, headers={"accept": "application/json"}).json()
    assert ([item["n"] for item in rest["items"]], rest["next"]) == (list(range(21, 32)), 31)


def test_what_is_refused(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    live.start("nap", id="n")
    assert_error(live.client.get("/api/instances/unknown/emitted"), 404, "InstanceNotFound")
    assert_error(live.client.get("/api/instances/n/emitted?after=-1"), 400)
    for garbage in ("x", "-1", "9" * 19):
        assert_error(live.client.get("/api/instances/n/emitted", headers={"last-event-id": garbage}), 400)
    assert_error(live.client.get(f"/api/instances/n/emitted/{'t' * 101}"), 400, "InvalidInput")
    assert_error(live.client.get("/api/instances/n/emitted/a%0Ab"), 400, "InvalidInput")
    monkeypatch.setattr(emissions, "MOST", 0)
    assert_error(live.client.get("/api/instances/n/emitted"), 503, "Overloaded")


def test_a_reader_is_told_of_a_blocked_instance(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emissions, "BLOCKED", 0.01)
    live.start("counting", waits=True, id="b")
    live.until("b", "waiting_for_event")
    runtime = runtime_of(live.app)

    async def block() -> None:
        runtime.engine.exits.block(runtime.engine.residents.get("b"), ValueError("broken"))

    with live.client.stream("GET", "/api/instances/b/emitted") as answer:
        lines = answer.iter_lines()
        live.on_loop(block)
        while next(lines) != "event: status":
            pass
        assert next(lines) == 'data: {"status":"blocked"}'
        live.client.post("/api/instances/b/resume")
        while next(lines) != "event: status":
            pass
        assert next(lines) != 'data: {"status":"blocked"}'


def test_a_quiet_stream_has_a_beat(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emissions, "_BEAT", 0.01)
    live.start("nap", id="n")
    with live.client.stream("GET", "/api/instances/n/emitted") as answer:
        lines = answer.iter_lines()
        assert [next(lines) for _ in range(5)] == ["retry: 2000", "", ": beat", "", ": beat"]


async def test_the_client_follows_and_reconnects(live: Live) -> None:
    async with Client(live.url) as client:
        handle = await client.start_workflow("counting", 200, 1, True, instance_id="c")
        cut = 0

        async def cut_off() -> None:
            """Cut connections while it reads."""
            nonlocal cut
            assert live.server is not None
            for _ in range(8):
                await asyncio.sleep(0.02)
                for connection in list(live.server.server_state.connections):
                    transport = getattr(connection, "transport", None)
                    if transport is not None:
                        live.loop.call_soon_threadsafe(transport.abort)
                        cut += 1

        task = asyncio.create_task(cut_off())
        await client.send_event("go", "test")
        found = [one async for one in handle.emitted("numbers/a b", model=int)]
        await task
        assert cut
        assert [one.n for one in found] == list(range(1, 402))
        assert [one.value for one in found if one.attempt == 2] == [None, *range(200)]
        assert [one.value async for one in handle.emitted("plan")] == [{"upto": 200}]
        assert [one.n async for one in handle.emitted(after=400)] == [401, 402]
        with pytest.raises(LookupError):
            [one async for one in client.handle("nobody").emitted()]


def test_blocking_code_follows_too(live: Live, tmp_path: Any) -> None:
    with SyncClient(live.url) as client:
        handle = client.start_workflow("counting", 5)
        assert [one.value for one in handle.emitted("numbers/a b", model=int)] == [0, 1, 2, 3, 4]
    with SyncApp(str(tmp_path / "sync.db"), workflows=[counting]) as app:
        emitted = app.start_workflow(counting, 5).emitted()
        assert next(emitted).value == {"upto": 5}
        assert [one.n for one in emitted] == [2, 3, 4, 5, 6]
