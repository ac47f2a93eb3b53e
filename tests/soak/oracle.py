"""The judge of a soak: what callers were told, what is stored, and what the model says must have become of it.

Time is a line of places. In the simulation a place is a position in the log and known exactly; with real processes it
is a moment, known only to lie between a call and its answer. `Span` is such a "somewhere between".
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from romancy import App
from romancy.errors import InstanceNotFound
from romancy.storage.rows import triggered_id
from romancy.testing import replay
from tests.property.model import SECOND, Accepted, Leaf, Run, Wait, World
from tests.property.programs import PAST, program, reaction

ENDED = ("completed", "failed", "cancelled")


Transactions = Callable[[], Awaitable[Callable[[int], int]]]
"""Reads which transaction brought each event: within one there is an order."""


class Violation(AssertionError):
    """A promise was broken."""


class Span(NamedTuple):
    """Something happened at a place that is not before the first and not after the second."""

    least: float
    most: float

    def precedes(self, other: Span) -> bool | None:
        """None: it can't be told."""
        if self.most < other.least:
            return True
        return False if other.most < self.least else None


SOMETIME = Span(-math.inf, math.inf)


@dataclass
class Stored(Accepted):
    """An event, and where it became visible."""

    when: Span = SOMETIME

    def follows(self, other: Accepted) -> bool:
        assert isinstance(other, Stored)
        if other.transaction == self.transaction:
            return other.seq < self.seq
        return other.when.precedes(self.when) is True


class Timeline(Protocol):
    """Where on the line things happened."""

    def event(self, event: Any) -> Span: ...
    def born(self, instance: str) -> Span: ...
    def entry(self, instance: str, n: int, history: list[Any]) -> Span:
        """Where an entry was stored; n = 0: what came of the beginning."""
        ...

    def time(self, moment: int) -> Span:
        """A time of the clock (microseconds), as a place: what is before it was there for all to see."""
        ...


class SoakRun(Run):
    """A run whose facts have places."""

    def __init__(self, world: World, timeline: Timeline, id: str, code: Any) -> None:
        super().__init__(world, id, code, 0, 0)
        self.timeline = timeline
        self.entry_span = self.birth = SOMETIME
        self.is_cut_short = False
        """It was cancelled without a word to its code."""
        self.opened: dict[str, int] = {}
        """The entry that each operation was opened by."""
        self.settled_by: dict[str, int] = {}
        """The entry that each operation ended with."""
        self.last = 0

    def arrive(self, born_at: int, history: list[Any]) -> None:
        self.born_at = self.at = born_at
        self.birth = self.timeline.born(self.id)
        self.entry_span = self.timeline.entry(self.id, 0, history)
        self.begin()

    def feed_at(self, entry: Any, history: list[Any]) -> None:
        self.entry_span, self.last = self.timeline.entry(self.id, entry._raw.n, history), entry._raw.n
        self.settled_by[entry.operation] = self.last
        self.feed(entry, 0)

    def open(self, name: str, leaf: Leaf) -> str:
        op = super().open(name, leaf)
        leaf.opened_at = self.entry_span  # type: ignore[attr-defined]
        self.opened[op] = self.last
        return op

    def reaches(self, wait: Wait, event: Accepted) -> bool | None:
        assert isinstance(event, Stored)
        if wait.since == "past":
            return self._reaches_into_the_past(event)
        after = self.birth.precedes(event.when)
        if after and wait.since == "now":
            opened: Span = wait.opened_at  # type: ignore[attr-defined]
            return None if self._was_sent_just_before(event, wait) else opened.precedes(event.when)
        return after

    def _was_sent_just_before(self, event: Stored, wait: Wait) -> bool:
        """By the activity whose result led to the wait. Both are stored together, unless the activity is a suspect."""
        sender, _, op = event.id.partition("/")
        return sender == self.id and self.settled_by.get(op, -1) == self.opened[wait.op]

    def _reaches_into_the_past(self, event: Stored) -> bool | None:
        """One that was stamped before the time, but stored after it, may be taken."""
        time = self.born_at - PAST * SECOND
        if self.world.stepped_back:
            return None
        return True if event.at >= time else False if event.when.precedes(self.timeline.time(time)) else None

    def _check_nothing_missed(self, wait: Wait) -> None:
        assert wait.due is not None
        end = self.timeline.time(wait.due)
        there = [e for e in self.world.events if isinstance(e, Stored) and e.when.precedes(end) is True]
        missed = [e for e in there if wait.takes(e) is True]
        assert not missed, f"{self.id}: {wait.op} timed out although it could take {missed}"


