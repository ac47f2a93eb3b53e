"""Transactions on SQLite that are rolled back while a thread, or an unread cursor, still uses their connection."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from romancy import NO_RETRY, ActivityError, App, TerminalError, TransactionContext, WorkflowContext, activity, workflow
from romancy.storage.sqlite.guest import BEGIN, Guest

pytestmark = [pytest.mark.timeout(60), pytest.mark.sqlite]


@pytest.fixture
def outside(db: str) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(db, timeout=5)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE ledger (entry)")
    yield connection
    connection.close()


def lent(db: str) -> Guest:
    guest = sqlite3.connect(db, isolation_level=None, check_same_thread=False, factory=Guest)
    guest.execute(BEGIN)
    guest.lend()
    return guest


def test_a_thread_that_prepares_statements_all_the_time(db: str, outside: sqlite3.Connection) -> None:
    """SQLite asks the authorizer then, which needs the interpreter's lock: cutting must not wait with it."""
    for _ in range(10):
        guest, begun, errors = lent(db), threading.Event(), list[Exception]()

        def work(guest: Guest = guest, begun: threading.Event = begun, errors: list[Exception] = errors) -> None:
            n = 0
            try:
                while True:
                    n += 1
                    guest.execute(f"INSERT INTO ledger VALUES ({n})")
                    begun.set()
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        assert begun.wait(10)
        guest.cut()
        thread.join(10)
        assert len(errors) == 1
    with outside:
        outside.execute("INSERT INTO ledger VALUES ('others')")
    assert outside.execute("SELECT * FROM ledger").fetchall() == [("others",)]


def test_a_thread_in_a_function_of_the_users_own(db: str, outside: sqlite3.Connection) -> None:
    guest, begun, released = lent(db), threading.Event(), threading.Event()

    def slow() -> int:
        begun.set()
        released.wait(10)
        return 1

    def work() -> None:
        with pytest.raises(Exception, match=r"interrupted|is over"):
            guest.execute("INSERT INTO ledger SELECT slow()")

    guest.create_function("slow", 0, slow)
    thread, cutting = threading.Thread(target=work), threading.Thread(target=guest.cut)
    thread.start()
    assert begun.wait(10)
    cutting.start()
    released.set()
    cutting.join(10)
    thread.join(10)
    assert not cutting.is_alive()
    assert outside.execute("SELECT * FROM ledger").fetchall() == []


@pytest.mark.parametrize("factory", [None, sqlite3.Cursor, type("Mine", (sqlite3.Cursor,), {})])
def test_a_cursor_of_any_class_is_cut_off(db: str, outside: sqlite3.Connection, factory: Any) -> None:
    guest = lent(db)
    cursor = guest.cursor() if factory is None else guest.cursor(factory)
    assert isinstance(cursor, factory or sqlite3.Cursor)
    cursor.executemany("INSERT INTO ledger VALUES (?)", ((n,) for n in range(3)))
    assert cursor.execute("SELECT * FROM ledger").fetchone() == (0,)
    assert [cursor.fetchmany(), cursor.fetchall()] == [[(1,)], [(2,)]]
    guest.cut()
    with pytest.raises(Exception, match=r"is over|closed"):
        cursor.execute("INSERT INTO ledger VALUES (4)")
    assert outside.execute("SELECT * FROM ledger").fetchall() == []


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_error_while_rows_are_unread(db: str, outside: sqlite3.Connection, is_async: bool) -> None:
    """An open cursor would interrupt the ROLLBACK as well."""
    kept: list[Any] = []

    def add(ctx: TransactionContext[sqlite3.Connection]) -> None:
        ctx.connection.execute("INSERT INTO ledger VALUES (1), (2)")
        kept.append(ctx.connection.execute("SELECT * FROM ledger"))
        for _ in kept[0]:
            raise ValueError("no")

    if is_async:

        @activity(transactional=True, retry=NO_RETRY)
        async def pay(ctx: TransactionContext[sqlite3.Connection]) -> None:
            add(ctx)
    else:

        @activity(transactional=True, retry=NO_RETRY)
        def pay(ctx: TransactionContext[sqlite3.Connection]) -> None:
            add(ctx)

    @workflow
    async def shop(ctx: WorkflowContext) -> str:
        try:
            await pay(ctx)
        except ActivityError as error:
            return error.error_type
        return ""

    async with App(db, workflows=[shop]) as app:
        assert await (await app.start_workflow(shop)).result(timeout=10) == "ValueError"
        with outside:
            outside.execute("INSERT INTO ledger VALUES ('others')")
    assert outside.execute("SELECT * FROM ledger").fetchall() == [("others",)]


CHANGES = [
    "CREATE TEMP TABLE mine (x)",
    "CREATE TEMP VIEW mine AS SELECT 1",
    "CREATE TEMP TRIGGER mine AFTER INSERT ON ledger BEGIN DELETE FROM ledger; END",
    "PRAGMA locking_mode = EXCLUSIVE",
]


@pytest.mark.parametrize("change", CHANGES)
async def test_what_an_activity_changes_is_not_there_in_the_next(
    db: str, outside: sqlite3.Connection, change: str
) -> None:
    @activity(transactional=True, retry=NO_RETRY)
    def pay(ctx: TransactionContext[sqlite3.Connection], n: int) -> None:
        ctx.connection.execute("INSERT INTO ledger VALUES (?)", (n,))
        ctx.connection.execute(change)

    @workflow
    async def shop(ctx: WorkflowContext) -> None:
        await pay(ctx, 1)
        await pay(ctx, 2)

    async with App(db, workflows=[shop]) as app:
        await (await app.start_workflow(shop)).result(timeout=10)
    assert outside.execute("SELECT * FROM ledger").fetchall() == [(1,), (2,)]


def test_the_authorizer_cannot_be_replaced(db: str, outside: sqlite3.Connection) -> None:
    guest = lent(db)
    with pytest.raises(TerminalError, match="set_authorizer"):
        guest.set_authorizer(None)
    guest.cut()
