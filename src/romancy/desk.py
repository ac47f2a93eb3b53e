"""The operators' desk: workers, what needs attention, what fails, and what happened by the minute.

Every read is bounded, however many instances there are: counts end at 10,000.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from romancy.core.clock import Clock
from romancy.core.model import SECOND, Status, from_us
from romancy.cursors import check_limit, read_cursor, write_cursor
from romancy.records import Page
from romancy.storage.batch import STATUS_NAMES, UNKNOWN
from romancy.storage.desk import BEGINNING, LATE, FailureRow, Minute, RetryRow, Tallies, Tally, WorkerState
from romancy.storage.protocol import Storage

MINUTE = 60 * SECOND
_HOUR = 60
"""How many minutes the groups of failures count."""
_HEAD = re.compile(rb'\{"error_type": ("(?:[^"\\]|\\.)*")(?:, "message": "((?:[^"\\]|\\.)*))?')
_TYPE = re.compile(rb'\{"error_type": ("(?:[^"\\]|\\.)*")')
_CULPRIT = re.compile(rb'"culprits": \[(\d+)[\d, ]*\](?:, "rolled_back": true)?\}$')
_NUMBER = re.compile(r":\d+$")
_LONGEST_LINE = 300


@dataclass(frozen=True)
class WorkerRecord:
    """A worker. What it says about itself is None, or empty, if its library is older than this."""

    id: str
    host: str
    pid: int | None
    version: str | None
    """Of the library."""
    build: str | None
    workflows: Sequence[str]
    slots: int | None
    """How many activities it runs at once."""
    load: int | None
    """How many it ran when it last renewed its lease."""
    started_at: datetime
    until: datetime
    """When its lease ends, unless it renews it."""
    is_alive: bool
    """Whether it holds its lease and its process is there, as far as can be seen from here."""
    instances: int
    """How many open instances it owns, counted up to 10,000."""


@dataclass(frozen=True)
class StrandedWorkflow:
    """A workflow that no live worker has, although instances of it are open."""

    workflow: str
    instances: int
    """Counted up to 10,000."""
    oldest: datetime
    """When the oldest of them was started, as far as they were looked at."""


@dataclass(frozen=True)
class MinuteRecord:
    """What happened in a minute, and how much needed attention then; None if that was not counted."""

    at: datetime
    started: int
    completed: int
    failed: int
    cancelled: int
    failures: int | None
    """Failed instances at that time, as opposed to those that failed within the minute."""
    blocked: int | None
    retrying: int | None
    overdue: int | None
    queued: int | None


@dataclass(frozen=True)
class Count:
    """A number up to 10,000. `is_more`: there may be more. `at`: a time that goes with it; see `DeskCounts`."""

    n: int
    is_more: bool
    at: datetime | None = None


@dataclass(frozen=True)
class DeskCounts:
    """How much needs attention."""

    failed: Count
    blocked: Count
    retrying: Count
    """Instances with an activity that is tried again, and when the next attempt is due."""
    overdue: Count
    """Waits and retries that should have ended by now, and when the first of them was due."""
    queued: Count
    """Instances that wait in queues, and when the first of them was started."""


@dataclass(frozen=True)
class RetryRecord:
    """An activity that failed and is tried again."""

    instance_id: str
    workflow: str
    operation: str
    attempts: int
    """How many have failed."""
    next_attempt: datetime
    first_at: datetime
    error_type: str
    error: str
    """The first line of the last error."""
    is_running: bool
    """Whether the next attempt has begun, or waits for a free slot of its worker."""


@dataclass(frozen=True)
class OverdueRecord:
    """A timer, a timeout or a retry that should have happened by now."""

    instance_id: str
    workflow: str
    operation: str
    kind: str
    """timer, event (the timeout of a wait) or retry"""
    due: datetime
    location: str


@dataclass(frozen=True)
class FailureGroup:
    """Failed or blocked instances that are alike."""

    workflow: str
    status: Status
    error_type: str
    operation: str | None
    """The operation that failed, without its number; None if it was the code itself, or is not known."""
    count: int
    newest: datetime
    oldest: datetime
    message: str
    """The first line of the message of the newest one."""
    newest_id: str
    minutes: Sequence[int]
    """How many there were in each minute of the last hour, the current minute last."""
    ids: Sequence[str] = ()
    """The instances, those that ended last first."""


@dataclass(frozen=True)
class FailureGroups:
    """Groups of failed and blocked instances, the largest first. `is_cut`: only the newest 2,000 are in groups."""

    groups: Sequence[FailureGroup]
    is_cut: bool


class OperatorsDesk:
    """Reads for operators."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage, self._clock = storage, clock

    # --- workers ----------------------------------------------------------------------------------------------------
    async def workers(self) -> list[WorkerRecord]:
        """Return the workers, the longest-running first, also those that died and were not taken over yet."""
        now = self._clock.now()
        rows = await self._storage.desk.workers()
        gone = await self._storage.gone([row.id for row in rows if row.until >= now])
        return [_worker(row, is_alive=row.until >= now and row.id not in gone) for row in rows]

    async def stranded(self, workers: Sequence[WorkerRecord] | None = None) -> list[StrandedWorkflow]:
        """Return the workflows of open instances that no live worker has. `workers`: if they were read just now.

        Empty if that is not known, because a live worker does not say which workflows it has.
        """
        workers = await self.workers() if workers is None else workers
        alive = [worker for worker in workers if worker.is_alive]
        if any(worker.pid is None for worker in alive):
            return []
        rows = self._storage.desk
        gone = [*await rows.gone_owners(), *(worker.id for worker in workers if not worker.is_alive)]
        found = await rows.unowned(gone, {name for worker in alive for name in worker.workflows})
        return [StrandedWorkflow(name, n, from_us(oldest)) for name, (n, oldest) in sorted(found.items())]

    # --- minutes ----------------------------------------------------------------------------------------------------
    async def minutes(self, since: datetime) -> list[MinuteRecord]:
        """Return the minutes from a time on, in order. In those that are missing, nothing happened."""
        first = int(since.timestamp()) // 60
        return [_minute(row) for row in await self._storage.desk.minutes(first)]

    # --- what needs attention ---------------------------------------------------------------------------------------
    async def counts(self, *, late: int = LATE) -> DeskCounts:
        """Count what needs attention. `late`: from how many microseconds after their due time waits are overdue."""
        now = self._clock.now()
        return to_counts(await self._storage.desk.tallies(now, now - late))

    async def retrying(self, *, limit: int = 50, cursor: str | None = None) -> Page[RetryRecord]:
        """Return activities that failed and are tried again, by the time of their next attempt."""
        now, place = self._clock.now(), _read_place(cursor)
        rows = await self._storage.desk.retrying(now, check_limit(limit) + 1, place)
        more = rows[limit - 1].place if len(rows) > limit else None
        return Page([_retry(row, now) for row in rows[:limit]], write_cursor(more))

    async def overdue(self, *, limit: int = 50, cursor: str | None = None, late: int = LATE) -> Page[OverdueRecord]:
        """Return what should have happened by now, by due time, except attempts that run."""
        now, place = self._clock.now(), _read_place(cursor)
        rows = await self._storage.desk.overdue(now, now - late, check_limit(limit) + 1, place)
        more = rows[limit - 1].place if len(rows) > limit else None
        found = [
            OverdueRecord(row.instance, row.workflow, row.op, row.kind, from_us(row.due), row.location)
            for row in rows[:limit]
        ]
        return Page(found, write_cursor(more))

    async def failures(self) -> FailureGroups:
        """Return failed and blocked instances in groups: of the 2,000 that were started last."""
        rows, is_cut = await self._storage.desk.failures()
        culprits = {row.id: n for row in rows if (n := _culprit(row)) is not None}
        operations = await self._storage.desk.operations(list(culprits.items()))
        groups: dict[tuple[str, int, str, str | None], list[FailureRow]] = {}
        for row in rows:
            op = operations.get((row.id, culprits.get(row.id, -1)))
            name = None if op is None else _NUMBER.sub("", op)
            groups.setdefault((row.workflow, row.status, _type_of(row.head), name), []).append(row)
        this_minute = self._clock.now() // MINUTE
        found = [_group(*key, alike, this_minute) for key, alike in groups.items()]
        found.sort(key=lambda group: (-group.count, -group.newest.timestamp(), group.newest_id))
        return FailureGroups(found, is_cut)


