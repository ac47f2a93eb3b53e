"""The inbox under way: order, twins, refusals, savepoints, isolation levels, long transactions, several movers."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from romancy import App, InstanceExists, WorkflowContext, events, wait_event, workflow
from romancy.service import runtime_of
from tests import pg_server

pytestmark = [pytest.mark.timeout(60), pytest.mark.play]


@workflow
async def double(ctx: WorkflowContext, n: int) -> int:
    return 2 * n


@workflow
async def collector(ctx: WorkflowContext, most: int) -> list[int]:
    return [event.data async for event in events(ctx, "n", limit=most)]


@workflow
async def sizes(ctx: WorkflowContext, most: int) -> list[int]:
    return [len(event.data) async for event in events(ctx, "big", limit=most)]


@workflow
async def addressee(ctx: WorkflowContext) -> Any:
    return (await wait_event(ctx, "go")).data


@workflow(on_event="order.placed")
async def started_by_event(ctx: WorkflowContext, event: Any) -> Any:
    return event.data


WORKFLOWS = [double, collector, sizes, addressee, started_by_event]


@pytest.fixture
async def app(db: str) -> AsyncIterator[App]:
    async with App(db, workflows=WORKFLOWS) as app:
        yield app


class Caller:
    """A connection of the caller's own."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def run(self, sql: str) -> None:
        done = self.connection.execute(sql)
        if not isinstance(done, sqlite3.Cursor):
            await done

    @asynccontextmanager
    async def transaction(self, begin: str = "BEGIN") -> AsyncIterator[Any]:
        await self.run(begin)
        yield self.connection
        await self.run("COMMIT")


@asynccontextmanager
async def caller(app: App) -> AsyncIterator[Caller]:
    storage: Any = runtime_of(app).engine.storage
    if storage.inbox.dialect == "sqlite":
        connection: Any = sqlite3.connect(storage.path, isolation_level=None)
        yield Caller(connection)
        connection.close()
    else:
        connection = await asyncpg.connect(pg_server.url())
        yield Caller(connection)
        await connection.close()


async def test_a_workflow_that_an_event_starts(app: App) -> None:
    async with caller(app) as me, me.transaction() as connection:
        await app.within(connection).send_event("order.placed", "shop", {"id": 7}, id="7")
    [instance] = await until(lambda: app.list_instances(workflow="started_by_event"))
    assert await app.handle(instance.instance_id).result(timeout=10) == {"id": 7}


async def until(read: Any) -> Any:
    """Read a list until it has something."""
    while not (page := await read()).items:  # noqa: ASYNC110 - the engine is at it
        await asyncio.sleep(0.01)
    return page.items


async def test_a_savepoint_that_is_rolled_back(app: App) -> None:
    async with caller(app) as me:
        async with me.transaction() as connection:
            tx = app.within(connection)
            kept = await tx.start_workflow(double, 1)
            await me.run("SAVEPOINT here")
            lost = await tx.start_workflow(double, 2)
            await tx.send_event("lost", "here")
            await me.run("ROLLBACK TO SAVEPOINT here")
        assert await kept.handle().result(timeout=10) == 2
    [instance] = (await app.list_instances()).items
    assert instance.instance_id == kept.instance_id != lost.instance_id
    assert not (await app.list_events()).items


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_stricter_isolation(app: App, backend: str, level: str) -> None:
    if backend == "sqlite":
        pytest.skip("it has one level")
    waiting = await app.start_workflow(addressee)
    async with caller(app) as me:
        async with me.transaction(f"BEGIN ISOLATION LEVEL {level}") as connection:
            await connection.fetchval("SELECT 1")
            await app.send_event("other", "here")
            tx = app.within(connection)
            pending = await tx.start_workflow(double, 3)
            await tx.send_event("go", "here", 5)
        assert await pending.handle().result(timeout=10) == 6
    assert await waiting.result(timeout=10) == 5


async def test_order_is_kept_by_two_movers(app: App, db: str) -> None:
    """Each event is committed before the next one is sent; two processes' worth of workers move them."""
    handle = await app.start_workflow(collector, 300)
    async with App(db, workflows=WORKFLOWS) as other, caller(app) as me:
        for n in range(300):
            async with me.transaction("BEGIN IMMEDIATE" if "sqlite" in str(type(me.connection)) else "BEGIN") as it:
                await (app if n % 2 else other).within(it).send_event("n", "here", n)
            if n % 3 == 0:
                await asyncio.sleep(0)
        assert await handle.result(timeout=50) == list(range(300))


