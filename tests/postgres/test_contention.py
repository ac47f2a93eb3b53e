"""Others are in the way: locks, time limits, another worker that prunes, a migration beside workers at work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from romancy import ActivityContext, App, Database, WorkflowContext, activity, wait_event, workflow
from romancy.core.history import Entry, Kind
from romancy.core.model import SECOND
from romancy.engine import laggards
from romancy.storage.batch import CANCEL, Commit, Request
from romancy.storage.errors import TookTooLong
from romancy.storage.postgres import connection
from romancy.storage.postgres import migrations as schema_migrations
from romancy.storage.sql import migrations
from tests.postgres.conftest import Place

WEEK = 7 * 24 * 3600 * SECOND


# --- batches that take too long --------------------------------------------------------------------------------------
@activity
async def twice(ctx: ActivityContext, n: int) -> int:
    return 2 * n


@workflow
async def doubles(ctx: WorkflowContext, n: int) -> int:
    await wait_event(ctx, "go")
    return await twice(ctx, n)


@asynccontextmanager
async def hurried(place: Place, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[App, None]:
    """An app on a server that gives a statement half a second."""
    monkeypatch.setitem(connection._SETTINGS, "statement_timeout", "500")
    monkeypatch.setattr(laggards, "FIRST_PAUSE", 0.1)
    async with App(Database(place.url, schema=place.schema), workflows=[doubles]) as app:
        yield app


@pytest.mark.play
async def test_a_row_that_somebody_locked_holds_up_nobody_else(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with hurried(place, monkeypatch) as app:
        handles = [await app.start_workflow(doubles, n, instance_id=f"i{n}") for n in range(20)]
        raw = await place.raw()
        transaction = raw.transaction()
        await transaction.start()
        await raw.execute("SELECT * FROM instances WHERE id = 'i7' FOR UPDATE")
        await app.send_event("go", "test")
        others = [handle.result(20) for n, handle in enumerate(handles) if n != 7]
        assert await asyncio.gather(*others) == [2 * n for n in range(20) if n != 7]
        async with asyncio.timeout(20):
            while "a step of instance 'i7' can't be stored, though others can" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await transaction.rollback()
        assert await handles[7].result(20) == 14


async def test_a_batch_that_is_too_much_for_the_time_there_is_goes_through_in_parts(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with hurried(place, monkeypatch) as app:
        handles = [await app.start_workflow(doubles, n) for n in range(60)]
        raw = await place.raw()
        await raw.execute(  # as a slow disk: 60 entries take 1.2 s
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.02); RETURN NEW; "
            "END $$; CREATE TRIGGER slow BEFORE INSERT ON history FOR EACH ROW EXECUTE FUNCTION slow()"
        )
        with caplog.at_level(logging.WARNING, "romancy"):
            await app.send_event("go", "test")
            assert await asyncio.gather(*(handle.result(60) for handle in handles)) == [2 * n for n in range(60)]
        assert "statement timeout" in caplog.text, "nothing took too long"


async def test_an_event_whose_dispatch_takes_too_long_does_not_keep_the_others(place: Place) -> None:
    db = await place.worker("me", listen=False)
    await db.waiting("a", "me")
    connections: Any = db.storage._connections  # type: ignore[attr-defined]
    do, stuck = connections.do, list[int]()

    async def slow(name: str, /, **given: Any) -> Any:
        if name == "dispatch" and set(given["seqs"]) & set(stuck):
            raise TookTooLong("canceling statement")
        return await do(name, **given)

    raw = await place.raw()
    events = [(await db.send(id=str(n))).seq for n in range(5)]
    await raw.execute("DELETE FROM deliveries; UPDATE instances SET owner = 'me'")
    await raw.execute(
        "INSERT INTO undispatched SELECT seq, pg_current_snapshot(), '[]', 0 FROM events WHERE seq = ANY($1)", events
    )
    stuck.append(events[1])
    connections.do = slow
    dispatcher = db.storage._writer.dispatcher  # type: ignore[attr-defined]
    with pytest.raises(TookTooLong):
        await dispatcher.sweep("me", ("wf",), db.now)
    await dispatcher.sweep("me", ("wf",), db.now)
    assert await raw.fetch("SELECT event FROM undispatched") == [(events[1],)]


# --- pruning ---------------------------------------------------------------------------------------------------------
async def test_an_instance_that_has_the_id_of_a_pruned_one_is_left_alone(place: Place) -> None:
    """Two workers prune at once, and in between the id is used again."""
    one, other = await place.worker("one", listen=False), await place.worker("other", listen=False)
    await one.start("a", "one")
    await one.commit("one", commits=[Commit("a", 0, "completed", one.now)])
    place.clock.turn_to(place.clock.now() + 2 * WEEK)
    connections: Any = one.storage._connections  # type: ignore[attr-defined]
    ask, before = connections.ask, place.clock.now() - WEEK

    async def overtaken(name: str, /, **given: Any) -> Any:
        rows = await ask(name, **given)
        if name == "prunable_instances":
            assert [id for (id,) in rows] == ["a"]
            assert await other.storage.prune(before, before, 10) == 1
            await other.waiting("a", "other")
        return rows

    connections.ask = overtaken
    assert await one.storage.prune(before, before, 10) == 0
    assert [(row.id, row.status) for row in await one.storage.catalog.instances()] == [("a", "waiting_for_event")]
    assert len(await one.storage.catalog.waits(instance="a")) == 1


REOPENING = "UPDATE instances SET status = 1, owner = NULL, version = version + 1, finished_at = NULL WHERE id = $1"


async def test_an_instance_that_is_reopened_before_it_is_pruned_is_kept(place: Place) -> None:
    """What can be pruned is found by one statement and deleted by another."""
    one = await place.worker("one", listen=False)
    await _ended_long_ago(place, one)
    raw = await place.raw()

    async def reopened() -> None:
        await raw.execute(REOPENING, "a")

    before = place.clock.now() - WEEK
    _after_finding(one, reopened)
    assert await one.storage.prune(before, before, 10) == 0
    await _is_whole(one)


async def test_an_instance_that_is_being_reopened_while_it_is_pruned_is_kept(place: Place) -> None:
    """The other transaction holds its lock, and commits only after the pruning."""
    one = await place.worker("one", listen=False)
    await _ended_long_ago(place, one)
    raw = await place.raw()
    transaction = raw.transaction()

    async def reopening() -> None:
        await transaction.start()
        await raw.execute(REOPENING, "a")

    before = place.clock.now() - WEEK
    _after_finding(one, reopening)
    async with asyncio.timeout(10):
        assert await one.storage.prune(before, before, 10) == 0
    await transaction.commit()
    await _is_whole(one)


async def _ended_long_ago(place: Place, db: Any) -> None:
    await db.start("a", "one")
    await db.commit(
        "one", commits=[Commit("a", 0, "failed", db.now, entries=[Entry(1, Kind.TIMER_FIRED, "s", db.now)])]
    )
    place.clock.turn_to(place.clock.now() + 2 * WEEK)


def _after_finding(db: Any, meanwhile: Callable[[], Awaitable[None]]) -> None:
    connections = db.storage._connections
    ask = connections.ask

    async def overtaken(name: str, /, **given: Any) -> Any:
        rows = await ask(name, **given)
        if name == "prunable_instances":
            assert [id for (id,) in rows] == ["a"]
            await meanwhile()
        return rows

    connections.ask = overtaken


async def _is_whole(db: Any) -> None:
    assert [(row.id, row.status) for row in await db.storage.catalog.instances()] == [("a", "running")]
    assert len(await db.storage.catalog.history("a")) == 1


# --- many at once ----------------------------------------------------------------------------------------------------
async def test_two_resume_the_same_instances_in_opposite_order(place: Place) -> None:
    one, other = await place.worker("one", listen=False), await place.worker("other", listen=False)
    ids = [f"i{n:03}" for n in range(200)]
    for id in ids:
        await one.start(id, "one")
        await one.step(id, "one", 0, status="blocked", release=True)
    mine, theirs = await asyncio.gather(one.storage.resume_all(ids), other.storage.resume_all(ids[::-1]))
    assert mine | theirs == set(ids)
    assert not mine & theirs


async def test_two_cancel_the_same_instances_in_opposite_order(place: Place) -> None:
    one, other = await place.worker("one", listen=False), await place.worker("other", listen=False)
    ids = [f"i{n:03}" for n in range(200)]
    for id in ids:
        await one.start(id, "one")
        await one.step(id, "one", 0, status="blocked", release=True)
    requests = [Request(id, CANCEL, b"", one.now) for id in ids]
    await asyncio.gather(one.commit("one", requests=requests), other.commit("other", requests=requests[::-1]))
    assert {row.status for row in await one.storage.catalog.instances(limit=200)} == {"cancelled"}


# --- migrations ------------------------------------------------------------------------------------------------------
async def test_a_migration_steps_back_from_a_lock_and_holds_nobody_up(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = await place.worker("me", listen=False)
    await db.start("a", "me")
    version = schema_migrations.LIBRARY_VERSION + 1
    script = "ALTER TABLE history ADD COLUMN x int; ALTER TABLE waits ADD COLUMN x int"
    steps = [*migrations("postgres"), (version, 1, script)]
    monkeypatch.setattr(schema_migrations, "migrations", lambda dialect: steps)
    monkeypatch.setattr(schema_migrations, "LIBRARY_VERSION", version)
    monkeypatch.setattr(schema_migrations, "_LOCK_TIMEOUT", 50)
    raw, spy = await place.raw(), await place.raw()
    transaction = raw.transaction()
    await transaction.start()
    await raw.execute("SELECT * FROM waits")  # somebody reads, and takes their time
    migration = asyncio.ensure_future(place.storage())
    async with asyncio.timeout(20):
        while not await spy.fetchval(  # noqa: ASYNC110
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'ALTER TABLE history%'"
        ):
            await asyncio.sleep(0.005)
    async with asyncio.timeout(20):
        await db.step("a", "me", 0, opened=[db.wait()])
    assert not migration.done()
    await transaction.rollback()
    await migration
    assert await spy.fetchval("SELECT version FROM schema_info") == version
