"""SQLite: one writer thread, one reader thread, several processes on one file.

batches.py        applies batches
commit_rows.py    writes what commits store besides the state of their instances
dispatch.py       finds waits for an accepted event
event_lookup.py   finds events for a wait
shapes.py         indexes of the fields that filters use
leases.py         workers, leases and claims
emissions.py      what instances emit
retention.py      what is deleted, and which events are kept for whom
expiry.py         which leases have ended
locks.py          a lock file for each worker
inbox.py          moves what callers left in their own transactions
schedules.py      writes schedules
sinks.py          writes what sinks do
vault.py          the index key of a file whose values are sealed
reads.py          loads instances into memory
statements.py     statements by name
connection.py     opens a file
migrations.py     brings a file up to date
errors.py         explains SQLite's errors
threads.py        one thread for each connection
transactions.py   transactions in which activities run
guest.py          the connection that they use
inline_reader.py  short reads on the event loop's own thread
"""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from romancy.core.admission import Admission
from romancy.core.clock import Clock, SystemClock, stopwatch
from romancy.core.interests import Interest
from romancy.core.model import Status
from romancy.errors import StorageError
from romancy.storage.batch import STATUS_NAMES, Batch, BatchResult, Commit
from romancy.storage.errors import TransientError
from romancy.storage.forks import Fork
from romancy.storage.inbox_items import InboxItem
from romancy.storage.instances import Admitted
from romancy.storage.interests import Cut, rows_of
from romancy.storage.opener import PLAIN, Opener
from romancy.storage.protocol import Answered, Trigger
from romancy.storage.reads import Reads
from romancy.storage.records import Claimed, Shares, Snapshot, Unfit
from romancy.storage.sqlite import inbox, leases, reads, retention, schedules, sinks, vault
from romancy.storage.sqlite.batches import BatchWriter, append_statement
from romancy.storage.sqlite.connection import absolute, connect, lock_folder
from romancy.storage.sqlite.emissions import SQLiteEmissions
from romancy.storage.sqlite.expiry import Leases
from romancy.storage.sqlite.inline_reader import NearReader
from romancy.storage.sqlite.locks import WorkerLocks
from romancy.storage.sqlite.migrations import migrate
from romancy.storage.sqlite.statements import SQL, run
from romancy.storage.sqlite.threads import LAST_WAIT, ConnectionThread
from romancy.storage.sqlite.transactions import SQLiteTransaction, Transactions

__all__ = ["SQLiteStorage"]

T = TypeVar("T")
SMALL = 256
"""The largest batch that is written on the event loop's own thread."""
_POLL = 0.02
"""Seconds between checks for writes by other processes."""


