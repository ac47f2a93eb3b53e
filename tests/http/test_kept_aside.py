"""The inbox, and old events that are kept for open instances, over HTTP and with the clients."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from romancy import App, Client, HeldEvents, InboxRecord, WorkerOptions, WorkflowContext, wait_event, workflow
from romancy.cli.group import main
from romancy.service import runtime_of
from romancy.sync import Client as SyncClient
from tests.http.conftest import Live, assert_error
from tests.http.flaky import LOST, proxy


@workflow(expects="go")
async def patient(ctx: WorkflowContext, n: int = 0) -> int:
    return (await wait_event(ctx, "go", where={"n": n})).data["n"]


def leave(live: Live, *starts: tuple[str, int]) -> None:
    """Leave starts, in a transaction of the caller's own."""

    async def leave() -> None:
        with closing(sqlite3.connect(live.app.database)) as connection, connection:
            for id, n in starts:
                await live.app.within(connection).start_workflow("patient", n, instance_id=id)
            await live.app.within(connection).send_event("went", "here", id=f"e-{starts[0][0]}")

    live.on_loop(leave)


def engine_of(live: Live) -> Any:
    return runtime_of(live.app)._engine


def take_in(live: Live) -> None:
    live.on_loop(lambda: engine_of(live).take_in())


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[Live]:
    """A server that takes nothing in by itself."""
    live = Live(App(tmp_path / "aside.db", workflows=[patient], worker=WorkerOptions(grace=0.5)))
    live.on_loop(lambda: engine_of(live)._moving.stop())
    yield live
    live.stop()


def metric(live: Live, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", live.client.get("/metrics").text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def test_the_inbox(idle: Live) -> None:
    leave(idle, ("a", 1), ("b", 1))
    assert (metric(idle, "romancy_inbox_waiting"), metric(idle, "romancy_inbox_refused")) == (3, 0)
    with SyncClient(idle.url) as client:
        page = client.list_inbox(limit=2)
        assert [record.instance_id for record in page.items] == ["a", "b"]
        [event] = client.list_inbox(cursor=page.cursor).items
        assert isinstance(event, InboxRecord)
        assert (event.kind, event.type, event.source, event.id, event.refused) == ("event", "went", "here", "e-a", None)
        take_in(idle)
        assert client.list_inbox().items == []
        leave(idle, ("a", 2))
        take_in(idle)
        [refused] = client.list_inbox().items
        assert (refused.workflow, refused.instance_id) == ("patient", "a")
        assert "different input" in (refused.refused or "")
        assert (metric(idle, "romancy_inbox_waiting"), metric(idle, "romancy_inbox_refused")) == (0, 1)
        assert not client.forget_refused(refused.number + 1)
        assert client.forget_refused(refused.number)
        assert not client.forget_refused(refused.number)
    for wrong in ("x", "1" * 40, "-1", "٣"):
        assert_error(idle.client.post(f"/api/inbox/{wrong}/forget"), 404, "NotFound")


async def test_to_forget_is_retried_safely(idle: Live) -> None:
    """The answer is lost: the second attempt finds nothing any more, and that is a success."""
    leave(idle, ("a", 1))
    take_in(idle)
    leave(idle, ("a", 2))
    take_in(idle)
    async with Client(idle.url) as client:
        [refused] = (await client.list_inbox()).items
    with proxy(idle.url, LOST) as between:
        async with Client(between.url) as client:
            assert await client.forget_refused(refused.number)


async def test_held_events(idle: Live) -> None:
    idle.client.post("/api/workflows/patient/start", json={"instance_id": "old"})
    idle.send("e1", "go", data={"n": 5})
    async with Client(idle.url) as client:
        assert await client.list_held_events() == []
        [held] = await client.list_held_events(older_than=0)
        assert isinstance(held, HeldEvents)
        assert (held.type, held.count, held.workflow, held.instance_id) == ("go", 1, "patient", "old")
        assert not held.is_addressed
        await client.send_event("note", "test", to="old")
        addressed = [held for held in await client.list_held_events(older_than=0) if held.is_addressed]
        assert [(held.type, held.count, held.workflow, held.instance_id) for held in addressed] == [
            ("note", 1, "patient", "old")
        ]
    done = await asyncio.to_thread(CliRunner().invoke, main, ["events", "--held", "--older", "0", "--url", idle.url])
    assert "old (sent to it)" in done.output
    assert_error(idle.client.get("/api/held-events?older_than=-1"), 400, "InvalidInput")


def test_metrics_without_the_database(idle: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(cap: int) -> tuple[int, int]:
        raise TimeoutError

    monkeypatch.setattr(engine_of(idle).storage.catalog, "inbox_counts", never)
    text = idle.client.get("/metrics").text
    assert "romancy_inbox_waiting" not in text
    assert "romancy_commit_queue" in text
