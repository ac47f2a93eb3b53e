"""Slots by themselves: whose turn it is, and how many of one activity run at once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from romancy.core.registry import ActivityDefinition
from romancy.engine.slots import Slots


def plain(ctx: Any) -> None: ...


@dataclass(eq=False)
class Try:
    """An attempt, as far as slots know it."""

    instance_id: str
    activity: ActivityDefinition
    n: int = 0

    def __repr__(self) -> str:
        return f"{self.instance_id}{self.n}"


FREE = ActivityDefinition("free", plain)


def of(name: str, most: int) -> ActivityDefinition:
    return ActivityDefinition(name, plain, max_per_worker=most)


class Floor:
    """Attempts that run in slots, until the test ends them."""

    def __init__(self, limit: int) -> None:
        self.slots: Slots[Try] = Slots(limit)
        self.running: list[Try] = []
        self.order: list[str] = []

    def start(self, *tries: Try) -> None:
        for one in tries:
            if self.slots.take(one):
                self._run(one)

    def end(self, one: Try | None = None) -> None:
        one = one or self.running[0]
        self.running.remove(one)
        self.slots.free(one)
        self.fill()

    def leave(self, one: Try) -> None:
        self.slots.leave(one)
        self.fill()

    def fill(self) -> None:
        while (one := self.slots.next()) is not None:
            self._run(one)

    def finish(self) -> list[str]:
        while self.running:
            self.end()
        return self.order

    def _run(self, one: Try) -> None:
        self.running.append(one)
        self.order.append(repr(one))


def many(instance: str, n: int, activity: ActivityDefinition = FREE) -> list[Try]:
    return [Try(instance, activity, i) for i in range(n)]


def test_free_slots_are_taken_at_once() -> None:
    floor = Floor(3)
    floor.start(*many("a", 3))
    assert (floor.slots.taken, floor.slots.waiting) == (3, 0)


def test_instances_take_turns() -> None:
    floor = Floor(1)
    floor.start(*many("a", 4), *many("b", 1), *many("c", 2))
    assert floor.finish() == ["a0", "a1", "b0", "c0", "a2", "c1", "a3"]


def test_one_that_comes_late_waits_for_one_turn_of_each_other() -> None:
    floor = Floor(2)
    floor.start(*many("a", 1000))
    for _ in range(10):
        floor.end()
    floor.start(Try("b", FREE))
    floor.end()
    floor.end()
    assert "b0" in floor.order[-2:]


def test_at_most_so_many_of_one_activity_and_no_slot_is_held_meanwhile() -> None:
    floor, charge = Floor(3), of("charge", 1)
    floor.start(*many("a", 3, charge))
    assert floor.order == ["a0"]
    floor.start(Try("b", FREE), Try("c", FREE))
    assert floor.order == ["a0", "b0", "c0"], "the others don't wait behind it"
    assert (floor.slots.taken, floor.slots.waiting) == (3, 2)


def test_others_of_the_same_instance_pass_those_that_wait_for_their_activity() -> None:
    floor, charge = Floor(2), of("charge", 1)
    fetches = [Try("a", FREE, 10 + i) for i in range(3)]
    floor.start(*many("a", 3, charge), *fetches)
    floor.end(fetches[0])
    floor.end(fetches[1])
    assert floor.order == ["a0", "a10", "a11", "a12"]
    assert floor.finish()[-2:] == ["a1", "a2"]


def test_instances_take_turns_for_one_activity_too() -> None:
    floor, charge = Floor(10), of("charge", 1)
    floor.start(*many("a", 4, charge), *many("b", 2, charge))
    assert floor.finish() == ["a0", "a1", "b0", "a2", "b1", "a3"]


def test_a_place_is_not_kept_for_one_at_the_end_of_a_long_queue() -> None:
    """Instance a has many other activities before its charge: b's charge must not wait for all of them."""
    floor, charge = Floor(1), of("charge", 1)
    floor.start(*many("a", 100), Try("a", charge, 100), Try("b", charge))
    floor.end()
    floor.end()
    assert floor.order == ["a0", "a1", "b0"]


def test_one_whose_turn_has_come_for_its_activity_goes_before_others_of_its_instance() -> None:
    floor, charge = Floor(2), of("charge", 1)
    first, second = many("a", 2, charge)
    floor.start(first, second, *[Try("a", FREE, 10 + i) for i in range(5)])
    floor.end(first)
    assert floor.order == ["a0", "a10", "a1"]


