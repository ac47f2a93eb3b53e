"""Guests: connections of the user's own, on which a start or an event is left in the inbox, inside their transaction.

One INSERT with named values suits every driver; nothing is read from a caller's tables, and no type is registered. The
drivers are recognized by the modules of their classes, so that none of them needs to be installed.
"""

from __future__ import annotations

import os
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from romancy.errors import NotInTransaction
from romancy.storage.sql import Statement

_TYPED = re.compile(r"(?<!:):(\w+)::(\w+)")
_NAMED = re.compile(r"(?<!:):(\w+)")
_FILES = "PRAGMA database_list"
"""The first row is the main database. It does not begin to read the file: if others wrote after that, SQLite would no
longer let the transaction write."""
_NO_TABLE = ("42P01", "3F000")
"""SQLSTATEs: undefined table, undefined schema."""
_NOT_OPEN = "no transaction is open on this connection, so this would be stored on its own"


@dataclass(frozen=True)
class Inbox:
    """Where guests leave things: one database."""

    dialect: str
    """"sqlite" or "postgresql"."""
    name: str
    """The database, as it can be shown to people."""
    text: str
    """The INSERT, with parameters as `:name::type`."""
    statement: Statement
    """The same with numbered parameters."""
    place: Mapping[str, Any]
    """Further values of the INSERT: what this database is, and whom to notify."""
    file: str | None = None
    seal: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Seals a row, if values are sealed."""

    @property
    def named(self) -> str:
        """The INSERT with parameters as `:name`."""
        return _TYPED.sub(r"CAST(:\1 AS \2)", self.text)

    @property
    def formatted(self) -> str:
        """The INSERT with parameters as `%(name)s`."""
        return _NAMED.sub(r"%(\1)s", self.named)

    @contextmanager
    def insertion(self) -> Generator[None]:
        """Insert in this block: an error of the server that says that the table is missing becomes a clear one."""
        try:
            yield
        except Exception as error:
            if _sqlstate(error) not in _NO_TABLE:
                raise
            raise NotInTransaction(
                f"the database of this connection has no tables of Romancy, so it is not the app's, {self.name}; pass "
                "a connection to that database (your transaction is aborted: roll it back)"
            ) from error

    def check_count(self, count: int) -> None:
        """Check that the row was stored."""
        if count != 1:
            raise NotInTransaction(
                f"this connection is not in a transaction of the app's database, {self.name}; begin one on a "
                "connection to that database, or start and send through the app itself"
            )

    def check_files(self, databases: Sequence[Any]) -> None:
        """Check that the main database of a connection is this one: a commit is not atomic over several files.

        `databases`: the answer to `_FILES`.
        """
        if self.file == ":memory:":
            raise NotInTransaction("the app's database is in memory, so no connection leads there; give the app a file")
        (_, _, main), *others = databases
        if self._is_mine(main):
            return
        where = f"is {os.fsdecode(main)!r}" if main else "is in memory"
        name = next((name for _, name, file in others if self._is_mine(file)), None)
        if name is None:
            raise NotInTransaction(
                f"this connection's main database {where}, not the app's, {self.name!r}; pass a connection to that file"
            )
        raise NotInTransaction(
            f"the app's database, {self.name!r}, is only attached to this connection, as {name!r}. Its main database "
            f"{where}, and a transaction over several files is not atomic: after a crash, only one of them may have "
            "been committed. Connect to the app's file itself, and keep your tables in it"
        )

    def _is_mine(self, file: Any) -> bool:
        mine = self.file or ""
        return bool(file and mine) and os.path.exists(mine) and os.path.samefile(os.fsdecode(file), mine)


class Guest(ABC):
    """A caller's connection."""

    dialect: str
    is_async = False
    """Whether `leave` returns an awaitable."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    @abstractmethod
    def check(self) -> None:
        """Raise `NotInTransaction` if what is left now would not be part of a transaction."""

    @abstractmethod
    def leave(self, inbox: Inbox, row: dict[str, Any]) -> Awaitable[None] | None:
        """Insert a row into the inbox."""


def _sqlstate(error: BaseException | None) -> str | None:
    """Return the code of an error of PostgreSQL. SQLAlchemy and Django wrap the errors of the drivers."""
    while error is not None:
        code = getattr(error, "sqlstate", None)
        if code is not None:
            return code
        error = getattr(error, "orig", None) or error.__cause__
    return None


def guest_for(connection: object, inbox: Inbox) -> Guest:
    """Return the guest for a connection, checked; the error says what can be used instead."""
    found = _find(connection)
    if found is None:
        raise TypeError(
            f"within() takes a connection of asyncpg, psycopg 3, sqlite3, aiosqlite, SQLAlchemy or Django, or a "
            f"SQLAlchemy session, not {connection!r}"
        )
    if found.dialect != inbox.dialect:
        raise NotInTransaction(
            f"this is a connection to {found.dialect!r}, but the app's database is {inbox.name!r}; pass a connection "
            "to that database"
        )
    found.check()
    return found


def _find(connection: Any) -> Guest | None:
    for base in type(connection).__mro__:
        make = _KINDS.get((base.__module__.partition(".")[0], base.__name__))
        if make is not None:
            return make(connection)
    return None


# --- drivers ---------------------------------------------------------------------------------------------------------
class AsyncpgGuest(Guest):
    """An asyncpg connection, perhaps of a pool."""

    dialect, is_async = "postgresql", True

    def check(self) -> None:
        if not self.connection.is_in_transaction():
            raise NotInTransaction(f"{_NOT_OPEN}; use `async with connection.transaction():`")

    async def leave(self, inbox: Inbox, row: dict[str, Any]) -> None:
        self.check()
        with inbox.insertion():
            status = await self.connection.execute(inbox.statement.sql, *inbox.statement.values(row))
        inbox.check_count(int(status.rpartition(" ")[2]))


class PsycopgGuest(Guest):
    """A connection of psycopg 3. Unless it is in autocommit mode, the first statement begins a transaction.

    Its own cursors may be of a class with other parameters. In a pipeline, answers have to be awaited: the end of a
    pipeline inside of it does so.
    """

    dialect = "postgresql"

    def check(self) -> None:
        c = self.connection
        if c.autocommit and c.info.transaction_status.name == "IDLE":
            raise NotInTransaction(f"{_NOT_OPEN}; use `with connection.transaction():`")

    @property
    def _is_pipeline(self) -> bool:
        return self.connection.info.pipeline_status.name == "ON"

    def leave(self, inbox: Inbox, row: dict[str, Any]) -> Awaitable[None] | None:
        from psycopg import Cursor  # of the caller, who uses it

        self._catch_up()
        self.check()
        opened: Any = Cursor(self.connection)
        with inbox.insertion(), opened as cursor:
            cursor.execute(inbox.formatted, row)
            self._catch_up()
            inbox.check_count(cursor.rowcount)
        return None

    def _catch_up(self) -> None:
        if self._is_pipeline:
            with self.connection.pipeline():
                pass


class AsyncPsycopgGuest(PsycopgGuest):
    """An asynchronous connection of psycopg 3."""

    is_async = True

    async def leave(self, inbox: Inbox, row: dict[str, Any]) -> None:
        from psycopg import AsyncCursor  # of the caller, who uses it

        await self._catch_up_async()
        self.check()
        opened: Any = AsyncCursor(self.connection)
        with inbox.insertion():
            async with opened as cursor:
                await cursor.execute(inbox.formatted, row)
                await self._catch_up_async()
                inbox.check_count(cursor.rowcount)

    async def _catch_up_async(self) -> None:
        if self._is_pipeline:
            async with self.connection.pipeline():
                pass


class SQLiteGuest(Guest):
    """A connection of sqlite3. Unless it is in autocommit mode, the INSERT begins a transaction."""

    dialect = "sqlite"

    def check(self) -> None:
        c = self.connection
        is_automatic = getattr(c, "autocommit", -1) is True or c.isolation_level is None
        if is_automatic and not c.in_transaction:
            raise NotInTransaction(f"{_NOT_OPEN}; begin one with connection.execute('BEGIN IMMEDIATE')")

    def leave(self, inbox: Inbox, row: dict[str, Any]) -> Awaitable[None] | None:
        self.check()
        cursor: sqlite3.Cursor = self.connection.cursor()
        cursor.row_factory = None
        try:
            inbox.check_files(cursor.execute(_FILES).fetchall())
            cursor.execute(inbox.named, row)
        finally:
            cursor.close()
        return None


class AiosqliteGuest(SQLiteGuest):
    """A connection of aiosqlite."""

    is_async = True

    async def leave(self, inbox: Inbox, row: dict[str, Any]) -> None:
        self.check()
        async with self.connection.cursor() as cursor:
            cursor.row_factory = None
            await cursor.execute(_FILES)
            inbox.check_files([*await cursor.fetchall()])
            await cursor.execute(inbox.named, row)


class AlchemyGuest(Guest):
    """A SQLAlchemy connection. It begins transactions by itself, so everything goes through it, not the driver."""

    @property
    def dialect(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._sync.dialect.name

    @property
    def _sync(self) -> Any:
        return self.connection

    def check(self) -> None:
        check_alchemy(self._sync)

    def leave(self, inbox: Inbox, row: dict[str, Any]) -> Awaitable[None] | None:
        _leave_by_alchemy(self._sync, inbox, row)
        return None


class AsyncAlchemyGuest(AlchemyGuest):
    """An asynchronous SQLAlchemy connection."""

    is_async = True

    @property
    def _sync(self) -> Any:
        return self.connection.sync_connection

    async def leave(self, inbox: Inbox, row: dict[str, Any]) -> None:
        await self.connection.run_sync(_leave_by_alchemy, inbox, row)


class SessionGuest(AlchemyGuest):
    """A SQLAlchemy session: its connection, once it is needed."""

    @property
    def dialect(self) -> str:
        return self.connection.get_bind().dialect.name

    def check(self) -> None:
        """A session always works in a transaction, unless its engine is in autocommit mode."""

    def leave(self, inbox: Inbox, row: dict[str, Any]) -> Awaitable[None] | None:
        _leave_by_session(self.connection, inbox, row)
        return None


class AsyncSessionGuest(SessionGuest):
    """An asynchronous SQLAlchemy session."""

    is_async = True

    async def leave(self, inbox: Inbox, row: dict[str, Any]) -> None:
        await self.connection.run_sync(_leave_by_session, inbox, row)


def check_alchemy(connection: Any) -> None:
    """Refuse a connection in autocommit mode."""
    level = connection.get_execution_options().get("isolation_level")
    level = level or getattr(connection.dialect, "_on_connect_isolation_level", None)
    if level == "AUTOCOMMIT":
        raise NotInTransaction(f"{_NOT_OPEN}; use a connection without isolation_level='AUTOCOMMIT'")


def _leave_by_session(session: Any, inbox: Inbox, row: dict[str, Any]) -> None:
    _leave_by_alchemy(session.connection(), inbox, row)


def _leave_by_alchemy(connection: Any, inbox: Inbox, row: dict[str, Any]) -> None:
    from sqlalchemy import BigInteger, LargeBinary, Text, bindparam, text  # of the caller, who uses it

    check_alchemy(connection)
    if inbox.dialect == "sqlite":
        inbox.check_files(connection.execute(text(_FILES)).all())
    _check_driver(connection.connection.driver_connection)
    statement = text(inbox.named)
    kinds: dict[str, Any] = {"int": BigInteger(), "bytes": LargeBinary()}
    used = {name: row[name] for name in inbox.statement.names}
    typed = [bindparam(name, type_=kinds.get(_kind(value), Text())) for name, value in used.items()]
    with inbox.insertion():
        done = connection.execute(statement.bindparams(*typed), used)
    inbox.check_count(done.rowcount)


def _check_driver(connection: Any) -> None:
    """Refuse a connection that the driver was told to open in autocommit mode, which SQLAlchemy does not know of."""
    guest = _find(connection)
    if isinstance(guest, PsycopgGuest | SQLiteGuest):  # asyncpg has not begun yet; the server checks it
        guest.check()


def _kind(value: object) -> str:
    return type(value).__name__


class DjangoGuest(Guest):
    """A Django connection, as in `django.db.connection`."""

    @property
    def dialect(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.connection.vendor

    def check(self) -> None:
        if not self.connection.in_atomic_block and self.connection.get_autocommit():
            raise NotInTransaction(f"{_NOT_OPEN}; use `with transaction.atomic():`")

    def leave(self, inbox: Inbox, row: dict[str, Any]) -> Awaitable[None] | None:
        self.check()
        with self.connection.cursor() as cursor:
            if inbox.dialect == "sqlite":
                cursor.execute(_FILES)
                inbox.check_files(cursor.fetchall())
            with inbox.insertion():
                cursor.execute(inbox.formatted, {name: row[name] for name in inbox.statement.names})
            inbox.check_count(cursor.rowcount)
        return None


def _of_registry(make: Callable[[Any], Guest]) -> Callable[[Any], Guest]:
    """Return a guest for the session that a scoped session stands for."""
    return lambda scoped: make(scoped())


_KINDS: Mapping[tuple[str, str], Callable[[Any], Guest]] = {
    ("sqlite3", "Connection"): SQLiteGuest,
    ("asyncpg", "Connection"): AsyncpgGuest,
    ("asyncpg", "PoolConnectionProxy"): AsyncpgGuest,
    ("psycopg", "Connection"): PsycopgGuest,
    ("psycopg", "AsyncConnection"): AsyncPsycopgGuest,
    ("aiosqlite", "Connection"): AiosqliteGuest,
    ("sqlalchemy", "Connection"): AlchemyGuest,
    ("sqlalchemy", "AsyncConnection"): AsyncAlchemyGuest,
    ("sqlalchemy", "Session"): SessionGuest,
    ("sqlalchemy", "AsyncSession"): AsyncSessionGuest,
    ("sqlalchemy", "scoped_session"): _of_registry(SessionGuest),
    ("sqlalchemy", "async_scoped_session"): _of_registry(AsyncSessionGuest),
    ("django", "ConnectionProxy"): DjangoGuest,
    ("django", "BaseDatabaseWrapper"): DjangoGuest,
}
"""By the package and the name of a class."""
