"""The data that pages show, from the database's catalog. The viewer reaches the app only through this module."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from romancy.core.actor import sent_by
from romancy.core.cloudevents import structured
from romancy.core.codec import Codec
from romancy.core.failure import Failure
from romancy.core.history import is_json
from romancy.core.inputs import BOUND, EVENT
from romancy.core.instance import Instance as Execution
from romancy.core.model import SECOND, WORKING, Status, from_us
from romancy.core.redaction import redacted, with_redacted
from romancy.core.registry import WorkflowDefinition
from romancy.core.replay import Replay, replay
from romancy.cursors import read_cursor, write_cursor
from romancy.errors import InstanceNotFound
from romancy.explain.near_misses import Case, Nearest, NearWait, Reason, filter_of, reasons
from romancy.explain.ownership import Runner, has_worker, owner_of, runner_of
from romancy.obstacles import queue_wait, with_cuts
from romancy.records import (
    EventRecord,
    HistoryEntry,
    Instance,
    Page,
    QueueWait,
    Wait,
    to_wait,
)
from romancy.service import Service, runtime_of
from romancy.storage.catalog import BEGINNING, WHOLE, EventSearch, Rates, Search, ShownEntry, ShownEvent, Summary, Whole
from romancy.storage.rows import triggered_id
from romancy.viewer.calls import Call, calls_of, unlisted
from romancy.viewer.nested import bars_below
from romancy.viewer.parts import Part
from romancy.viewer.retries import Retry, dropped_entries
from romancy.viewer.spans import bars_of
from romancy.viewer.timeline import Timeline, draw
from romancy.viewer.values import preview, shown_entry, shown_instance

CAP = 10_001
"""Things are counted up to here."""
SCAN = 50_000
"""Rows that a search checks before it stops and says so."""
PAGE, ENTRIES, WAITS = 50, 500, 200
"""How much a page shows. A history of up to `ENTRIES` is also replayed; a longer one would block the event loop."""
CHILDREN = 20
_ROW_WAITS = 3


@dataclass(frozen=True)
class Row:
    """An instance in a list, with a few of its waits."""

    id: str
    workflow: str
    status: Status
    description: str | None
    error: Mapping[str, Any] | None
    started_at: datetime
    finished_at: datetime | None
    waits: Sequence[Wait]
    position: str
    """Its position in the list, as a cursor."""
    output: str = ""
    """The beginning of its output, as JSON."""

    @property
    def shown_status(self) -> str:
        """Its status; "retrying" if an activity of it failed and is tried again."""
        is_open = self.status in ("running", "waiting_for_event", "waiting_for_timer")
        return "retrying" if is_open and any(wait.kind == "retry" for wait in self.waits) else self.status


@dataclass(frozen=True)
class Rows:
    """A page of instances. `searched_to`: where the search stopped; it continues from the cursor."""

    items: Sequence[Row]
    cursor: str | None
    searched_to: datetime | None = None


@dataclass(frozen=True)
class Detail:
    """One instance, with everything that its page shows."""

    instance: Instance
    whole: Whole
    reasons: Sequence[Reason]
    history: Sequence[tuple[HistoryEntry, ShownEntry]]
    part: Part
    retried: Mapping[int, Retry]
    """The entries that no longer count, by number."""
    timeline: Timeline
    runner: Runner | None
    children: Sequence[Row]
    has_more_children: bool
    is_undone: bool
    """It has ended, and has undone its steps. It can't be retried."""
    queue: QueueWait | None = None
    """What holds it in its queue, if it is queued."""
    calls: Mapping[str, Call] = field(default_factory=dict[str, Call])
    """The activities that run or are retried, by operation."""

    @property
    def is_retrying(self) -> bool:
        """Whether an activity of it failed and is tried again."""
        is_open = self.instance.finished_at is None and self.instance.status != "blocked"
        return is_open and any(call.is_retry and call.error for call in self.calls.values())

    @property
    def has_never_run(self) -> bool:
        """Whether no worker has begun it, so that it would be cancelled at once."""
        row = self.whole.row
        return self.part.length == 0 and (row.status == "queued" or (row.status == "running" and row.version == 0))


