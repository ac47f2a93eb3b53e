"""What reading gives: instances, waits, pages, receipts. Frozen and plain."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, cast

from romancy.core.failure import Failure
from romancy.core.filters import Filter
from romancy.core.history import Entry, Kind, showable, unpack_event
from romancy.core.inputs import EVENT
from romancy.core.model import Event, Scalar, Status, from_us
from romancy.errors import InvalidInput
from romancy.storage.records import InstanceRow, StoredEvent, StoredWait

T = TypeVar("T")
WaitKind = Literal["event", "timer", "activity", "retry", "child"]
CODE = "(code)"
"""Stands for the workflow's own code, where a worker died over it and it is left out for a while."""


@dataclass(frozen=True)
class Receipt:
    """What became of an event: stored for good; how many instances were waiting for it."""

    status: Literal["accepted"] = "accepted"
    duplicate: bool = False
    delivered: int = 0
    started: int = 0
    mismatched: int = 0
    differs: bool = False
    """It is a duplicate by source and id only: another event is stored under them, and this one was dropped."""


@dataclass(frozen=True)
class Wait:
    """Something an instance waits for."""

    instance_id: str
    wait_id: str
    kind: WaitKind
    types: Sequence[str]
    where: Mapping[str, Scalar]
    since: datetime
    due_at: datetime | None
    location: str
    subject: str | None = None
    source: str | None = None
    error: str | None = None
    workflow: str = ""


@dataclass(frozen=True)
class Instance:
    """One durable execution, as it stands."""

    instance_id: str
    workflow: str
    status: Status
    input: Any
    output: Any
    error: Any
    started_at: datetime
    finished_at: datetime | None
    waits: Sequence[Wait] = ()
    description: str | None = None


@dataclass(frozen=True)
class HistoryEntry:
    """One recorded fact."""

    n: int
    kind: str
    operation: str
    at: datetime
    input: Any = None
    result: Any = None
    error: Any = None
    event: Any = None
    raw: Entry = field(repr=False, compare=False, default_factory=lambda: Entry(0, 0, "", 0))


@dataclass(frozen=True)
class EventRecord:
    """An event in the log, with the instances that took it as (instance, wait)."""

    event: Event
    accepted_at: datetime
    received_by: Sequence[tuple[str, str]]
    differed_at: datetime | None = None
    """When an event with the same source and id, but other content, was first sent; it was dropped."""


@dataclass(frozen=True)
class Page(Generic[T]):
    """Some items, and the cursor to pass for the next ones; None: that was all."""

    items: Sequence[T]
    cursor: str | None


def to_instance(row: InstanceRow, waits: Sequence[Wait] = ()) -> Instance:
    return Instance(
        instance_id=row.id,
        workflow=row.workflow,
        status=row.status,
        input=_shown_input(row),
        output=showable(row.output),
        error=_shown_error(row.error),
        started_at=from_us(row.created_at),
        finished_at=None if row.finished_at is None else from_us(row.finished_at),
        waits=waits,
        description=row.description,
    )


def _shown_input(row: InstanceRow) -> Any:
    return shown_event(row.input) if row.input_kind == EVENT else showable(row.input)


def _shown_error(raw: bytes | None) -> dict[str, Any] | None:
    if raw is None:
        return None
    failure = Failure.decode(raw)
    return {"type": failure.error_type, "message": failure.message, "traceback": failure.traceback}


def shown_event(payload: bytes | None) -> Any:
    """A stored event as people read it."""
    if payload is None:
        return None
    event = unpack_event(payload)
    shown = {"id": event.id, "source": event.source, "type": event.type, "subject": event.subject}
    return {**shown, "data": showable(event.data)}


def to_wait(row: StoredWait) -> Wait:
    damage = None
    try:
        spec: dict[str, Any] = json.loads(row.spec) if row.spec else {}
        narrow = Filter.from_json(spec["filter"]) if "filter" in spec else None
    except (ValueError, KeyError, TypeError) as error:
        spec, narrow, damage = {}, None, f"its description is damaged: {error}"
    where = {".".join(str(s) for s in path): value for path, value in narrow.where} if narrow else {}
    return Wait(
        instance_id=row.instance,
        wait_id=row.op or CODE,
        kind=row.kind,  # type: ignore[arg-type]
        types=tuple(spec.get("types", ())),
        where=where,  # type: ignore[arg-type]
        since=from_us(row.created_at),
        due_at=None if row.due is None else from_us(row.due),
        location=row.location,
        subject=narrow.subject if narrow else None,
        source=narrow.source if narrow else None,
        error=damage if row.error is None else Failure.decode(row.error).message,
        workflow=row.workflow,
    )


STARTED = 0
"""The kind of the entry that stands for an instance's start; it is made from the instance itself, not stored."""


def started_entry(row: InstanceRow) -> HistoryEntry:
    about = json.dumps({"id": row.id, "deadline": row.deadline}).encode()
    raw = Entry(0, STARTED, row.workflow, row.created_at, row.input, about, row.input_kind)
    return HistoryEntry(0, "started", row.workflow, from_us(row.created_at), input=_shown_input(row), raw=raw)


def to_history(entry: Entry) -> HistoryEntry:
    kind = Kind(entry.kind) if entry.kind in set(Kind) else None
    failed = kind in (Kind.ACTIVITY_FAILED, Kind.ATTEMPT_FAILED)
    event = shown_event(entry.payload) if kind == Kind.EVENT_RECEIVED else None
    text = (entry.payload or b"").decode() if kind == Kind.CANCEL_REQUESTED else None
    return HistoryEntry(
        n=entry.n,
        kind=kind.name.lower() if kind else f"kind {entry.kind}",
        operation=entry.op,
        at=from_us(entry.at),
        input=showable(entry.input),
        result=text if text is not None else showable(entry.payload) if kind == Kind.ACTIVITY_COMPLETED else None,
        error=_shown_error(entry.payload) if failed else None,
        event=event,
        raw=entry,
    )


def to_event_record(stored: StoredEvent) -> EventRecord:
    differed_at = None if stored.differed_at is None else from_us(stored.differed_at)
    return EventRecord(stored.event, from_us(stored.event.accepted_at), tuple(stored.receivers), differed_at)


# --- pages ----------------------------------------------------------------------------------------------------------
def check_limit(limit: int) -> int:
    if not isinstance(limit, int) or not 1 <= limit <= 1000:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"limit must be a whole number between 1 and 1000, got {limit!r}")
    return limit


def write_cursor(position: tuple[Any, ...] | None) -> str | None:
    return None if position is None else json.dumps(position).encode().hex()


def read_cursor(cursor: str | None, *kinds: type) -> tuple[Any, ...] | None:
    """The position a page ended at: one value of each of these types."""
    if cursor is None:
        return None
    try:
        found: Any = json.loads(bytes.fromhex(cursor))
        if isinstance(found, list) and list(map(type, cast("list[Any]", found))) == list(kinds):
            return tuple(cast("list[Any]", found))
    except (ValueError, TypeError, RecursionError):
        pass  # reported below, like a cursor of another shape
    raise InvalidInput(f"{cursor[:200]!r} is not a cursor; pass on what the page before gave you")
