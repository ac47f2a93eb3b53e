"""Results of reads as frozen dataclasses: instances, waits, history, events, pages. Also event receipts."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypedDict, TypeVar

from romancy.acts import Act as Act
from romancy.core.actor import sent_by
from romancy.core.attributes import decode_attribute
from romancy.core.dropped import standing
from romancy.core.failure import Failure
from romancy.core.filters import Filter
from romancy.core.history import Entry, Kind, Payload, is_in_transaction, showable, shown_identity, unpack_event
from romancy.core.inputs import EVENT
from romancy.core.model import SECOND, Attribute, Scalar, Status, WaitKind, from_us
from romancy.core.model import Event as StoredEvent
from romancy.core.new_events import Event as Event
from romancy.core.operations import meaning_of
from romancy.core.questions import ANSWERED
from romancy.core.redaction import redacted_at
from romancy.core.schedules import CatchUp, Overlap
from romancy.core.versions import split_name
from romancy.storage.catalog import Shown, ShownEvent
from romancy.storage.inbox_items import InboxRow
from romancy.storage.instances import InstanceRow
from romancy.storage.interests import Held
from romancy.storage.records import UNREAD, StoredWait, build_names, unread_words
from romancy.storage.schedules import ScheduleRow

T = TypeVar("T")
CODE = "(code)"
"""The wait id of workflow code in quarantine: a worker died while running it, so it pauses for a while."""


@dataclass(frozen=True)
class Receipt:
    """The answer to a sent event: it is stored durably, and `delivered` instances were waiting for it."""

    status: Literal["accepted"] = "accepted"
    duplicate: bool = False
    """An event with this source and id is already stored. This one was dropped."""
    delivered: int = 0
    """How many instances were waiting for it."""
    started: int = 0
    """How many instances it started, of workflows with `on_event`."""
    mismatched: int = 0
    """How many waits and workflows with `on_event` did not get it because its data does not fit their model."""
    differs: bool = False
    """Only source and id are the same: an event with different content is already stored. This one was dropped."""


@dataclass(frozen=True)
class QueueWait:
    """Why a queued instance is not admitted yet. Everything is counted up to 100,000."""

    reason: str
    """What holds it, in words."""
    limit: Literal["max_concurrent", "max_concurrent_per_key", "rate", "rate_per_key"] | None
    """The limit that holds it; None if none does, or if the process that was asked does not know the queue."""
    is_known: bool
    """Whether the process that was asked has the queue in its code."""
    ahead: int
    """How many instances with its key come before it."""
    running: int
    """How many instances of the queue hold a slot."""
    running_of_key: int
    holders: Sequence[str] = ()
    """Some of the instances that hold the slots it could get."""
    opens_at: datetime | None = None
    """When the rate that holds it allows the next instance."""


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
    child: str | None = None
    """The id of the child it waits for, if its kind is "child"."""
    slot: str | None = None
    """Of an activity that waits for a slot of its worker: how many run there. Only that worker knows it."""
    cut_at: datetime | None = None
    """Events for it that were accepted before this time were removed, although the instance was there already."""
    queue: QueueWait | None = None
    """If its kind is "queue": what holds it there. Set by `get_instance`."""
    is_free: bool = False
    """If its kind is "child": whether it goes on by itself (`start_workflow`). Then perhaps nobody waits for it."""


@dataclass(frozen=True)
class Instance:
    """The current state of one instance of a workflow."""

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
    parent: str | None = None
    run_number: int = 1
    run_started_at: datetime | None = None
    """When the current run began: later than `started_at` if the instance continued as new."""
    version: int = 1
    """The version of the workflow: `@workflow(version=2)`."""
    attributes: Mapping[str, Attribute] = field(default_factory=dict[str, "Attribute"])
    view: Any = None
    """What its code last gave to `ctx.set_view`, as JSON."""
    builds: Sequence[str] = ()
    """Of a blocked instance: the builds of your code that could not follow its history. Others will try."""
    forked_from: str | None = None
    """Of a fork: the id of the instance that it was copied from. That one may have been removed since."""
    schedule: str | None = None
    """The name of the schedule that started it."""
    queue: str | None = None
    """The queue whose limits it counts for."""
    key: str | None = None
    """Its key in the queue; None if it has none."""
    priority: int = 0
    acts: Sequence[Act] = ()
    """Who started it, cancelled it and so on, as far as that is known. Set by `get_instance`."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """What middleware and traces stored with it when it was started."""


class InstanceFilter(TypedDict, total=False):
    """Which instances are meant: those that match every filter given. None, or no value, does not filter.

    `list_instances`, `count_instances` and the verbs for many instances take these as keywords.
    """

    status: Status | Collection[Status]
    """One status, or several."""
    workflow: str | None
    """The name of the workflow."""
    where: Mapping[str, Scalar] | None
    """It has all these attributes; None: it has no attribute of that name."""
    text: str | None
    """This text is in the id, the input or the error."""
    error_type: str | None
    """The type of the error, as `Instance.error["type"]` shows it."""
    parent: str | None
    """The id of the instance that started it."""
    queue: str | None
    """The name of its queue."""
    key: str | None
    """Its key in the queue."""
    started_after: datetime | None
    started_before: datetime | None


@dataclass(frozen=True)
class BulkResult:
    """What became of many instances: how many matched the filter, how many were changed, and what failed, by id.

    An instance that matched is not changed if there was nothing to do, for example because it had already ended. There
    are at most 100 errors. With a limit, `matched` counts the instances up to the last one that was changed.
    """

    matched: int
    changed: int
    errors: Mapping[str, str]


@dataclass(frozen=True)
class HistoryEntry:
    """One entry in the history of an instance."""

    n: int
    kind: str
    operation: str
    at: datetime
    input: Any = None
    result: Any = None
    error: Any = None
    event: Any = None
    dropped: bool = False
    """It no longer counts, because the instance was retried."""
    transactional: bool = False
    """Of an activity: what it wrote to the database was committed with this entry or, if it failed, rolled back."""
    _raw: Entry = field(repr=False, compare=False, default_factory=lambda: Entry(0, 0, "", 0))


def raw_entry(entry: HistoryEntry) -> Entry:
    """A recorded fact as it is stored."""
    return entry._raw  # pyright: ignore[reportPrivateUsage]


@dataclass(frozen=True)
class EventRecord:
    """A stored event, with the (instance, wait) pairs that took it."""

    event: StoredEvent
    accepted_at: datetime
    received_by: Sequence[tuple[str, str]]
    differed_at: datetime | None = None
    """When an event with the same source and id but different content was first sent. That event was dropped."""
    sent_by: str | None = None
    """The name of the token that it was sent with, or `webhook NAME`."""


@dataclass(frozen=True)
class ScheduleRecord:
    """A schedule, and what became of its ticks."""

    name: str
    workflow: str
    cron: str | None
    every: float | None
    """Seconds between two ticks, if it has no cron expression."""
    timezone: str
    next_at: datetime | None
    """The next tick; None if there is none, or the schedule is paused."""
    last_at: datetime | None
    """The last tick that was started, or when it was last triggered."""
    last_instance: str | None
    is_paused: bool
    is_declared: bool
    """Whether it is in the code: `@workflow(schedule=...)`."""
    started: int
    """How many instances it has started."""
    skipped: int
    """How many ticks it has skipped, because they were missed or the instance before had not ended."""
    error: str | None
    """What prevents a worker from starting it."""
    due_at: datetime | None
    """When the next tick is started: at `next_at` or, with `spread`, up to that much later."""
    spread: float
    """By how many seconds ticks are started later, at most."""
    catch_up: CatchUp
    """What becomes of ticks that were missed."""
    overlap: Overlap
    """What becomes of a tick if the instance before has not ended."""


@dataclass(frozen=True)
class QueueRecord:
    """A queue: how many instances hold a slot, and how many wait. Both are counted up to 100,000."""

    name: str
    running: int
    waiting: int
    oldest_at: datetime | None
    """When the instance that has waited longest was started."""


@dataclass(frozen=True)
class InboxRecord:
    """A start or an event that was left with `app.within`, and that no worker has taken in yet, or that was refused."""

    number: int
    kind: Literal["start", "event", "unknown"]
    """Unknown: it was left by a newer version of Romancy, and waits for a worker with that version."""
    at: datetime
    """When it was left."""
    instance_id: str | None
    """Of a start: the id that the instance will have."""
    workflow: str | None
    type: str | None
    """Of an event: its type, its source and its id."""
    source: str | None
    id: str | None
    refused: str | None
    """Why it was refused. It is removed some time later: see `Retention.instances`."""


@dataclass(frozen=True)
class HeldEvents:
    """Old events of one type that are kept because open instances may still take them."""

    type: str
    count: int
    oldest_at: datetime
    """When the oldest one was accepted."""
    workflow: str
    """The workflow whose oldest open instance they are kept for."""
    instance_id: str | None
    """That instance."""
    is_addressed: bool = False
    """They were sent only to this instance: `send_event(to=...)`."""


@dataclass(frozen=True)
class Page(Generic[T]):
    """A page of items, and the cursor for the next page; None on the last page."""

    items: Sequence[T]
    cursor: str | None

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


def to_instance(
    row: InstanceRow, waits: Sequence[Wait] = (), shown: Shown | None = None, acts: Sequence[Act] = ()
) -> Instance:
    workflow, version = split_name(row.workflow)
    run = row.run
    return Instance(
        instance_id=row.id,
        workflow=workflow,
        status=row.status,
        input=_shown_input(row),
        output=showable(row.output),
        error=_shown_error(row.error),
        started_at=from_us(row.created_at),
        finished_at=None if row.finished_at is None else from_us(row.finished_at),
        waits=waits,
        description=row.description,
        parent=row.parent,
        run_number=run.number,
        run_started_at=from_us(run.began_at),
        version=version,
        attributes={} if shown is None else to_attributes(shown.attributes),
        view=None if shown is None else showable(shown.view),
        builds=tuple(build_names(row.builds)) if row.status == "blocked" else (),
        forked_from=run.origin,
        schedule=row.schedule,
        queue=row.queue,
        key=row.queue_key or None,
        priority=row.priority or 0,
        headers={} if shown is None else shown.headers,
        acts=acts,
    )


def to_schedule_record(row: ScheduleRow) -> ScheduleRecord:
    order, schedule = row.order, row.order.schedule
    return ScheduleRecord(
        name=row.name,
        workflow=split_name(order.workflow)[0],
        cron=schedule.cron,
        every=schedule.every,
        timezone=schedule.timezone,
        next_at=None if row.next_at is None or row.paused else from_us(row.next_at),
        last_at=None if row.last_at is None else from_us(row.last_at),
        last_instance=row.last_instance,
        is_paused=row.paused,
        is_declared=order.declared,
        started=row.started,
        skipped=row.skipped,
        error=row.error,
        due_at=None if row.due_at is None or row.paused else from_us(row.due_at),
        spread=schedule.spread / SECOND,
        catch_up=schedule.catch_up,
        overlap=schedule.overlap,
    )


def to_queue_record(row: tuple[str, int, int, int | None]) -> QueueRecord:
    name, running, waiting, oldest = row
    return QueueRecord(name, running, waiting, None if oldest is None else from_us(oldest))


def to_inbox_record(row: InboxRow) -> InboxRecord:
    return InboxRecord(
        number=row.number,
        kind=row.name,
        at=from_us(row.at),
        instance_id=row.instance,
        workflow=None if row.workflow is None else split_name(row.workflow)[0],
        type=row.type,
        source=row.source,
        id=row.event,
        refused=row.refused,
    )


def to_held_events(held: Held) -> HeldEvents:
    return HeldEvents(held.type, held.count, from_us(held.oldest), held.workflow, held.instance, held.is_addressed)


def to_attributes(stored: Mapping[str, str]) -> dict[str, Attribute]:
    """Return attributes with their values."""
    return {name: decode_attribute(value) for name, value in stored.items()}


def _shown_input(row: InstanceRow) -> Any:
    return shown_event(row.input) if row.input_kind == EVENT else showable(row.input)


def _shown_error(raw: bytes | None) -> dict[str, Any] | None:
    if raw is None:
        return None
    failure = Failure.decode(raw)
    shown: dict[str, Any] = {"type": failure.error_type, "message": failure.message, "traceback": failure.traceback}
    if failure.missing is not None:
        shown["missing"] = failure.missing
    return shown if failure.not_undone is None else {**shown, "not_undone": failure.not_undone}


def shown_event(payload: bytes | None) -> Any:
    """Return a stored event in readable form."""
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
        spec, narrow, damage = {}, None, f"its stored description is damaged: {error}"
    if UNREAD in spec:
        damage = unread_words(spec[UNREAD])
    where = {".".join(map(str, path)): redacted_at(path, value) for path, value in narrow.where} if narrow else {}
    return Wait(
        instance_id=row.instance,
        wait_id=row.op or CODE,
        kind="answer" if spec.get("types") == [ANSWERED] else row.kind,  # type: ignore[arg-type]
        types=tuple(spec.get("types", ())),
        where=where,
        since=from_us(row.created_at),
        due_at=None if row.due is None else from_us(row.due),
        location=row.location,
        subject=narrow.subject if narrow else None,
        source=narrow.source if narrow else None,
        error=damage if row.error is None else Failure.decode(row.error).message,
        workflow=row.workflow,
        child=row.child,
        is_free=bool(row.is_free),
    )


STARTED = 0
"""The kind of the entry for the start of an instance. It is derived from the instance, not stored."""


def started_entry(row: InstanceRow) -> HistoryEntry:
    run = row.run
    about = {"id": row.id, "deadline": row.deadline}
    if run.number > 1 or run.seeds:
        about |= {"run": run.number, "base": run.base, "began_at": run.began_at}
    if run.seeds:
        about |= {"seeds": run.seeds}
    raw = Entry(0, STARTED, row.workflow, row.created_at, row.input, json.dumps(about).encode(), row.input_kind)
    return HistoryEntry(0, "started", row.workflow, from_us(run.began_at), input=_shown_input(row), _raw=raw)


def to_histories(entries: Sequence[Entry]) -> list[HistoryEntry]:
    """Return a whole history for people. It says which entries no longer count."""
    dropped = standing(entries)[1]
    gone: Collection[int] = () if dropped is None else dropped.numbers
    return [to_history(entry, dropped=entry.n in gone) for entry in entries]


def to_history(entry: Entry, *, dropped: bool = False) -> HistoryEntry:
    kind = Kind(entry.kind) if entry.kind in set(Kind) else None
    holds = meaning_of(entry.kind).payload
    text = (entry.payload or b"").decode() if holds is Payload.TEXT else None
    return HistoryEntry(
        n=entry.n,
        kind=kind.name.lower() if kind else f"kind {entry.kind}",
        operation=entry.op,
        at=from_us(entry.at),
        input=shown_identity(entry),
        result=text if text is not None else showable(entry.payload) if holds is Payload.VALUE else None,
        error=_shown_error(entry.payload) if holds is Payload.FAILURE else None,
        event=shown_event(entry.payload) if holds is Payload.EVENT else None,
        dropped=dropped,
        transactional=_is_transactional(entry, holds),
        _raw=entry,
    )


def _is_transactional(entry: Entry, holds: Payload) -> bool:
    if holds is Payload.FAILURE:
        return entry.payload is not None and Failure.decode(entry.payload).rolled_back
    return is_in_transaction(entry)


def to_event_record(stored: ShownEvent) -> EventRecord:
    event, differed_at = stored.event, None if stored.differed_at is None else from_us(stored.differed_at)
    return EventRecord(event, from_us(event.accepted_at), tuple(stored.receivers), differed_at, sent_by(event.origin))
