"""The slots of a worker: how many attempts run at once, whose turn it is, and how many of one activity run.

Instances take turns: when a slot is free, each instance that waits gets one, then each gets another one. So an
instance with thousands of calls delays another's single call by one turn only.

An activity with `max_per_worker` has a *gate* with so many places. An attempt needs a place and a slot, and one that
waits for a place holds no slot. It gets the place when its turn for a slot has come, not earlier: otherwise it would
keep the place while it waits behind other calls of its instance. If no place is left then, it waits at the gate, where
instances take turns as well. The first one there inherits the next place, and is the next attempt of its instance.

All of this takes constant time for each attempt.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

from romancy.core.registry import ActivityDefinition


class Claimant(Protocol):
    """An attempt that needs a slot."""

    activity: ActivityDefinition

    @property
    def instance_id(self) -> str: ...


A = TypeVar("A", bound=Claimant)


class Turns(Generic[A]):
    """Attempts that wait, in the order in which their instances take turns."""

    __slots__ = ("count", "lanes")

    def __init__(self) -> None:
        self.lanes: OrderedDict[str, OrderedDict[A, None]] = OrderedDict()
        """The attempts of each instance. The first instance is the next one."""
        self.count = 0

    def __bool__(self) -> bool:
        return bool(self.lanes)

    def __contains__(self, one: A) -> bool:
        return one in self.lanes.get(one.instance_id, ())

    def add(self, one: A, *, is_first: bool = False) -> None:
        """Add an attempt as the last one of its instance, or as the first."""
        lane = self.lanes.get(one.instance_id)
        if lane is None:
            lane = self.lanes[one.instance_id] = OrderedDict()
        lane[one] = None
        if is_first:
            lane.move_to_end(one, last=False)
        self.count += 1

    def peek(self) -> A:
        """Return the next attempt, and leave it where it is."""
        return next(iter(next(iter(self.lanes.values()))))

    def take(self) -> A:
        """Remove and return the next attempt. Its instance has had its turn."""
        id, lane = self.lanes.popitem(last=False)
        one, _ = lane.popitem(last=False)
        if lane:
            self.lanes[id] = lane
        self.count -= 1
        return one

    def discard(self, one: A) -> bool:
        """Remove an attempt, and keep the turn of its instance. Return whether it was there."""
        lane = self.lanes.get(one.instance_id)
        if lane is None or one not in lane:
            return False
        del lane[one]
        if not lane:
            del self.lanes[one.instance_id]
        self.count -= 1
        return True

    def clear(self) -> None:
        self.lanes.clear()
        self.count = 0


class _Gate(Generic[A]):
    """The places of one activity, and the attempts that wait for one. While any wait, all places are taken."""

    __slots__ = ("limit", "places", "waiting")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.places: set[A] = set()
        """Attempts that run, or inherited a place and wait for a slot."""
        self.waiting: Turns[A] = Turns()


class Slots(Generic[A]):
    """Gives slots to attempts, at most `limit` at a time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.taken = 0
        self._turns: Turns[A] = Turns()
        self._gates: dict[ActivityDefinition, _Gate[A]] = {}

    def __repr__(self) -> str:
        return f"<Slots taken={self.taken} waiting={self.waiting}>"

    @property
    def waiting(self) -> int:
        """How many attempts wait for a slot."""
        return self._turns.count + sum(gate.waiting.count for gate in self._gates.values())

    def take(self, one: A) -> bool:
        """Give a slot to an attempt if it can have one now. Otherwise it waits, and `next` returns it later."""
        if self.taken >= self._limit or self._turns.lanes:
            self._turns.add(one)
            return False
        if one.activity.max_per_worker is not None and not self._pass_gate(one):
            return False
        self.taken += 1
        return True

    def next(self) -> A | None:
        """Give a free slot to the attempt whose turn it is, and return it."""
        while self.taken < self._limit and self._turns.lanes:
            one = self._turns.peek()
            if one.activity.max_per_worker is None or self._pass_gate(one):
                self.taken += 1
                return self._turns.take()
            self._turns.discard(one)  # it waits at its gate now; its instance still has its turn
        return None

    def free(self, one: A) -> bool:
        """Take back the slot of an attempt that ended. Return whether others wait for it."""
        self.taken -= 1
        if one.activity.max_per_worker is not None:
            self._leave_gate(one)
        return bool(self._turns.lanes)

    def leave(self, one: A) -> None:
        """Remove an attempt that need not run any more, if it waits."""
        is_next = self._turns.discard(one)
        if one.activity.max_per_worker is None:
            return
        if is_next:
            self._leave_gate(one)
        elif (gate := self._gates.get(one.activity)) is not None:
            gate.waiting.discard(one)

    def close(self) -> None:
        """Forget the attempts that wait, and give out no more slots."""
        self._limit = 0
        self._turns.clear()
        for gate in self._gates.values():
            gate.waiting.clear()

    def describe(self, one: A) -> str | None:
        """Return why an attempt waits; None if it does not wait for a slot."""
        gate = self._gates.get(one.activity)
        is_at_gate = gate is not None and one in gate.waiting
        if not is_at_gate and one not in self._turns:
            return None
        running = 0 if gate is None else sum(other not in self._turns for other in gate.places)
        if gate is not None and running == gate.limit and one not in gate.places:
            return f"waits for a free slot ({running} of {gate.limit} of `{one.activity.name}` run here)"
        return f"waits for a free slot ({self.taken} of {self._limit} activities run here)"

    # --- gates ------------------------------------------------------------------------------------------------------
    def _pass_gate(self, one: A) -> bool:
        """Give an attempt a place if one is free or it has one. Otherwise it waits at the gate."""
        gate = self._gates.get(one.activity)
        if gate is None:
            assert one.activity.max_per_worker is not None
            gate = self._gates[one.activity] = _Gate(one.activity.max_per_worker)
        if one in gate.places:
            return True
        if len(gate.places) < gate.limit:
            gate.places.add(one)
            return True
        gate.waiting.add(one)
        return False

    def _leave_gate(self, one: A) -> None:
        """Take back the place of an attempt, if it has one. The next one that waits for a place inherits it."""
        gate = self._gates.get(one.activity)
        if gate is None or one not in gate.places:
            return
        gate.places.remove(one)
        if gate.waiting:
            heir = gate.waiting.take()
            gate.places.add(heir)
            self._turns.add(heir, is_first=True)
        elif not gate.places:
            del self._gates[one.activity]
