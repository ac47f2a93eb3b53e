"""What people look at, the same from every backend; and no more is read than is shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from romancy import App, WorkerOptions
from romancy.storage.catalog import WHOLE, EventSearch, Search
from romancy.storage.postgres import PostgresStorage
from romancy.storage.sqlite import SQLiteStorage
from romancy.viewer.catalog import Catalog
from tests import pg_server
from tests.viewer.conftest import WORKFLOWS


@pytest.fixture(params=["file", "memory", "postgres"])
async def app(request: Any, tmp_path: Path) -> AsyncIterator[App]:
    async with AsyncExitStack() as stack:
        if request.param == "postgres":
            schema = await stack.enter_async_context(pg_server.schema())
            storage: Any = PostgresStorage(pg_server.url(), schema=schema, durability="normal")
        else:
            storage = SQLiteStorage(":memory:" if request.param == "memory" else str(tmp_path / "x.db"))
        made = App("unused", workflows=WORKFLOWS, worker=WorkerOptions(grace=1))
        await storage.open()
        stack.push_async_callback(storage.close)
        made._runtime.storage = storage
        yield await stack.enter_async_context(made)


async def until(app: App, id: str, status: str) -> None:
    """The feed says when to look again."""
    watcher = app._runtime.engine.changes.watch()
    try:
        async with asyncio.timeout(10):
            while (await app.get_instance(id)).status != status:
                await watcher.changed.wait()
                watcher.take()
    finally:
        app._runtime.engine.changes.leave(watcher)


async def ids(app: App, search: Search, **more: Any) -> list[str]:
    given = {"limit": 10, "cursor": None, "scan": 1000, **more}
    found = await app._runtime.engine.storage.catalog.search(search, **given)
    return [row.id for row in found.rows]


async def some(app: App) -> None:
    for n in range(6):
        await app.start_workflow("echo", {"n": n, "word": f"w{n}"}, instance_id=f"echo-{n}")
        await until(app, f"echo-{n}", "completed")
    await app.start_workflow("approval", "ada", instance_id="wait")
    await app.start_workflow("reminder", instance_id="nap")
    await app.start_workflow("fails", "it broke", instance_id="bad")
    await until(app, "wait", "waiting_for_event")
    await until(app, "nap", "waiting_for_timer")
    await until(app, "bad", "failed")


async def test_counts_stop_at_the_cap(app: App) -> None:
    await some(app)
    counts = await app._runtime.engine.storage.catalog.counts(4)
    assert counts == {
        "running": 0,
        "waiting_for_event": 1,
        "waiting_for_timer": 1,
        "waiting_for_child": 0,
        "compensating": 0,
        "queued": 0,
        "blocked": 0,
        "completed": 4,
        "failed": 1,
        "cancelled": 0,
    }


async def test_search_by_status_workflow_text_and_time(app: App) -> None:
    await some(app)
    newest = ["bad", "nap", "wait", "echo-5", "echo-4", "echo-3", "echo-2", "echo-1", "echo-0"]
    assert await ids(app, Search()) == newest
    assert await ids(app, Search(status=("failed",))) == ["bad"]
    assert await ids(app, Search(status=("waiting_for_event", "waiting_for_timer", "failed"))) == newest[:3]
    assert await ids(app, Search(status=("completed", "failed"))) == ["bad", *newest[3:]]
    assert await ids(app, Search(workflow="echo")) == newest[3:]
    assert await ids(app, Search(text='"w3"')) == ["echo-3"]
    assert await ids(app, Search(text="it broke")) == ["bad"]
    assert await ids(app, Search(text="echo-2")) == ["echo-2"]
    assert await ids(app, Search(error_type="RuntimeError")) == ["bad"]
    assert await ids(app, Search(error_type="RuntimeError", status=("completed",))) == []
    [row] = await app._runtime.engine.storage.catalog.summaries(["echo-3"])
    assert await ids(app, Search(started_after=row.created_at)) == newest[:5]
    assert await ids(app, Search(started_before=row.created_at)) == newest[5:]
    assert await ids(app, Search(above=(row.created_at, row.id))) == newest[:5]
    assert await ids(app, Search(), cursor=(row.created_at, row.id)) == newest[6:]


@pytest.mark.parametrize("status", [(), ("completed",), ("completed", "failed")])
async def test_a_search_stops_and_goes_on_where_it_was(app: App, status: Any) -> None:
    await some(app)
    catalog, cursor, found, rounds = app._runtime.engine.storage.catalog, None, [], 0
    while rounds < 20:
        rounds += 1
        page = await catalog.search(Search(status=status, text='"w0"'), 10, cursor, 2)
        found += [row.id for row in page.rows]
        cursor = page.reached
        if cursor is None:
            break
    assert found == ["echo-0"]
    assert rounds > 2


async def test_pages_of_the_viewer_go_through_all(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    await some(app)
    monkeypatch.setattr("romancy.viewer.catalog.PAGE", 4)
    catalog, cursor, found = Catalog(app), None, []
    while True:
        page = await catalog.instances(Search(), cursor)
        found += [row.id for row in page.items]
        cursor = page.cursor
        if cursor is None:
            break
    assert len(found) == len(set(found)) == 9


async def test_waits_by_type_with_their_rows(app: App) -> None:
    for n in range(3):
        await app.start_workflow("approval", f"p{n}", instance_id=f"a{n}")
        await until(app, f"a{n}", "waiting_for_event")
    await app.start_workflow("payment", "ORD", instance_id="pay")
    await until(app, "pay", "waiting_for_event")
    stored = app._runtime.engine.storage.catalog
    assert await stored.wait_types("", 10, 3) == [("approved", 3), ("payment.completed", 1)]
    assert await stored.wait_types("approved", 10, 3) == [("payment.completed", 1)]
    assert await stored.wait_types("", 1, 2) == [("approved", 2)]
    first = await stored.waits_for("approved", 2, None)
    rest = await stored.waits_for("approved", 2, first[-1][0])
    assert {wait.instance for _, wait in first + rest} == {"a0", "a1", "a2"}
    assert len(first + rest) == 3
    [group, _] = await Catalog(app).groups("", 10, 5)
    assert {wait.subject for wait in group.waits} == {"p0", "p1", "p2"}


async def test_what_falls_due_comes_in_order(app: App) -> None:
    await app.start_workflow("reminder", 900, instance_id="later")
    await app.start_workflow("reminder", 600, instance_id="sooner")
    await app.start_workflow("reminder", 9000, instance_id="much-later")
    for id in ("later", "sooner", "much-later"):
        await until(app, id, "waiting_for_timer")
    assert [wait.instance_id for wait in await Catalog(app).coming(3600, 10)] == ["sooner", "later"]


async def test_events_with_who_took_them_and_whom_they_started(app: App) -> None:
    await app.start_workflow("approval", "ada", instance_id="a")
    await until(app, "a", "waiting_for_event")
    await app.send_event("approved", "boss", "yes", subject="ada", id="e1")
    await until(app, "a", "completed")
    await app.send_event("order.placed", "shop", {"n": 1}, id="e2")
    await app.send_event("nobody", "shop", {"n": 1}, id="e3")
    catalog = Catalog(app)
    lines = {line.shown.event.id: line for line in (await catalog.events(EventSearch(), None, None)).items}
    assert lines["e1"].shown.receivers == [("a", "approved:1")]
    assert len(lines["e2"].started) == 1
    assert [line.shown.event.id for line in (await catalog.events(EventSearch(unmatched=True), None, None)).items] == [
        "e3"
    ]
    assert [line.shown.event.id for line in (await catalog.events(EventSearch(type="nobody"), None, None)).items] == [
        "e3"
    ]
    assert [line.shown.event.id for line in (await catalog.events(EventSearch(), "a", None)).items] == ["e1"]
    assert (await catalog.event("shop", "nope")) is None
    found = await catalog.event("shop", "e2")
    assert found is not None
    assert found.started == lines["e2"].started


async def test_an_event_search_stops_and_goes_on(app: App) -> None:
    await app.send_event("rare", "s", 1, id="first")
    for n in range(6):
        await app.send_event("common", "s", n)
    catalog, before, found, rounds = app._runtime.engine.storage.catalog, None, [], 0
    while rounds < 20:
        rounds += 1
        lines, before = await catalog.shown_events(EventSearch(type="rare"), None, 9, before, 2)
        found += [line.event.id for line in lines]
        if before is None:
            break
    assert found == ["first"]
    assert rounds > 2


async def test_long_values_are_cut_short_in_the_database(app: App) -> None:
    long = "x" * (WHOLE * 2)
    await app.start_workflow("echo", long, instance_id="long")
    await until(app, "long", "completed")
    await app.send_event("long", "s", long, id="e")
    catalog = app._runtime.engine.storage.catalog
    whole = await catalog.whole("long")
    assert whole is not None
    assert len(whole.row.input) == len(whole.row.output or b"") == 4096
    assert whole.input_size > WHOLE * 2
    event = await catalog.event("s", "e")
    assert event is not None
    assert (len(event.event.data or b""), event.size) == (4096, WHOLE * 2 + 2)


async def test_one_instance_with_its_history_and_when_things_began(app: App) -> None:
    await app.start_workflow("branches", instance_id="b")
    await until(app, "b", "completed")
    detail = await Catalog(app).instance("b", None)
    assert [entry.operation for entry, _ in detail.history] == ["slow:3", "slow:1", "slow:2", "slow:4"]
    begins = {bar.label: bar.begin for bar in detail.timeline.bars}
    assert begins["slow:1"] == begins["slow:2"] == begins["slow:3"] < begins["slow:4"]
    assert "guess" not in detail.timeline.looks


async def test_what_the_database_never_holds_is_not_found(app: App) -> None:
    catalog = app._runtime.engine.storage.catalog
    assert await catalog.whole("no\0") is None
    assert await catalog.summaries(["no\0"]) == []
    assert await catalog.waits_for("no\0", 5, None) == []
    assert await catalog.event("no\0", "no") is None
    rates = await catalog.rates(0, 10)
    assert (rates.started, rates.finished, rates.accepted) == (0, 0, 0)
