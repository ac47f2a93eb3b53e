"""Why a wait was not met: the events that came near it; and for an event nobody took, the waits it came near."""

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
"""Near ones shown, events looked at per type, and how much alike two types must be to be near."""
_TYPES, _WAITS = 200, 20
"""Types, and waits of each, that an event is held against."""
_MISFITS = 100
"""Misfits of an instance that are read at most."""
BLOCKED = "the instance is blocked: nothing reaches it until it is resumed"


Misfits = Mapping[tuple[int, str], str]
"""By event and wait, what the model had against the data."""


class Log(Protocol):
    """Where events are looked up: an app, a client, a catalog."""

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
    """An event of the log that a wait did not take, and why not."""

    id: str
    source: str
    type: str
    subject: str | None
    accepted_at: datetime
    reasons: Sequence[str]


@dataclass(frozen=True)
class Reason:
    """One wait of an instance, with the events that came near."""

    wait: Wait
    near: Sequence[NearEvent] = field(default=())


@dataclass(frozen=True)
class NearWait:
    """A wait that did not take an event, and why not."""

    wait: Wait
    reasons: Sequence[str]
    is_misfit: bool = False
    """All but the data fits, and that is recorded."""


@dataclass(frozen=True)
class Case:
    """An instance as events are judged against it.

    `misfits` and `deliveries` (events that no worker has looked at yet) are None where they can't be known.
    """

    id: str
    created_at: int
    now: int
    misfits: Misfits | None = None
    deliveries: Collection[int] | None = None
    is_blocked: bool = False


async def reasons(log: Log, case: Case, waits: Sequence[tuple[Wait, Filter]]) -> list[Reason]:
    """Everything an instance waits for."""
    return [Reason(wait, await _near(log, case, wait, narrow)) for wait, narrow in waits]


async def _near(log: Log, case: Case, wait: Wait, narrow: Filter) -> list[NearEvent]:
    types = list(wait.types)
    if not types:
        return []
    judged: list[tuple[int, bool, NearEvent]] = []
    for record in [record for type in types for record in await _log(log, type=type)]:
        wrong = _wrong(record, narrow, case)
        said = wrong or [_subtle(record.event, case, wait)]
        judged.append((len(wrong), False, _near_event(record, said)))
    for record in await _alike(log, types):
        wrong = _wrong(record, narrow, case)
        said = [f"its type is not {_closest(record.event.type, types)!r}", *wrong]
        judged.append((len(wrong), True, _near_event(record, said)))
    return [event for _, _, event in sorted(judged, key=lambda found: found[:2])[:_SHOWN]]


async def _log(log: Log, *, type: str | None = None, unmatched: bool = False) -> Sequence[EventRecord]:
    return (await log.list_events(type=type, unmatched=unmatched, limit=_LOG)).items


async def _alike(log: Log, types: list[str]) -> list[EventRecord]:
    """Events nobody took whose type looks like a slip of the pen."""
    recent = [record for record in await _log(log, unmatched=True) if record.event.type not in types]
    return [r for r in recent if _likeness(r.event.type, _closest(r.event.type, types)) >= _ALIKE]


def _closest(type: str, types: list[str]) -> str:
    return max(types, key=lambda wanted: _likeness(type, wanted))


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one[:500], other[:500], autojunk=False).ratio()


def _near_event(record: EventRecord, said: Sequence[str]) -> NearEvent:
    event = record.event
    return NearEvent(event.id, event.source, event.type, event.subject, record.accepted_at, said)


def _wrong(record: EventRecord, narrow: Filter, case: Case) -> list[str]:
    """What a wait has against an event, besides its type and what the model says."""
    event = record.event
    took = next((op for instance, op in record.received_by if instance == case.id), None)
    if took is not None:
        return [f"this instance took it already, for {took!r}"]
    said = narrow.nearest(event.subject, event.source, _data(event))
    if event.target is not None and event.target != case.id:
        said.append(f"it was sent to {event.target!r} only")
    if event.expires_at is not None and event.expires_at <= case.now:
        said.append(f"it expired at {from_us(event.expires_at).isoformat()}")
    return said


def _subtle(event: Event, case: Case, wait: Wait) -> str:
    """It has all the wait asks for, so it is a matter of time or of the model."""
    problem = _recorded(case.misfits or {}, event, wait.wait_id)
    if problem is not None:
        return problem
    if case.is_blocked:
        return BLOCKED
    if event.seq in (case.deliveries or ()):
        return "it fits so far; no worker has looked at it yet"
    if event.accepted_at < case.created_at:
        return "it came before the instance was started"
    if event.accepted_at < to_us(wait.since):
        return f"it came before this wait (since='now'), or {_unlooked(case.misfits)}"
    if case.deliveries is None:
        return _unlooked(case.misfits)
    return "a worker looked at it and did not take it; its log says why"


