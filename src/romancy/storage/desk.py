"""What operators look at: workers, what happened by the minute, what fails and what is late.

Every read is bounded: it goes by an index, and reads at most `CAP` rows of it. Where it stops there, it says so.

A worker says about itself, as JSON: `pid`, `version` of the library, `build`, `workflows` and `slots` (how many
activities it runs at once). Workers of older libraries say nothing.

The database does not record that an attempt runs: its row stays as it was when the last attempt failed. But a worker
begins an attempt when it is due, or lets it wait for a slot. So if an attempt is due, and the owner of its instance is
a worker with a lease, the attempt counts as running.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from romancy.core.model import SECOND
from romancy.storage.batch import STATUS_CODES
from romancy.storage.sql import Run

CAP = 10_000
"""Up to this many rows are counted."""
FEW = 1_000
"""Up to this many rows are counted for each of which others are looked up: blocked instances, attempts that are due."""
SAMPLE = 1_000
"""Of so many instances without an owner, the oldest is looked for."""
LATE = 10 * SECOND
"""Waits and retries are overdue when they have been due for so many microseconds."""
MOST_WORKERS = 1_000
MOST_WORKFLOWS = 1_000
MOST_FAILURES = 2_000
"""How many failed and blocked instances are put into groups."""
MOST_MINUTES = 24 * 60 + 1
"""Minutes are kept for a day."""

Place = tuple[int, str, str]
"""A position in a list by due time: (due, instance, operation)."""
BEGINNING: Place = (-(2**62), "", "")


@dataclass(slots=True, frozen=True)
class WorkerState:
    """A worker as it is stored. `about` and `load` are None for one of an older library."""

    id: str
    host: str
    until: int
    started_at: int
    about: str | None
    load: int | None
    instances: int
    """How many open instances it owns, counted up to `CAP`."""


@dataclass(slots=True, frozen=True)
class Minute:
    """What happened in a minute, and how much needed attention then; None if that was not counted."""

    minute: int
    """Since 1970."""
    started: int
    completed: int
    failed: int
    cancelled: int
    failures: int | None = None
    blocked: int | None = None
    retrying: int | None = None
    overdue: int | None = None
    queued: int | None = None


class Tally(NamedTuple):
    """A number, whether there may be more because counting stopped at `CAP` rows, and the time that matters most."""

    n: int
    is_more: bool
    at: int | None = None


@dataclass(slots=True, frozen=True)
class Tallies:
    """How much needs attention."""

    failed: Tally
    blocked: Tally
    retrying: Tally
    """Instances, and when the next attempt is due."""
    overdue: Tally
    """Waits and retries, and when the first of them was due."""
    queued: Tally
    """Instances, and when the first of them was started."""


@dataclass(slots=True, frozen=True)
class RetryRow:
    """An activity whose last attempt failed, and that is tried again. `n`: how many attempts failed."""

    instance: str
    workflow: str
    op: str
    n: int
    next_due: int
    first_at: int
    error: bytes | None
    """The beginning of the last error."""
    has_live_owner: bool

    @property
    def place(self) -> Place:
        return self.next_due, self.instance, self.op


@dataclass(slots=True, frozen=True)
class LateRow:
    """A wait or retry that is past its due time; `kind` is timer, event or retry."""

    instance: str
    workflow: str
    op: str
    kind: str
    due: int
    location: str

    @property
    def place(self) -> Place:
        return self.due, self.instance, self.op


Listed = TypeVar("Listed", RetryRow, LateRow)


class FailureRow(NamedTuple):
    """An instance that failed or is blocked."""

    id: str
    workflow: str
    status: int
    head: bytes | None
    """The beginning of its error."""
    tail: bytes | None
    created_at: int
    at: int
    """When it failed or was blocked."""


class DeskRows:
    """The tables as operators need them. `look` reads for people, `do` writes."""

    def __init__(self, ask: Run, look: Run, do: Run) -> None:
        self._ask, self._look, self._do = self.runs = ask, look, do

    # --- workers ----------------------------------------------------------------------------------------------------
    async def workers(self) -> list[WorkerState]:
        """Return all workers that have not been released or taken over, the longest-running first."""
        return [WorkerState(*row) for row in await self._look("all_workers", cap=CAP, limit=MOST_WORKERS)]

    async def gone_owners(self) -> list[str]:
        """Return workers that are gone but still own instances, because no other worker has claimed them."""
        return [id for (id,) in await self._look("gone_owners", limit=MOST_WORKERS)]

    async def unowned(self, gone: Collection[str], known: Collection[str]) -> dict[str, tuple[int, int]]:
        """Return (count, oldest start) of open instances without a live owner, by workflow, except `known` ones.

        `gone`: owners that don't live. Of theirs, the first `FEW` are looked at.
        """
        names = [name for (name,) in await self._look("free_workflows", limit=MOST_WORKFLOWS) if name not in known]
        rows = await self._look("free_of_workflows", listed=names, cap=CAP, sample=SAMPLE) if names else []
        rows += await self._look("owned_workflows", listed=list(gone), cap=FEW) if gone else []
        found: dict[str, tuple[int, int]] = {}
        for name, n, oldest in rows:
            if n and name not in known:
                before = found.get(name, (0, oldest))
                found[name] = min(before[0] + n, CAP), min(before[1], oldest)
        return found

    # --- minutes ----------------------------------------------------------------------------------------------------
    async def add(self, minute: Minute) -> bool:
        """Add what a worker did in a minute. Return whether it is already stored what needed attention then."""
        given = {"started": minute.started, "completed": minute.completed, "failed": minute.failed}
        [(is_missing,)] = await self._do("add_minute", minute=minute.minute, cancelled=minute.cancelled, **given)
        return not is_missing

    async def is_surveyed(self, minute: int) -> bool:
        """Return whether it is stored what needed attention in a minute."""
        return bool(await self._ask("is_surveyed", minute=minute))

    async def survey(self, minute: int, found: Tallies) -> None:
        """Store what needed attention in a minute, unless somebody else has."""
        given = {"blocked": found.blocked.n, "retrying": found.retrying.n, "overdue": found.overdue.n}
        await self._do("survey_minute", minute=minute, failures=found.failed.n, queued=found.queued.n, **given)

    async def minutes(self, since: int) -> list[Minute]:
        """Return the minutes from one on in which something happened, in order."""
        return [Minute(*row) for row in await self._look("minutes", since=since, limit=MOST_MINUTES)]

    async def forget_minutes(self, before: int) -> None:
        await self._do("forget_minutes", before=before)

    # --- what needs attention ---------------------------------------------------------------------------------------
    async def tallies(self, now: int, late: int) -> Tallies:
        """Count what needs attention. `late`: waits and retries that were due before then are overdue."""
        codes = [STATUS_CODES[status] for status in ("failed", "blocked", "queued")]
        counts = dict(map(tuple, await self._look("count_statuses", codes=codes, cap=CAP)))
        failed, blocked, queued = (counts.get(code, 0) for code in codes)
        oldest = await self._look("oldest_queued") if queued else []
        return Tallies(
            Tally(failed, failed >= CAP),
            Tally(blocked, blocked >= CAP),
            await self.retrying_tally(now),
            await self.overdue_tally(now, late),
            Tally(queued, queued >= CAP, oldest[0][0] if oldest else None),
        )

    async def retrying_tally(self, now: int) -> Tally:
        """Count instances with an activity that is tried again."""
        [(read, n, blocked, next_due)] = await self._look("count_retrying", now=now, cap=CAP, few=FEW)
        return Tally(max(n - blocked, 0), read >= CAP, next_due)

    async def overdue_tally(self, now: int, late: int) -> Tally:
        """Count waits and retries that were due before `late`, except attempts that run."""
        [(waits, blocked)] = await self._look("count_late_waits", before=late, cap=CAP, few=FEW)
        [(read, retries)] = await self._look("count_late_retries", now=now, before=late, few=FEW)
        n = min(max(waits - blocked, 0) + retries, CAP)
        first = await self.overdue(now, late, 1) if n else []
        return Tally(n, waits >= CAP or read >= FEW, first[0].due if first else None)

    async def count_deliveries(self) -> int:
        """Count events that instances have yet to look at."""
        [(n,)] = await self._look("count_deliveries", cap=CAP)
        return n

    async def retrying(self, now: int, limit: int, after: Place = BEGINNING) -> list[RetryRow]:
        """Return activities that are tried again, by the time of their next attempt."""
        return await self._list("retrying", RetryRow, limit, after, now=now)

    async def overdue(self, now: int, late: int, limit: int, after: Place = BEGINNING) -> list[LateRow]:
        """Return waits and retries that were due before `late`, by due time, except attempts that run."""
        waits = await self._list("late_waits", LateRow, limit, after, before=late)
        retries = await self._list("late_retries", LateRow, limit, after, before=late, now=now)
        return sorted([*waits, *retries], key=lambda row: row.place)[:limit]

    async def _list(
        self, name: str, row: Callable[..., Listed], limit: int, after: Place, **given: int
    ) -> list[Listed]:
        """Read a list by due time, a part of it at a time, until there are enough rows to show."""
        found: list[Listed] = []
        for _ in range(CAP // FEW):
            rows = await self._look(name, limit=limit - len(found), cap=FEW, **given, **_place(after))
            made = [(is_shown, line, row(*columns)) for is_shown, line, *columns in rows]
            found += [one for is_shown, _, one in made if is_shown]
            if len(found) >= limit or not made or made[-1][1] < FEW:
                break
            after = made[-1][2].place
        return found

    async def failures(self) -> tuple[list[FailureRow], bool]:
        """Return the failed and blocked instances that were started last, and whether there are more."""
        codes = [STATUS_CODES[status] for status in ("failed", "blocked")]
        found = [
            FailureRow(*row)
            for code in codes
            for row in await self._look("failures", status=code, limit=MOST_FAILURES + 1)
        ]
        found.sort(key=lambda row: (row.created_at, row.id), reverse=True)
        return found[:MOST_FAILURES], len(found) > MOST_FAILURES

    async def operations(self, entries: Collection[tuple[str, int]]) -> dict[tuple[str, int], str]:
        """Return the operations of these entries, which are given by instance and number."""
        listed = {f"{n}:{instance}": (instance, n) for instance, n in entries}
        rows = await self._look("ops_of_entries", listed=list(listed)) if listed else []
        return {listed[value]: op for value, op in rows if value in listed}


def _place(after: Place) -> dict[str, int | str]:
    return {"after_due": after[0], "after_instance": after[1], "after_op": after[2]}
