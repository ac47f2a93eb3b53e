"""What an instance must do, in the simplest words: a tree of nodes that facts are fed to.

Written without the engine: no loop, no tasks, no storage. The history says *which* of the possible facts came next; the
model says whether that was allowed, what must be open afterwards, and how it must end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.property.programs import PAST

SECOND = 1_000_000


@dataclass
class Accepted:
    """An event in the log, in order of acceptance."""

    seq: int
    id: str
    source: str
    type: str
    k: int
    fits: bool
    target: str | None
    at: int
    transaction: int
    before: int
    """The highest seq of the steps before."""
    subject: str | None = None

    def follows(self, other: Accepted) -> bool:
        """Whether it was accepted after the other one. Transactions of one step may have been under way together."""
        return other.seq < self.seq and (other.transaction == self.transaction or other.seq <= self.before)


@dataclass
class World:
    """What all instances share: the log, and where it stood when the last step began."""

    events: list[Accepted] = field(default_factory=list[Accepted])
    settled: int = 0
    """The highest seq before this step."""
    stepped_back: bool = False


class Node:
    def __init__(self, run: Run, spec: Any, path: str, trail: str, parent: Node | None) -> None:
        self.run, self.spec, self.path, self.trail, self.parent = run, spec, path, trail, parent
        self.over = False

    def child(self, spec: Any, index: int = 0, round: int | None = None) -> Node:
        trail = f"{self.trail}.{index if round is None else round}"
        return _KINDS[spec[0]](self.run, spec, f"{self.path}.{index}", trail, self)

    def start(self) -> None:
        raise NotImplementedError

    def cancel(self) -> None:
        raise NotImplementedError

    def finish(self, value: Any) -> None:
        self.over = True
        if self.parent is None:
            self.run.ended(value)
        else:
            self.parent.child_finished(self, value)

    def go(self) -> None:
        """Ended by cancellation."""
        self.over = True
        if self.parent is None:
            self.run.ended_cancelled()
        else:
            self.parent.child_gone(self)

    def child_finished(self, child: Node, value: Any) -> None:
        raise NotImplementedError

    def child_gone(self, child: Node) -> None:
        raise NotImplementedError


class Leaf(Node):
    """An operation: open until its fact comes, or until it is cancelled."""

    kind = ""
    due: int | None = None

    def start(self) -> None:
        self.open(self.path)

    def open(self, name: str) -> None:
        self.op = self.run.open(name, self)

    def cancel(self) -> None:
        self.run.close(self.op)
        self.go()

    def fact(self, value: Any) -> None:
        self.run.close(self.op)
        self.finish(value)


class Act(Leaf):
    kind = "activity"
    how = "ok"

    def start(self) -> None:
        self.how = self.spec[1]
        self.open(self.path)

    @property
    def is_repeated(self) -> bool:
        """Whether an attempt of it may fail with another to follow."""
        return self.how in ("fail", "flaky", "hang", "thread_sends")

    def succeed(self) -> None:
        assert self.how not in _FAILURES, f"{self.run.id}: {self.op} can't have succeeded"
        if self.how in ("sends", "thread_sends"):
            self.run.sent.append((f"{self.run.id}/{self.op}", *self.spec[2:]))
        self.fact(["ok", self.path])

    def fail(self) -> None:
        assert self.how in _FAILURES, f"{self.run.id}: {self.op} can't have failed"
        self.fact([_FAILURES[self.how], self.path if self.how == "raises" else 2])


_FAILURES = {"fail": "failed", "raises": "declined", "hang": "timed out"}


class Clean(Act):
    """The activity of a `finally`."""

    def start(self) -> None:
        self.open(self.path)


class Wait(Leaf):
    kind = "event"

    def start(self) -> None:
        wait = self.spec[1]
        self.due = None if wait["timeout"] is None else self.run.at + int(wait["timeout"] * SECOND)
        self.opened_after = self.run.world.settled
        self.types, self.k, self.fitting, self.since = wait["types"], wait["where"], wait["model"], wait["since"]
        self.subject, self.source = wait.get("subject"), wait.get("source")
        self.open(self.path)
        self.opened_step = self.run.step

    def takes(self, event: Accepted) -> bool | None:
        """Whether this wait may take the event; None: it depends on what came first within one step."""
        run = self.run
        if event.type not in self.types or event.target not in (None, run.id) or event.seq in run.consumed:
            return False
        if (self.k is not None and event.k != self.k) or (self.fitting and not event.fits):
            return False
        if self.subject not in (None, event.subject) or self.source not in (None, event.source):
            return False
        if self.due is not None and event.at > self.due:
            return None if run.world.stepped_back else False  # it is taken if it is here before the time is over
        return run.reaches(self, event)


class Sleep(Leaf):
    kind = "timer"

    def start(self) -> None:
        self.due = self.run.at + int(self.spec[1] * SECOND)
        self.open(self.path)


class Until(Sleep):
    def start(self) -> None:
        self.due = self.run.born_at + int(self.spec[1] * SECOND)
        self.open(self.path)


class AsyncSleep(Leaf):
    """A timer of asyncio's has a counted id; facts find it by its due time."""

    kind = "timer"

    def start(self) -> None:
        self.due = self.run.at + int(self.spec[1] * SECOND)
        self.run.timers.append(self)

    def cancel(self) -> None:
        self.run.timers.remove(self)
        self.go()

    def fact(self, value: Any) -> None:
        self.run.timers.remove(self)
        self.finish(value)


