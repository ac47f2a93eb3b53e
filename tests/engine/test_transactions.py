"""Transactional activities: own rows, the result and sent events are committed together, or not at all."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from romancy import (
    NO_RETRY,
    ActivityContext,
    ActivityError,
    RetryPolicy,
    TransactionContext,
    WorkflowContext,
    WorkflowFailed,
    activity,
    send_event,
    sleep,
    wait_event,
    workflow,
)
from romancy.storage.sqlite import SQLiteStorage
from romancy.sync import App as SyncApp
from romancy.testing import Environment, activity_context, environment, transaction_context
from tests.engine.helpers import down, kinds, until
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


async def test_many_at_once_in_one_instance(env: Environment, ledger: Ledger) -> None:
    @activity(transactional=True)
    async def pay(ctx: TransactionContext, n: int) -> int:
        await ledger.add(ctx, f"{n:02}")
        return n

    @workflow
    async def shop(ctx: WorkflowContext) -> list[int]:
        return await asyncio.gather(*(pay(ctx, n) for n in range(30)))

    handle = await env.start(shop)
    assert await handle.result() == list(range(30))
    assert await ledger.rows() == [f"{n:02}" for n in range(30)]


async def test_plain_functions_only_on_sqlite(env: Environment, ledger: Ledger) -> None:
    @activity(transactional=True, retry=QUICK)
    def pay(ctx: TransactionContext[sqlite3.Connection], order: str) -> bool:
        ctx.connection.execute("INSERT INTO ledger VALUES (?)", (order,))
        return threading.current_thread() is threading.main_thread()

    @workflow
    async def shop(ctx: WorkflowContext) -> bool:
        return await pay(ctx, "a")

    handle = await env.start(shop)
    if ledger.is_sqlite:
        assert await handle.result() is False
        assert await ledger.rows() == ["a"]
    else:
        with pytest.raises(WorkflowFailed, match=r"after 1 attempt: TerminalError: .*`async def`"):
            await handle.result()


async def test_a_result_that_cannot_be_stored_rolls_back_for_good(env: Environment, ledger: Ledger) -> None:
    @activity(transactional=True)
    async def pay(ctx: TransactionContext) -> Any:
        await ledger.add(ctx, "a")
        return object()

    @workflow
    async def shop(ctx: WorkflowContext) -> None:
        await pay(ctx)

    with pytest.raises(WorkflowFailed, match="after 1 attempt"):
        await (await env.start(shop)).result()
    assert await ledger.rows() == []


async def test_a_constraint_checked_at_commit_is_a_failed_attempt(env: Environment) -> None:
    if isinstance(env.app._runtime.engine.storage, SQLiteStorage):
        pytest.skip("SQLite has no such constraints, apart from foreign keys")
    ledger = await ledger_of(env, "entry text UNIQUE DEFERRABLE INITIALLY DEFERRED")

    @activity(transactional=True)
    async def pay(ctx: TransactionContext) -> int:
        if ctx.attempt == 1:
            await ledger.run(ctx, f"INSERT INTO {ledger.table} VALUES ('a'), ('a')")
        return ctx.attempt

    @workflow
    async def shop(ctx: WorkflowContext) -> int:
        return await pay(ctx)

    handle = await env.start(shop)
    await env.advance(10)
    assert await handle.result() == 2
    assert await ledger.rows() == []


async def test_listed_exceptions_roll_back_and_reach_the_workflow(env: Environment, ledger: Ledger) -> None:
    class Refused(Exception):
        pass

    @activity(transactional=True, raises=[Refused])
    async def pay(ctx: TransactionContext) -> None:
        await ledger.add(ctx, "a")
        raise Refused("no money")

    @workflow
    async def shop(ctx: WorkflowContext) -> str:
        try:
            await pay(ctx)
        except Refused as refused:
            return str(refused)
        return ""

    assert await (await env.start(shop)).result() == "no money"
    assert await ledger.rows() == []


async def test_fakes_and_plain_calls(env: Environment) -> None:
    @activity(transactional=True)
    async def pay(ctx: TransactionContext[Any], order: str) -> str:
        return f"{order} {ctx.connection} {ctx.state}"

    @workflow
    async def shop(ctx: WorkflowContext) -> str:
        return await pay(ctx, "x")

    env.replace(pay, lambda order: order * 2)
    assert await (await env.start(shop)).result() == "xx"
    assert await pay.fn(transaction_context("conn", state="s"), "x") == "x conn s"


async def test_what_the_type_of_ctx_says() -> None:
    with pytest.raises(TypeError, match=r"write @activity\(transactional=True\)"):

        @activity
        async def pay(ctx: TransactionContext) -> None: ...

    with pytest.raises(AttributeError, match=r"write @activity\(transactional=True\)"):
        _ = activity_context().connection  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = activity_context().other  # type: ignore[attr-defined]


# --- no way out of the transaction ------------------------------------------------------------------------------------
WAYS_OUT = ["COMMIT", "ROLLBACK", "BEGIN", "END", "-- now\n commit", "SELECT 1; COMMIT"]


@pytest.mark.parametrize("way", WAYS_OUT)
async def test_statements_cannot_end_the_transaction(env: Environment, ledger: Ledger, way: str) -> None:
    @activity(transactional=True)
    async def pay(ctx: TransactionContext) -> None:
        await ledger.add(ctx, "before")
        try:
            await ledger.run(ctx, way)
        except Exception:
            await ledger.add(ctx, "after")
            raise

    @workflow
    async def shop(ctx: WorkflowContext) -> None:
        await pay(ctx)

    with pytest.raises(WorkflowFailed):
        await (await env.start(shop)).result()
    assert await ledger.rows() == []


@pytest.mark.sqlite
@pytest.mark.parametrize("way", ["commit", "rollback", "with", "script", "isolation", "attach"])
async def test_methods_cannot_end_the_transaction(env: Environment, ledger: Ledger, way: str) -> None:
    @activity(transactional=True, retry=NO_RETRY)
    def pay(ctx: TransactionContext[sqlite3.Connection]) -> None:
        connection = ctx.connection
        connection.execute("INSERT INTO ledger VALUES ('before')")
        try:
            match way:
                case "commit":
                    connection.commit()
                case "rollback":
                    connection.rollback()
                case "with":
                    with connection:
                        pass
                case "script":
                    connection.executescript("SELECT 1")
                case "isolation":
                    connection.isolation_level = None
                case _:
                    connection.execute("ATTACH ':memory:' AS other")
        finally:
            connection.execute("INSERT INTO ledger VALUES ('after')")

    @workflow
    async def shop(ctx: WorkflowContext) -> None:
        await pay(ctx)

    with pytest.raises(WorkflowFailed):
        await (await env.start(shop)).result()
    assert await ledger.rows() == []


@pytest.mark.sqlite
async def test_nothing_is_written_after_sqlite_rolled_back_by_itself(env: Environment) -> None:
    ledger = await ledger_of(env, "entry text PRIMARY KEY ON CONFLICT ROLLBACK")

    @activity(transactional=True, retry=NO_RETRY)
    def pay(ctx: TransactionContext[sqlite3.Connection]) -> None:
        for entry in "aab":
            with contextlib.suppress(sqlite3.IntegrityError):
                ctx.connection.execute("INSERT INTO ledger VALUES (?)", (entry,))

    @workflow
    async def shop(ctx: WorkflowContext) -> None:
        await pay(ctx)

    with pytest.raises(WorkflowFailed, match="rolled back"):
        await (await env.start(shop)).result()
    assert await ledger.rows() == []


async def test_savepoints_work(env: Environment, ledger: Ledger) -> None:
    @activity(transactional=True)
    async def pay(ctx: TransactionContext) -> None:
        await ledger.add(ctx, "kept")
        await ledger.run(ctx, "SAVEPOINT part")
        await ledger.add(ctx, "undone")
        await ledger.run(ctx, "ROLLBACK TO part")
        await ledger.run(ctx, "RELEASE part")
        if isinstance(ctx.connection, asyncpg.Connection):
            async with ctx.connection.transaction():
                await ledger.add(ctx, "nested")

    @workflow
    async def shop(ctx: WorkflowContext) -> None:
        await pay(ctx)

    await (await env.start(shop)).result()
    assert await ledger.rows() == (["kept"] if ledger.is_sqlite else ["kept", "nested"])


async def test_what_an_activity_leaves_on_its_connection_is_gone(env: Environment, ledger: Ledger) -> None:
    @activity(transactional=True)
    async def pay(ctx: TransactionContext, first: bool) -> Any:
        connection: Any = ctx.connection
        if not ledger.is_sqlite:
            if first:
                await connection.execute("SET search_path = nowhere")
            return await connection.fetchval("SHOW search_path") == "nowhere"
        if first:
            connection.row_factory = lambda cursor, row: {"row": row}
            connection.text_factory = bytes
            connection.unread = connection.execute("SELECT 1 UNION SELECT 2")
        return connection.row_factory is not None

    @workflow
    async def shop(ctx: WorkflowContext) -> list[bool]:
        return [await pay(ctx, True), await pay(ctx, False)]

    assert await (await env.start(shop)).result() == [True, False]


# --- time limits ------------------------------------------------------------------------------------------------------
@pytest.mark.sqlite
async def test_a_thread_that_timed_out_cannot_write(env: Environment, ledger: Ledger) -> None:
    begun, released, late = threading.Event(), threading.Event(), list[str]()

    @activity(transactional=True, timeout=1, retry=NO_RETRY)
    def pay(ctx: TransactionContext[sqlite3.Connection]) -> None:
        connection, insert = ctx.connection, "INSERT INTO ledger VALUES ('late')"
        cursor = connection.execute(insert)
        begun.set()
        assert released.wait(20)
        for run in (connection.execute, cursor.execute):
            try:
                run(insert)  # Python has kept the prepared statement, so SQLite would not ask the authorizer
            except Exception as error:
                late.append(type(error).__name__)

    @workflow
    async def shop(ctx: WorkflowContext) -> str:
        try:
            await pay(ctx)
        except ActivityError as error:
            return error.error_type
        return ""

    env.app.register(shop)
    handle = await env.app.start_workflow(shop)
    await until(begun.is_set)
    env.clock.turn_to(env.clock.now() + 2_000_000)
    assert await handle.result() == "TimeoutError"
    assert await ledger.rows() == []
    await ledger.outside("INSERT INTO ledger VALUES ('others')")
    released.set()
    await until(lambda: len(late) == 2)
    assert await ledger.rows() == ["others"]


async def test_a_function_on_the_loop_that_takes_too_long(env: Environment, ledger: Ledger) -> None:
    begun = asyncio.Event()

    @activity(transactional=True, timeout=None if ledger.is_sqlite else 5, retry=NO_RETRY)
    async def pay(ctx: TransactionContext) -> None:
        await ledger.add(ctx, "a")
        begun.set()
        await asyncio.Event().wait()

    @workflow
    async def shop(ctx: WorkflowContext) -> None:
        await pay(ctx)

    env.app.register(shop)
    handle = await env.app.start_workflow(shop)
    await begun.wait()
    env.clock.turn_to(env.clock.now() + 5_000_000)
    with pytest.raises(WorkflowFailed, match=r"longer than (its timeout of 5 s|5 s, the limit of its transaction)"):
        await handle.result()
    assert await ledger.rows() == []


# --- cancellation -----------------------------------------------------------------------------------------------------
async def test_cancelled_while_it_runs(env: Environment, ledger: Ledger) -> None:
    begun, released = asyncio.Event(), asyncio.Event()

    @activity(transactional=True)
    async def pay(ctx: TransactionContext) -> None:
        await ledger.add(ctx, "a")
        begun.set()
        await released.wait()

    @workflow
    async def shop(ctx: WorkflowContext) -> None:
        await pay(ctx)

    env.app.register(shop)
    handle = await env.app.start_workflow(shop)
    await begun.wait()
    if ledger.is_sqlite:
        asking = asyncio.create_task(handle.cancel())  # it is stored after the transaction
        await asyncio.sleep(0)
        released.set()
        await asking
        assert await ledger.rows() == ["a"], "its turn came first"
    else:
        await handle.cancel()
        assert (await handle.status()) == "cancelled"
        assert await ledger.rows() == []


# --- restarts ---------------------------------------------------------------------------------------------------------
async def test_a_death_between_the_transaction_and_the_next_step(env: Environment, ledger: Ledger) -> None:
    """The code sends an event after the call. The result is stored, but the code was never fed it."""
    runs: list[int] = []

    @activity(transactional=True)
    async def pay(ctx: TransactionContext) -> int:
        runs.append(ctx.attempt)
        await ledger.add(ctx, "a")
        return 7

    @workflow
    async def shop(ctx: WorkflowContext) -> list[Any]:
        paid = await pay(ctx)
        await send_event(ctx, "paid", "shop", {"paid": paid})
        event = await wait_event(ctx, "paid")
        return [paid, event.data]

    engine = env.app._runtime.engine
    stored = engine.committer.stored_apart
    died = asyncio.Event()

    def die(*args: Any) -> None:
        engine.inboxes.close()
        engine.inboxes.ready.clear()
        died.set()

    engine.committer.stored_apart = die  # type: ignore[method-assign]
    env.app.register(shop)
    handle = await env.app.start_workflow(shop)
    await died.wait()
    engine.committer.stored_apart = stored  # type: ignore[method-assign]
    async with down(env):
        assert await ledger.rows() == ["a"]
    for _ in range(5):
        await env.advance(60)
    assert await handle.result() == [7, {"paid": 7}]
    assert runs == [1]
    assert await ledger.rows() == ["a"]


async def test_a_worker_that_was_taken_over_commits_nothing(env: Environment, ledger: Ledger) -> None:
    runs: list[int] = []

    @activity(transactional=True)
    async def pay(ctx: TransactionContext) -> int:
        runs.append(1)
        await ledger.add(ctx, str(len(runs)))
        if len(runs) == 1 and not ledger.is_sqlite:
            engine = env.app._runtime.engine
            await engine.storage.take_over("", [engine.worker_id or ""])
        return len(runs)

    @workflow
    async def shop(ctx: WorkflowContext) -> int:
        return await pay(ctx)

    handle = await env.start(shop)
    for _ in range(5):
        await env.advance(30)
    paid = await handle.result()
    assert await ledger.rows() == [str(paid)]
    assert paid == (1 if ledger.is_sqlite else 2)


# --- together with other features -------------------------------------------------------------------------------------
async def test_beside_children_and_other_activities(env: Environment, ledger: Ledger) -> None:
    @activity(transactional=True)
    async def pay(ctx: TransactionContext, n: int) -> int:
        await ledger.add(ctx, str(n))
        return n

    @workflow
    async def child(ctx: WorkflowContext, n: int) -> int:
        return await pay(ctx, n)

    @activity
    async def plain(ctx: ActivityContext, n: int) -> int:
        return n

    @workflow
    async def parent(ctx: WorkflowContext) -> list[int]:
        first = [pay(ctx, 1), child(ctx, 2), plain(ctx, 3), pay(ctx, 4), child(ctx, 5)]
        return [*await asyncio.gather(*first), await child(ctx, 6), await pay(ctx, 7)]

    env.app.register(child)
    assert await (await env.start(parent)).result() == [1, 2, 3, 4, 5, 6, 7]
    assert await ledger.rows() == ["1", "2", "4", "5", "6", "7"]


async def test_undos_can_be_transactional(env: Environment, ledger: Ledger) -> None:
    @activity(transactional=True)
    async def pay(ctx: TransactionContext, order: str) -> str:
        await ledger.add(ctx, order)
        return order

    @activity(transactional=True)
    async def refund(ctx: TransactionContext, order: str) -> None:
        await ledger.run(ctx, f"DELETE FROM {ledger.table} WHERE entry = 'a'")

    pay.compensate(refund)

    @workflow
    async def shop(ctx: WorkflowContext) -> None:
        await pay(ctx, "a")
        await pay(ctx, "b")
        raise ValueError("no")

    with pytest.raises(WorkflowFailed, match="no"):
        await (await env.start(shop)).result()
    assert await ledger.rows() == ["b"]


@pytest.mark.sqlite
def test_the_blocking_api(db: str) -> None:
    @activity(transactional=True)
    def pay(ctx: TransactionContext[sqlite3.Connection], order: str) -> int:
        ctx.connection.execute("INSERT INTO ledger VALUES (?)", (order,))
        return ctx.connection.execute("SELECT count(*) FROM ledger").fetchone()[0]

    @workflow
    async def shop(ctx: WorkflowContext) -> int:
        return await pay(ctx, "a")

    outside = sqlite3.connect(db)
    outside.execute("CREATE TABLE ledger (entry)")
    with SyncApp(db, workflows=[shop]) as app:
        assert app.start_workflow(shop).result(timeout=20) == 1
    assert outside.execute("SELECT * FROM ledger").fetchall() == [("a",)]
    outside.close()


async def test_an_event_that_cannot_be_prepared(
    env: Environment, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong before the commit, the transaction ends, and others can write."""

    @activity(transactional=True, retry=NO_RETRY)
    async def pay(ctx: TransactionContext) -> None:
        await ledger.add(ctx, "a")
        ctx.send_event("paid", "shop")

    @workflow
    async def shop(ctx: WorkflowContext) -> None:
        await pay(ctx)

    def broken(event: Any) -> Any:
        raise OSError("it can't be prepared")

    with monkeypatch.context() as patch:
        patch.setattr(env.app._runtime.engine.delivery, "prepare", broken)
        with pytest.raises(WorkflowFailed, match="can't be prepared"):
            await (await env.start(shop)).result()
    assert await ledger.rows() == []
    await (await env.start(shop)).result()
    assert await ledger.rows() == ["a"]


@pytest.mark.parametrize("verb", ["close", "terminate"])
async def test_an_activity_that_closes_its_connection_fails_at_once(
    env: Environment, ledger: Ledger, verb: str
) -> None:
    if ledger.is_sqlite and verb == "terminate":
        pytest.skip("its connections have no such method")
    tries: list[int] = []

    @activity(transactional=True)
    async def closing(ctx: TransactionContext) -> None:
        tries.append(1)
        await ledger.add(ctx, "a")
        done = getattr(ctx.connection, verb)()
        if done is not None:
            await done

    @workflow
    async def shop(ctx: WorkflowContext) -> None:
        await closing(ctx)

    with pytest.raises(WorkflowFailed, match=rf"{verb}\(\) can't be used in a transactional activity"):
        await (await env.start(shop)).result()
    assert len(tries) == 1
    assert await ledger.rows() == []
