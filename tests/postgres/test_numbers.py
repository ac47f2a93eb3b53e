"""A schema that comes from another server, as with pg_dump: open instances take the events that come after it."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from romancy import App, Database, StorageError, WorkflowContext, sleep, wait_event, workflow
from romancy.storage.postgres import numbers
from tests import pg_server
from tests.postgres.conftest import Place

AHEAD = """UPDATE events SET xid = (xid::text::bigint + {0})::text::xid8;
UPDATE instances SET born = (pg_snapshot_xmin(born)::text::bigint + {0} || ':'
  || pg_snapshot_xmax(born)::text::bigint + {0} || ':')::pg_snapshot"""
"""As if they had been stored on a server that had used so many more transactions."""


@workflow
async def two_steps(ctx: WorkflowContext) -> list[Any]:
    first = await wait_event(ctx, "go")
    second = await wait_event(ctx, "go")
    return [first.data, second.data]


@workflow
async def sleeper(ctx: WorkflowContext) -> None:
    await sleep(ctx, 3600)


async def test_open_instances_take_events_that_come_after_it(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    at = Database(place.url, schema=place.schema)
    async with App(at, workflows=[two_steps, sleeper]) as app:
        await app.start_workflow(two_steps, instance_id="a")
        await app.start_workflow(sleeper, instance_id="newest")
        await app.send_event("go", "test", 1, to="a")
        while [entry.kind for entry in await app.get_history("a")] != ["started", "event_received"]:  # noqa: ASYNC110
            await asyncio.sleep(0)
    await (await place.raw()).execute(AHEAD.format(3000))
    async with App(at, worker=False) as app:
        await app.send_event("go", "test", 2, to="a")
    async with App(at, workflows=[two_steps, sleeper]) as app:
        assert await app.handle("a").result(timeout=20) == [1, 2]
    told = [record.getMessage() for record in caplog.records if "comes from another server" in record.getMessage()]
    assert len(told) == 1, "the first one to open it makes up for all"


async def test_nothing_is_used_up_where_nothing_is_missing(place: Place) -> None:
    storage = await place.storage()
    assert await numbers.missing(storage._connections) <= 0
    db = await place.worker("me")
    await db.start("a", "me")
    await db.send()
    assert await numbers.missing(storage._connections) <= 0


async def test_waits_are_counted_too_once_something_is_missing(place: Place) -> None:
    db = await place.worker("me")
    await db.start("a", "me")
    raw = await place.raw()
    await raw.execute(AHEAD.format(10))
    now = int(await raw.fetchval("SELECT pg_current_xact_id()::text"))
    await raw.execute(
        "INSERT INTO waits (instance, op, born, model, spec, location, created_at) "
        "VALUES ('a', 'w', ($1::text || ':' || $1::text || ':')::pg_snapshot, '', '', '', 0)",
        str(now + 777),
    )
    await place.storage()
    assert int(await raw.fetchval("SELECT pg_current_xact_id()::text")) >= now + 777


async def test_too_many_are_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    db = await place.worker("me")
    await db.start("a", "me")
    await (await place.raw()).execute(AHEAD.format(1001))
    monkeypatch.setattr(numbers, "MOST", 100)
    with pytest.raises(StorageError, match=r"comes from another server.*100 at most.*pg_basebackup.*pg_resetwal"):
        await place.storage()


@pytest.mark.play
async def test_a_dump_is_restored_on_a_new_server() -> None:
    """With the programs of PostgreSQL, as people do it."""
    old, new = pg_server.Server(), pg_server.Server()
    try:
        raw = await asyncpg.connect(old.url)
        await raw.execute(numbers.ADVANCE.format(5000))
        async with App(old.url, workflows=[two_steps]) as app:
            await app.start_workflow(two_steps, instance_id="a")
            await app.send_event("other", "test")
        await raw.close()
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o777)
            dump = f"{folder}/dump.sql"
            old.run("pg_dump", "-h", old.folder, "-U", "postgres", "-f", dump, "postgres")
            new.run("psql", "-q", "-h", new.folder, "-U", "postgres", "-f", dump, "postgres")
        async with App(new.url, workflows=[two_steps]) as app:
            await app.send_event("go", "test", 1)
            await app.send_event("go", "test", 2)
            assert await app.handle("a").result(timeout=20) == [1, 2]
    finally:
        old.remove()
        new.remove()
