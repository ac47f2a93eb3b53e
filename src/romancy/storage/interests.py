"""Which events are kept for whom. An event stays while an open instance that was there when it came may take it.

That is not asked for each event. Each type of event has a *floor*: when the oldest instance was created, of all
workflows that are interested in this type, that has not completed. Everything younger is kept. So a round costs a few
lookups for each workflow and each type, however many events are kept. Floors only rise, because an instance that starts
is younger than retention: a floor that was read before is safe to use, as long as no interest was added since. A round
checks that when it removes events. An interest is stored before the wait that it comes from.

A workflow that does not declare its interest is learned: from its source, and from every wait. As long as none of its
instances has completed since it was first registered, not every wait may have been seen, so that everything is kept for
its instances (the *first cohort*). The same applies to a workflow that was never registered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from romancy.core.interests import ANY, Interest
from romancy.core.model import SECOND
from romancy.storage.batch import Commit
from romancy.storage.sql import Run

FIRST, SETTLED, OPEN, KNOWN = range(4)
"""Kinds of rows. The row of a workflow for any type: the first cohort is under way; it has ended, or the interest is
declared; the code computes types. `KNOWN`: a single type or pattern, or a workflow that instances continue as."""
MOST_TYPES, CROWD = 100, 1000
"""How many types of a workflow a process learns, and how many are stored, before it counts as interested in all."""
SLACK = 3600 * SECOND
"""How far the clocks of processes may be apart."""
_TYPES, _PAGE, _ENDED = 1000, 2000, 1000
"""How many types, addressed events and ended instances a round looks at."""
_ADDRESSED = 10_000
"""How many addressed events are counted for people."""

Row = tuple[str, str, str, int]
"""(workflow, type, next workflow, kind)"""


def rows_of(interest: Interest) -> list[Row]:
    """Return the rows of a workflow that is registered."""
    kind = SETTLED if interest.is_declared else OPEN if interest.is_open else FIRST
    types = [(interest.workflow, type, "", KNOWN) for type in sorted(interest.types - {ANY})]
    later = [(interest.workflow, "", name, KNOWN) for name in sorted(interest.next)]
    return [(interest.workflow, ANY, "", OPEN if ANY in interest.types else kind), *types, *later]


class Known:
    """Rows that a process knows to be stored, so that it need not store them for each wait.

    A workflow that waits for many types (`f"paid.{order}"`, in a function that was not read) counts as interested in
    everything: neither this nor the table grows with the number of its instances.
    """

    def __init__(self) -> None:
        self._rows: set[Row] = set()
        self._types: Counter[str] = Counter()
        """How many types of a workflow were new. One that was not stored may count twice."""

    def __contains__(self, row: Row) -> bool:
        return row in self._rows or (bool(row[1]) and self._is_open(row[0]))

    def new(self, commits: Iterable[Commit]) -> list[Row]:
        """Return the rows for what these commits begin to wait for, as far as they are not known to be stored."""
        rows = rows_of_commits(commits, self)
        self._types.update(workflow for workflow, type, _, _ in rows if type)
        crowded = [name for name in dict.fromkeys(row[0] for row in rows) if self._types[name] > MOST_TYPES]
        if not crowded:
            return rows
        kept = [row for row in rows if row[0] not in crowded or not row[1]]
        return kept + [(name, ANY, "", OPEN) for name in crowded]

    def add(self, *rows: Row) -> None:
        self._rows.update(rows)

    def clear(self) -> None:
        self._rows.clear()
        self._types.clear()

    def _is_open(self, workflow: str) -> bool:
        return (workflow, ANY, "", OPEN) in self._rows


def rows_of_commits(commits: Iterable[Commit], known: Container[Row]) -> list[Row]:
    """Return the rows for what these commits begin to wait for, except those that are known to be stored."""
    found: dict[Row, None] = {}
    for commit in commits:
        name = commit.workflow
        if name is not None and commit.continuation is not None:
            found[name, "", commit.continuation.run.workflow, KNOWN] = None
        for wait in commit.opened if name is not None else ():
            for type in wait.types:
                found[name, type, "", KNOWN] = None  # pyright: ignore[reportArgumentType]
    return [row for row in found if row not in known]


class Floor(NamedTuple):
    """From when on events are kept, and for the oldest instance of which workflow."""

    at: int
    workflow: str


class Floors:
    """The floor of each type."""

    def __init__(self, rows: Iterable[Row], oldest: Mapping[str, int]) -> None:
        """`oldest`: when the oldest open instance of each workflow was created."""
        stored = list(rows)
        types: dict[str, set[str]] = {workflow: set() for workflow, type, _, _ in stored if type == ANY}
        later: dict[str, set[str]] = {}
        for workflow, type, following, kind in stored:
            if following:
                later.setdefault(workflow, set()).add(following)
            elif workflow in types and (type != ANY or kind in (FIRST, OPEN)):
                types[workflow].add(type)
        self._exact: dict[str, Floor] = {}
        self._patterns: dict[str, Floor] = {}
        for workflow, created in oldest.items():
            floor = Floor(created - SLACK, workflow)
            for type in _interest(workflow, types, later):
                where = self._patterns if type.endswith(ANY) else self._exact
                where[type] = min(where.get(type, floor), floor)

    def of(self, type: str) -> Floor | None:
        """Return the floor of a type; None if no open instance is interested in it."""
        found = [floor for pattern, floor in self._patterns.items() if type.startswith(pattern[:-1])]
        if type in self._exact:
            found.append(self._exact[type])
        return min(found, default=None)


def _interest(workflow: str, types: Mapping[str, set[str]], later: Mapping[str, set[str]]) -> set[str]:
    """Return what an instance of a workflow may take, also after it continued as others."""
    seen, ahead, found = {workflow}, [workflow], set[str]()
    while ahead:
        name = ahead.pop()
        found |= types.get(name, {ANY})  # not registered yet: it may wait for more than was seen of it
        more = later.get(name, set[str]()) - seen
        seen |= more
        ahead += more
    return found


@dataclass(frozen=True, slots=True)
class Held:
    """Events of a type that are kept beyond the retention period, and for whom."""

    type: str
    count: int
    """As far as was counted: see `Storage.held`."""
    oldest: int
    workflow: str
    instance: str | None
    is_addressed: bool = False
    """They were sent only to this instance."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Events that were removed although somebody may have taken them: those of a type accepted before a time."""

    type: str
    count: int
    upto: int