def to_counts(found: Tallies) -> DeskCounts:
    return DeskCounts(*map(_count, (found.failed, found.blocked, found.retrying, found.overdue, found.queued)))


def _count(tally: Tally) -> Count:
    return Count(tally.n, tally.is_more, None if tally.at is None else from_us(tally.at))


def _worker(row: WorkerState, *, is_alive: bool) -> WorkerRecord:
    about: dict[str, Any] = {} if row.about is None else json.loads(row.about)
    return WorkerRecord(
        row.id,
        row.host,
        about.get("pid"),
        about.get("version"),
        about.get("build"),
        tuple(about.get("workflows", ())),
        about.get("slots"),
        row.load,
        from_us(row.started_at),
        from_us(row.until),
        is_alive,
        row.instances,
    )


def _minute(row: Minute) -> MinuteRecord:
    counts = row.started, row.completed, row.failed, row.cancelled
    gauges = row.failures, row.blocked, row.retrying, row.overdue, row.queued
    return MinuteRecord(from_us(row.minute * MINUTE), *counts, *gauges)


def _retry(row: RetryRow, now: int) -> RetryRecord:
    error_type, line = _error_of(row.error)
    return RetryRecord(
        row.instance,
        row.workflow,
        row.op,
        row.n,
        from_us(row.next_due),
        from_us(row.first_at),
        error_type,
        line,
        row.next_due <= now and row.has_live_owner,
    )


