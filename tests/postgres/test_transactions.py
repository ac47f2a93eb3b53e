"""Transactional activities on PostgreSQL: lost answers, conflicts, long ones beside others, and what guests may say."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from statistics import median
from typing import Any

import pytest

from romancy import (
    App,
    Database,
    RetryPolicy,
    TerminalError,
    TransactionContext,
    WorkerOptions,
    WorkflowContext,
    activity,
    workflow,
)
from romancy.storage.postgres import guest
from romancy.storage.postgres.transactions import PostgresTransaction
from tests.postgres.conftest import Place

SOON = RetryPolicy(initial=timedelta(milliseconds=10), max_attempts=3)


@activity(transactional=True, retry=SOON)
async def book(ctx: TransactionContext, seconds: float = 0) -> int:
    await ctx.connection.execute(f'INSERT INTO "{ctx.state}".ledger VALUES ($1)', ctx.attempt)
    await asyncio.sleep(seconds)
    return ctx.attempt


@workflow
async def books(ctx: WorkflowContext, seconds: float = 0) -> int:
    return await book(ctx, seconds)


@workflow
async def nothing(ctx: WorkflowContext) -> None:
    """Ends at once."""


@asynccontextmanager
async def running(place: Place, **options: Any) -> AsyncIterator[tuple[App, Any]]:
    at = Database(place.url, schema=place.schema)
    async with App(at, workflows=[books, nothing], state=place.schema, **options) as app:
        raw = await place.raw()
        await raw.execute("CREATE TABLE ledger (attempt int)")
        yield app, raw


def slow_commit(raw: Any) -> Any:
    """A COMMIT takes 0.4 seconds, once rows were written."""
    return raw.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(0.4); RETURN NULL; END$$; "
        "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION slow()"
    )


async def test_a_commit_whose_answer_is_lost_is_found(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    was_committed = PostgresTransaction._was_committed

    async def watched(self: Any, batch: Any) -> bool:
        asked.append(await was_committed(self, batch))
        return asked[-1]

    write = PostgresTransaction._write

    async def cut_soon(self: Any, batch: Any) -> Any:
        row = await write(self, batch)
        asyncio.get_running_loop().call_later(0.05, self._guest.terminate)
        return row

    monkeypatch.setattr(PostgresTransaction, "_was_committed", watched)
    monkeypatch.setattr(PostgresTransaction, "_write", cut_soon)
    async with running(place) as (app, raw):
        await slow_commit(raw)
        assert await (await app.start_workflow(books)).result(20) == 1
        assert asked == [True]
        assert await raw.fetchval("SELECT count(*) FROM ledger") == 1


async def test_a_commit_that_the_server_gave_up_is_repeated(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    write = PostgresTransaction._write
    async with running(place) as (app, raw):
        await slow_commit(raw)

        async def end_soon(self: Any, batch: Any) -> Any:
            row, pid = await write(self, batch), self._guest.get_server_pid()
            monkeypatch.setattr(PostgresTransaction, "_write", write)
            later = asyncio.get_running_loop().call_later
            later(0.05, lambda: tasks.append(asyncio.ensure_future(raw.execute(f"SELECT pg_terminate_backend({pid})"))))
            return row

        tasks: list[Any] = []
        monkeypatch.setattr(PostgresTransaction, "_write", end_soon)
        assert await (await app.start_workflow(books)).result(20) == 2
        await asyncio.gather(*tasks)
        assert await raw.fetch("SELECT * FROM ledger") == [(2,)]


async def test_long_transactions_do_not_delay_others(place: Place) -> None:
    async with running(place) as (app, _):
        await (await app.start_workflow(nothing)).result(20)
        long = [await app.start_workflow(books, 1.0) for _ in range(10)]
        took: list[float] = []
        for _ in range(20):
            begin = time.perf_counter()
            await (await app.start_workflow(nothing)).result(20)
            took.append(time.perf_counter() - begin)
        assert not any([await handle.status() == "completed" for handle in long])
        assert median(took) < 0.5, "far less than a transaction takes"
        assert [await handle.result(20) for handle in long] == [1] * 10


async def test_there_are_no_more_transactions_than_allowed(place: Place) -> None:
    async with running(place, worker=WorkerOptions(max_transactions=2)) as (app, raw):
        handles = [await app.start_workflow(books, 0.05) for _ in range(8)]
        most = 0
        while not all([await handle.status() == "completed" for handle in handles]):
            open = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%ledger%' AND pid <> pg_backend_pid()"
            most = max(most, await raw.fetchval(open))
        assert most <= 2
        assert await raw.fetchval("SELECT count(*) FROM ledger") == 8


async def test_a_deadlock_is_retried_whatever_the_policy_says(place: Place) -> None:
    @activity(transactional=True, retry=RetryPolicy(max_attempts=3, non_retryable=(Exception,)))
    async def cross(ctx: TransactionContext, first: int) -> int:
        for row in (first, 3 - first):
            await ctx.connection.execute(f'UPDATE "{ctx.state}".ledger SET attempt = attempt WHERE attempt = $1', row)
            if ctx.attempt == 1:
                both.append(row)
                while len(both) < 2:  # noqa: ASYNC110 - the other one is in another transaction
                    await asyncio.sleep(0.001)
        return ctx.attempt

    both: list[int] = []

    @workflow
    async def crosses(ctx: WorkflowContext, first: int) -> int:
        return await cross(ctx, first)

    async with running(place) as (app, raw):
        app.register(crosses)
        await raw.execute("INSERT INTO ledger VALUES (1), (2)")
        handles = [await app.start_workflow(crosses, n) for n in (1, 2)]
        assert sorted([await handle.result(30) for handle in handles]) == [1, 2]


@pytest.mark.parametrize(
    "query",
    ["COMMIT", " rollback;", "SELECT 1; END", "/* x */ BEGIN", "ABORT", "start transaction", "PREPARE TRANSACTION 'x'",
     "SELECT 'a;'; -- b\nCOMMIT AND CHAIN", "ROLLBACK WORK", "SELECT $a$;$a$;COMMIT"],
)  # fmt: skip
def test_what_ends_a_transaction_is_refused(query: str) -> None:
    with pytest.raises(TerminalError, match="can't be used in a transactional activity"):
        guest.check(query)


@pytest.mark.parametrize(
    "query",
    ["ROLLBACK TO a", "rollback work to savepoint a", "SAVEPOINT a", "RELEASE a", "SELECT 'x; COMMIT'",
     "SELECT 1 -- ; COMMIT", "SELECT 1 /* ; COMMIT */", "DO $$BEGIN; COMMIT; END$$", 'SELECT 1 AS "; COMMIT"',
     "INSERT INTO t VALUES ('it''s; END')", "SELECT CASE WHEN true THEN 1 END", "UPDATE t SET commit = 1"],
)  # fmt: skip
def test_everything_else_is_not(query: str) -> None:
    guest.check(query)


@pytest.mark.parametrize(
    "text", ["it's", 'a "quoted" {word},', "back\\slash \\' \\\\", "$1 ; COMMIT; --", "ü\n€", "x" * 100_000]
)
async def test_results_are_stored_as_they_are(place: Place, text: str) -> None:
    """Whatever the activity has set in its session."""

    @activity(transactional=True, retry=SOON)
    async def echo(ctx: TransactionContext, text: str) -> str:
        await ctx.connection.execute("SET standard_conforming_strings = off; SET backslash_quote = off")
        await ctx.connection.execute("SET bytea_output = escape; DEALLOCATE ALL")
        return text

    @workflow
    async def echoes(ctx: WorkflowContext, text: str) -> list[str]:
        return [await echo(ctx, text) for _ in range(3)]

    async with running(place) as (app, raw):
        app.register(echoes)
        handle = await app.start_workflow(echoes, text, instance_id=f"1 {text[:20].replace(chr(10), chr(32))}")
        assert await handle.result(20) == [text] * 3
        assert await raw.fetchval("SELECT count(*) FROM attempts") == 0


async def test_a_refusal_at_the_end_is_told_apart(place: Place) -> None:
    """The worker was taken over while the activity ran: nothing is stored, and another worker runs it."""

    @activity(transactional=True, retry=SOON)
    async def lose(ctx: TransactionContext) -> int:
        await ctx.connection.execute(f'INSERT INTO "{ctx.state}".ledger VALUES ($1)', ctx.attempt)
        if not lost:
            lost.append(True)
            await connection.execute("UPDATE instances SET version = version + 1")
        return ctx.attempt

    @workflow
    async def loses(ctx: WorkflowContext) -> int:
        return await lose(ctx)

    lost: list[bool] = []
    async with running(place) as (app, raw):
        connection = raw
        app.register(loses)
        assert await (await app.start_workflow(loses)).result(20) == 1
        assert await raw.fetch("SELECT * FROM ledger") == [(1,)]


@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
async def test_what_hits_the_reset_after_the_commit_is_no_failure(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    write, tasks = PostgresTransaction._write, list[Any]()
    async with running(place) as (app, raw):

        async def hit_soon(self: Any, batch: Any) -> Any:
            row, hit = await write(self, batch), f"SELECT {how}({self._guest.get_server_pid()})"
            self._guest.ending = self._guest.ending.replace("COMMIT;", "COMMIT; SELECT pg_sleep(10);")
            asyncio.get_running_loop().call_later(0.1, lambda: tasks.append(asyncio.ensure_future(raw.execute(hit))))
            return row

        monkeypatch.setattr(PostgresTransaction, "_write", hit_soon)
        assert await (await app.start_workflow(books)).result(20) == 1
        await asyncio.gather(*tasks)
        assert await raw.fetch("SELECT * FROM ledger") == [(1,)]
        assert "failed" not in caplog.text


@activity(transactional=True, retry=RetryPolicy(max_attempts=1))
async def leave(ctx: TransactionContext, what: str) -> tuple[str, str, str | None]:
    seen = await ctx.connection.fetchrow("SELECT current_user::text, session_user::text, to_regclass('t')::text")
    await ctx.connection.execute(what)
    return tuple(seen)


@workflow
async def leaves(ctx: WorkflowContext, what: str) -> bool:
    return await leave(ctx, what) == await leave(ctx, what)


@pytest.mark.parametrize(
    "what",
    [
        "SET ROLE pg_write_all_data",
        "SET SESSION AUTHORIZATION pg_write_all_data",
        "CREATE TEMP TABLE t (n int)",
        "PREPARE mine AS SELECT 1",
        "DEALLOCATE ALL",
    ],
)
async def test_roles_and_temporary_things_are_gone_in_the_next_transaction(place: Place, what: str) -> None:
    async with running(place) as (app, raw):
        app.register(leaves)
        await raw.execute(f'GRANT ALL ON SCHEMA "{place.schema}" TO pg_write_all_data')
        await raw.execute(f'GRANT ALL ON ALL TABLES IN SCHEMA "{place.schema}" TO pg_write_all_data')
        assert await (await app.start_workflow(leaves, what)).result(20)


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_what_an_activity_saw_before_is_no_reason_to_fail(place: Place, level: str) -> None:
    """Above READ COMMITTED, it sees the row of its instance as it was when it began, whoever has stored since."""
    barrier = asyncio.Barrier(2)
    ran: list[int] = []

    @activity(transactional=True)
    async def see(ctx: TransactionContext[Any], n: int) -> int:
        ran.append(n)
        await ctx.connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        await ctx.connection.fetchval("SELECT 1")
        if len(ran) <= 2:
            await barrier.wait()
        return n

    @workflow
    async def both(ctx: WorkflowContext) -> list[int]:
        first, second = await asyncio.gather(see(ctx, 1), see(ctx, 2))
        return [first, second, await see(ctx, 3)]

    async with App(Database(place.url, schema=place.schema), workflows=[both]) as app:
        assert await (await app.start_workflow(both)).result(30) == [1, 2, 3]


async def test_codecs_and_loggers_do_not_reach_the_next_activity(place: Place) -> None:
    heard: list[object] = []

    @activity(transactional=True)
    async def changing(ctx: TransactionContext[Any]) -> object:
        await ctx.connection.set_type_codec("jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
        ctx.connection.add_query_logger(heard.append)
        return await ctx.connection.fetchval("""SELECT '{"a": 1}'::jsonb""")

    @activity(transactional=True)
    async def plain(ctx: TransactionContext[Any]) -> object:
        heard.clear()
        return await ctx.connection.fetchval("""SELECT '{"a": 1}'::jsonb""")

    @workflow
    async def one_after_the_other(ctx: WorkflowContext) -> list[object]:
        return [await changing(ctx), *[await plain(ctx) for _ in range(3)]]

    options = WorkerOptions(max_transactions=1)
    async with App(Database(place.url, schema=place.schema), workflows=[one_after_the_other], worker=options) as app:
        seen = await (await app.start_workflow(one_after_the_other)).result(30)
    assert seen == [{"a": 1}, *['{"a": 1}'] * 3]
    assert not heard
