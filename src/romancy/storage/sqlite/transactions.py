"""Transactions in which activities run. The file has one writer, so ours stops meanwhile, and a guest writes.

A database in memory belongs to one connection. When the first transaction begins, it moves to one that connections can
share, so that a thread that runs too long never holds the connection of the writer.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import uuid
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from romancy.core.clock import stopwatch
from romancy.storage.batch import Batch, BatchResult
from romancy.storage.errors import RefusedValue, TransientError
from romancy.storage.opener import Opener
from romancy.storage.sqlite.batches import BatchWriter
from romancy.storage.sqlite.connection import connect, is_uri
from romancy.storage.sqlite.errors import as_storage_error
from romancy.storage.sqlite.guest import BEGIN, COMMIT, ROLLBACK, Guest
from romancy.storage.sqlite.threads import ConnectionThread, Hold, begin_write

T = TypeVar("T")
_PATIENCE = 30.0
"""Seconds to wait for another process to release the file."""


class Transactions:
    """Begins transactions, one at a time, in the order in which they are asked for."""

    def __init__(
        self,
        path: str,
        durability: str,
        writer: ConnectionThread,
        moved: Callable[[sqlite3.Connection], None],
        opener: Opener,
    ) -> None:
        self._path, self._durability, self._writer, self._moved = path, durability, writer, moved
        self._opener = opener
        self._free: Lender | None = None
        self._open: SQLiteTransaction | None = None
        self._hold: Hold | None = None
        self._waiting: deque[asyncio.Future[Hold]] = deque()

    async def begin(self) -> SQLiteTransaction:
        hold = await self._take()
        try:
            lender = await self._lender()
            try:
                await self._lock(lender.guest)
            except BaseException:
                await in_thread(lender.guest.cut)
                raise
        except BaseException:
            self.pass_on(hold)
            raise
        lender.references = _references(lender)
        lender.guest.lend()
        self._open = SQLiteTransaction(self, lender, self._writer, hold)
        return self._open

    async def _take(self) -> Hold:
        """Wait until the writer has stopped, and no other transaction is open."""
        taken: asyncio.Future[Hold] = asyncio.get_running_loop().create_future()
        self._waiting.append(taken)
        if self._hold is None:
            self._stop_writer()
        try:
            return await taken
        except asyncio.CancelledError:
            if taken.done() and not taken.cancelled():
                self.pass_on(taken.result())
            raise

    def _make_lender(self) -> Lender:
        level = self._opener.level
        return Lender(connect(self._path, durability=self._durability, factory=Guest, level=level), self._opener)

    def _stop_writer(self) -> None:
        hold = self._hold = self._writer.hold()
        hold.begun.add_done_callback(lambda _: self._give(hold))

    def _give(self, hold: Hold) -> None:
        """Let the next transaction begin. Without one, the writer goes on."""
        while self._waiting:
            taken = self._waiting.popleft()
            if not taken.done():
                taken.set_result(hold)
                return
        self._hold = None
        hold.let_go()

    def pass_on(self, hold: Hold) -> None:
        """End a transaction. The next one begins at once, unless the writer has something to do."""
        if not self._writer.is_wanted:
            self._give(hold)
            return
        self._hold = None
        hold.let_go()
        if self._waiting:
            self._stop_writer()

    async def _lender(self) -> Lender:
        if self._path != ":memory:":
            if not is_uri(self._path):
                self._writer.check_place()
        else:
            self._share()
        lender, self._free = self._free, None
        if lender is not None and not lender.guest.is_cut:
            return lender
        lender = await in_thread(self._make_lender)
        if not is_uri(self._path):
            self._writer.check_place()  # it must be the file that the writer has open
        return lender

    def _share(self) -> None:
        """Move a database in memory to one that connections can share."""
        path = f"file:romancy-{uuid.uuid4().hex}?mode=memory&cache=shared"
        shared, old = connect(path, durability=self._durability, level=self._opener.level), self._writer.connection
        old.backup(shared)
        self._writer.connection, self._path = shared, path
        self._moved(shared)
        old.close()

    async def _lock(self, guest: Guest) -> None:
        """Begin to write. Another process may be writing; then wait for it in a thread."""
        stops = lambda: guest.is_cut or self._writer.gives_up()  # noqa: E731
        try:
            begin_write(guest, BEGIN, 0.0, stops)
        except sqlite3.OperationalError:
            waiting = partial(begin_write, guest, BEGIN, stopwatch() + _PATIENCE, stops)
            locking = asyncio.ensure_future(in_thread(lambda: self.explained(waiting)))
            try:
                await asyncio.shield(locking)
            except asyncio.CancelledError:
                guest.is_cut = True
                await asyncio.wait([locking])
                locking.exception()
                raise

    def explained(self, job: Callable[[], T]) -> T:
        """Run a job, and turn errors of SQLite into those of a storage."""
        try:
            return job()
        except sqlite3.Error as error:
            raise as_storage_error(error, self._path) from error
        except (OverflowError, UnicodeError) as error:
            raise RefusedValue(f"the database can't hold a value: {error}") from error

    def ended(self, lender: Lender) -> None:
        """Keep the connection for the next transaction. One to memory would lock tables if it has open cursors.

        If the activity has kept it, in a closure or a thread, that could write into the next transaction.
        """
        self._open = None
        if lender.guest.is_cut:
            return
        if _references(lender) > lender.references:
            lender.guest.is_cut = True
            asyncio.get_running_loop().run_in_executor(None, lender.guest.cut)  # a thread may be using it
        elif is_uri(self._path) or lender.guest.is_changed:
            lender.guest.close()
        else:
            lender.guest.rest()
            self._free = lender

    async def close(self) -> None:
        if self._open is not None:
            await self._open.abandon()
        if self._free is not None:
            self._free.guest.close()
            self._free = None


class Lender:
    """A connection for transactions, with what applies batches on it."""

    def __init__(self, connection: sqlite3.Connection, opener: Opener) -> None:
        assert isinstance(connection, Guest)
        self.guest, self.batches = connection, BatchWriter(connection, opener)
        self.references = 0
        """How many there are to the connection before an activity gets it."""


def _references(lender: Lender) -> int:
    return sys.getrefcount(lender.guest)


class SQLiteTransaction:
    """An open transaction. The writer stands still until it has ended."""

    def __init__(self, home: Transactions, lender: Lender, writer: ConnectionThread, hold: Hold) -> None:
        self._home, self._lender, self._writer, self._hold = home, lender, writer, hold
        self._is_over = False

    @property
    def connection(self) -> Any:
        return self._lender.guest

    async def commit(self, batch: Batch, waiting: int = 0) -> BatchResult:
        self._is_over = True
        job = partial(self._home.explained, lambda: self._commit(batch))
        try:
            if self._writer.is_quick:
                return job()
            return await _undisturbed(asyncio.get_running_loop().run_in_executor(None, job))
        finally:
            self._end()

    def _commit(self, batch: Batch) -> BatchResult:
        guest = self._lender.guest
        guest.take_back()
        if not guest.in_transaction:
            raise TransientError("SQLite has rolled back the transaction because of an error in it")
        try:
            answer = self._lender.batches.apply(batch)
            if answer.commits[0]:
                guest.execute(COMMIT)
                self._writer.refresh()
        finally:
            if guest.in_transaction:
                guest.execute(ROLLBACK)
        return answer

    async def abandon(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        guest = self._lender.guest
        try:
            await in_thread(guest.cut)
        finally:
            self._end()

    def _end(self) -> None:
        self._home.ended(self._lender)
        self._home.pass_on(self._hold)


async def _undisturbed(job: asyncio.Future[T]) -> T:
    """Wait for a thread to the end, even if the caller is cancelled: until then it uses the connection."""
    while not job.done():
        try:
            await asyncio.shield(job)
        except asyncio.CancelledError:
            continue
    return job.result()


async def in_thread(job: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, job)
