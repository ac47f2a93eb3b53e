"""Why an instance stands where it stands: what it waits for, and the events that came near."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import SequenceMatcher
from typing import Any

from romancy.core.history import is_json
from romancy.core.matching import Filter, parse_json
from romancy.core.model import Event, from_us, to_us
from romancy.errors import InvalidEvent
from romancy.records import EventRecord, Wait
from romancy.verbs import Verbs

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


async def reasons(verbs: Verbs, case: Case, waits: Sequence[tuple[Wait, Filter]]) -> list[Reason]:
    """Everything an instance waits for."""
    return [Reason(wait, await _near(verbs, case, wait, narrow)) for wait, narrow in waits]


async def _near(verbs: Verbs, case: Case, wait: Wait, narrow: Filter) -> list[NearEvent]:
    types = list(wait.types)
    if not types:
        return []
    judged: list[tuple[int, bool, NearEvent]] = []
    for record in [record for type in types for record in await _log(verbs, type=type)]:
        wrong = _wrong(record, narrow, case)
        said = wrong or [_subtle(record.event, case, wait)]
        judged.append((len(wrong), False, _near_event(record, said)))
    for record in await _alike(verbs, types):
        wrong = _wrong(record, narrow, case)
        said = [f"its type is not {_closest(record.event.type, types)!r}", *wrong]
        judged.append((len(wrong), True, _near_event(record, said)))
    return [event for _, _, event in sorted(judged, key=lambda found: found[:2])[:_SHOWN]]


async def _log(verbs: Verbs, *, type: str | None = None, unmatched: bool = False) -> Sequence[EventRecord]:
    return (await verbs.list_events(type=type, unmatched=unmatched, limit=_LOG)).items


async def _alike(verbs: Verbs, types: list[str]) -> list[EventRecord]:
    """Events nobody took whose type looks like a slip of the pen."""
    recent = [record for record in await _log(verbs, unmatched=True) if record.event.type not in types]
    return [r for r in recent if _likeness(r.event.type, _closest(r.event.type, types)) >= _ALIKE]


def _closest(type: str, types: list[str]) -> str:
    return max(types, key=lambda wanted: _likeness(type, wanted))


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


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
    misfits = case.misfits or {}
    of_others = (error for (seq, _), error in misfits.items() if seq == event.seq)  # waits alike are judged as one
    problem = misfits.get((event.seq, wait.wait_id)) or next(of_others, None)
    if problem is not None:
        return f"its data {problem[3:]}" if problem.startswith("it ") else f"its data does not fit the model: {problem}"
    if event.seq in (case.deliveries or ()):
        return "it fits so far; no worker has looked at it yet"
    if event.accepted_at < case.created_at:
        return "it came before the instance was started"
    if event.accepted_at < to_us(wait.since):
        return "it came before this wait (since='now'), or its data does not fit the model"
    if case.deliveries is None:
        return "no worker has looked at it yet, or its data does not fit the model; the worker's log says why"
    return "its data does not fit the model; the worker's log says why"


def _data(event: Event) -> Any:
    if event.data is None or not (event.datacontenttype is None or is_json(event.datacontenttype)):
        return event.data
    try:
        return parse_json(event.data)
    except InvalidEvent:
        return event.data