async def test_one_transaction_with_more_than_a_page(app: App) -> None:
    handle = await app.start_workflow(collector, 1200)
    async with caller(app) as me, me.transaction() as connection:
        tx = app.within(connection)
        for n in range(1200):
            await tx.send_event("n", "here", n)
    assert await handle.result(timeout=50) == list(range(1200))


async def test_big_ones_are_moved_in_parts(app: App) -> None:
    handle = await app.start_workflow(sizes, 5)
    async with caller(app) as me:
        async with me.transaction() as connection:
            tx = app.within(connection)
            for n in range(5):
                await tx.send_event("big", "here", bytes(5_000_000 + n))
        assert len(await runtime_of(app).engine.storage.arrivals(10, 1)) <= 1
        await runtime_of(app).engine.take_in()
    assert await handle.result(timeout=30) == [5_000_000 + n for n in range(5)]


async def test_events_after_the_call_belong_to_the_instance(app: App) -> None:
    """An event that is accepted after the commit, but before the start is moved, is not missed."""
    engine: Any = runtime_of(app).engine
    await engine._moving.stop()
    async with caller(app) as me, me.transaction() as connection:
        pending = await app.within(connection).start_workflow(addressee)
    await app.send_event("go", "here", "early")
    engine._moving.start()
    assert await pending.handle().result(timeout=10) == "early"


async def test_an_event_may_be_for_an_instance_of_the_same_transaction(app: App) -> None:
    async with caller(app) as me, me.transaction() as connection:
        tx = app.within(connection)
        await tx.send_event("go", "here", 1, to="new")
        pending = await tx.start_workflow(addressee, instance_id="new")
    assert await pending.handle().result(timeout=10) == 1


async def test_twins_are_one(app: App) -> None:
    """The same start and the same event, by the app and by two callers."""
    first = await app.start_workflow(double, 1, instance_id="twin")
    await app.send_event("go", "here", 1, id="twin")
    async with caller(app) as me:
        for _ in range(2):
            async with me.transaction() as connection:
                tx = app.within(connection)
                pending = await tx.start_workflow(double, 1, instance_id="twin")
                await tx.send_event("go", "here", 1, id="twin")
        assert await pending.handle().result(timeout=10) == await first.result() == 2
        await runtime_of(app).engine.take_in()
    assert await runtime_of(app).engine.storage.arrivals(10, 1) == []
    assert len((await app.list_events()).items) == len((await app.list_instances()).items) == 1


async def test_what_another_process_has_moved_is_not_stored_again(app: App) -> None:
    """Even after it was removed: a process may have been paused for longer than the retention."""
    storage: Any = runtime_of(app).engine.storage
    moved: list[Any] = []
    move = storage.move

    async def remember(batch: Any) -> Any:
        moved.append(batch)
        return await move(batch)

    storage.move = remember
    async with caller(app) as me:
        async with me.transaction() as connection:
            tx = app.within(connection)
            pending = await tx.start_workflow(double, 1)
            await tx.send_event("n", "here", 1)
        assert await pending.handle().result(timeout=10) == 2
        for table in ("events", "instances"):
            name = f"romancy_{table}" if storage.inbox.dialect == "sqlite" else f"{storage.schema}.{table}"
            await me.run(f"DELETE FROM {name}")
    [batch] = moved
    assert await move(batch) is None
    assert not (await app.list_events()).items
    assert not (await app.list_instances()).items


async def test_a_start_whose_id_is_taken_is_refused_and_seen(app: App, caplog: pytest.LogCaptureFixture) -> None:
    await app.start_workflow(double, 1, instance_id="taken")
    with caplog.at_level(logging.ERROR, "romancy"):
        async with caller(app) as me:
            async with me.transaction() as connection:
                tx = app.within(connection)
                await tx.start_workflow(double, 2, instance_id="taken")
                await tx.start_workflow(double, 3, instance_id="new")
                await tx.start_workflow(double, 4, instance_id="new")
                await tx.send_event("n", "here", 1)
            await runtime_of(app).engine.take_in()
    assert await app.handle("new", double).result(timeout=10) == 6
    assert await app.handle("taken", double).result(timeout=10) == 2
    refused = [record.getMessage() for record in caplog.records if "is refused" in record.getMessage()]
    assert len(refused) == 2
    assert all("different input" in message for message in refused)
    assert await runtime_of(app).engine.storage.arrivals(10, 1) == []
    with pytest.raises(InstanceExists):
        await app.start_workflow(double, 2, instance_id="taken")