@dataclass(frozen=True)
class Group:
    """An event type, how many waits for it are open, and some of them."""

    type: str
    count: int
    waits: Sequence[Wait]


@dataclass(frozen=True)
class EventLine:
    """An event, with the instances that took it or that it started; for an unmatched one, the nearest waits."""

    shown: ShownEvent
    started: Sequence[str]
    near: Sequence[NearWait] = ()

    @property
    def accepted_at(self) -> datetime:
        return from_us(self.shown.event.accepted_at)

    @property
    def differed_at(self) -> datetime | None:
        return None if self.shown.differed_at is None else from_us(self.shown.differed_at)

    @property
    def preview(self) -> str:
        """The beginning of its data, if that is text."""
        data = self.shown.event.data or b""
        if b"\0" in data or not _is_text(data):
            return "(not text)"
        return preview(data, self.shown.size)

    @property
    def as_sent(self) -> dict[str, Any] | None:
        """The whole event in the CloudEvents JSON format; None if its data is not JSON, or is too long to show."""
        event = self.shown.event
        if self.shown.size > WHOLE or not is_json(event.datacontenttype):
            return None
        typed = replace(event, datacontenttype=event.datacontenttype or "application/json")
        try:
            return with_redacted(json.loads(structured(typed)[1]), "data")
        except ValueError:
            return None

    @property
    def sent_by(self) -> str | None:
        return sent_by(self.shown.event.origin)

    @property
    def content_type(self) -> str:
        """The type of its data, unless that is JSON as usual."""
        found = self.shown.event.datacontenttype or ""
        return "" if found == "application/json" else found

    @property
    def receivers(self) -> Sequence[tuple[str, str]]:
        """(instance, wait) of those that waited for it, without the instances it started."""
        return [(instance, wait) for instance, wait in self.shown.receivers if instance not in self.started]


@dataclass(frozen=True)
class Events:
    items: Sequence[EventLine]
    cursor: str | None
    is_partial: bool = False
    """The search stopped early; it continues from the cursor."""


