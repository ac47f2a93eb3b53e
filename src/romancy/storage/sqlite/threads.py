"""One thread, one connection: jobs go in, answers come back on the event loop."""

from __future__ import annotations

import asyncio
import queue
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from romancy.core.clock import stopwatch
from romancy.errors import StorageError
from romancy.storage.protocol import RefusedValue, TransientError
from romancy.storage.sqlite.connection import explain

T = TypeVar("T")
_STOP = object()
_PATIENCE = 30.0
"""Seconds a writer waits for another process to let go of the file before it reports an outage."""


class ConnectionThread(threading.Thread):
    """Runs jobs on its connection, one after the other."""

    def __init__(self, name: str, connection: sqlite3.Connection, path: str) -> None:
        super().__init__(name=name, daemon=True)
        self.connection = connection
        self.poll_interval: float | None = None
        """How often to look for other processes' writes when idle; None: never."""
        self.on_foreign_change: Callable[[], None] | None = None
        self._path = path
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._data_version = 0
        self.start()

    def call(self, job: Callable[[sqlite3.Connection], T], *, write: bool = False) -> asyncio.Future[T]:
        """Run a job; with `write`, inside a transaction of its own."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((job, write, partial(_settle, future)))
        return future

    def submit(self, job: Callable[[sqlite3.Connection], T], write: bool, done: Callable[..., None]) -> None:
        """Run a job, and call `done(result, error)` on the event loop."""
        self._jobs.put((job, write, done))

    def stop(self) -> None:
        self._jobs.put(_STOP)
        self.join()

    def run(self) -> None:
        while True:
            try:
                work = self._jobs.get(timeout=self.poll_interval)
            except queue.Empty:
                self._look_around()
                continue
            if work is _STOP:
                break
            job, write, done = work
            outcome: tuple[Any, BaseException | None]
            try:
                outcome = (self._write(job) if write else job(self.connection)), None
            except sqlite3.Error as error:
                outcome = None, _as_storage_error(error, self._path)
            except (OverflowError, UnicodeError) as error:
                outcome = None, RefusedValue(f"the database can't hold a value: {error}")
            except Exception as error:
                outcome = None, error
            self._loop.call_soon_threadsafe(done, *outcome)
            if write and self.poll_interval is not None:
                self._look_around()
        self.connection.close()

    def _write(self, job: Callable[[sqlite3.Connection], Any]) -> Any:
        connection = self.connection
        self._begin()
        try:
            result = job(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _begin(self) -> None:
        """Take the file for writing. SQLite's own waiting backs off to 100 ms; this is fairer to the other process."""
        deadline = stopwatch() + _PATIENCE
        while True:
            try:
                self.connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                busy = getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                if not busy or stopwatch() > deadline:
                    raise
            time.sleep(random.uniform(0.0002, 0.002))

    def _look_around(self) -> None:
        """`data_version` changes when another connection wrote to the file; 4 microseconds a look."""
        try:
            version = self.connection.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error:
            return
        if version != self._data_version:
            self._data_version = version
            if self.on_foreign_change is not None:
                self._loop.call_soon_threadsafe(self.on_foreign_change)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _as_storage_error(error: sqlite3.Error, path: str) -> StorageError:
    """Tell an outage (try again) from a value that will never be taken."""
    text = str(explain(error, path))
    if isinstance(
        error, sqlite3.DataError | sqlite3.IntegrityError | sqlite3.InterfaceError | sqlite3.ProgrammingError
    ):
        return RefusedValue(text)
    return TransientError(text)