class SQLiteStorage(Reads):
    """A database file, or `:memory:`."""

    is_remote = False
    has_one_writer = True

    def __init__(
        self, path: str, *, durability: str = "full", clock: Clock | None = None, opener: Opener = PLAIN
    ) -> None:
        if durability not in ("full", "normal"):
            raise ValueError(f'durability must be "full" or "normal", got {durability!r}')
        self.path = path = absolute(path)
        self._changed: Callable[[], None] = lambda: None
        self._arrived: Callable[[], None] = lambda: None
        self.inbox = inbox.inbox_of(path)
        self._durability, self._opener = durability, opener
        super().__init__(
            self._ask_reader,
            self._ask_looker,
            self._do,
            self._admit,
            clock or SystemClock(),
            self._schedule,
            self._sink,
        )
        self.emissions = SQLiteEmissions(self)
        self._in_memory = path == ":memory:"
        self._locks = WorkerLocks(None if self._in_memory else lock_folder(path))
        self._leases = Leases(self._clock)
        self._writer: ConnectionThread | None = None
        self._reader: ConnectionThread | None = None
        self._near: NearReader | None = None
        self._batches: BatchWriter | None = None
        self._looker: ConnectionThread | None = None
        self._opening = asyncio.Lock()
        self._transactions: Transactions | None = None

    def __repr__(self) -> str:
        return f"<SQLiteStorage {self.path!r}>"

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        connection = await loop.run_in_executor(None, self._open)
        self._batches = BatchWriter(connection, self._opener)
        self._writer = ConnectionThread(
            "romancy-writer",
            connection,
            self.path,
            poll_interval=None if self._in_memory else _POLL,
            on_foreign_change=self._foreign_change,
        )
        if self._in_memory:
            self._reader = self._writer
            return
        try:
            self._reader = await self._thread("romancy-reader")
            self._near = NearReader(await self._connection())
        except BaseException:
            await self.close()
            raise

    def _open(self) -> sqlite3.Connection:
        connection = self._connect()
        try:
            migrate(connection, self.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> sqlite3.Connection:
        return connect(self.path, durability=self._durability, level=self._opener.level)

    def watch(
        self,
        changed: Callable[[], None],
        arrived: Callable[[], None] = lambda: None,
        rescheduled: Callable[[], None] = lambda: None,
    ) -> None:
        self._changed, self._arrived = changed, arrived

    def _foreign_change(self) -> None:
        """Another connection has written: it may have been a caller's."""
        self._arrived()
        self._changed()
        self.emissions.changed()

    async def close(self) -> None:
        if self._transactions is not None:
            await self._transactions.close()
            self._transactions = None
        threads = {self._writer, self._reader, self._looker}
        self._writer = self._reader = self._looker = None  # no new jobs from here on
        if self._near is not None:
            self._near.close()
            self._near = None
        for thread in threads:
            if thread is not None:
                await asyncio.get_running_loop().run_in_executor(None, thread.stop)
        self._locks.drop()

    def _write(self, job: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        if self._writer is None:
            raise StorageError(f"the database {self.path!r} is not open")
        return self._writer.call(job, write=True)

    def _read(self, job: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        if self._reader is None:
            raise StorageError(f"the database {self.path!r} is not open")
        return self._reader.call(job)

    async def write_soon(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Write something small: at once, if commits are fast and no job is queued."""
        done = None if self._writer is None else self._writer.try_now(job)
        return await self._write(job) if done is None else done

    async def read_now(self, job: Callable[[sqlite3.Connection], T], parts: int = 1) -> T:
        """Run a small, frequent read, or `parts` of them together."""
        found = None if self._near is None else self._near.read(job, parts)
        return await self._read(job) if found is None else found

    async def _look(self, job: Callable[[sqlite3.Connection], T], /) -> T:
        """Run a read for people, on a separate connection, so that a long search does not delay the engine's reads."""
        if self._in_memory or self._reader is None:
            return await self._read(job)
        async with self._opening:
            thread = self._looker or await self._thread("romancy-looker")
            if self._reader is None:  # pyright: ignore[reportUnnecessaryComparison] - closed meanwhile: nothing else would end the thread
                thread.stop()
                raise StorageError(f"the database {self.path!r} is not open")
            self._looker = thread
        return await thread.call(job)

    async def _ask_reader(self, name: str, /, **given: Any) -> list[Any]:
        return await self._read(lambda c: run(c, name, given))

    async def _ask_looker(self, name: str, /, **given: Any) -> list[Any]:
        return await self._look(lambda c: run(c, name, given))

    async def _do(self, name: str, /, **given: Any) -> list[Any]:
        return await self._write(lambda c: run(c, name, given))

    async def _schedule(self, name: str, /, **given: Any) -> list[Any]:
        return await self._write(lambda c: schedules.write(c, name, given))

    async def _sink(self, name: str, /, **given: Any) -> list[Any]:
        return await self._write(lambda c: sinks.write(c, name, given))

    async def _thread(self, name: str) -> ConnectionThread:
        return ConnectionThread(name, await self._connection(), self.path)

    async def _connection(self) -> sqlite3.Connection:
        loop = asyncio.get_running_loop()
        opening = loop.run_in_executor(None, self._connect)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:  # otherwise the file would still be in use after this storage was closed
            (await opening).close()
            raise

    # --- writes -----------------------------------------------------------------------------------------------------
    def append(self, commit: Commit, worker: str | None) -> bool:
        return self._writer is not None and self._writer.try_statement(*append_statement(commit, worker))

    def commit(self, batch: Batch, answered: Answered) -> None:
        writer = self._writer
        if writer is None or self._batches is None:
            error = TransientError(f"the database {self.path!r} is not open")
            asyncio.get_running_loop().call_soon(answered, None, error)
            return

        def apply(connection: sqlite3.Connection) -> BatchResult:
            assert self._batches is not None, "it is closed after the writer"
            return self._batches.apply(batch)

        answer = writer.try_now(apply) if len(batch) <= SMALL else None
        if answer is None:
            writer.submit(apply, True, answered)
        else:
            answered(answer, None)

    async def begin(self, lease: int, since: float = math.inf) -> SQLiteTransaction:
        if self._writer is None:
            raise StorageError(f"the database {self.path!r} is not open")
        if self._transactions is None:
            self._transactions = Transactions(self.path, self._durability, self._writer, self._moved, self._opener)
        return await self._transactions.begin()

    def _moved(self, connection: sqlite3.Connection) -> None:
        """Go on with another connection to a database in memory."""
        self._batches = BatchWriter(connection, self._opener)

    async def register(
        self, worker: str, lease: int, triggers: Sequence[Trigger], workflows: Collection[str], about: str | None = None
    ) -> None:
        self._locks.hold(worker)
        self._leases.length = lease
        try:
            given = lease, triggers, workflows, about
            await self._write(lambda c: leases.register(c, worker, self._clock.now(), *given))
        except BaseException:
            self._locks.forget(worker)
            raise

    def stop_waiting(self) -> None:
        if self._writer is not None:
            self._writer.gives_up_at = stopwatch() + LAST_WAIT

    def drop_lock(self, worker: str) -> None:
        self._locks.forget(worker)

    def announce(self, triggers: Sequence[Trigger], workflows: Collection[str]) -> asyncio.Future[None]:
        return self._write(lambda c: leases.announce(c, triggers, workflows))

    def propose(self, triggers: Sequence[Trigger]) -> asyncio.Future[None]:
        return self._write(lambda c: leases.propose(c, triggers))

    async def renew(self, worker: str, lease: int, load: int = 0, about: str | None = None) -> bool:
        return await self._write(lambda c: leases.renew(c, worker, self._clock.now() + lease, load, about))

    async def check(self) -> None:
        await self._read(leases.check_version)

    async def leave(self, worker: str) -> None:
        await self._write(lambda c: leases.leave(c, worker))

    async def release(self, worker: str) -> None:
        await self._write(lambda c: leases.release(c, worker, self._clock.now()))
        self._locks.forget(worker)

    async def take_over(self, worker: str, known_dead: Sequence[str] = ()) -> list[str]:
        dead = await self._read(lambda c: leases.dead_workers(c, worker, self._clock.now(), self._locks, self._leases))
        dead |= dict.fromkeys(known_dead, False)
        if not dead:
            return []
        gone = await self._write(lambda c: leases.take_over(c, worker, self._leases.length, dead, self._clock.now()))
        for id in gone:
            if not dead[id]:
                self._locks.forget(id)  # a paused worker still holds its lock
        return gone

    async def gone(self, workers: Collection[str]) -> set[str]:
        return {worker for worker in workers if self._locks.is_dead(worker)}

    async def claim(self, worker: str, workflows: Collection[str], limit: int, due_before: int) -> list[Claimed]:
        wanted = await self._read(lambda c: leases.claimable(c, workflows, limit, due_before))
        return await self._write(lambda c: leases.claim(c, worker, wanted)) if wanted else []

    async def claim_idle(self, worker: str, workflows: Collection[str], limit: int) -> int:
        return await self._write(lambda c: leases.claim_idle(c, worker, workflows, limit))

    async def unfit(self, workflows: Collection[str], after: tuple[str, str], limit: int) -> list[Unfit]:
        return await self._read(lambda c: leases.unfit(c, workflows, after, limit))

    async def claim_unfit(self, worker: str, wanted: Sequence[Unfit]) -> set[str]:
        return await self._write(lambda c: leases.claim_unfit(c, worker, wanted))

    async def _admit(
        self, admission: Admission, worker: str, at: int, workflows: Collection[str]
    ) -> list[Admitted] | None:
        return await self._write(lambda c: leases.admit(c, admission, worker, at, workflows))

    async def resume(self, instance: str, who: str | None = None) -> Status | None:
        now = self._clock.now()

        def resume(c: sqlite3.Connection) -> Status | None:
            row = c.execute(SQL["request_target"], (instance,)).fetchone()
            leases.resume(c, [instance], now, who)
            return None if row is None else STATUS_NAMES.get(row[0], "blocked")

        return await self._write(resume)

    async def resume_all(self, instances: Collection[str], who: str | None = None) -> set[str]:
        now = self._clock.now()
        return await self._write(lambda c: leases.resume(c, instances, now, who))

    async def reopen(self, instances: Collection[str], at: int, head: bytes, who: str | None = None) -> set[str]:
        return await self._write(lambda c: leases.reopen(c, instances, at, head, who))

    async def fork(self, fork: Fork) -> bool:
        return await self._write(lambda c: leases.fork(c, fork))

    async def prune(
        self, finished_before: int, accepted_before: int, limit: int, *, failed_before: int | None = None
    ) -> int:
        ended = {"before": finished_before, "failed": finished_before if failed_before is None else failed_before}
        now = self._clock.now()
        plan = await self._keeping.plan(ended, accepted_before, limit)
        return await self._write(lambda c: retention.prune(c, ended, plan, now, limit))

    async def cut(self, accepted_before: int, limit: int) -> list[Cut]:
        return await self._write(lambda c: retention.cut(c, accepted_before, limit))

    async def expect(self, interests: Sequence[Interest]) -> None:
        rows = [row for interest in interests for row in rows_of(interest)]
        await self._write(lambda c: retention.expect(c, rows, self._clock.now()))

    # --- sealed values ----------------------------------------------------------------------------------------------
    async def index_key(self) -> bytes | None:
        return await self._read(vault.index_key)

    async def folder(self) -> str:
        return await self._read(vault.folder)

    async def make_index(self, sealed: bytes, key: Callable[[bytes], bytes]) -> bytes:
        return await self._write(lambda c: vault.make_index(c, sealed, key))

    async def change_index(self, stored: bytes, sealed: bytes) -> None:
        await self._write(lambda c: vault.change_index(c, stored, sealed))

    # --- the inbox ---------------------------------------------------------------------------------------------------
    async def arrivals(self, limit: int, bytes: int, after: int = 0) -> list[InboxItem]:
        """Look first, which is quick: this is asked for after every write of another process."""
        some = await self.read_now(lambda c: run(c, "inbox_has_some", {}))
        return await super().arrivals(limit, bytes, after) if some else []

    async def move(self, batch: Batch) -> BatchResult | None:
        batches = self._batches
        if batches is None:
            raise StorageError(f"the database {self.path!r} is not open")
        return await self._write(lambda c: inbox.move(c, batches, batch))

    # --- reads ------------------------------------------------------------------------------------------------------
    async def shares(self, workflows: Collection[str], limit: int) -> Shares:
        return await self._read(lambda c: leases.shares(c, workflows, self._clock.now(), limit))

    async def load(self, instance: str) -> Snapshot | None:
        return await self._read(lambda c: reads.load(c, instance))

    async def load_many(self, instances: Sequence[str]) -> dict[str, Snapshot | None]:
        return await self.read_now(lambda c: reads.load_many(c, instances), len(instances))
