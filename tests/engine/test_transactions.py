"""Transactional activities: own rows, the result and sent events are committed together, or not at all."""

import sqlite3
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from romancy import (
    RetryPolicy,
    TransactionContext,
    WorkflowContext,
    activity,
    sleep,
    wait_event,
    workflow,
)
from romancy.testing import Environment, environment
from tests.engine.helpers import kinds
from tests.engine.ledgers import Ledger, ledger_of

QUICK = RetryPolicy(max_attempts=3, initial=timedelta(seconds=1), jitter=0)


@pytest.fixture
async def env(db: str) -> AsyncIterator[Environment]:
    async with environment(database=db, retry=QUICK) as env:
        yield env


@pytest.fixture
async def ledger(env: Environment) -> Ledger:
    return await ledger_of(env)


# --- together ---------------------------------------------------------------------------------------------------------
async def test_rows_and_result_are_committed_together(env: Environment, ledger: Ledger) -> None:
    seen: list[list[str]] = []

    @activity(transactional=True)
    async def pay(ctx: TransactionContext, order: str) -> str:
        await ledger.add(ctx, order)
        seen.append(await ledger.rows())
        return order.upper()

    @workflow
    async def shop(ctx: WorkflowContext) -> list[str]:
        return [await pay(ctx, "a"), await pay(ctx, "b")]

    handle = await env.start(shop)
    assert await handle.result() == ["A", "B"]
    assert await ledger.rows() == ["a", "b"]
    assert seen == [[], ["a"]], "nobody else sees a row before the result is stored"
    assert (await kinds(env, handle.instance_id))[-2:] == ["activity_completed", "activity_completed"]


async def test_in_memory() -> None:
    @activity(transactional=True)
    async def pay(ctx: TransactionContext, order: str) -> int:
        if isinstance(ctx.connection, sqlite3.Connection):
            ctx.connection.execute("CREATE TABLE IF NOT EXISTS ledger (entry)")
            ctx.connection.execute("INSERT INTO ledger VALUES (?)", (order,))
            return ctx.connection.execute("SELECT count(*) FROM ledger").fetchone()[0]
        return await ctx.connection.fetchval("SELECT $1::int", len(order) - 1)

    @workflow
    async def shop(ctx: WorkflowContext) -> list[int]:
        first = await pay(ctx, "ab")
        await sleep(ctx, 60)
        return [first, await pay(ctx, "abc")]

    async with environment() as env:
        handle = await env.start(shop)
        await env.advance(60)
        assert await handle.result() == [1, 2]


async def test_a_failed_attempt_leaves_nothing(env: Environment, ledger: Ledger) -> None:
    attempts: list[int] = []

    @activity(transactional=True)
    async def pay(ctx: TransactionContext, order: str) -> int:
        attempts.append(ctx.attempt)
        await ledger.add(ctx, f"{order}{ctx.attempt}")
        ctx.send_event("paid", "shop", {"attempt": ctx.attempt})
        if ctx.attempt < 3:
            raise OSError("no")
        return ctx.attempt

    @workflow
    async def shop(ctx: WorkflowContext) -> list[int]:
        paid = await pay(ctx, "x")
        event = await wait_event(ctx, "paid")
        return [paid, event.data["attempt"]]

    handle = await env.start(shop)
    await env.advance(60)
    assert await handle.result() == [3, 3]
    assert attempts == [1, 2, 3]
    assert await ledger.rows() == ["x3"]
    assert len((await env.app.list_events()).items) == 1
