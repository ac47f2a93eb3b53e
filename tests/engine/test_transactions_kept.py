"""Connections that an activity keeps after its function has returned: they lead nowhere."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import asyncpg
import pytest

from romancy import NO_RETRY, TerminalError, TransactionContext, WorkflowContext, activity, workflow
from romancy.testing import Environment, environment
from tests.engine.ledgers import Ledger, ledger_of


@pytest.fixture
async def env(db: str) -> AsyncIterator[Environment]:
    async with environment(database=db, retry=NO_RETRY) as env:
        yield env


@pytest.fixture
async def ledger(env: Environment) -> Ledger:
    return await ledger_of(env)


def kept_of(ctx: TransactionContext, ledger: Ledger, what: str) -> Any:
    """Something that leads to the connection."""
    insert = f"INSERT INTO {ledger.table} VALUES ('stray')"
    if what == "cursor" and ledger.is_sqlite:
        cursor = ctx.connection.cursor()
        return lambda: cursor.execute(insert)
    if what == "method":
        execute = ctx.connection.execute
        return lambda: execute(insert)
    connection = ctx.connection
    return lambda: connection.execute(insert)


async def use(kept: Any) -> None:
    """Write with what was kept: that must be refused, whatever happens at the time."""
    with pytest.raises(TerminalError, match="its transaction is over"):
        await asyncio.wait_for(asyncio.ensure_future(kept()), 5)


@pytest.mark.parametrize("what", ["connection", "method", "cursor"])
async def test_a_connection_that_was_kept_writes_nothing(env: Environment, ledger: Ledger, what: str) -> None:
    kept: list[Any] = []

    @activity(transactional=True)
    async def first(ctx: TransactionContext) -> None:
        await ledger.add(ctx, "first")
        kept.append(kept_of(ctx, ledger, what))

    @activity(transactional=True)
    async def second(ctx: TransactionContext) -> None:
        await ledger.add(ctx, "second")
        await use(kept[0])
        await ledger.add(ctx, "third")

    @workflow
    async def shop(ctx: WorkflowContext) -> None:
        await first(ctx)
        await use(kept[0])
        await second(ctx)

    handle = await env.start(shop)
    await handle.result()
    assert await ledger.rows() == ["first", "second", "third"]


async def test_a_thread_that_goes_on_writes_nothing(env: Environment, ledger: Ledger) -> None:
    if not ledger.is_sqlite:
        pytest.skip("the driver of PostgreSQL belongs to the event loop")
    seen: list[BaseException] = []

    def stray(connection: sqlite3.Connection, go: Any) -> None:
        go.result()
        try:
            connection.execute(f"INSERT INTO {ledger.table} VALUES ('stray')")
        except Exception as error:
            seen.append(error)

    threads: list[Any] = []
    go: Future[None] = Future()
    pool = ThreadPoolExecutor(1)

    @activity(transactional=True)
    async def first(ctx: TransactionContext) -> None:
        threads.append(pool.submit(stray, ctx.connection, go))

    @activity(transactional=True)
    async def second(ctx: TransactionContext) -> None:
        await ledger.add(ctx, "second")
        go.set_result(None)
        await asyncio.wrap_future(threads[0])

    @workflow
    async def shop(ctx: WorkflowContext) -> None:
        await first(ctx)
        await second(ctx)

    handle = await env.start(shop)
    await handle.result()
    pool.shutdown()
    assert await ledger.rows() == ["second"]
    assert [str(error) for error in seen if "its transaction is over" in str(error)], seen


async def test_connections_are_used_again_if_nobody_keeps_them(env: Environment, ledger: Ledger) -> None:
    """A new one for each transaction would cost more than the transaction."""
    used: set[str] = set()

    @activity(transactional=True)
    async def note(ctx: TransactionContext, n: int) -> None:
        await ledger.add(ctx, str(n))
        guest = ctx.connection if ledger.is_sqlite else ctx.connection._guest
        used.add(repr(guest))

    @workflow
    async def shop(ctx: WorkflowContext) -> None:
        for n in range(5):
            await note(ctx, n)

    handle = await env.start(shop)
    await handle.result()
    assert len(used) == 1
    assert await ledger.rows() == list("01234")


async def test_what_is_lent_is_a_connection_of_the_driver(env: Environment, ledger: Ledger) -> None:
    @activity(transactional=True)
    async def look(ctx: TransactionContext) -> bool:
        return isinstance(ctx.connection, sqlite3.Connection if ledger.is_sqlite else asyncpg.Connection)

    @workflow
    async def shop(ctx: WorkflowContext) -> bool:
        return await look(ctx)

    assert await (await env.start(shop)).result()