class Catalog:
    """Reads for people. Changes nothing."""

    def __init__(self, app: Service) -> None:
        self._app, self._runtime = app, runtime_of(app)
        self._storage = self._runtime.engine.storage
        self._stored = self._storage.catalog

    @property
    def now(self) -> datetime:
        return from_us(self._runtime.clock.now())

    @property
    def workflows(self) -> Mapping[str, WorkflowDefinition]:
        """The workflows of this process."""
        return self._runtime.registry.definitions

    async def counts(self) -> dict[Status, int]:
        return await self._stored.counts(CAP)

    async def inbox_counts(self) -> tuple[int, int]:
        """How much is in the inbox and waits for a worker, and how much was refused."""
        return await self._stored.inbox_counts(CAP)

    async def rates(self, seconds: float) -> Rates:
        return await self._stored.rates(self._runtime.clock.now() - int(seconds * SECOND), CAP)

    # --- instances --------------------------------------------------------------------------------------------------
    async def instances(self, search: Search, cursor: str | None) -> Rows:
        position = read_cursor(cursor, int, str)
        scan = SCAN // max(1, len(search.ranges))
        found = await self._stored.search(search, PAGE + 1, position and (position[0], position[1]), scan)
        kept = found.rows[:PAGE]
        items = await self._rows(kept)
        if len(found.rows) > PAGE:
            return Rows(items, write_cursor((kept[-1].created_at, kept[-1].id)))
        reached = found.reached
        return Rows(items, write_cursor(reached), None if reached is None else from_us(reached[0]))

    async def newer(self, search: Search) -> int:
        """How many instances there are above the first row of a page, up to one page."""
        return len((await self._stored.search(search, PAGE, None, SCAN)).rows)

    async def rows(self, ids: Collection[str]) -> Sequence[Row]:
        return await self._rows(await self._stored.summaries(ids))

    async def _rows(self, found: Sequence[Summary]) -> Sequence[Row]:
        open_ids = [row.id for row in found if row.finished_at is None]
        waits: dict[str, list[Wait]] = {}
        for stored in await self._stored.waits_of(open_ids, _ROW_WAITS) if open_ids else ():
            waits.setdefault(stored.instance, []).append(to_wait(stored))
        queued = [row for row in found if row.status == "queued"]
        queues = await self._storage.queues.of_instances([row.id for row in queued]) if queued else {}
        for row in queued:
            if row.id in queues:  # else it was deleted meanwhile
                waits.setdefault(row.id, []).insert(0, _queue_wait(row, queues[row.id]))
        return [_row(row, waits.get(row.id, ())) for row in found]

    async def instance(self, id: str, after: int | None, *, is_squeezed: bool = True) -> Detail:
        """One instance, with the history after the entry `after`; if None, with the newest entries."""
        whole = await self._stored.whole(id)
        if whole is None:
            raise InstanceNotFound(instance_id=id)
        part = await self._part(whole, after)
        entries = await self._stored.entries(id, part.after, min(ENTRIES, part.end - part.after))
        found, runner = await self._reasons(whole), await self._runner(whole)
        replayed = self._replayed(whole, entries, part.after) if part.is_current else None
        calls = await self._calls(whole, [reason.wait for reason in found], replayed, runner)
        listed = [reason.wait for reason in found]
        found += map(Reason, unlisted(calls, listed, () if replayed is None else replayed.waiting, id))
        waits = [reason.wait for reason in found]
        retried = dropped_entries(await self._stored.retries(id, part.after))
        history = [(shown_entry(shown), shown) for shown in entries]
        children = await self._stored.search(Search(parent=id), CHILDREN + 1, None, SCAN)
        shown = await self._stored.shown([id])
        return Detail(
            instance=shown_instance(whole, waits, shown.get(id)),
            whole=whole,
            reasons=found,
            history=history,
            part=part,
            retried=retried,
            timeline=await self._timeline(whole, part, entries, waits, retried, replayed, is_squeezed),
            runner=runner,
            children=[_row(child, ()) for child in children.rows[:CHILDREN]],
            has_more_children=len(children.rows) > CHILDREN,
            is_undone=bool(await self._stored.undone([id])),
            queue=next((wait.queue for wait in waits if wait.queue is not None), None),
            calls=calls,
        )

    async def arguments(self, definition: WorkflowDefinition, id: str) -> Mapping[str, Any] | None:
        """The arguments that an instance was started with, by name; None if they can't be shown in a form."""
        whole = await self._stored.whole(id)
        if whole is None:
            raise InstanceNotFound(instance_id=id)
        kind, raw = whole.row.input_kind, whole.row.input
        if whole.input_size > WHOLE or whole.row.workflow != definition.name or kind == EVENT:
            return None
        given: dict[str, Any] = json.loads(raw)
        if kind == BOUND:
            return redacted(given)
        return redacted(dict(zip(definition.signature.names, given["args"], strict=False)) | given["kwargs"])

    async def whole(self, id: str) -> Whole | None:
        return await self._stored.whole(id)

    async def _calls(
        self, whole: Whole, waits: Sequence[Wait], replayed: Replay | None, runner: Runner | None
    ) -> Mapping[str, Call]:
        row = whole.row
        if row.finished_at is not None or row.status in ("blocked", "queued"):
            return {}
        attempts = await self._stored.attempts(row.id, WAITS)
        is_alive = runner is not None and runner.is_alive
        open = replayed.waiting if replayed is not None and replayed.error is None else ()
        return calls_of(waits, attempts, open, self.now, is_alive=is_alive)

    async def _part(self, whole: Whole, after: int | None) -> Part:
        row = whole.row
        stored = await self._stored.entries(row.id, 0, 1) if row.base > 0 else ()
        first = stored[0].entry.n - 1 if stored else row.base
        before = max(first, row.base - ENTRIES) if first < row.base else None
        if after is not None and after < row.base and before is not None:
            return Part(max(after, first), first, row.base, is_current=False)
        start = max(row.base, whole.length - ENTRIES if after is None else after)
        return Part(min(start, whole.length), row.base, whole.length, run_before=before)

    async def _timeline(
        self,
        whole: Whole,
        part: Part,
        entries: Sequence[ShownEntry],
        waits: Sequence[Wait],
        retried: Mapping[int, Retry],
        replayed: Replay | None,
        is_squeezed: bool,
    ) -> Timeline:
        run, finished = whole.row.run, whole.row.finished_at
        is_newest = part.after + len(entries) >= part.end
        began = from_us(run.began_at)
        if entries and (not part.is_current or part.after > part.base):  # when the first one began is not known
            began = from_us(entries[0].entry.at)
        if not part.is_current:
            until = from_us(entries[-1].entry.at if entries and not is_newest else run.began_at)
            return draw(bars_of(entries, (), None, began, retried), began, until, is_squeezed=is_squeezed)
        if not is_newest:
            bars, until = bars_of(entries, (), None, began, retried), from_us(entries[-1].entry.at)
        else:
            bars = bars_of(entries, waits, None if replayed is None else replayed.opened, began, retried)
            until = self.now if finished is None else from_us(finished)
        below = await bars_below(self._stored, whole.row.id, bars, self._replayed)
        return draw(bars, began, until, is_squeezed=is_squeezed, below=below)

    async def _runner(self, whole: Whole) -> Runner | None:
        """The worker that runs it; None if it has ended, is blocked or queued."""
        row = whole.row
        if row.finished_at is not None or row.status in ("blocked", "queued"):
            return None
        worker, now = await owner_of(self._storage, row.owner), self._runtime.clock.now()
        others = worker is None and await has_worker(self._storage, now, row.workflow)
        return runner_of(row.workflow, row.status, row.owner, worker, now, is_wanted=False, has_others=others)

    async def _reasons(self, whole: Whole) -> list[Reason]:
        row = whole.row
        if row.finished_at is not None:
            return []
        stored = await self._stored.all_waits(row.id, WAITS)
        misfits = {(event, op): error for event, op, error in await self._stored.misfits(row.id)}
        case = Case(row.id, row.created_at, self._runtime.clock.now(), misfits, is_blocked=row.status == "blocked")
        waits = await with_cuts(self._stored, row.created_at, list(map(to_wait, stored)))
        found = await reasons(self, case, [*zip(waits, map(filter_of, stored), strict=True)])
        if row.status == "queued":
            found = [Reason(await queue_wait(self._storage, self._runtime.registry, row, case.now)), *found]
        if row.status not in WORKING or whole.input_size > 1_000_000:
            return found
        listed = {wait.op for wait in stored}
        running = [wait for wait in (await self._app.get_instance(row.id)).waits if wait.wait_id not in listed]
        return found + [Reason(wait) for wait in running]

    def _replayed(self, whole: Whole, entries: Sequence[ShownEntry], start: int) -> Replay | None:
        """Replay the history as far as the code follows it; None if the code or the full history is not available."""
        row = whole.row
        definition = self.workflows.get(row.workflow)
        length = whole.length - row.base
        is_whole = start == row.base and len(entries) == length and all(shown.is_whole for shown in entries)
        if definition is None or not is_whole or whole.input_size > 65536:
            return None
        kind, deadline, run = row.input_kind, row.deadline, row.run
        instance = Execution(definition, row.id, row.input, row.created_at, input_kind=kind, deadline=deadline, run=run)
        return replay(instance, [shown.entry for shown in entries])

    async def wait(self, id: str, wait_id: str) -> tuple[Wait | None, Codec | None]:
        """An open wait, and the model for the first of its types if this process knows it."""
        whole = await self._stored.whole(id)
        if whole is None:
            raise InstanceNotFound(instance_id=id)
        stored = await self._stored.waits(instance=id, limit=WAITS)
        found = next((to_wait(wait) for wait in stored if wait.op == wait_id), None)
        base = whole.row.base
        replayed = self._replayed(whole, await self._stored.entries(id, base, ENTRIES), base)
        operation = None if replayed is None else replayed.event_waits.get(wait_id)
        return found, operation.models[0] if operation else None

    # --- waits ------------------------------------------------------------------------------------------------------
    async def groups(self, after: str, limit: int, each: int) -> list[Group]:
        """Open waits by event type."""
        types = await self._stored.wait_types(after, limit, CAP)
        return [Group(type, n, [wait for _, wait in await self._waits_for(type, each, None)]) for type, n in types]

    async def waits_for(self, type: str, cursor: str | None) -> tuple[Sequence[Wait], str | None]:
        """All waits for a type."""
        found = await self._waits_for(type, PAGE + 1, read_cursor(cursor, int, str, str, str, str))
        more = write_cursor(found[PAGE - 1][0]) if len(found) > PAGE else None
        return [wait for _, wait in found[:PAGE]], more

    async def _waits_for(self, type: str, limit: int, after: Any) -> list[tuple[Any, Wait]]:
        return [(place, to_wait(stored)) for place, stored in await self._stored.waits_for(type, limit, after)]

    async def coming(self, seconds: float, limit: int) -> Sequence[Wait]:
        """What is due within so many seconds, soonest first."""
        now = self._runtime.clock.now()
        found = await self._stored.coming(now - 3600 * SECOND, now + int(seconds * SECOND), limit)
        return [to_wait(stored) for stored in found]

    # --- events -----------------------------------------------------------------------------------------------------
    async def events(self, search: EventSearch, instance: str | None, cursor: str | None) -> Events:
        """The event log, newest first. `instance`: only events that it took."""
        (before,) = read_cursor(cursor, int) or (None,)
        found, reached = await self._stored.shown_events(search, instance, PAGE + 1, before, SCAN)
        more = found[PAGE - 1].event.seq if len(found) > PAGE else reached
        lines = await self._lines(found[:PAGE])
        if search.unmatched:
            nearest = Nearest(self._storage, self._runtime.clock.now())
            lines = [EventLine(e.shown, (), await nearest.waits(e.shown)) for e in lines if not e.started]
        return Events(lines, None if more is None else write_cursor((more,)), len(found) <= PAGE and more is not None)

    async def event(self, source: str, id: str) -> EventLine | None:
        shown = await self._stored.event(source, id)
        if shown is None:
            return None
        [line] = await self._lines([shown])
        if shown.receivers or line.started:
            return line
        return EventLine(shown, (), await Nearest(self._storage, self._runtime.clock.now()).waits(shown))

    async def _lines(self, found: Sequence[ShownEvent]) -> list[EventLine]:
        """Find the instances that events started, whose ids follow from source and id."""
        triggers = await self._stored.triggers({shown.event.type for shown in found})
        ids = {
            (shown.event.seq, triggered_id(workflow, shown.event.source, shown.event.id))
            for shown in found
            for workflow in triggers[shown.event.type]
        }
        there = {row.id for row in await self._stored.summaries({id for _, id in ids})} if ids else set[str]()
        by_event: dict[int, list[str]] = {}
        for seq, id in sorted(ids):
            if id in there:
                by_event.setdefault(seq, []).append(id)
        return [EventLine(shown, by_event.get(shown.event.seq, ())) for shown in found]

    async def list_events(
        self,
        *,
        type: str | None = None,
        instance_id: str | None = None,
        unmatched: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[EventRecord]:
        """The event log, as `explain` reads it."""
        search = EventSearch(type=type, unmatched=unmatched)
        found, _ = await self._stored.shown_events(search, instance_id, limit, None, SCAN)
        short = [shown for shown in found if shown.size <= WHOLE]  # cut data can't be compared
        return Page([EventRecord(s.event, from_us(s.event.accepted_at), tuple(s.receivers)) for s in short], None)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return len(data) >= BEGINNING and error.start >= len(data) - 3  # cut within a character
    return True


def _queue_wait(row: Summary, queue: str) -> Wait:
    return Wait(row.id, queue, "queue", (), {}, from_us(row.created_at), None, "", workflow=row.workflow)


def _row(row: Summary, waits: Sequence[Wait]) -> Row:
    failure = None if row.error is None else Failure.decode(row.error)
    return Row(
        id=row.id,
        workflow=row.workflow,
        status=row.status,
        description=row.description,
        error=None if failure is None else {"type": failure.error_type, "message": failure.message},
        started_at=from_us(row.created_at),
        finished_at=None if row.finished_at is None else from_us(row.finished_at),
        waits=waits,
        position=write_cursor((row.created_at, row.id)) or "",
        output="" if row.output is None or row.status != "completed" else preview(row.output, len(row.output)),
    )