@dataclass
class Told:
    """What callers asked for, and what they were told."""

    starts: dict[str, Any] = field(default_factory=dict[str, Any])
    """Instance to code; whether it was acknowledged is in the next."""
    started: set[str] = field(default_factory=set[str])
    created: set[str] = field(default_factory=set[str])
    cancel_tried: set[str] = field(default_factory=set[str])
    cancelled: set[str] = field(default_factory=set[str])
    """Acknowledged."""
    sent: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict[tuple[str, str], dict[str, Any]])
    acknowledged: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    first: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Events that somebody was told are no duplicates."""


class Oracle:
    """Holds a database against what was told and against the model."""

    def __init__(self, told: Told, timeline: Timeline) -> None:
        self.told, self.timeline, self.world = told, timeline, World()
        self.runs: dict[str, SoakRun] = {}
        self.histories: dict[str, list[Any]] = {}
        self.was_blocked: Callable[[str], bool] = lambda id: False
        self._records: list[Any] = []

    # --- at rest -----------------------------------------------------------------------------------------------------
    async def compare(self, reader: App, now: int, transactions: Transactions | None = None) -> None:
        """All is calm, and somebody works: nothing that could have happened has not."""
        await self._compare_log(reader, transactions)
        self._find_runs()
        for run in list(self.runs.values()):
            await self._compare_run(run, reader, now)
        self._compare_sent()
        self._compare_receivers()

    async def _compare_log(self, reader: App, transactions: Transactions | None) -> None:
        self._records = sorted(await _all_events(reader), key=lambda record: record.event.seq)
        transaction = await transactions() if transactions is not None else lambda seq: -seq
        known = {event.seq for event in self.world.events}
        for record in self._records:
            event = record.event
            if event.seq not in known:
                self.world.events.append(self._accepted(event, transaction(event.seq)))
        stored = [(e.source, e.id) for e in self.world.events]
        _check(len(self._records) == len(stored), "an event is gone from the log")
        _check(len(stored) == len(set(stored)), "an event was accepted twice")
        lost = self.told.acknowledged - set(stored)
        _check(not lost, f"accepted, then lost: {lost}")
        strange = {key for key in stored if key[0] != "program"} - set(self.told.sent)
        _check(not strange, f"events nobody sent: {strange}")

    def _accepted(self, event: Any, transaction: int) -> Stored:
        data = json.loads(event.data or b"null")
        return Stored(
            event.seq,
            event.id,
            event.source,
            event.type,
            data["k"],
            isinstance(data["n"], int),
            event.target,
            event.accepted_at,
            transaction,
            0,
            event.subject,
            self.timeline.event(event),
        )

    def _find_runs(self) -> None:
        for id, code in self.told.starts.items():
            self._run(id, code)
        for event in self.world.events:
            if event.type == "go" and event.target is None:
                id = triggered_id("reaction", event.source, event.id)
                self._run(id, self.told.sent[event.source, event.id]["code"]).consumed.add(event.seq)

    def _run(self, id: str, code: Any) -> SoakRun:
        run = self.runs.get(id)
        if run is None:
            run = self.runs[id] = SoakRun(self.world, self.timeline, id, code)
            run.started = id not in self.told.starts  # by an event that is stored
        return run

    async def _compare_run(self, run: SoakRun, reader: App, now: int) -> None:
        run.started = run.started or run.id in self.told.started
        run.cancel_tried = run.id in self.told.cancel_tried
        run.cancel_asked = run.id in self.told.cancelled
        try:
            shown = await reader.get_instance(run.id)
        except InstanceNotFound:
            _check(not run.started, f"{run.id} was started, then lost")
            del self.runs[run.id]  # the one who asked for it never heard of it, either
            return
        history = await reader.get_history(run.id)
        if self._was_cancelled_at_once(run, shown, history):
            return
        self._feed(run, history)
        _check(
            shown.status == run.shown_status, f"{run.id} is {shown.status}, not {run.shown_status}; {sorted(run.ops)}"
        )
        if run.status is not None:
            _check(shown.output == run.output, f"{run.id} returned {shown.output}, not {run.output}")
        self._compare_waits(run, shown.waits)
        run.check_idle(now)

    def _was_cancelled_at_once(self, run: SoakRun, shown: Any, history: list[Any]) -> bool:
        """Without a word to its code: before it began, or while it was blocked."""
        if shown.status != "cancelled" or not run.cancel_tried:
            return False
        if run.root is None and len(history) == 1:
            run.status, run.is_cut_short = "cancelled", True
            return True
        if not self.was_blocked(run.id):
            return False
        self._feed(run, history)
        if run.status is not None and run.output == shown.output:
            return False  # its code heard of it
        run.status, run.output, run.is_cut_short = "cancelled", None, True
        run.ops.clear()
        run.timers.clear()
        return True

    def _feed(self, run: SoakRun, history: list[Any]) -> None:
        old = self.histories.setdefault(run.id, [])
        _check([e._raw for e in history[: len(old)]] == [e._raw for e in old], f"{run.id}: history was rewritten")
        self.histories[run.id] = history
        if run.root is None:
            run.arrive(history[0]._raw.at, history)
        for entry in history[max(len(old), 1) :]:
            if entry.kind == "attempt_failed":
                act = run.ops.get(entry.operation)
                _check(getattr(act, "is_repeated", False), f"{run.id}: {entry} can't have been tried")
            elif entry.kind != "event_sent":
                run.feed_at(entry, history)

    def _compare_waits(self, run: SoakRun, waits: Iterable[Any]) -> None:
        rows = [w for w in waits if w.kind in ("event", "timer")]
        stored = sorted(
            ((w.kind, None if w.wait_id.startswith("timer:") else w.wait_id, _us(w.due_at)) for w in rows), key=repr
        )
        _check(stored == run.rows, f"{run.id} waits for {stored}, not {run.rows}")

    def _compare_sent(self) -> None:
        stored = {(e.id, e.type, e.k, e.target) for e in self.world.events if e.source == "program"}
        sent = {sent for run in self.runs.values() for sent in run.sent}
        _check(stored == sent, f"sent by programs, or stored, but not both: {stored ^ sent}")

    def _compare_receivers(self) -> None:
        for record in self._records:
            stored = {instance for instance, _ in record.received_by}
            taken = {run.id for run in self.runs.values() if record.event.seq in run.consumed}
            _check(stored == taken, f"event {record.event.seq} was taken by {stored}, not {taken}")

    # --- in the end --------------------------------------------------------------------------------------------------
    def check_ended(self) -> None:
        left = {run.id: run.shown_status for run in self.runs.values() if run.status is None}
        _check(not left, f"cancelled, and still there: {left}")

    def check_replays(self) -> None:
        for run in self.runs.values():
            if run.root is not None and not run.is_cut_short:
                wf = program if run.id in self.told.starts else reaction
                status = replay(wf, self.histories[run.id])
                _check(status == run.shown_status, f"{run.id} replays to {status}, not {run.shown_status}")


async def _all_events(reader: App) -> list[Any]:
    records: list[Any] = []
    cursor: str | None = None
    while True:
        page = await reader.list_events(limit=1000, cursor=cursor)
        records += page.items
        if page.cursor is None:
            return records
        cursor = page.cursor


def _check(condition: object, message: str) -> None:
    if not condition:
        raise Violation(message)


def _us(moment: Any) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1e6)
