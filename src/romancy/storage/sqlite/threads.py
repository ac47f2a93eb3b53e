"""A thread with one connection: it runs jobs, and the answers come back on the event loop."""

from __future__ import annotations

import asyncio
import math
import os
import queue
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from romancy.core.clock import stopwatch
from romancy.storage.errors import RefusedValue, TransientError
from romancy.storage.sqlite.errors import as_storage_error

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], Any]
Done = Callable[[Any, "BaseException | None"], None]
_STOP = object()
_QUICK = 0.0005
"""Seconds: while a COMMIT takes less, a small write can run on the event loop's own thread."""
_GLANCE = 0.005
"""Seconds to wait for the lock when no job is queued: the thread only checks for writes by other processes."""
_LOOK_EVERY = 0.01
"""Seconds between checks that the file still exists, for single statements: a check costs a tenth of the statement."""
_PATIENCE = 30.0
"""Seconds a writer waits for another process to release the file before it reports an outage."""
LAST_WAIT = 2.0
"""Seconds a stopping app waits in all for other processes. They usually release the file within milliseconds."""


class Hold:
    """A pause of a thread, during which another connection can write."""

    def __init__(self, loop: asyncio.AbstractEventLoop, lock: threading.Lock) -> None:
        self._loop, self._lock = loop, lock
        self._over = threading.Event()
        self._hand_back: Callable[..., None] | None = None
        self.begun: asyncio.Future[None] = loop.create_future()
        """Done when the thread has stopped."""

    def take(self, hand_back: Callable[..., None]) -> None:
        """Begin at once, because the thread is idle. The caller holds its lock."""
        self._hand_back = hand_back
        self.begun.set_result(None)

    def wait(self, connection: sqlite3.Connection) -> None:
        """Stop the thread, as one of its jobs."""
        self._loop.call_soon_threadsafe(self._begin)
        self._over.wait()

    def _begin(self) -> None:
        if not self.begun.done():
            self.begun.set_result(None)

    def let_go(self) -> None:
        """Let the thread go on. Called on the event loop."""
        self._over.set()
        if self._hand_back is not None:
            self._lock.release()
            self._hand_back(_ignore, None, None)
            self._hand_back = None


