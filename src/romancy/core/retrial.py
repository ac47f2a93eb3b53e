"""A retrial: how an instance that failed or was cancelled goes on.

What led to its end is dropped from its history (`core/dropped.py`), and the code is replayed without that. A later
entry stays if it still fits: its operation is open, asks for the same, and was asked for on the same entry as in the
run that ended. Otherwise the result of one call could go to another one that has the same id by now. So only what
failed in a fan-out runs again.

If nothing is dropped, because the code itself raised the error, its last activation runs once more, not as a replay:
the code may have been fixed. The same goes for an activation in which the code acts differently than before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from romancy.core.dropped import Dropped, standing
from romancy.core.failure import Failure
from romancy.core.history import SEEN_MARKS, Entry, Kind, Marks, dropped_by, pack_dropped, place_of
from romancy.core.instance import Instance
from romancy.core.model import FOREVER_US
from romancy.core.open_operations import OpenOperations
from romancy.core.operations import After, EventWait, Operation, Timer
from romancy.core.published import Published
from romancy.core.run import Run
from romancy.errors import NonDeterminismError

FAILED = frozenset({Kind.ACTIVITY_FAILED, Kind.CHILD_FAILED, Kind.CHILD_CANCELLED, Kind.CHILD_REFUSED})
"""The entries of steps that failed."""
_TIMED = frozenset({Kind.TIMER_FIRED, Kind.WAIT_TIMED_OUT})
_ENDS = FAILED | {Kind.WAIT_TIMED_OUT}
_GUILTY = _ENDS | {Kind.TIMER_FIRED, Kind.CANCEL_REQUESTED}
"""Entries that can lead to the end of an instance."""


@dataclass(frozen=True, slots=True)
class RetryAsk:
    """What a retry was asked for with. `steps`: "failed", or the ids of operations; None: what led to the end."""

    steps: str | Sequence[str] | None = None
    error: bytes = b""
    """The error that the instance had ended with."""
    origin: str | None = None
    """The instance that it was copied from: it is a fork, and begins with what was copied."""

    @property
    def head(self) -> bytes:
        """The beginning of its stored form. The error follows, as it is stored with the instance."""
        known = {"steps": self.steps, "origin": self.origin}
        return json.dumps({name: value for name, value in known.items() if value is not None}).encode() + b"\n"

    @classmethod
    def decode(cls, payload: bytes) -> RetryAsk:
        head, _, error = payload.partition(b"\n")
        known = json.loads(head)
        return cls(known.get("steps"), error, known.get("origin"))


class Fact(NamedTuple):
    """An entry that was fed to the code, or its start (no entry), and the marks that the code made then."""

    entry: Entry | None
    marks: list[Entry]

    @property
    def n(self) -> int | None:
        return None if self.entry is None else self.entry.n

    @property
    def expected(self) -> Marks:
        return {(mark.kind, mark.op): mark for mark in self.marks}


class Course(NamedTuple):
    """How an instance came to its end."""

    asked_on: dict[str, int]
    """The number of the entry on which each operation was asked for."""
    late: set[int]
    """Entries that came when the code no longer waited for them."""


def facts_of(entries: Iterable[Entry]) -> list[Fact]:
    facts = [Fact(None, [])]
    for entry in entries:
        if entry.kind in SEEN_MARKS:
            facts[-1].marks.append(entry)
        elif entry.kind != Kind.ATTEMPT_FAILED:
            facts.append(Fact(entry, []))
    return facts


def steps_of(entries: Sequence[Entry]) -> tuple[list[str], list[str]]:
    """Return the ids of the operations in a history that can be named in a retry, and of those that failed."""
    fed = [fact.entry for fact in facts_of(standing(entries)[0]) if fact.entry is not None and fact.entry.op]
    return [entry.op for entry in fed], [entry.op for entry in fed if entry.kind in _ENDS]


def repeated_steps(counted: Sequence[Entry], ask: RetryAsk, run: Run) -> set[str]:
    """Return the ids of the operations that a retry repeats first of all, given the entries that count."""
    first = first_dropped(facts_of(counted), ask, run)
    return {entry.op for entry in counted if entry.n in first}


def copied(entries: Sequence[Entry], at: int) -> tuple[list[Entry], int]:
    """Return the entries that a fork at an entry begins with, and the number of the last one that is fed.

    That one is fed once more, not as a replay: what the code did then, it does again. Entries that a later retry
    dropped are left out.
    """
    until = [entry for entry in entries if entry.n <= at]
    counted = {entry.n for entry in standing(entries)[0]}
    facts = facts_of(entry for entry in until if entry.n in counted)
    gone_later = {n for e in entries if e.kind == Kind.RETRIED and e.n > at for n in dropped_by(e)}
    again = {mark.n for mark in facts[-1].marks}
    return [entry for entry in until if entry.n not in gone_later | again], facts[-1].n or 0


def first_dropped(facts: Sequence[Fact], ask: RetryAsk, run: Run) -> set[int]:
    """Return the entries that are dropped because of what was asked. Requests to cancel are never repeated."""
    fed = [fact.entry for fact in facts if fact.entry is not None]
    found = {entry.n for entry in fed if entry.kind == Kind.CANCEL_REQUESTED or entry.op == run.timeout_id}
    if ask.steps is None or ask.steps == "failed":
        found.update(_culprits(fed, ask))
    if ask.steps == "failed":
        found.update(entry.n for entry in fed if entry.kind in FAILED)
    elif ask.steps is not None:
        found.update(entry.n for entry in fed if entry.op in ask.steps)
    return found


def _culprits(fed: Sequence[Entry], ask: RetryAsk) -> Collection[int]:
    stored = Failure.decode(ask.error or b"{}").culprits
    if stored is not None:
        return [entry.n for entry in fed if entry.n in stored and entry.kind in _GUILTY]
    # It ended before culprits were stored.
    return [fed[-1].n] if fed and fed[-1].kind in _ENDS else []


@dataclass(slots=True)
class Retrial:
    """One retry of an instance: prepared once it is loaded, and carried out in its first step."""

    request: int
    ask: RetryAsk
    make: Callable[[], Instance]
    """Returns the instance anew, not begun yet."""
    dropped: list[Entry] = field(default_factory=list[Entry], init=False)
    """The entries that no longer count from now on."""
    number: int = field(default=0, init=False)
    """How often the instance was retried, including this time."""
    _again: Fact | None = field(default=None, init=False)
    """What the code is fed once more, not as a replay."""

    def prepare(self, entries: Sequence[Entry]) -> Generator[None, None, Instance]:
        """Return the instance, replayed without what is dropped. Pauses after each entry."""
        counted, before = standing(entries)
        before = before or Dropped()
        facts = facts_of(counted)
        first = first_dropped(facts, self.ask, self.make().run)
        cut = next((i for i, fact in enumerate(facts) if fact.n in first), None)
        if cut is None:
            kept, self._again = facts[:-1], facts[-1]
            instance = yield from self._repeat(kept, before)
        else:
            course: Course | None = None
            later = [fact for fact in facts[cut:] if fact.n not in first]
            if later:
                course = yield from self._find_course(facts, before)
            attempt = _Attempt(self.make(), before)
            kept, self._again = yield from attempt.follow(facts[:cut], later if course else [], course)
            instance = attempt.instance
            if self._again is not None:
                instance.evict()
                instance = yield from self._repeat(kept, before)
        self._drop(facts, kept, before)
        if any(entry.kind == Kind.CHILD_COMPLETED for entry in self.dropped):
            instance.evict()
            instance, before = yield from self._rename_children(entries, facts, kept)
        instance.length = max(instance.length, entries[-1].n if entries else 0)
        instance.dropped = before
        return instance

    def _repeat(self, facts: Sequence[Fact], before: Dropped) -> Generator[None, None, Instance]:
        """Return a new instance, replayed up to here."""
        instance = self.make()
        instance.dropped = before
        try:
            for fact in facts:
                instance.repeat(fact.entry, fact.expected)
                yield
        except BaseException:
            instance.evict()
            raise
        return instance

    def _rename_children(
        self, entries: Sequence[Entry], facts: Sequence[Fact], kept: list[Fact]
    ) -> Generator[None, None, tuple[Instance, Dropped]]:
        """Replay once more: a child that completed, and runs again, is another child, whose id the code may have used.

        What follows from the former id is dropped, too. Return the instance, and what is dropped in all.
        """
        while True:
            before = standing(entries)[1] or Dropped()
            self.dropped = []
            self._drop(facts, kept, before)
            instance, done = self.make(), 0
            instance.dropped = before
            try:
                for fact in kept:
                    instance.repeat(fact.entry, fact.expected)
                    done += 1
                    yield
            except NonDeterminismError:
                instance.evict()
                kept, self._again = kept[:done], None if done else facts[0]
            except BaseException:
                instance.evict()
                raise
            else:
                return instance, before

    def _find_course(self, facts: Sequence[Fact], before: Dropped) -> Generator[None, None, Course | None]:
        """Replay all of it, to see how it came to its end; None if the code no longer leads there."""
        attempt = _Attempt(self.make(), before)
        late: set[int] = set()
        try:
            for fact in facts:
                if fact.entry is not None:
                    operation = attempt.instance.ops.get(fact.entry.op)
                    if operation is not None and operation.given_up:
                        late.add(fact.entry.n)
                attempt.instance.repeat(fact.entry, fact.expected)
                yield
        except NonDeterminismError:
            return None
        finally:
            attempt.instance.evict()
        return Course(attempt.asked_on, late)

    def _drop(self, facts: Sequence[Fact], kept: Sequence[Fact], before: Dropped) -> None:
        stays = {fact.n for fact in kept}
        for fact in facts:
            if fact.n in stays:
                continue
            if fact.entry is not None and not (self._again is not None and fact.n == self._again.n):
                self.dropped.append(fact.entry)
            self.dropped += fact.marks
        before.add(self.dropped, 0)
        self.number = before.retries

    # --- in the first step ------------------------------------------------------------------------------------------
    def carry_out(self, instance: Instance, now: int) -> None:
        """Record the retry, and let the code go on."""
        numbers = [entry.n for entry in self.dropped]
        instance.mark(Kind.RETRIED, "", now, pack_dropped(numbers, self.ask.origin), self.ask.error or None)
        assert instance.dropped is not None
        instance.dropped.at = now
        if self._again is not None:
            before = set(instance.ops)
            if self._again.entry is None:
                instance.begin()
            else:
                instance.feed(self._again.entry)
            if self.ask.origin is not None:
                _renew((op for id, op in instance.ops.items() if id not in before), instance, now)
        if instance.offspring is not None:
            instance.offspring.pass_cut(instance.ops.values(), instance.run, instance.id, instance.dropped)
        if self.ask.origin is None:
            instance.published = instance.published or Published()
            instance.published.show_anew(instance.run.number)
        self._renew_time_limits(instance, now)
        _reach_back(instance, self.given_back)

    def _renew_time_limits(self, instance: Instance, now: int) -> None:
        """Give timeouts that are dropped, and timers of asyncio that are open, their whole length again.

        The storage has done so for the time limit of the workflow. Those of a fork are copied as they are.
        """
        ended = {entry.op for entry in self.dropped if entry.kind in _TIMED}
        for operation in instance.ops.values():
            is_limit = isinstance(operation, Timer) and operation.ring is not None and self.ask.origin is None
            if is_limit or operation.id in ended:
                _renew([operation], instance, now)

    @property
    def given_back(self) -> list[Entry]:
        """The events that it had received, and can receive again."""
        return [entry for entry in self.dropped if entry.kind == Kind.EVENT_RECEIVED and entry.event is not None]


def _reach_back(instance: Instance, given_back: Iterable[Entry]) -> None:
    """Let waits since "now" begin when they were first asked for, not with the retry.

    Otherwise they would miss the events that are given back, and those that came after the instance had ended. The
    place of an event is known from its entry: an event can be accepted a little before a wait begins, and stored after.
    A wait that took no event goes on by the time of acceptance, which is that of one clock.
    """
    places = {entry.op: place_of(entry.payload or b"{}") for entry in given_back}
    for operation in instance.ops.values():
        if isinstance(operation, EventWait) and operation.since_event == "now":
            place = places.get(operation.id)
            operation.since_event = operation.opened_at if place is None else After(place, again=True)


def _renew(operations: Iterable[Operation], instance: Instance, now: int) -> None:
    """Give operations their whole length again, except those that end at a time that the code named."""
    for operation in operations:
        if operation.due is not None and not operation.keeps_due and operation.id != instance.run.timeout_id:
            operation.due = min(now + operation.due - operation.opened_at, FOREVER_US)


class _Attempt:
    """An instance that is replayed to see which entries fit."""

    def __init__(self, instance: Instance, before: Dropped) -> None:
        self.instance = instance
        instance.dropped = before
        self.asked_on: dict[str, int] = {}
        instance.ops = _Noted(instance, self.asked_on)

    def follow(
        self, facts: Sequence[Fact], later: Sequence[Fact], course: Course | None
    ) -> Generator[None, None, tuple[list[Fact], Fact | None]]:
        """Replay `facts`, and those of the later ones that fit. Return them, and where the code takes another way."""
        kept: list[Fact] = []
        try:
            for number, fact in enumerate([*facts, *later]):
                if number >= len(facts) and not (course is not None and self._fits(fact, course)):
                    continue
                if number < len(facts) - 1:
                    self.instance.repeat(fact.entry, fact.expected)
                elif not self._is_as_before(fact):
                    return kept, fact
                kept.append(fact)
                yield
        except BaseException:
            self.instance.evict()
            raise
        return kept, None

    def _is_as_before(self, fact: Fact) -> bool:
        """Repeat a fact. Return whether the code did the same as before, and goes on."""
        try:
            self.instance.repeat(fact.entry, fact.expected)
        except NonDeterminismError:
            return False
        return self.instance.outcome is None

    def _fits(self, fact: Fact, course: Course) -> bool:
        entry = fact.entry
        operation = None if entry is None else self.instance.ops.get(entry.op)
        if entry is None or operation is None or (entry.n in course.late and entry.kind in FAILED):
            return False
        asks_the_same = entry.input is None or operation.is_recorded_as(entry.input)
        is_same = self.asked_on[entry.op] == course.asked_on.get(entry.op)
        return is_same and asks_the_same and entry.kind in operation.answers


class _Noted(OpenOperations):
    """The open operations of an instance. Notes on which entry each was asked for."""

    def __init__(self, instance: Instance, asked_on: dict[str, int]) -> None:
        super().__init__()
        self._run, self._asked_on = instance.run, asked_on

    def open(self, operation: Operation) -> None:
        super().open(operation)
        self._asked_on[operation.id] = self._run.fed
