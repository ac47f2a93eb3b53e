"""SQLite without threads, and the journal of what was really stored: both for the simulation."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from romancy.core.clock import Clock
from romancy.storage.batch import Batch, BatchResult, Commit
from romancy.storage.errors import TransientError
from romancy.storage.protocol import Answered
from romancy.storage.sqlite import SQLiteStorage
from romancy.storage.sqlite.batches import BatchWriter, append_statement
from romancy.storage.sqlite.errors import as_storage_error

T = TypeVar("T")


class InlineConnection:
    """What `ConnectionThread` does, on the spot. `breaks` makes the next write fail when it is about to be stored."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.gives_up_at = 0.0
        self.breaks = False

    def call(self, job: Callable[[sqlite3.Connection], T], *, write: bool = False) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        result, error = self.run(job, write)
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
        return future

    def run(self, job: Callable[[sqlite3.Connection], Any], write: bool) -> tuple[Any, BaseException | None]:
        try:
            return (self._write(job) if write else job(self.connection)), None
        except sqlite3.Error as error:
            return None, as_storage_error(error, ":memory:")
        except Exception as error:
            return None, error

    def _write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            result = job(self.connection)
            if self.breaks:
                raise TransientError("the disk is full")
            self.connection.execute("COMMIT")
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        finally:
            self.breaks = False
        return result

    def try_now(self, job: Callable[[sqlite3.Connection], T]) -> T | None:
        """Leave it to `call`."""
        return None

    def stop(self) -> None:
        self.connection.close()


class InlineStorage(SQLiteStorage):
    """The real SQLite storage in memory, on the event loop's own thread."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(":memory:", durability="normal", clock=clock)

    async def open(self) -> None:
        connection = self._open()
        self._batches = BatchWriter(connection)
        self.inline = InlineConnection(connection)
        self._writer = self._reader = self.inline  # type: ignore[assignment]

    async def close(self) -> None:
        self._writer = self._reader = None
        self.inline.stop()

    @property
    def writes(self) -> int:
        return self.inline.connection.total_changes

    def read(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Behind everybody's back."""
        return self.inline.connection.execute(query, values).fetchall()

    def append(self, commit: Commit, worker: str | None) -> bool:
        return self.inline.connection.execute(*append_statement(commit, worker)).rowcount == 1

    def apply(self, batch: Batch) -> tuple[BatchResult | None, BaseException | None]:
        assert self._batches is not None
        batches = self._batches
        return self.inline.run(lambda connection: batches.apply(batch), True)

    def commit(self, batch: Batch, answered: Answered) -> None:
        answered(*self.apply(batch))


class Journal:
    """What was stored, transaction by transaction, and whether each commit had the right to be.

    A place in the log is a number: events are at 1, 2, ..., what happened between the first and the second is at 1.5.
    """

    def __init__(self, storage: InlineStorage, clock: Clock) -> None:
        self._storage, self._clock = storage, clock
        self.entries: dict[tuple[str, int], float] = {}
        """(instance, n) of an entry: where it was stored; n = 0: the first commit."""
        self.born: dict[str, float] = {}
        self.seen_at: list[int] = [0]
        """When each event became visible, by its number."""
        self.attempts: Counter[tuple[str, str]] = Counter()
        """Recorded failures of each activity."""
        self.blocked: dict[str, str] = {}
        """Instances that were ever set aside."""
        self.violations: list[str] = []
        self.transactions = 0

    # --- writing through it ------------------------------------------------------------------------------------------
    def append(self, commit: Commit, worker: str | None) -> bool:
        rows = self._rows([commit])
        stored = self._storage.append(commit, worker)
        self.transactions += 1
        if stored:
            self._check(commit, worker, rows[commit.instance], again=False)
            self._note(commit, self._here())
        return stored

    def apply(self, batch: Batch, *, breaks: bool = False) -> tuple[BatchResult | None, BaseException | None]:
        here, rows = self._here(), self._rows(batch.commits)
        self._storage.inline.breaks = breaks
        answer, error = self._storage.apply(batch)
        self.transactions += 1
        self._here()
        if answer is None:
            return answer, error
        alone = Counter(commit.instance for commit in batch.commits)  # one that is stale may be beside its successor
        for commit, applied in zip(batch.commits, answer.commits, strict=True):
            token, length = rows[commit.instance][3:5]
            if applied:
                done = token == batch.token or (commit.append_only and self._is_in(commit))
                self._check(commit, batch.worker, rows[commit.instance], again=done)
                self._note(commit, here)
            elif alone[commit.instance] == 1 and self._length(commit.instance) != length:
                self.violations.append(f"{commit.instance}: refused, but its history grew")
        for start, said in zip(batch.starts, answer.starts, strict=True):
            if said.created:
                self.born.setdefault(start.id, here)
        for accepted in (*answer.accepts, *answer.sent):
            for started in accepted.started:
                self.born.setdefault(started.id, accepted.seq + 0.5)
        return answer, error

    # --- what it knows -----------------------------------------------------------------------------------------------
    def visible_at(self, moment: int) -> int:
        """The last event that everybody could see before a moment."""
        return sum(1 for at in self.seen_at[1:] if at < moment)

    def _here(self) -> float:
        last = self._storage.read("SELECT coalesce(max(seq), 0) FROM romancy_events")[0][0]
        while len(self.seen_at) <= last:
            self.seen_at.append(self._clock.now())
        return last + 0.5

    def _rows(self, commits: Any) -> dict[str, tuple[Any, ...]]:
        query = (
            "SELECT owner, version, status, token, (SELECT count(*) FROM romancy_history h WHERE h.instance = i.id),"
            " (SELECT count(*) FROM romancy_workers w WHERE w.id = i.owner) FROM romancy_instances i WHERE i.id = ?"
        )
        missing = (None, -1, 0, None, 0, 0)
        return {c.instance: next(iter(self._storage.read(query, c.instance)), missing) for c in commits}

    def _length(self, instance: str) -> int:
        return self._storage.read("SELECT count(*) FROM romancy_history WHERE instance = ?", instance)[0][0]

    def _is_in(self, commit: Commit) -> bool:
        return all((commit.instance, entry.n) in self.entries for entry in commit.entries)

    def _check(self, commit: Commit, worker: str | None, row: tuple[Any, ...], *, again: bool) -> None:
        """A commit that was applied: its worker owned the instance, held its lease, and knew its last version."""
        owner, version, status, _, length, alive = row
        if again:
            return
        if owner != worker or not alive or version != commit.version or status >= 9:
            self.violations.append(
                f"{commit.instance}: a commit of {worker} at version {commit.version} was taken; the instance was "
                f"owned by {owner} ({'alive' if alive else 'gone'}), at version {version}, with status {status}"
            )
        if commit.entries and [e.n for e in commit.entries] != list(
            range(length + 1, length + 1 + len(commit.entries))
        ):
            self.violations.append(f"{commit.instance}: entries {[e.n for e in commit.entries]} after {length}")

    def _note(self, commit: Commit, here: float) -> None:
        if commit.status == "blocked":
            self.blocked[commit.instance] = (commit.error or b"").decode()
        elif commit.opened or commit.entries:
            self.entries.setdefault((commit.instance, 0), here)
        for entry in commit.entries:
            self.entries.setdefault((commit.instance, entry.n), here)
        for attempt in commit.attempts:
            key = commit.instance, attempt.op
            self.attempts[key] = max(self.attempts[key], attempt.n)