class Send(Node):
    def start(self) -> None:
        self.run.sent.append((f"{self.run.id}/{self.trail}", *self.spec[1:]))
        self.finish("sent")


class Seq(Node):
    def start(self) -> None:
        self.values: list[Any] = []
        self.next()

    def steps(self) -> list[Any]:
        return self.spec[1]

    def make(self, index: int) -> Node:
        return self.child(self.steps()[index], index)

    def next(self) -> None:
        if len(self.values) == len(self.steps()):
            self.finish(self.values)
        else:
            self.current = self.make(len(self.values))
            self.current.start()

    def cancel(self) -> None:
        self.current.cancel()

    def child_finished(self, child: Node, value: Any) -> None:
        self.values.append(value)
        self.next()

    def child_gone(self, child: Node) -> None:
        self.go()


class Loop(Seq):
    def steps(self) -> list[Any]:
        return [self.spec[2]] * self.spec[1]

    def make(self, index: int) -> Node:
        return self.child(self.spec[2], 0, index)


class All(Node):
    def start(self) -> None:
        self.cancelled, self.starting = False, True
        self.values: dict[Node, Any] = {}
        self.children = [self.child(spec, i) for i, spec in enumerate(self.spec[2])]
        for child in self.children:
            child.start()
        self.starting = False
        self.settle()

    def settle(self) -> None:
        if self.over or self.starting or not all(child.over for child in self.children):
            return
        if self.cancelled:
            self.go()
        else:
            self.finish([self.values[child] for child in self.children])

    def cancel(self) -> None:
        if self.cancelled and self.spec[1] == "group":
            return  # a TaskGroup that is aborting does not abort again
        self.cancelled = True
        for child in self.children:
            if not child.over:
                child.cancel()

    def child_finished(self, child: Node, value: Any) -> None:
        self.values[child] = value
        self.settle()

    def child_gone(self, child: Node) -> None:
        self.settle()


class Race(Node):
    def start(self) -> None:
        self.cancelled, self.winner = False, None
        self.children = [self.child(spec, i) for i, spec in enumerate(self.spec[1])]
        for child in self.children:
            child.start()

    def settle(self) -> None:
        if self.over or not all(child.over for child in self.children):
            return
        if self.cancelled:
            self.go()
        else:
            self.finish([self.winner])

    def stop_all(self) -> None:
        for child in self.children:
            if not child.over:
                child.cancel()

    def cancel(self) -> None:
        self.cancelled = True
        self.stop_all()

    def child_finished(self, child: Node, value: Any) -> None:
        self.winner = [self.children.index(child), value]
        self.stop_all()
        self.settle()

    def child_gone(self, child: Node) -> None:
        self.settle()