def cuts_of(rows: Sequence[tuple[int, str, int]]) -> list[Cut]:
    """Return what is removed, by type, of (number, type, when it was accepted)."""
    by_type: dict[str, list[int]] = {}
    for _, type, accepted in rows:
        by_type.setdefault(type, []).append(accepted)
    return [Cut(type, len(times), max(times) + 1) for type, times in sorted(by_type.items())]


@dataclass(slots=True)
class Plan:
    """What a round of retention removes, besides instances."""

    types: list[tuple[str, int]] = field(default_factory=lambda: [])
    """Types, and before when their events are removed."""
    interests: set[Row] = field(default_factory=lambda: set())
    """By which that was decided: if there are others, none of these types is touched."""
    seqs: list[int] = field(default_factory=lambda: [])
    """Expired and addressed events."""
    settled: list[str] = field(default_factory=lambda: [])
    """Workflows whose first cohort has ended."""
    opened: list[str] = field(default_factory=lambda: [])
    """Workflows that wait for too many types to remember them."""


def _settling(rows: Sequence[Any], settled: Sequence[str] = (), opened: Sequence[str] = ()) -> set[Row]:
    """Return the rows as they are once the first cohorts of these workflows have ended, and others are opened."""
    kinds: dict[tuple[Any, Any], Any] = {(workflow, FIRST): SETTLED for workflow in settled}
    kinds |= {(workflow, kind): OPEN for workflow in opened for kind in (FIRST, SETTLED)}
    return {(w, t, n, kinds.get((w, kind), kind)) for w, t, n, kind, _ in rows}


