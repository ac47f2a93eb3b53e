"""The message that ends a transaction begins the next one if others wait. That one must know nothing of the first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from romancy import (
    App,
    Database,
    RetryPolicy,
    TransactionContext,
    WorkerOptions,
    WorkflowContext,
    activity,
    workflow,
)
from romancy.storage.postgres import transactions
from romancy.storage.postgres.transactions import PostgresTransaction, Transactions
from tests.postgres.conftest import Place

SOON = RetryPolicy(initial=timedelta(milliseconds=10), max_attempts=3)


@activity(transactional=True, retry=SOON)
async def book(ctx: TransactionContext, n: int) -> int:
    await ctx.connection.execute(f'INSERT INTO "{ctx.state}".ledger VALUES ($1)', n)
    return ctx.attempt


@workflow
async def books(ctx: WorkflowContext, n: int) -> int:
    return await book(ctx, n)


@activity(transactional=True, retry=SOON)
async def look(ctx: TransactionContext, what: str, fails: bool) -> list[Any]:
    """Return what is left of earlier activities in the session, then leave something there, too."""
    state = (
        "SELECT current_user::text, session_user::text, to_regclass('pg_temp.t')::text, "
        "current_setting('search_path'), current_setting('transaction_isolation'), "
        "(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()), "
        "(SELECT count(*) FROM pg_listening_channels())"
    )
    async with ctx.connection.transaction(isolation=None):
        seen = await ctx.connection.fetchrow(state)
    await ctx.connection.execute(what)
    if fails and ctx.attempt == 1:
        raise ValueError("what it left is rolled back, and nothing else")
    return list(seen)


@workflow
async def looks(ctx: WorkflowContext, what: str, fails: bool) -> list[Any]:
    return await look(ctx, what, fails)


gates: list[asyncio.Event] = []
"""The last one counts. It stays after it is opened: `hold` may begin after the others have begun to wait."""
EACH: Any = object()
"""In place of an argument: the number of the workflow."""


@activity(transactional=True)
async def hold(ctx: TransactionContext) -> None:
    await gates[-1].wait()


@workflow
async def holds(ctx: WorkflowContext) -> None:
    await hold(ctx)


async def start_together(app: App, count: int, *call: Any) -> list[Any]:
    """Start workflows whose activities all wait for the one transaction that is allowed."""
    gates.append(asyncio.Event())
    await app.start_workflow(holds)
    handles = [await app.start_workflow(*(n if part is EACH else part for part in call)) for n in range(count)]
    waiting = app._runtime.engine.activities._transactions._waiting
    while len(waiting) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    gates[-1].set()
    return handles


@asynccontextmanager
async def running(place: Place, *workflows: Any, most: int = 1) -> AsyncIterator[tuple[App, Any]]:
    at, options = Database(place.url, schema=place.schema), WorkerOptions(max_transactions=most)
    async with App(at, workflows=[books, holds, *workflows], state=place.schema, worker=options) as app:
        raw = await place.raw()
        await raw.execute("CREATE TABLE ledger (n int)")
        yield app, raw


@pytest.fixture
def chains(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each transaction, whether the one before had begun it."""
    seen: list[bool] = []
    begin = Transactions._begin

    async def watched(self: Any, guest: Any, since: float) -> Any:
        seen.append(guest.begun_at is not None and guest.begun_at >= since)
        return await begin(self, guest, since)

    monkeypatch.setattr(Transactions, "_begin", watched)
    return seen


async def test_those_that_wait_begin_with_the_end_of_others(place: Place, chains: list[bool]) -> None:
    async with running(place) as (app, raw):
        handles = await start_together(app, 10, books, EACH)
        assert [await handle.result(20) for handle in handles] == [1] * 10
        assert sorted(row[0] for row in await raw.fetch("SELECT n FROM ledger")) == list(range(10))
    assert chains.count(True) == 10


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(
    "what",
    [
        "SET ROLE pg_write_all_data",
        "SET SESSION AUTHORIZATION pg_write_all_data",
        "CREATE TEMP TABLE t (n int)",
        "SET search_path = pg_catalog",
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SELECT pg_advisory_lock(7)",
        "LISTEN news",
    ],
)
async def test_nothing_of_the_session_reaches_the_next(
    place: Place, chains: list[bool], what: str, fails: bool
) -> None:
    async with running(place, looks) as (app, raw):
        await raw.execute(f'GRANT ALL ON SCHEMA "{place.schema}" TO pg_write_all_data')
        await raw.execute(f'GRANT ALL ON ALL TABLES IN SCHEMA "{place.schema}" TO pg_write_all_data')
        first = await (await app.start_workflow(looks, "SELECT 1", False)).result(20)
        handles = await start_together(app, 8, looks, what, fails)
        assert [await handle.result(20) for handle in handles] == [first] * 8
    assert chains.count(True) >= 3


