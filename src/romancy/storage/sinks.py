"""Sinks in the database: how far each has come in the event log, and what it has parked.

A sink belongs to one worker at a time, as an instance does: when the worker's row is gone, another one can claim it,
and whatever the former owner still writes is refused.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from romancy.core.events import OURS
from romancy.core.model import Event
from romancy.core.patterns import is_pattern
from romancy.storage.catalog import ShownEvent
from romancy.storage.rows import to_event
from romancy.storage.sql import Run

_LAST_TEXT = "\U0010ffff"
"""A text after all types."""
CAP = 10_000
"""Up to this many parked events are counted."""


class Place(NamedTuple):
    """A position in the event log. SQLite has no `xid`; there it is 0."""

    xid: int
    seq: int


@dataclass(slots=True, frozen=True)
class SinkRow:
    """A sink as it is stored."""

    owner: str | None
    is_owned: bool
    """Whether its owner is alive."""
    place: Place
    """Everything up to here is delivered or parked."""
    types: tuple[str, ...]
    """What was declared last, perhaps by a process with newer code."""
    due_at: int | None
    """When the first parked event is due."""


@dataclass(slots=True, frozen=True)
class Outgoing:
    """An event on its way to a sink."""

    place: Place
    event: Event
    is_received: bool = False
    """Whether it came from outside, so that it is not passed on."""
    attempts: int = 0
    since: int | None = None
    """When it first failed."""
    line: str = ""

    @property
    def is_parked(self) -> bool:
        return self.since is not None


class Reading(NamedTuple):
    """What was read of the event log."""

    events: list[Outgoing]
    end: Place
    """No event can come in before this position any more."""
    is_end: bool
    """Whether these were all up to there."""


@dataclass(slots=True, frozen=True)
class Parked:
    """An event that a sink passes by: it failed, or it comes after one that failed."""

    place: Place
    line: str
    attempts: int
    since: int
    due_at: int | None
    error: str | None
    dead: bool = False


@dataclass(slots=True, frozen=True)
class DeadRow:
    """An event that a sink gave up."""

    sink: str
    attempts: int
    error: str
    since: int
    event: ShownEvent


@dataclass(slots=True, frozen=True)
class SinkCounts:
    """A sink, for people. Counts go up to `CAP`."""

    name: str
    worker: str | None
    parked: int
    dead: int
    error: str | None
    """Why the first parked event could not be delivered."""
    types: tuple[str, ...]


class Sinks:
    """Sinks by name. `look` reads for people."""

    def __init__(self, ask: Run, look: Run, do: Run) -> None:
        self._ask, self._look, self._do = self.runs = ask, look, do

    async def declare(self, sink: str, types: Sequence[str], at: int, keep: int, *, holds: bool) -> None:
        """Add a sink, which begins with the events that come from now on, or change what it takes."""
        given = {"types": _text(types), "listed": list(types), "holds": holds}
        await self._do("declare_sink", sink=sink, at=at, keep=keep, **given)

    async def touch(self, sink: str, at: int) -> None:
        """Note that a sink is still declared."""
        await self._do("touch_sink", sink=sink, at=at)

    async def get(self, sink: str) -> SinkRow | None:
        for owner, owned, xid, seq, types, due in await self._ask("sink", sink=sink):
            return SinkRow(owner, bool(owned), Place(xid, seq), tuple(json.loads(types)), due)
        return None

    async def claim(self, sink: str, worker: str, at: int) -> Place | None:
        """Own a sink that is free. None: another worker has it, or this one has lost its lease."""
        return next((Place(*row) for row in await self._do("claim_sink", sink=sink, worker=worker, at=at)), None)

    async def events(self, types: Sequence[str], after: Place, limit: int, bytes: int) -> Reading:
        """Return events of these types or patterns, in order, without those that are addressed to an instance.

        At least one, and no more once there are this many bytes.
        """
        # First: every event before it is there by now, so that none has a type that is not found below.
        [(horizon, *end)] = await self._ask("sink_horizon")
        exact = {type for type in types if not is_pattern(type)}
        for pattern in types:
            if is_pattern(pattern):
                exact |= await self._types(pattern[:-1])
        if not exact:
            return Reading([], Place(*end), is_end=True)
        given = {"listed": sorted(exact), "xid": after.xid, "seq": after.seq, "limit": limit, "bytes": bytes}
        rows = [tuple(row) for row in await self._ask("sink_events", horizon=horizon, **given)]
        found = [_outgoing(Place(xid, row[0]), tuple(row), bool(received)) for xid, received, _, *row in rows]
        return Reading(found, Place(*end), is_end=len(rows) < limit and sum(row[2] for row in rows) < bytes)

    async def _types(self, prefix: str) -> set[str]:
        """Return the types of stored events that begin with this, except Romancy's own."""
        high = prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else _LAST_TEXT
        rows = await self._ask("types_between", low=prefix, high=high)
        return {type for (type,) in rows if not type.startswith(OURS)}

    async def lines(self, sink: str, *, holds: bool) -> set[str]:
        """Return the lines that have parked events. `holds`: a dead one counts."""
        return {line for (line,) in await self._ask("sink_lines", sink=sink, holds=holds)}

    async def due(self, sink: str, now: int, lines: int, each: int) -> list[Outgoing]:
        """Return parked events of lines that are due, in order: up to `each` of a line."""
        rows = await self._ask("sink_due", sink=sink, now=now, lines=lines, each=each)
        return [
            Outgoing(Place(xid, row[0]), to_event(tuple(row)), False, attempts, since, line)
            for xid, line, attempts, since, *row in rows
        ]

    async def heads(self, sink: str, lines: Collection[str], at: int, *, holds: bool) -> set[str]:
        """Make the first parked event of each of these lines due. Return the lines that have one."""
        rows = await self._do("sink_heads", sink=sink, listed=sorted(lines), at=at, holds=holds)
        return {line for (line,) in rows}

    async def settle(
        self,
        sink: str,
        worker: str,
        types: Sequence[str],
        place: Place,
        gone: Sequence[int],
        parked: Sequence[Parked],
        at: int,
    ) -> bool:
        """Move a sink on, drop parked events that were delivered, and park others.

        False: the worker has lost it, or it takes other types by now.
        """
        given = {"sink": sink, "worker": worker, "xid": place.xid, "seq": place.seq, "gone": list(gone), "at": at}
        given["types"] = _text(types)
        columns = {
            "seqs": [one.place.seq for one in parked],
            "xids": [one.place.xid for one in parked],
            "lines": [one.line for one in parked],
            "attempts": [one.attempts for one in parked],
            "sinces": [one.since for one in parked],
            "dues": [one.due_at for one in parked],
            "errors": [one.error for one in parked],
            "deads": [one.dead for one in parked],
        }
        return bool(await self._do("settle_sink", **given, **columns))

    async def forget(self, now: int, dead_before: int, declared: Sequence[str]) -> list[str]:
        """Remove old dead letters, and sinks that no process has declared for long, except those that this one has.

        Return the names of the sinks.
        """
        if not await self._ask("sink_patterns"):
            return []  # there are no sinks
        await self._do("forget_dead_letters", before=dead_before)
        return [name for (name,) in await self._do("forget_sinks", at=now, listed=list(declared))]

    # --- for people -------------------------------------------------------------------------------------------------
    async def all(self) -> list[SinkCounts]:
        types: dict[str, list[str]] = {}
        for sink, pattern in await self._look("sink_patterns"):
            types.setdefault(sink, []).append(pattern)
        rows = await self._look("sinks", cap=CAP)
        return [SinkCounts(name, *counts, types=tuple(types.get(name, ()))) for name, *counts in rows]

    async def dead_letters(self, sink: str | None, limit: int, after: tuple[str, int]) -> list[DeadRow]:
        """Return events that were given up, by sink, oldest first."""
        given = {"after_sink": after[0], "after_seq": after[1]}
        rows = await self._look("dead_letters", sink=sink, limit=limit, **given)
        return [_dead(*row) for row in rows]

    async def retry(self, sink: str, limit: int, at: int) -> int:
        """Let dead letters be delivered again, oldest first. Return how many."""
        return len(await self._do("retry_dead_letters", sink=sink, limit=limit, at=at))


def _outgoing(place: Place, row: tuple[Any, ...], received: bool) -> Outgoing:
    event = to_event(row)
    return Outgoing(place, event, received, line=line_of(event))


def _text(types: Sequence[str]) -> str:
    return json.dumps(sorted(types))


def line_of(event: Event) -> str:
    """Return what an event is in order with: others of its subject. Without a subject it is alone."""
    return f"#{event.seq}" if event.subject is None else f"={event.subject}"


def _dead(sink: str, attempts: int, error: str | None, since: int, *row: Any) -> DeadRow:
    return DeadRow(sink, attempts, error or "", since, ShownEvent(to_event(row[:-3], row[-1]), row[-3], [], row[-2]))