def _crowded(rows: Sequence[Any]) -> list[str]:
    """Return workflows with more types than are remembered, unless they count as interested in everything."""
    count = Counter(workflow for workflow, type, _, kind, _ in rows if kind == KNOWN and type)
    open_ones = {workflow for workflow, _, _, kind, _ in rows if kind == OPEN}
    return sorted(name for name, types in count.items() if types > CROWD and name not in open_ones)


class Keeping:
    """Finds out what can be removed. Only reads."""

    def __init__(self, ask: Run) -> None:
        self._ask = ask
        self._after_type, self._after_event = "", 0
        """Where the next round goes on."""

    async def plan(self, ended: Mapping[str, int], before: int, limit: int) -> Plan:
        """Return what to remove of what was accepted before a time. `ended`: which instances are removed."""
        plan, rows = Plan(), await self._ask("interests")
        first = {workflow: since for workflow, _, _, kind, since in rows if kind == FIRST}
        if first:
            plan.settled = await self._settled(first, rows, ended, limit)
        plan.opened = _crowded(rows)
        plan.interests = _settling(rows, plan.settled, plan.opened)
        plan.types = await self._types(await self._floors(plan.interests), before)
        expired = await self._ask("expired_events", before=before, limit=limit)
        plan.seqs = [*(seq for (seq,) in expired), *await self._addressed(before)][:limit]
        return plan

    async def _floors(self, rows: Iterable[Row]) -> Floors:
        oldest: dict[str, int] = dict(tuple(row) for row in await self._ask("oldest_instances"))
        return Floors(rows, oldest)

    async def _settled(
        self, first: Mapping[str, int], rows: Sequence[Any], ended: Mapping[str, int], limit: int
    ) -> list[str]:
        """Return workflows of which an instance went through its code: it completed, or continued as new."""
        going = await self._ask("prunable_instances", latest=max(ended.values()), limit=limit, **ended)
        done = await self._ask("completed_of", listed=[id for (id,) in going]) if going else []
        done = [*done, *await self._ask("last_completed", limit=_ENDED)]
        done += [(workflow, since) for workflow, _, following, _, since in rows if following]
        return sorted({workflow for workflow, at in done if workflow in first and at >= first[workflow]})

    async def _types(self, floors: Floors, before: int) -> list[tuple[str, int]]:
        rows = await self._ask("oldest_events", after=self._after_type, limit=_TYPES)
        self._after_type = rows[-1][0] if len(rows) == _TYPES else ""
        found: list[tuple[str, int]] = []
        for type, oldest in rows:
            floor = floors.of(type)
            upto = before if floor is None else min(before, floor.at)
            if oldest < upto:
                found.append((type, upto))
        return found

    async def _addressed(self, before: int) -> list[int]:
        given = {"after": self._after_event, "before": before, "limit": _PAGE}
        rows = await self._ask("addressed_events", **given)
        is_all_old = len(rows) == _PAGE and rows[-1][1] < before
        self._after_event = rows[-1][0] if is_all_old else 0
        return [seq for seq, _, is_useless in rows if is_useless]

    async def held(self, before: int, most: int) -> list[Held]:
        """Return what is kept although it was accepted before a time, by type, and by addressee if it has one.

        Counts up to `most` in all. Only the oldest addressed events are looked at.
        """
        floors = await self._floors(_settling(await self._ask("interests")))
        held: list[Held] = []
        holders: dict[str, str | None] = {}
        for type, oldest in await self._ask("oldest_events", after="", limit=_TYPES):
            floor = floors.of(type)
            if floor is None or oldest >= before:
                continue
            [(count,)] = await self._ask("count_old_events", type=type, before=before, most=most)
            most -= count
            if floor.workflow not in holders:
                found = await self._ask("oldest_of_workflow", workflow=floor.workflow)
                holders[floor.workflow] = found[0][0] if found else None
            held.append(Held(type, count, oldest, floor.workflow, holders[floor.workflow]))
        given = {"before": before, "most": min(most, _ADDRESSED), "limit": _TYPES}
        held += [Held(*row, is_addressed=True) for row in await self._ask("held_for_addressees", **given)]
        return sorted(held, key=lambda one: one.oldest)
