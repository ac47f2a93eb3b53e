"""The connection that a transactional activity uses. Its transaction can't be ended from there.

SQLite asks the authorizer when it prepares a statement, but not when Python runs one again that it has kept. So our own
BEGIN and COMMIT have a text that differs from the user's.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from typing import Any, NoReturn

from romancy.errors import TerminalError
from romancy.storage.sqlite.connection import Connection

BEGIN, COMMIT, ROLLBACK = "BEGIN IMMEDIATE /* romancy */", "COMMIT /* romancy */", "ROLLBACK /* romancy */"
_ENDS = frozenset({sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH})
_TEMPORARY = frozenset(
    {
        sqlite3.SQLITE_CREATE_TEMP_TABLE,
        sqlite3.SQLITE_CREATE_TEMP_VIEW,
        sqlite3.SQLITE_CREATE_TEMP_TRIGGER,
        sqlite3.SQLITE_CREATE_TEMP_INDEX,
    }
)
_INTERRUPT_EVERY = 0.01
"""Seconds."""
_OVER = "its transaction is over; use ctx.connection only in the activity's own function, and within its time limit"
_REFUSED = (
    "{what} can't be used in a transactional activity: Romancy commits its transaction together with its result, or "
    "rolls it back if the activity raises an error. Use SAVEPOINT to undo parts of it"
)


class GuestCursor(sqlite3.Cursor):
    """A cursor that only works while its connection is lent, in one thread at a time: see `Guest.cut`."""

    def execute(self, sql: str, parameters: Any = (), /) -> GuestCursor:
        guest = _guest(self)
        with guest.busy:
            guest.check()
            try:
                super().execute(sql, parameters)
            except sqlite3.DatabaseError as error:
                guest.explain(error)
                raise
        return self

    def executemany(self, sql: str, parameters: Any, /) -> GuestCursor:
        guest, given = _guest(self), list(parameters)  # a generator may take its time, and is not in SQLite
        with guest.busy:
            guest.check()
            try:
                super().executemany(sql, given)
            except sqlite3.DatabaseError as error:
                guest.explain(error)
                raise
        return self

    def executescript(self, sql_script: str, /) -> NoReturn:
        raise TerminalError(_REFUSED.format(what="executescript(), which commits first,"))

    def fetchone(self) -> Any:
        with _guest(self).busy:
            return super().fetchone()

    def fetchmany(self, size: int | None = None) -> list[Any]:
        with _guest(self).busy:
            return super().fetchmany(self.arraysize if size is None else size)

    def fetchall(self) -> list[Any]:
        with _guest(self).busy:
            return super().fetchall()

    def __next__(self) -> Any:
        with _guest(self).busy:
            return super().__next__()

    def close(self) -> None:
        with _guest(self).busy:
            super().close()


class Guest(Connection):
    """A connection that is lent to one activity after another."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.is_lent = False
        self.is_cut = False
        self.busy = threading.RLock()
        """Held by the thread that is in SQLite."""
        self._owner: int | None = None
        """The only thread that can use it: the one that commits its transaction."""
        self._refused = ""
        self._cursors: weakref.WeakSet[sqlite3.Cursor] = weakref.WeakSet()
        self.is_changed = False
        """It has settings or temporary tables of an activity, which the next one must not find."""
        super().set_authorizer(self._authorize)

    def _authorize(self, action: int, first: str | None, *rest: str | None) -> int:
        if self.is_lent and (action in _TEMPORARY or (action == sqlite3.SQLITE_PRAGMA and rest[0] is not None)):
            self.is_changed = True
        if action in _ENDS and self.is_lent:
            self._refused = first or "" if action == sqlite3.SQLITE_TRANSACTION else "ATTACH"
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    # --- for the activity -------------------------------------------------------------------------------------------
    def cursor(self, factory: Any = GuestCursor) -> Any:
        if not (isinstance(factory, type) and issubclass(factory, GuestCursor)):
            factory = _guarded(factory)
        with self.busy:
            if self.is_cut:
                raise TerminalError(_OVER)
            made = super().cursor(factory)
            if self.is_lent:
                self._cursors.add(made)
        return made

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        return self.cursor().execute(sql, parameters)  # not `super()`: it makes a cursor that checks nothing

    def executemany(self, sql: str, parameters: Any, /) -> Any:
        return self.cursor().executemany(sql, parameters)

    def check(self) -> None:
        """Raise an error unless the transaction is open: a statement outside of it would be committed by itself."""
        if self.is_cut or (self._owner is not None and self._owner != threading.get_ident()):
            raise TerminalError(_OVER)
        if self.is_lent and not self.in_transaction:
            raise sqlite3.OperationalError(
                "SQLite has rolled back the transaction of this activity because of an earlier error, "
                "so that nothing more can be written; let the activity fail"
            )

    def explain(self, error: sqlite3.DatabaseError) -> None:
        """Say what was refused, instead of `not authorized`."""
        if self.is_cut:
            raise TerminalError(_OVER) from error
        refused, self._refused = self._refused, ""
        if refused:
            raise TerminalError(_REFUSED.format(what=refused)) from error

    def commit(self) -> None:
        self._refuse("commit()")

    def rollback(self) -> None:
        self._refuse("rollback()")

    def __enter__(self) -> NoReturn:
        self._refuse("`with connection`, which commits,")

    def close(self) -> None:
        if self.is_lent:
            self._refuse("close()")
        self.is_cut = True  # it can't be lent again
        super().close()

    def executescript(self, sql_script: str, /) -> NoReturn:
        self._refuse("executescript(), which commits first,")

    def set_authorizer(self, authorizer_callback: Any) -> NoReturn:
        self._refuse("set_authorizer()")

    def _refuse(self, what: str) -> NoReturn:
        raise TerminalError(_OVER if self.is_cut else _REFUSED.format(what=what))

    # --- for the storage --------------------------------------------------------------------------------------------
    def lend(self) -> None:
        """Give it to an activity. Its transaction is open."""
        self.is_lent, self._refused = True, ""

    def rest(self) -> None:
        """Belong to no thread until the next transaction begins."""
        self._owner = None

    def take_back(self) -> None:
        """Take it back, for this thread. Open cursors are closed: they would keep an old snapshot of the database."""
        self._owner, self.is_lent = threading.get_ident(), False
        self._close_cursors()
        self.row_factory, self.text_factory = None, str

    def cut(self) -> None:
        """Close it while a thread may still be using it. Nothing that the thread tries later is executed.

        It must not be in SQLite meanwhile: Python frees what the thread uses there. It holds `busy` then.
        """
        self.is_cut = True  # first of all: interrupted statements can end the transaction, and the next must not begin
        self.interrupt()
        while not self.busy.acquire(timeout=_INTERRUPT_EVERY):
            self.interrupt()  # it may have begun just after the last one
        try:
            self.is_lent = False
            self._close_cursors()  # until there are none, everything is interrupted, ROLLBACK included
            if self.in_transaction:
                sqlite3.Connection.rollback(self)
        finally:
            self.close()
            self.busy.release()

    def _close_cursors(self) -> None:
        for cursor in list(self._cursors):
            cursor.close()
        self._cursors.clear()


def _guest(cursor: sqlite3.Cursor) -> Guest:
    guest = cursor.connection
    assert isinstance(guest, Guest)
    return guest


def _guarded(factory: Any) -> type[GuestCursor]:
    """Return a class of cursors of the user's own with our checks."""
    if factory is sqlite3.Cursor:
        return GuestCursor
    if not (isinstance(factory, type) and issubclass(factory, sqlite3.Cursor)):
        raise TypeError(f"the factory of a cursor must be a subclass of sqlite3.Cursor here, not {factory!r}")
    return type(factory.__name__, (GuestCursor, factory), {})