def _group(
    workflow: str, status: int, error_type: str, operation: str | None, rows: Sequence[FailureRow], this_minute: int
) -> FailureGroup:
    newest = max(rows, key=lambda row: (row.at, row.id))
    minutes = [0] * _HOUR
    for row in rows:
        age = this_minute - row.at // MINUTE
        if 0 <= age < _HOUR:
            minutes[_HOUR - 1 - age] += 1
    return FailureGroup(
        workflow,
        STATUS_NAMES.get(status, UNKNOWN),
        error_type,
        operation,
        len(rows),
        from_us(newest.at),
        from_us(min(row.at for row in rows)),
        _error_of(newest.head)[1],
        newest.id,
        tuple(minutes),
        tuple(row.id for row in sorted(rows, key=lambda row: (row.at, row.id), reverse=True)),
    )


def _type_of(head: bytes | None) -> str:
    found = _TYPE.match(head or b"")
    return "" if found is None else _text(found[1])


@lru_cache(1000)
def _text(raw: bytes) -> str:
    return json.loads(raw)


def _error_of(head: bytes | None) -> tuple[str, str]:
    """Return the type and the first line of an error, of which the beginning is given."""
    found = _HEAD.match(head or b"")
    if found is None:
        return "", ""
    return json.loads(found[1]), _first_line(found[2] or b"")


def _first_line(raw: bytes) -> str:
    """Return the first line of a message. `raw`: a JSON string without its quotes, perhaps cut within an escape."""
    for end in range(len(raw), max(len(raw) - 12, -1), -1):
        try:
            text: str = json.loads(b'"' + raw[:end] + b'"')
        except ValueError:
            continue
        line = text.strip().split("\n", 1)[0].encode("utf-8", "replace").decode()
        return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1] + "…"
    return ""


def _culprit(row: FailureRow) -> int | None:
    """Return the number of the entry that led to the failure."""
    found = _CULPRIT.search(row.tail or b"")
    return None if found is None else int(found[1])


def _read_place(cursor: str | None) -> tuple[int, str, str]:
    found = read_cursor(cursor, int, str, str)
    return BEGINNING if found is None else (found[0], found[1], found[2])