def test_one_activity_with_much_to_do_does_not_take_all_slots_from_others() -> None:
    floor, charge = Floor(2), of("charge", 2)
    floor.start(*many("a", 10, charge), *many("b", 3))
    for _ in range(4):
        floor.end()
    assert Counter(name[0] for name in floor.order[2:]) == {"a": 2, "b": 2}


def test_one_that_leaves_while_it_waits_gives_its_place_to_the_next() -> None:
    floor, charge = Floor(2), of("charge", 1)
    first, second, third = many("a", 3, charge)
    floor.start(first, second, third, Try("b", FREE), Try("c", FREE))
    floor.end(first)  # instance c was the first to wait for a slot; the second one has a place now, but no slot
    assert floor.order == ["a0", "b0", "c0"]
    for one in (second, third):
        assert floor.slots.describe(one) == "waits for a free slot (2 of 2 activities run here)"
    floor.leave(second)
    floor.leave(second)
    assert floor.finish() == ["a0", "b0", "c0", "a2"]
    assert (floor.slots.taken, floor.slots.waiting) == (0, 0)


def test_one_that_leaves_the_gate_is_forgotten() -> None:
    floor, charge = Floor(2), of("charge", 1)
    first, second, third = many("a", 3, charge)
    floor.start(first, second, third)
    floor.leave(second)
    assert floor.slots.waiting == 1
    assert floor.finish() == ["a0", "a2"]


def test_it_tells_how_many_run_of_those_it_waits_for() -> None:
    floor, charge = Floor(3), of("charge", 2)
    tries = many("a", 3, charge)
    floor.start(*tries, Try("b", FREE), late := Try("c", FREE))
    assert floor.slots.describe(tries[2]) == "waits for a free slot (2 of 2 of `charge` run here)"
    assert floor.slots.describe(late) == "waits for a free slot (3 of 3 activities run here)"
    assert floor.slots.describe(tries[0]) is None


def test_nothing_is_kept_of_activities_that_ended() -> None:
    floor, charge = Floor(3), of("charge", 2)
    floor.start(*many("a", 9, charge))
    floor.finish()
    assert not floor.slots._gates
    assert not floor.slots._turns


def test_after_it_closed_nothing_begins() -> None:
    floor, charge = Floor(2), of("charge", 1)
    floor.start(*many("a", 4, charge), *many("b", 4))
    floor.slots.close()
    floor.finish()
    floor.start(*many("c", 1), *many("d", 1, charge))
    assert floor.order == ["a0", "b0"]
    assert floor.slots.taken == 0


@pytest.mark.parametrize("seed", range(40))
def test_limits_hold_and_no_slot_stays_free_while_one_could_run(seed: int) -> None:
    draw = random.Random(seed)
    limit = draw.randint(1, 5)
    floor = Floor(limit)
    kinds = [FREE, of("one", 1), of("two", 2), of("three", 3)]
    there: list[Try] = []
    for n in range(600):
        waiting = [one for one in there if one not in floor.running and repr(one) not in floor.order]
        action = draw.random()
        if action < 0.5:
            one = Try(draw.choice("abcd"), draw.choice(kinds), n)
            there.append(one)
            floor.start(one)
        elif action < 0.6 and waiting:
            there.remove(left := draw.choice(waiting))
            floor.leave(left)
            waiting.remove(left)
        elif floor.running:
            floor.end(draw.choice(floor.running))
        _check(floor, limit, there)
    floor.finish()
    assert Counter(floor.order) == Counter(map(repr, there)), "each began once, and none was forgotten"
    assert not floor.slots._gates


def _check(floor: Floor, limit: int, there: list[Try]) -> None:
    counts = Counter(one.activity.name for one in floor.running)
    begun = set(floor.order)
    waiting = [one for one in there if repr(one) not in begun]
    assert len(floor.running) == floor.slots.taken <= limit
    assert floor.slots.waiting == len(waiting)
    for one in floor.running:
        assert counts[one.activity.name] <= (one.activity.max_per_worker or limit)
    if len(floor.running) < limit:
        assert all(counts[one.activity.name] == one.activity.max_per_worker for one in waiting)
