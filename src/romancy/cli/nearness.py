"""Why an instance stands where it stands: what it waits for, and the events that came near."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import SequenceMatcher
from typing import Any

from romancy.app import App
from romancy.core.history import is_json
from romancy.core.matching import NO_FILTER, Filter, parse_json
from romancy.core.model import Event, from_us
from romancy.errors import InvalidEvent
from romancy.records import EventRecord, Wait, to_event_record, to_wait
from romancy.storage.protocol import Snapshot, StoredWait

_SHOWN, _LOG, _ALIKE = 3, 50, 0.75
"""Near events shown per wait, events looked at per type, and how much alike two types must be to be near."""


Misfits = Mapping[tuple[int, str], str]
"""By event and wait, what the model had against the data."""


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


async def reasons(app: App, snapshot: Snapshot) -> list[Reason]:
    """Everything an instance waits for."""
    storage, id = app.engine.storage, snapshot.row.id
    misfits = {(event, op): error for event, op, error in await storage.misfits(id)}
    stored = await storage.waits(instance=id, limit=1000)
    return [Reason(to_wait(wait), await _near(app, snapshot, wait, misfits)) for wait in stored]


async def _near(app: App, snapshot: Snapshot, stored: StoredWait, misfits: Misfits) -> list[NearEvent]:
    spec: dict[str, Any] = json.loads(stored.spec) if stored.spec else {}
    types: list[str] = spec.get("types", [])
    if not types:
        return []
    narrow = Filter.from_json(spec["filter"]) if "filter" in spec else NO_FILTER
    judged: list[tuple[int, bool, NearEvent]] = []
    for record in [record for type in types for record in await _log(app, type=type)]:
        wrong = _wrong(record, narrow, snapshot, app.clock.now())
        said = wrong or [_subtle(record.event, snapshot, stored, misfits)]
        judged.append((len(wrong), False, _near_event(record, said)))
    for record in await _alike(app, types):
        wrong = _wrong(record, narrow, snapshot, app.clock.now())
        said = [f"its type is not {_closest(record.event.type, types)!r}", *wrong]
        judged.append((len(wrong), True, _near_event(record, said)))
    return [event for _, _, event in sorted(judged, key=lambda found: found[:2])[:_SHOWN]]


async def _log(app: App, *, type: str | None = None, unmatched: bool = False) -> list[EventRecord]:
    return [to_event_record(e) for e in await app.engine.storage.events(type=type, unmatched=unmatched, limit=_LOG)]


async def _alike(app: App, types: list[str]) -> list[EventRecord]:
    """Events nobody took whose type looks like a slip of the pen."""
    recent = [record for record in await _log(app, unmatched=True) if record.event.type not in types]
    return [r for r in recent if _likeness(r.event.type, _closest(r.event.type, types)) >= _ALIKE]


def _closest(type: str, types: list[str]) -> str:
    return max(types, key=lambda wanted: _likeness(type, wanted))


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def _near_event(record: EventRecord, said: Sequence[str]) -> NearEvent:
    event = record.event
    return NearEvent(event.id, event.source, event.type, event.subject, record.accepted_at, said)


def _wrong(record: EventRecord, narrow: Filter, snapshot: Snapshot, now: int) -> list[str]:
    """What a wait has against an event, besides its type and what the model says."""
    event, id = record.event, snapshot.row.id
    took = next((op for instance, op in record.received_by if instance == id), None)
    if took is not None:
        return [f"this instance took it already, for {took!r}"]
    said = narrow.nearest(event.subject, event.source, _data(event))
    if event.target is not None and event.target != id:
        said.append(f"it was sent to {event.target!r} only")
    if event.expires_at is not None and event.expires_at <= now:
        said.append(f"it expired at {from_us(event.expires_at).isoformat()}")
    return said


def _subtle(event: Event, snapshot: Snapshot, wait: StoredWait, misfits: Misfits) -> str:
    """It has all the wait asks for, so it is a matter of time or of the model."""
    of_others = (error for (seq, _), error in misfits.items() if seq == event.seq)  # waits alike are judged as one
    problem = misfits.get((event.seq, wait.op)) or next(of_others, None)
    if problem is not None:
        return f"its data {problem[3:]}" if problem.startswith("it ") else f"its data does not fit the model: {problem}"
    if event.seq in snapshot.deliveries:
        return "it fits so far; no worker has looked at it yet"
    if event.accepted_at < snapshot.row.created_at:
        return "it came before the instance was started"
    if event.accepted_at < wait.created_at:
        return "it came before this wait (since='now'), or its data does not fit the model"
    return "its data does not fit the model; the worker's log says why"


def _data(event: Event) -> Any:
    if event.data is None or not (event.datacontenttype is None or is_json(event.datacontenttype)):
        return event.data
    try:
        return parse_json(event.data)
    except InvalidEvent:
        return event.data
