"""The events that nearly matched a wait, and for an event that no instance took, the waits it nearly matched."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import SequenceMatcher
from typing import Any, Protocol

from romancy.core.filters import NO_FILTER, Filter
from romancy.core.history import is_json
from romancy.core.model import Event, from_us, to_us
from romancy.core.strict_json import parse_json
from romancy.errors import InvalidEvent
from romancy.records import EventRecord, Page, Wait, to_wait
from romancy.storage.catalog import WHOLE, ShownEvent
from romancy.storage.protocol import Storage
from romancy.storage.records import StoredWait

_SHOWN, _LOG, _ALIKE = 3, 50, 0.75
"""Near misses shown, events checked per type, and how similar two types must be to count as near."""
_TYPES, _WAITS = 200, 20
"""Types, and waits of each, that an event is compared with."""
_MISFITS = 100
"""Maximum of misfits that are read per instance."""
BLOCKED = "the instance is blocked; it takes no events until it goes on"


Misfits = Mapping[tuple[int, str], str]
"""By event and wait, why the data did not fit the model."""


class Log(Protocol):
    """A source of events: an app, a client or a catalog."""

    async def list_events(
        self,
        *,
        type: str | None = None,
        instance_id: str | None = None,
        unmatched: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[EventRecord]: ...


@dataclass(frozen=True)
class NearEvent:
    """An event that a wait did not take, and why not."""

    id: str
    source: str
    type: str
    subject: str | None
    accepted_at: datetime
    reasons: Sequence[str]


@dataclass(frozen=True)
class Reason:
    """One wait of an instance, with the events that nearly matched."""

    wait: Wait
    near: Sequence[NearEvent] = field(default=())


@dataclass(frozen=True)
class NearWait:
    """A wait that did not take an event, and why not."""

    wait: Wait
    reasons: Sequence[str]
    is_misfit: bool = False
    """Everything matches except the data, and that is recorded."""


@dataclass(frozen=True)
class Case:
    """An instance that events are compared with.

    `misfits` and `deliveries` (events that no worker has looked at yet) are None if unknown.
    """

    id: str
    created_at: int
    now: int
    misfits: Misfits | None = None
    deliveries: Collection[int] | None = None
    is_blocked: bool = False


async def reasons(log: Log, case: Case, waits: Sequence[tuple[Wait, Filter]]) -> list[Reason]:
    """The waits of an instance, each with its nearest events."""
    return [Reason(wait, await _near(log, case, wait, narrow)) for wait, narrow in waits]


async def _near(log: Log, case: Case, wait: Wait, narrow: Filter) -> list[NearEvent]:
    types = list(wait.types)
    if not types or wait.kind == "answer":  # answers to other questions are not near
        return []
    judged: list[tuple[int, bool, NearEvent]] = []
    for record in [record for type in types for record in await _log(log, type=type)]:
        wrong = _wrong(record, narrow, case)
        why = wrong or [wait.error or _subtle(record.event, case, wait)]  # an error: its filter can't be read
        judged.append((len(wrong), False, _near_event(record, why)))
    for record in await _alike(log, types):
        wrong = _wrong(record, narrow, case)
        why = [f"its type is not {_closest(record.event.type, types)!r}", *wrong]
        judged.append((len(wrong), True, _near_event(record, why)))
    return [event for _, _, event in sorted(judged, key=lambda found: found[:2])[:_SHOWN]]


async def _log(log: Log, *, type: str | None = None, unmatched: bool = False) -> Sequence[EventRecord]:
    return (await log.list_events(type=type, unmatched=unmatched, limit=_LOG)).items


async def _alike(log: Log, types: list[str]) -> list[EventRecord]:
    """Events that no instance took, with a type that looks misspelled."""
    recent = [record for record in await _log(log, unmatched=True) if record.event.type not in types]
    return [r for r in recent if _likeness(r.event.type, _closest(r.event.type, types)) >= _ALIKE]


def _closest(type: str, types: list[str]) -> str:
    return max(types, key=lambda other: _likeness(type, other))


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one[:500], other[:500], autojunk=False).ratio()


def _near_event(record: EventRecord, why: Sequence[str]) -> NearEvent:
    event = record.event
    return NearEvent(event.id, event.source, event.type, event.subject, record.accepted_at, why)


def _wrong(record: EventRecord, narrow: Filter, case: Case) -> list[str]:
    """Why a wait does not take an event, apart from the type and the model."""
    event = record.event
    took = next((op for instance, op in record.received_by if instance == case.id), None)
    if took is not None:
        return [f"this instance has already taken it, for {took!r}"]
    found = narrow.nearest(event.subject, event.source, _data(event))
    if event.target is not None and event.target != case.id:
        found.append(f"it was sent only to {event.target!r}")
    if event.expires_at is not None and event.expires_at <= case.now:
        found.append(f"it expired at {from_us(event.expires_at).isoformat()}")
    return found


def _subtle(event: Event, case: Case, wait: Wait) -> str:
    """Everything matches, so the reason is the time or the model."""
    problem = _recorded(case.misfits or {}, event, wait.wait_id)
    if problem is not None:
        return problem
    if case.is_blocked:
        return BLOCKED
    if event.seq in (case.deliveries or ()):
        return "it fits so far; no worker has looked at it yet"
    if event.accepted_at < case.created_at:
        return "it arrived before the instance was started"
    if event.accepted_at < to_us(wait.since):
        return (
            f"it came before this wait, which takes no earlier ones if it has since='now'; or {_unlooked(case.misfits)}"
        )
    if case.deliveries is None:
        return _unlooked(case.misfits)
    return "a worker looked at it and did not take it; see the worker's log"


def _recorded(misfits: Misfits, event: Event, op: str) -> str | None:
    """Why the data of an event did not fit, as recorded by a worker."""
    of_others = (error for (seq, _), error in misfits.items() if seq == event.seq)  # identical waits are checked once
    problem = misfits.get((event.seq, op)) or next(of_others, None)
    if problem is None:
        return None
    return f"its data {problem[3:]}" if problem.startswith("it ") else f"its data does not fit the model: {problem}"


def _unlooked(misfits: Misfits | None) -> str:
    """Nothing is recorded. If misfits are unknown, or there are more than were read, it may still be one."""
    if misfits is not None and len(misfits) < _MISFITS:
        return "no worker has looked at it yet"
    found = "no worker has looked at it yet, or its data does not fit the model; see the worker's log"
    return f"{found}, or `romancy why -d DATABASE`" if misfits is None else found


def _data(event: Event) -> Any:
    if event.data is None or not (event.datacontenttype is None or is_json(event.datacontenttype)):
        return event.data
    try:
        return parse_json(event.data)
    except InvalidEvent:
        return event.data


# --- the nearest waits of an event ----------------------------------------------------------------------------------
class Nearest:
    """Compares events with open waits. Asks the database once per type, however many events there are."""

    def __init__(self, storage: Storage, now: int) -> None:
        self._catalog, self._now = storage.catalog, now
        self._types: list[str] | None = None
        self._waits: dict[str, list[StoredWait]] = {}
        self._misfits: dict[str, Misfits] = {}
        self._blocked: dict[str, bool] = {}

    async def waits(self, shown: ShownEvent) -> list[NearWait]:
        """The waits that this event nearly matched, and which parts did not match."""
        event = shown.event
        judged: list[tuple[list[str], StoredWait]] = []
        for type in [event.type, *await self._alike(event.type)]:
            other = [] if type == event.type else [f"it waits for {type!r}, not {event.type!r}"]
            judged += [(other + self._against(shown, stored), stored) for stored in await self._of_type(type)]
        nearest = sorted(judged, key=lambda found: len(found[0]))[:_SHOWN]
        return [NearWait(to_wait(wait), why) if why else await self._subtle(event, wait) for why, wait in nearest]

    async def _subtle(self, event: Event, stored: StoredWait) -> NearWait:
        """Everything matches, so the reason is the time, the model or the instance."""
        wait, id = to_wait(stored), stored.instance
        if id not in self._misfits:
            self._misfits[id] = {(seq, op): error for seq, op, error in await self._catalog.misfits(id)}
            self._blocked[id] = any(row.status == "blocked" for row in await self._catalog.summaries([id]))
        problem = _recorded(self._misfits[id], event, stored.op)
        if problem is not None:
            return NearWait(wait, [f"everything matches, but {problem}"], is_misfit=True)
        if self._blocked[id]:
            return NearWait(wait, [BLOCKED])
        if event.accepted_at < stored.created_at:
            late = "it arrived before the instance was started, or before a wait with since='now'"
        elif event.expires_at is not None and event.expires_at <= self._now:
            late = f"it expired at {from_us(event.expires_at).isoformat()}"
        elif stored.due is not None and event.accepted_at > stored.due:
            late = "it arrived after the wait had timed out"
        else:
            late = _unlooked(self._misfits[id])
        return NearWait(wait, [f"everything matches, but {late}"])

    def _against(self, shown: ShownEvent, stored: StoredWait) -> list[str]:
        event, unread = shown.event, to_wait(stored).error
        found = _unlike(shown, filter_of(stored)) if unread is None else [unread]
        if event.target is not None and event.target != stored.instance:
            found.append(f"the event was sent only to {event.target!r}")
        return found

    async def _of_type(self, type: str) -> list[StoredWait]:
        if type not in self._waits:
            self._waits[type] = [wait for _, wait in await self._catalog.waits_for(type, _WAITS, None)]
        return self._waits[type]

    async def _alike(self, type: str) -> list[str]:
        if self._types is None:
            self._types = [name for name, _ in await self._catalog.wait_types("", _TYPES, 1)]
        return [other for other in self._types if other != type and _likeness(type, other) >= _ALIKE]


def filter_of(stored: StoredWait) -> Filter:
    """The filter of a stored wait; none if its description is damaged, which `to_wait` reports."""
    try:
        spec: dict[str, Any] = json.loads(stored.spec) if stored.spec else {}
        return Filter.from_json(spec["filter"]) if "filter" in spec else NO_FILTER
    except (ValueError, KeyError, TypeError):
        return NO_FILTER


def _unlike(shown: ShownEvent, narrow: Filter) -> list[str]:
    event = shown.event
    if shown.size <= WHOLE or not narrow.where:
        return narrow.nearest(event.subject, event.source, _data(event))
    outside = Filter.build(narrow.subject, narrow.source).nearest(event.subject, event.source, None)
    return [*outside, f"its data ({shown.size:,} bytes) is too large to compare here"]