def _recorded(misfits: Misfits, event: Event, op: str) -> str | None:
    """What a worker wrote down against the data of an event."""
    of_others = (error for (seq, _), error in misfits.items() if seq == event.seq)  # waits alike are judged as one
    problem = misfits.get((event.seq, op)) or next(of_others, None)
    if problem is None:
        return None
    return f"its data {problem[3:]}" if problem.startswith("it ") else f"its data does not fit the model: {problem}"


def _unlooked(misfits: Misfits | None) -> str:
    """Nothing is recorded. Where records can't be read, or there are more than are read, it may be a misfit, too."""
    if misfits is not None and len(misfits) < _MISFITS:
        return "no worker has looked at it yet"
    return "no worker has looked at it yet, or its data does not fit the model; the worker's log says why"


def _data(event: Event) -> Any:
    if event.data is None or not (event.datacontenttype is None or is_json(event.datacontenttype)):
        return event.data
    try:
        return parse_json(event.data)
    except InvalidEvent:
        return event.data


# --- for an event: the nearest waits --------------------------------------------------------------------------------
class Nearest:
    """Holds events against what is waited for; asks the database once for each type, however many events there are."""

    def __init__(self, storage: Storage, now: int) -> None:
        self._storage, self._catalog, self._now = storage, storage.catalog, now
        self._types: list[str] | None = None
        self._waits: dict[str, list[StoredWait]] = {}
        self._misfits: dict[str, Misfits] = {}
        self._blocked: dict[str, bool] = {}

    async def waits(self, shown: ShownEvent) -> list[NearWait]:
        """The waits that come nearest to taking this event, with which part did not match."""
        event = shown.event
        judged: list[tuple[list[str], StoredWait]] = []
        for type in [event.type, *await self._alike(event.type)]:
            slip = [] if type == event.type else [f"it waits for {type!r}, not {event.type!r}"]
            judged += [(slip + self._against(shown, stored), stored) for stored in await self._of_type(type)]
        nearest = sorted(judged, key=lambda found: len(found[0]))[:_SHOWN]
        return [NearWait(to_wait(wait), said) if said else await self._subtle(event, wait) for said, wait in nearest]

    async def _subtle(self, event: Event, stored: StoredWait) -> NearWait:
        """It has all the wait asks for: a matter of time, of the model, or of the instance."""
        wait, id = to_wait(stored), stored.instance
        if id not in self._misfits:
            self._misfits[id] = {(seq, op): error for seq, op, error in await self._storage.misfits(id)}
            self._blocked[id] = any(row.status == "blocked" for row in await self._catalog.summaries([id]))
        problem = _recorded(self._misfits[id], event, stored.op)
        if problem is not None:
            return NearWait(wait, [f"all parts match, but {problem}"], is_misfit=True)
        if self._blocked[id]:
            return NearWait(wait, [BLOCKED])
        if event.accepted_at < stored.created_at:
            late = "it came before the instance was started, or before a wait with since='now'"
        elif event.expires_at is not None and event.expires_at <= self._now:
            late = f"it expired at {from_us(event.expires_at).isoformat()}"
        elif stored.due is not None and event.accepted_at > stored.due:
            late = "it came after the wait's time was over"
        else:
            late = _unlooked(self._misfits[id])
        return NearWait(wait, [f"all parts match, but {late}"])

    def _against(self, shown: ShownEvent, stored: StoredWait) -> list[str]:
        event = shown.event
        said = _unlike(shown, filter_of(stored))
        if event.target is not None and event.target != stored.instance:
            said.append(f"the event was sent to {event.target!r} only")
        return said

    async def _of_type(self, type: str) -> list[StoredWait]:
        if type not in self._waits:
            self._waits[type] = [wait for _, wait in await self._catalog.waits_for(type, _WAITS, None)]
        return self._waits[type]

    async def _alike(self, type: str) -> list[str]:
        if self._types is None:
            self._types = [name for name, _ in await self._catalog.wait_types("", _TYPES, 1)]
        return [other for other in self._types if other != type and _likeness(type, other) >= _ALIKE]


def filter_of(stored: StoredWait) -> Filter:
    """What a stored wait narrows by. Of one whose description is damaged nothing is known; `to_wait` says so."""
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
    return [*outside, f"its data ({shown.size:,} bytes) is too long to be compared here"]