@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
async def test_what_hits_the_reset_after_the_commit_is_no_failure(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    write, tasks, hits = PostgresTransaction._write, list[Any](), list[str]()
    async with running(place) as (app, raw):

        async def hit_soon(self: Any, batch: Any) -> Any:
            row = await write(self, batch)
            if self._guest.begun_at is not None and not hits:
                hits.append(f"SELECT {how}({self._guest.get_server_pid()})")
                self._guest.ending = self._guest.ending.replace("BEGIN;", "BEGIN; SELECT pg_sleep(10);", 1)
                later = asyncio.get_running_loop().call_later
                later(0.1, lambda: tasks.append(asyncio.ensure_future(raw.execute(hits[0]))))
            return row

        monkeypatch.setattr(PostgresTransaction, "_write", hit_soon)
        handles = await start_together(app, 5, books, EACH)
        assert [await handle.result(20) for handle in handles] == [1] * 5
        await asyncio.gather(*tasks)
        assert len(hits) == 1
        assert sorted(row[0] for row in await raw.fetch("SELECT n FROM ledger")) == list(range(5))
        assert "failed" not in caplog.text


async def test_a_transaction_that_nobody_wants_is_rolled_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that waited was cancelled meanwhile."""
    monkeypatch.setattr(transactions, "_UNUSED", 0.01)
    commit = PostgresTransaction.commit

    async def promising(self: Any, batch: Any, waiting: int = 0) -> Any:
        return await commit(self, batch, 1)

    monkeypatch.setattr(PostgresTransaction, "commit", promising)
    async with running(place) as (app, raw):
        assert await (await app.start_workflow(books, 1)).result(20) == 1
        idle = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND query LIKE '%BEGIN%'"
        while await raw.fetchval(idle):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        home = app._runtime.engine.storage._transactions
        while not home._free:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert (home._promised, len(home._begun), len(home._free)) == (0, 0, 1)
        assert await (await app.start_workflow(books, 2)).result(20) == 1


async def test_the_time_of_a_transaction_is_not_before_its_activity(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began for another activity, which was cancelled. `now()` is the time of its BEGIN."""
    monkeypatch.setattr(transactions, "_UNUSED", 60)
    commit = PostgresTransaction.commit

    async def promising(self: Any, batch: Any, waiting: int = 0) -> Any:
        return await commit(self, batch, 1)

    @activity(transactional=True)
    async def tell(ctx: TransactionContext) -> datetime:
        return await ctx.connection.fetchval("SELECT now()")

    @workflow
    async def tells(ctx: WorkflowContext) -> datetime:
        return await tell(ctx)

    monkeypatch.setattr(PostgresTransaction, "commit", promising)
    async with running(place, tells) as (app, raw):
        await (await app.start_workflow(books, 1)).result(20)
        before = await raw.fetchval("SELECT clock_timestamp()")
        assert await (await app.start_workflow(tells)).result(20) > before


@activity(transactional=True)
async def be_strict(ctx: TransactionContext) -> list[str]:
    await ctx.connection.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")  # only before the first query
    seen = await ctx.connection.fetchval("SELECT current_setting('search_path')")
    await ctx.connection.execute("SET search_path = pg_catalog")
    return [seen, await ctx.connection.fetchval("SELECT current_setting('transaction_isolation')")]


@workflow
async def is_strict(ctx: WorkflowContext) -> list[str]:
    return await be_strict(ctx)


@pytest.mark.parametrize("unused", [0.01, 60])
async def test_the_reset_is_not_part_of_the_next_transaction(
    place: Place, monkeypatch: pytest.MonkeyPatch, unused: float
) -> None:
    """What was begun for nobody is rolled back, soon or by the next activity. The reset stays."""
    monkeypatch.setattr(transactions, "_UNUSED", unused)
    commit = PostgresTransaction.commit

    async def promising(self: Any, batch: Any, waiting: int = 0) -> Any:
        return await commit(self, batch, 1)

    monkeypatch.setattr(PostgresTransaction, "commit", promising)
    async with running(place, is_strict) as (app, _):
        first = await (await app.start_workflow(is_strict)).result(20)
        home = app._runtime.engine.storage._transactions
        while unused < 1 and not home._free:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert await (await app.start_workflow(is_strict)).result(20) == first


async def test_the_next_transaction_can_choose_its_isolation(place: Place, chains: list[bool]) -> None:
    async with running(place, is_strict) as (app, _):
        handles = await start_together(app, 4, is_strict)
        assert [(await handle.result(20))[1] for handle in handles] == ["serializable"] * 4
    assert chains.count(True) == 4
