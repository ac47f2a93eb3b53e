"""A migration that shuts out older libraries: from its commit on, no older process writes anything."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from romancy import ActivityContext, App, StorageError, WorkerOptions, WorkflowContext, activity, wait_event, workflow
from romancy.errors import Outdated
from romancy.http.health import ready
from romancy.storage import sql
from romancy.storage.opener import Bystander
from romancy.storage.postgres import PostgresStorage, migrations
from romancy.storage.sqlite import SQLiteStorage
from romancy.storage.sqlite import migrations as of_files
from tests.engine.helpers import until
from tests.helpers import unqualified

NEWER = of_files.LIBRARY_VERSION + 1
MESSAGE = rf"schema version {NEWER}.*newer romancy.*upgrade"


class Gate:
    def __init__(self) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()


@activity
async def held(ctx: ActivityContext) -> int:
    ctx.state.reached.set()
    await ctx.state.open.wait()
    return 1


@workflow
async def holds(ctx: WorkflowContext) -> int:
    return await held(ctx)


@workflow
async def waits(ctx: WorkflowContext) -> Any:
    return (await wait_event(ctx, "go")).data


async def migrate(app: App, min_reader: int = NEWER) -> None:
    """As a process with the next version of the library does when it opens the database."""
    old: Any = app._runtime.engine.storage
    kind: Any = migrations if isinstance(old, PostgresStorage) else of_files
    table = "instances" if kind is migrations else "romancy_instances"
    with pytest.MonkeyPatch.context() as patch:
        steps = [
            *sql.migrations("postgres" if kind is migrations else "sqlite"),
            (NEWER, min_reader, f"ALTER TABLE {table} ADD COLUMN shiny INTEGER"),
        ]
        patch.setattr(migrations, "migrations", lambda dialect: steps)
        patch.setattr(sql, "migrations", lambda dialect: steps)
        new: Any
        if kind is migrations:
            new = PostgresStorage(old.url, schema=old.schema, opener=Bystander())
        else:
            new = SQLiteStorage(old.path, opener=Bystander())
        await new.open()
        await new.close()


async def rows(app: App, query: str) -> list[tuple[Any, ...]]:
    storage: Any = app._runtime.engine.storage
    if isinstance(storage, PostgresStorage):
        async with storage._connections.transaction() as c:
            await c.execute(f'SET search_path TO "{storage.schema}"')
            found = [tuple(row) for row in await c.fetch(unqualified(query))]
            await c.execute("RESET search_path")
            return found
    return await storage._look(lambda c: c.execute(sql.prefixed(query)).fetchall())


async def stored(app: App) -> list[Any]:
    """Everything that an older process could have written to."""
    return [
        await rows(app, f"SELECT {columns} FROM romancy.{table} ORDER BY 1, 2")
        for table, columns in (
            ("instances", "id, status, version"),
            ("history", "instance, n"),
            ("events", "source, id"),
            ("requests", "instance, id"),
            ("waits", "instance, op"),
            ("triggers", "type, workflow"),
        )
    ]


# --- workers ---------------------------------------------------------------------------------------------------------
async def test_a_step_that_ends_after_the_migration_is_not_stored(db: str) -> None:
    """Not even before the lease is renewed: the migration took the worker's row away."""
    gate = Gate()
    async with App(db, workflows=[holds], state=gate, worker=WorkerOptions(grace=0)) as app:
        handle = await app.start_workflow(holds)
        await gate.reached.wait()
        await migrate(app)
        before = await stored(app)
        gate.open.set()
        await until(lambda: app._runtime.engine.outdated)
        with pytest.raises(Outdated, match=MESSAGE):
            await handle.result(5)
        assert await stored(app) == before
        assert await rows(app, "SELECT * FROM romancy.workers") == []
        assert await rows(app, "SELECT * FROM romancy.deaths") == [], "nobody died"