class ConnectionThread(threading.Thread):
    """One connection, and its jobs, one after another.

    Jobs run in the thread, so that a slow disk never blocks the event loop. A small write can run at once on the loop's
    own thread (`try_now`) while commits are measurably cheaper than handing the job over and back.
    """

    def __init__(
        self,
        name: str,
        connection: sqlite3.Connection,
        path: str,
        *,
        poll_interval: float | None = None,
        on_foreign_change: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.connection = connection
        self._poll_interval = poll_interval
        """How often to check for writes by other processes when idle; None means never."""
        self._on_foreign_change = on_foreign_change
        self.gives_up_at = math.inf
        """When to wait no longer for other processes, because the app is stopping."""
        self._path = path
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._handed_over = 0
        self._commit_cost = 0.0 if path == ":memory:" else 0.002
        """Seconds a COMMIT takes, smoothed; assumed to be slow until measured."""
        self._data_version = None if poll_interval is None else _data_version(connection)
        self._file = _identity(path)
        self._looked = 0.0
        self.start()

    def call(self, job: Callable[[sqlite3.Connection], T], *, write: bool = False) -> asyncio.Future[T]:
        """Run a job; with `write`, in its own transaction. A read whose caller was cancelled is not started."""
        future: asyncio.Future[T] = self._loop.create_future()

        def wanted(connection: sqlite3.Connection) -> T | None:
            return None if future.cancelled() else job(connection)

        self.submit(job if write else wanted, write, partial(_settle, future))
        return future

    def submit(self, job: Job, write: bool, done: Done) -> None:
        """Run a job, then call `done(result, error)` on the event loop."""
        self._handed_over += 1
        self._jobs.put((job, write, done))

    def try_now(self, job: Callable[[sqlite3.Connection], T]) -> T | None:
        """Write at once if no job is queued and commits are fast. None means that nothing was written, for any reason.

        Then submit the job to the thread, which waits for other writers and reports errors.
        """
        if self._handed_over or self._commit_cost > _QUICK or not self._lock.acquire(timeout=_GLANCE):
            return None
        try:
            return self._outcome(job, True, patience=0.0)[0]
        finally:
            self._lock.release()

    def try_statement(self, statement: str, values: tuple[Any, ...]) -> bool:
        """Like `try_now`, for one statement in its own transaction: BEGIN and COMMIT would cost as much again.

        True: it changed a row. False: nothing was changed; submit the job to the thread.
        """
        if self._handed_over or self._commit_cost > _QUICK or not self._lock.acquire(timeout=_GLANCE):
            return False
        try:
            begin = stopwatch()
            if begin - self._looked > _LOOK_EVERY and not self._is_in_place(begin):
                return False
            changed = self.connection.execute(statement, values).rowcount == 1
            self._commit_cost += (stopwatch() - begin - self._commit_cost) * 0.2
            return changed
        except (sqlite3.Error, OverflowError, UnicodeError):
            return False
        finally:
            self._lock.release()

    def hold(self) -> Hold:
        """Stop after the jobs that are queued now. Another connection can write until `let_go` is called."""
        hold = Hold(self._loop, self._lock)
        if self._handed_over or not self._lock.acquire(blocking=False):
            self.submit(hold.wait, False, _ignore)
        else:
            self._handed_over += 1  # nothing is written on the event loop's own thread meanwhile
            hold.take(self._hand_back)
        return hold

    @property
    def is_wanted(self) -> bool:
        """Whether jobs wait for the end of a hold."""
        return self._handed_over > 1

    def refresh(self) -> None:
        """Ignore a write by another connection of this process."""
        if self._poll_interval is not None:
            self._data_version = _data_version(self.connection)

    @property
    def is_quick(self) -> bool:
        """Whether a COMMIT takes so little time that it can run on the event loop's own thread."""
        return self._commit_cost <= _QUICK

    def check_place(self) -> None:
        """Raise `TransientError` unless the file is still in place."""
        if not self._is_in_place(stopwatch()):
            raise TransientError(
                f"the database file {self._path!r} was removed or replaced while in use; nothing is stored until you "
                "put it back or restart the app"
            )

    def stop(self) -> None:
        self._jobs.put(_STOP)
        self.join()

    def run(self) -> None:
        while True:
            try:
                work = self._jobs.get(timeout=self._poll_interval)
            except queue.Empty:
                with self._lock:
                    self._look_around()
                continue
            if work is _STOP:
                break
            job, write, done = work
            with self._lock:
                outcome = self._outcome(job, write, _PATIENCE)
                if write and self._poll_interval is not None:
                    self._look_around()
            self._loop.call_soon_threadsafe(self._hand_back, done, *outcome)
        self.connection.close()

    def _hand_back(self, done: Done, result: Any, error: BaseException | None) -> None:
        self._handed_over -= 1
        done(result, error)

    def _outcome(self, job: Job, write: bool, patience: float) -> tuple[Any, BaseException | None]:
        try:
            return (self._write(job, patience) if write else job(self.connection)), None
        except sqlite3.Error as error:
            return None, as_storage_error(error, self._path)
        except (OverflowError, UnicodeError) as error:
            return None, RefusedValue(f"the database can't hold a value: {error}")
        except Exception as error:
            return None, error

    def _write(self, job: Job, patience: float) -> Any:
        connection = self.connection
        self._begin(patience)
        try:
            result = job(connection)
            begin = stopwatch()
            connection.execute("COMMIT")
            self._commit_cost += (stopwatch() - begin - self._commit_cost) * 0.2
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _begin(self, patience: float) -> None:
        """Lock the file for writing. SQLite's own waiting backs off to 100 ms; these short pauses are fairer."""
        begin = stopwatch()
        self.check_place()
        begin_write(self.connection, "BEGIN IMMEDIATE", begin + patience, self.gives_up)

    def gives_up(self) -> bool:
        return stopwatch() > self.gives_up_at

    def _is_in_place(self, now: float) -> bool:
        """Return whether the file is still in place; otherwise writes would be lost."""
        in_place = _identity(self._path) == self._file
        self._looked = now if in_place else 0.0
        return in_place

    def _look_around(self) -> None:
        """Check `data_version`, which changes when another connection writes to the file; takes 4 microseconds."""
        version = _data_version(self.connection)
        if version is not None and version != self._data_version:
            self._data_version = version
            if self._on_foreign_change is not None:
                self._loop.call_soon_threadsafe(self._on_foreign_change)


def begin_write(connection: sqlite3.Connection, statement: str, until: float, stops: Callable[[], bool]) -> None:
    """Run a BEGIN IMMEDIATE, and wait for other processes until a time, or until `stops()`."""
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as error:
            busy = getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not busy or stopwatch() > until or stops():
                raise
        time.sleep(random.uniform(0.0002, 0.002))


def _data_version(connection: sqlite3.Connection) -> int | None:
    """Return None if it can't be read now."""
    try:
        return connection.execute("PRAGMA data_version").fetchone()[0]
    except sqlite3.Error:
        return None


def _identity(path: str) -> tuple[int, int] | None:
    """Return the identity of the file at a path; it changes if the file is replaced."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _ignore(result: Any, error: BaseException | None) -> None:
    """Nobody waits for the answer."""


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