class Limit(Node):
    kind = "timer"
    fired = outside = False

    def start(self) -> None:
        self.due = self.run.at + int(self.spec[1] * SECOND)
        self.run.timers.append(self)
        self.body = self.child(self.spec[2])
        self.body.start()

    def fact(self, value: Any) -> None:
        self.run.timers.remove(self)
        self.fired = True
        self.body.cancel()

    def disarm(self) -> None:
        if self in self.run.timers:
            self.run.timers.remove(self)

    def cancel(self) -> None:
        self.outside = True
        self.body.cancel()

    def child_finished(self, child: Node, value: Any) -> None:
        self.disarm()
        self.finish(value)

    def child_gone(self, child: Node) -> None:
        self.disarm()
        if self.fired and not self.outside:
            self.finish("limit")
        else:
            self.go()


class Finally(Node):
    def start(self) -> None:
        self.after: Callable[[], None] | None = None
        self.current = self.child(self.spec[1])
        self.current.start()

    def clean(self, after: Callable[[], None]) -> None:
        self.after = after
        self.current = Clean(self.run, None, f"{self.path}/clean", self.trail, self)
        self.current.start()

    def cancel(self) -> None:
        self.current.cancel()

    def child_finished(self, child: Node, value: Any) -> None:
        if self.after is None:
            self.clean(lambda: self.finish(value))
        else:
            self.after()

    def child_gone(self, child: Node) -> None:
        if self.after is None:
            self.clean(self.go)
        else:
            self.go()


_KINDS: dict[str, type[Node]] = {
    "act": Act,
    "wait": Wait,
    "sleep": Sleep,
    "asleep": AsyncSleep,
    "until": Until,
    "send": Send,
    "seq": Seq,
    "loop": Loop,
    "all": All,
    "race": Race,
    "limit": Limit,
    "finally": Finally,
}