async def test_the_next_worker_goes_on_where_the_old_one_was_cut_short(
    db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    async with App(db, workflows=[holds], state=gate, worker=WorkerOptions(grace=0)) as app:
        handle = await app.start_workflow(holds)
        await gate.reached.wait()
        await migrate(app)
        gate.open.set()
        await until(lambda: app._runtime.engine.outdated)
        monkeypatch.setattr(migrations, "LIBRARY_VERSION", NEWER)
        monkeypatch.setattr(of_files, "LIBRARY_VERSION", NEWER)
        async with App(db, workflows=[holds], state=gate) as new:
            assert await new.handle(handle.instance_id).result(20) == 1
            assert await rows(new, "SELECT * FROM romancy.attempts") == [], "nothing is a suspect"


async def test_workers_that_can_live_with_it_keep_their_registration(db: str) -> None:
    async with App(db, workflows=[waits]) as app:
        worker, handle = app._runtime.engine.worker_id, await app.start_workflow(waits)
        await migrate(app, min_reader=1)
        await app.send_event("go", "test", 7)
        assert await handle.result(5) == 7
        assert app._runtime.engine.worker_id == worker


async def test_an_event_for_a_worker_that_is_outdated_is_refused(db: str) -> None:
    async with App(db, workflows=[waits]) as app:
        await migrate(app)
        with pytest.raises(Outdated, match=MESSAGE):
            await app.send_event("go", "test", 7)
        assert await rows(app, "SELECT * FROM romancy.events") == []
        await until(lambda: app._runtime.engine.outdated)


async def test_a_worker_that_is_outdated_stops_without_adding_its_last_minute(db: str) -> None:
    async with App(db, workflows=[waits]) as app:
        handle = await app.start_workflow(waits)
        await app.send_event("go", "test", 7)
        assert await handle.result(5) == 7
        await migrate(app)
        await app._runtime.engine.counting.finish()
        assert await rows(app, "SELECT * FROM romancy.minutes") == []


# --- those who only start, send and read -----------------------------------------------------------------------------
ASKS: dict[str, Callable[[App], Awaitable[Any]]] = {
    "send": lambda app: app.send_event("go", "test", 7),
    "start": lambda app: app.start_workflow(waits),
    "cancel": lambda app: app.cancel_workflow("blocked"),
    "resume": lambda app: app.resume_workflow("blocked"),
}


@pytest.mark.parametrize("name", ASKS)
async def test_a_sender_writes_nothing_after_the_migration(db: str, name: str) -> None:
    async with App(db, workflows=[waits]) as app:
        await app.start_workflow(waits, instance_id="blocked")
    async with App(db, workflows=[waits], worker=False) as sender:
        change = "UPDATE {}instances SET status = 9"
        storage: Any = sender._runtime.engine.storage
        if isinstance(storage, PostgresStorage):
            async with storage._connections.transaction() as c:
                await c.execute(change.format(f'"{storage.schema}".'))
        else:
            await storage._write(lambda c: c.execute(change.format("romancy_")).rowcount)
        await migrate(sender)
        before = await stored(sender)
        with pytest.raises(Outdated, match=MESSAGE):
            await ASKS[name](sender)
        assert await stored(sender) == before


class Request:
    """As much of a request as the health check looks at."""

    def __init__(self, app: App) -> None:
        self.runtime, self.stopping = app._runtime, asyncio.Event()
        self.backpressure = type("Backpressure", (), {"is_stalled": False})()


async def test_a_sender_that_was_refused_says_so_from_then_on(db: str, caplog: pytest.LogCaptureFixture) -> None:
    async with App(db, worker=False) as sender:
        await migrate(sender)
        with pytest.raises(Outdated, match=MESSAGE):
            await sender.send_event("go", "test")
        with pytest.raises(StorageError, match=MESSAGE):
            await ready(Request(sender))  # type: ignore[arg-type]
        assert caplog.text.count("upgrade the package") == 1
        assert "can't be written" not in caplog.text, "it is not an outage"


async def test_a_sender_that_does_nothing_notices_too(db: str) -> None:
    async with App(db, worker=False, lease=0.5) as sender:
        await ready(Request(sender))  # type: ignore[arg-type]
        await migrate(sender)
        async with asyncio.timeout(5):
            while sender._runtime.engine.outdated is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        with pytest.raises(StorageError, match=MESSAGE):
            await ready(Request(sender))  # type: ignore[arg-type]


async def test_an_event_stored_just_before_the_migration_is_left_to_newer_processes(
    db: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was accepted; which waits it fits is not for this process to say any more."""
    if backend == "sqlite":
        pytest.skip("a file is accepted to and dispatched in one transaction")
    async with App(db, workflows=[waits]) as app, App(db, worker=False) as sender:
        handle = await app.start_workflow(waits)
        storage: Any = sender._runtime.engine.storage
        dispatch = storage._writer.dispatcher.dispatch

        async def late(*given: Any) -> Any:
            await migrate(sender)
            return await dispatch(*given)

        storage._writer.dispatcher.dispatch = late
        receipt = await sender.send_event("go", "test", 7, id="e")
        assert (receipt.duplicate, receipt.delivered) == (False, 0)
        assert len(await rows(sender, "SELECT * FROM romancy.undispatched")) == 1
        monkeypatch.setattr(migrations, "LIBRARY_VERSION", NEWER)
        async with App(db, workflows=[waits]) as new:
            assert await new.handle(handle.instance_id).result(20) == 7


async def test_an_event_that_waits_for_the_migration_is_refused(db: str, backend: str) -> None:
    """It was sent before the migration was committed, and would be stored after it."""
    if backend == "sqlite":
        pytest.skip("there is one writer at a time")
    async with App(db, worker=False) as sender:
        storage: Any = sender._runtime.engine.storage
        await sender.send_event("go", "test", id="first")
        async with storage._connections.transaction() as c, asyncio.timeout(20):
            migration = c.transaction()
            await migration.start()
            with pytest.MonkeyPatch.context() as patch:
                steps = [*sql.migrations("postgres"), (NEWER, NEWER, "CREATE TABLE shiny (a integer)")]
                patch.setattr(migrations, "migrations", lambda dialect: steps)
                await migrations.bring_up_to_date(c, storage.schema)
            sending = asyncio.ensure_future(sender.send_event("go", "test", id="second"))
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = $1::regclass"
            while not await c.fetchval(waiting, f'"{storage.schema}".events'):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await migration.commit()
        with pytest.raises(Outdated, match=MESSAGE):
            await sending
        assert await rows(sender, "SELECT id FROM romancy.events") == [("first",)]
