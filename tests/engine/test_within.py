"""Starts and events inside a transaction of the caller's own: they happen if and when it commits."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from romancy import App, InstanceNotFound, NotInTransaction, WorkflowContext, wait_event, workflow
from romancy.service import runtime_of
from tests import pg_server


@workflow
async def double(ctx: WorkflowContext, n: int) -> int:
    return 2 * n


@workflow
async def listener(ctx: WorkflowContext) -> Any:
    return (await wait_event(ctx, "go")).data


@pytest.fixture
async def app(db: str) -> AsyncIterator[App]:
    async with App(db, workflows=[double, listener]) as app:
        yield app


class Caller:
    """A connection of the caller's own, with a table of its own."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def run(self, sql: str) -> None:
        done = self.connection.execute(sql)
        if not isinstance(done, sqlite3.Cursor):
            await done


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


async def begin(caller: Caller) -> None:
    await caller.run("BEGIN")


async def test_a_start_happens_with_the_commit(app: App) -> None:
    async with caller(app) as me:
        await me.run("BEGIN")
        pending = await app.within(me.connection).start_workflow(double, 21)
        with pytest.raises(InstanceNotFound):
            await pending.handle().result()
        await me.run("COMMIT")
        assert await pending.handle().result(timeout=10) == 42


async def test_an_event_happens_with_the_commit(app: App) -> None:
    handle = await app.start_workflow(listener)
    async with caller(app) as me:
        await me.run("BEGIN")
        await app.within(me.connection).send_event("go", "test", {"n": 1})
        await me.run("COMMIT")
    assert await handle.result(timeout=10) == {"n": 1}


async def test_nothing_happens_after_a_rollback(app: App) -> None:
    async with caller(app) as me:
        await me.run("BEGIN")
        tx = app.within(me.connection)
        pending = await tx.start_workflow(double, 21)
        await tx.send_event("go", "test")
        await me.run("ROLLBACK")
        with pytest.raises(InstanceNotFound):
            await pending.handle().result()
    assert not (await app.list_events()).items
    assert not (await app.list_instances()).items


async def test_it_needs_a_transaction(app: App) -> None:
    async with caller(app) as me:
        with pytest.raises(NotInTransaction, match="no transaction is open"):
            app.within(me.connection)