class Run:
    """One instance as it must be."""

    def __init__(self, world: World, id: str, code: Any, born: int, born_at: int) -> None:
        self.world, self.id, self.code = world, id, code
        self.born, self.born_at, self.at = born, born_at, born_at
        self.ops: dict[str, Leaf] = {}
        self.timers: list[Any] = []
        self.consumed: set[int] = set()
        self.sent: list[tuple[str, str, int, str | None]] = []
        self.started = False
        """Whether the start was acknowledged."""
        self.cancel_tried = self.cancel_asked = self.cancelling = False
        """Asked for, perhaps without an answer; acknowledged; seen in the history."""
        self.status: str | None = None
        self.output: Any = None
        self.fed = 0
        self.step = 0
        self._step_ends: dict[int, int] = {}
        self._counts: dict[str, int] = {}
        self.root: Node | None = None

    # --- what nodes ask for ------------------------------------------------------------------------------------------
    def open(self, name: str, leaf: Leaf) -> str:
        count = self._counts[name] = self._counts.get(name, 0) + 1
        op = name if count == 1 else f"{name}:{count}"
        self.ops[op] = leaf
        return op

    def close(self, op: str) -> None:
        del self.ops[op]

    def ended(self, value: Any) -> None:
        fails = self.code.get("fails", False)
        self.status = "cancelled" if self.cancelling else "failed" if fails else "completed"
        self.output = None if fails else value

    def reaches(self, wait: Wait, event: Accepted) -> bool | None:
        """Whether a wait reaches back to an event that fits; None: it depends on what came first within one step."""
        if wait.since == "past":
            return None if self.world.stepped_back else event.at >= self.born_at - PAST * SECOND
        if event.seq <= self.born:
            return False
        if wait.since == "now":
            if event.seq <= wait.opened_after:
                return False
            return None if event.seq <= self.world_at_step_end(wait.opened_step) else True
        return True

    def ended_cancelled(self) -> None:
        self.status, self.output = "cancelled", "swallowed" if self.code["swallow"] else None

    def world_at_step_end(self, step: int) -> int:
        """The highest seq when a step was over; while it is not, everything counts as before."""
        return self._step_ends.get(step, 1 << 62)

    # --- facts -------------------------------------------------------------------------------------------------------
    def begin(self) -> None:
        self.root = _KINDS[self.code["body"][0]](self, self.code["body"], "r", "r", None)
        self.root.start()

    def feed(self, entry: Any, now: int) -> None:
        """One entry of the history; raises where it was not allowed."""
        assert self.root is not None, "a fact before the beginning"
        assert self.status is None, f"{self.id}: {entry} after the end"
        assert self.at <= entry._raw.at, f"{self.id}: time runs backwards at {entry}"
        self.at = entry._raw.at
        match entry.kind:
            case "cancel_requested":
                assert self.cancel_asked or self.cancel_tried, f"{self.id}: nobody asked for {entry}"
                assert not self.cancelling, f"{self.id}: cancelled twice"
                self.cancelling = True
                self.root.cancel()
            case "event_received":
                wait = self._leaf(entry, "event")
                self._consume(wait, entry._raw.event)
                wait.fact(["event", self._event(entry._raw.event).id])
            case "wait_timed_out":
                wait = self._leaf(entry, "event")
                self._check_due(wait, entry)
                self._check_nothing_missed(wait)
                wait.fact("timeout")
            case "timer_fired" if entry.operation.startswith("timer:"):
                timer = min(self.timers, key=lambda t: t.due)
                self._check_due(timer, entry)
                timer.fact("slept")
            case "timer_fired":
                timer = self._leaf(entry, "timer")
                self._check_due(timer, entry)
                timer.fact("slept")
            case "activity_completed":
                self._leaf(entry, "activity").succeed()
            case "activity_failed":
                self._leaf(entry, "activity").fail()
            case _:
                raise AssertionError(f"{self.id}: unknown {entry}")

    def _leaf(self, entry: Any, kind: str) -> Any:
        leaf = self.ops.get(entry.operation)
        assert leaf is not None, f"{self.id}: {entry} is not open; open are {sorted(self.ops)}"
        assert leaf.kind == kind, f"{self.id}: {entry} answers a {leaf.kind}"
        return leaf

    def _event(self, seq: int) -> Accepted:
        return next(event for event in self.world.events if event.seq == seq)

    def _consume(self, wait: Wait, seq: int) -> None:
        assert seq not in self.consumed, f"{self.id}: event {seq} a second time"
        event = self._event(seq)
        assert wait.takes(event) is not False, f"{self.id}: {wait.op} must not take {event}"
        older = [e for e in self.world.events if event.follows(e) and wait.takes(e) is True]
        assert not older, f"{self.id}: {wait.op} took {event} before {older}"
        self.consumed.add(seq)

    def _check_due(self, timer: Any, entry: Any) -> None:
        assert timer.due is not None, f"{self.id}: {entry} has no deadline"
        assert entry._raw.at >= timer.due, f"{self.id}: {entry} is early (due {timer.due})"

    def _check_nothing_missed(self, wait: Wait) -> None:
        assert wait.due is not None
        there = [e for e in self.world.events if e.seq <= self.world.settled and e.at <= wait.due]
        missed = [e for e in there if wait.takes(e) is True]
        assert not missed, f"{self.id}: {wait.op} timed out although it could take {missed}"

    def end_step(self) -> None:
        self._step_ends[self.step] = max((e.seq for e in self.world.events), default=0)
        self.step += 1

    # --- where it must stand -----------------------------------------------------------------------------------------
    def check_idle(self, now: int) -> None:
        """With a worker up and nothing under way: nothing that could happen has not."""
        if self.status is not None:
            return
        assert not self.cancel_asked or self.cancelling, f"{self.id}: the cancellation is lost"
        for op, leaf in self.ops.items():
            if isinstance(leaf, Wait):
                waiting = [e for e in self.world.events if leaf.takes(e) is True]
                assert not waiting, f"{self.id}: {op} is open although there are {waiting}"
            late = leaf.due is not None and leaf.due <= now
            assert not late, f"{self.id}: {op} was due at {leaf.due}, now is {now}"
        for timer in self.timers:
            assert timer.due > now, f"{self.id}: an asyncio timer was due at {timer.due}, now is {now}"

    @property
    def shown_status(self) -> str:
        if self.status is not None:
            return self.status
        kinds = {leaf.kind for leaf in self.ops.values()}
        if "activity" in kinds or self.root is None:
            return "running"
        return "waiting_for_event" if "event" in kinds else "waiting_for_timer"

    @property
    def rows(self) -> list[tuple[str, str | None, int | None]]:
        """(kind, id or None, due) of every wait that must be stored."""
        leaves = [(leaf.kind, op, leaf.due) for op, leaf in self.ops.items() if leaf.kind != "activity"]
        return sorted([*leaves, *(("timer", None, t.due) for t in self.timers)], key=repr)


__all__ = ["SECOND", "Accepted", "Run", "Wait", "World"]