async def test_a_long_transaction_stalls_nobody(app: App, backend: str) -> None:
    """On PostgreSQL: others start the same id, send the same event, and wait for it, while it is open."""
    if backend == "sqlite":
        pytest.skip("it has one writer")
    before = await app.start_workflow(addressee)
    async with caller(app) as me:
        async with me.transaction() as connection:
            tx = app.within(connection)
            await tx.start_workflow(double, 1, instance_id="same")
            await tx.send_event("go", "here", 1, id="same")
            async with asyncio.timeout(5):
                handle = await app.start_workflow(double, 1, instance_id="same")
                assert await handle.result() == 2
                await app.send_event("go", "here", 1, id="same")
                assert await before.result() == 1
            during = await app.start_workflow(addressee)
            await tx.send_event("go", "here", 2, id="next")
        assert await during.result(timeout=10) == 2
    assert len((await app.list_events()).items) == 2


async def test_the_privileges_of_a_caller(app: App, backend: str) -> None:
    """Another user than the app's may only insert."""
    if backend == "sqlite":
        pytest.skip("it has no users")
    storage: Any = runtime_of(app).engine.storage
    role = f"caller_{os.urandom(4).hex()}"
    connection = await asyncpg.connect(pg_server.url())
    await connection.execute(f"CREATE ROLE {role}")
    try:
        await connection.execute(f"GRANT USAGE ON SCHEMA {storage.schema} TO {role}")
        await connection.execute(f"GRANT INSERT ON {storage.schema}.inbox TO {role}")
        async with connection.transaction():
            await connection.execute(f"SET LOCAL ROLE {role}")
            pending = await app.within(connection).start_workflow(double, 4)
        assert await pending.handle().result(timeout=10) == 8
    finally:
        await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
        await connection.close()


async def test_without_a_notice_it_is_found_within_a_second(app: App) -> None:
    async with caller(app) as me, me.transaction() as connection:
        await app.within(connection, wake=False).start_workflow(double, 1, instance_id="quiet")
    [instance] = await until(lambda: app.list_instances())
    assert instance.instance_id == "quiet"


async def test_an_app_without_a_worker(db: str, app: App) -> None:
    async with App(db, worker=False) as web, caller(app) as me:
        async with me.transaction() as connection:
            pending = await web.within(connection).start_workflow("double", 4)
        assert await pending.handle().result(timeout=10) == 8
        assert await pending.handle().status() == "completed"


async def test_what_no_worker_was_there_for(db: str) -> None:
    async with App(db, worker=False) as web, caller(web) as me, me.transaction() as connection:
        tx = web.within(connection)
        pending = await tx.start_workflow("double", 4)
    async with App(db, workflows=WORKFLOWS) as app:
        assert await app.handle(pending.instance_id).result(timeout=10) == 8


async def test_movers_take_turns_before_they_have_a_number(app: App, backend: str) -> None:
    """The order of acceptance is that of transaction numbers, so a mover must not have one while it waits."""
    if backend == "sqlite":
        pytest.skip("it has one writer")
    storage: Any = runtime_of(app).engine.storage
    observer = await asyncpg.connect(pg_server.url())
    lock = f"pg_advisory_lock(1919905121, '{storage.schema}.inbox'::regclass::oid::integer)"
    await observer.execute(f"SELECT {lock}")
    async with caller(app) as me, me.transaction() as connection:
        tx = app.within(connection)
        await tx.start_workflow(double, 1, instance_id="one")
        await tx.send_event("n", "here", 1)
    query = "SELECT backend_xid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event = 'advisory'"
    while not (found := await observer.fetch(query)):  # noqa: ASYNC110 - another session is at it
        await asyncio.sleep(0.01)
    assert [row["backend_xid"] for row in found] == [None]
    await observer.execute(f"SELECT {lock.replace('_lock', '_unlock')}")
    assert await app.handle("one", double).result(timeout=10) == 2
    await observer.close()
