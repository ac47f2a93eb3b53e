"""Which suspects begin when: with a clock and a desk that only write down what they are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from romancy.core.model import SECOND
from romancy.engine import evidence
from romancy.engine.quarantine import BODIES, Quarantine
from romancy.storage.attempts import Attempt, Suspicion
from romancy.storage.batch import BODY
from romancy.testing import ManualClock


class Stay:
    """As much of a resident as matters here."""

    def __init__(self, name: str) -> None:
        self.name, self.is_gone = name, False
        self.attempts: dict[str, Attempt] = {}


class Desk:
    """Records at once what it is told; company only when the test says so."""

    def __init__(self) -> None:
        self.clock = ManualClock(0)
        self.begun: list[tuple[str, bool]] = []
        self.told: list[Any] = []
        self.full: set[str] = set()
        """Who gets no slot now."""
        self.waiting: dict[str, Callable[[], None]] = {}
        self.given_back: list[str] = []
        self.quarantine = Quarantine(self.clock, 2, self)

    def admit(
        self, name: str, op: str = "call", *, crashes: int = 1, doubtful: bool = False, due: int | None = None
    ) -> Any:
        resident: Any = Stay(name)
        record = Attempt(op, 0, 0, next_due=due, crashes=crashes, suspicion=Suspicion(0, SECOND // 10))
        resident.attempts[op] = record
        self.quarantine.admit(resident, record, is_doubtful=doubtful)
        return resident

    def reserve(self, resident: Any, op: str, granted: Callable[[], None]) -> bool:
        if resident.name in self.full:
            self.waiting[resident.name] = granted
        return resident.name not in self.full

    def give_back(self, resident: Any, op: str) -> None:
        if resident.attempts[op].started:
            return
        self.given_back.append(resident.name)
        if self.waiting:
            self.waiting.pop(next(iter(self.waiting)))()

    def begin(self, resident: Any, op: str, is_alone: bool) -> None:
        self.begun.append((resident.name, is_alone))
        resident.attempts[op] = evidence.begun(resident.attempts[op], is_alone)

    def run_on(self, resident: Any, op: str, ran: int) -> None: ...

    def have_company(self, resident: Any, op: str) -> bool:
        self.told.append(resident)
        return True

    def is_open(self, resident: Any, op: str) -> bool:
        return True


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_company_comes_only_after_it_is_recorded(desk: Desk) -> None:
    first = desk.admit("first")
    desk.admit("second")
    assert desk.begun == [("first", True)]
    assert desk.told == [first]
    first.attempts["call"] = evidence.accompanied(first.attempts["call"])
    desk.quarantine.recorded(first, "call")
    assert desk.begun == [("first", True), ("second", False)]


async def test_a_doubtful_one_begins_when_the_others_are_through(desk: Desk) -> None:
    first = desk.admit("first")
    desk.admit("doubtful", crashes=3, doubtful=True)
    desk.clock.turn_to(SECOND)
    assert desk.begun == [("first", True)]
    desk.quarantine.leave(first, "call")
    assert desk.begun == [("first", True), ("doubtful", True)]
    desk.admit("third")
    assert len(desk.begun) == 2, "it is left alone for a moment"


async def test_calls_that_wait_for_a_slot_hold_up_no_body(desk: Desk) -> None:
    for n in range(5):
        resident = desk.admit(f"call {n}")
        resident.attempts["call"] = evidence.accompanied(resident.attempts["call"])
        desk.quarantine.recorded(resident, "call")
    assert len(desk.begun) == 2, "there are two slots"
    for n in range(20):
        desk.admit(f"body {n}", BODY)
    assert len(desk.begun) == 22


async def test_few_bodies_with_two_deaths_begin_together(desk: Desk) -> None:
    bodies = [desk.admit("body 0", BODY, crashes=2)]
    bodies[0].attempts[BODY] = evidence.accompanied(bodies[0].attempts[BODY])
    desk.quarantine.recorded(bodies[0], BODY)
    for n in range(1, 20):
        desk.admit(f"body {n}", BODY, crashes=2)
    assert len(desk.begun) == BODIES
    desk.quarantine.leave(bodies[0])
    assert len(desk.begun) == BODIES + 1


async def test_a_suspect_that_left_before_its_turn_lets_the_next_one_in(desk: Desk) -> None:
    first, second = desk.admit("first", doubtful=True), desk.admit("second", doubtful=True)
    desk.admit("third", doubtful=True)
    assert [name for name, _ in desk.begun] == ["first"]
    second.is_gone = True
    desk.quarantine.leave(first, "call")
    assert [name for name, _ in desk.begun] == ["first", "third"]


async def test_a_suspect_begins_after_its_rest(desk: Desk) -> None:
    desk.admit("resting", due=SECOND)
    assert (desk.begun, desk.quarantine.waiting) == ([], 1)
    desk.clock.turn_to(SECOND)
    assert (desk.begun, desk.quarantine.waiting) == ([("resting", True)], 0)


async def test_none_begins_after_the_quarantine_was_cleared(desk: Desk) -> None:
    desk.admit("resting", due=SECOND)
    desk.quarantine.clear()
    desk.clock.turn_to(2 * SECOND)
    assert (desk.begun, desk.quarantine.waiting) == ([], 0)


async def test_those_with_fewest_deaths_begin_first(desk: Desk) -> None:
    """There are two slots: whoever had one and met a death lets others go first, so that not all deaths fall on it."""
    inside = [desk.admit("first", crashes=3), desk.admit("second", crashes=3)]
    inside[0].attempts["call"] = evidence.accompanied(inside[0].attempts["call"])
    desk.quarantine.recorded(inside[0], "call")
    for name, crashes in (("two a", 2), ("three", 3), ("one", 1), ("two b", 2)):
        desk.admit(name, crashes=crashes)
    desk.begun.clear()
    for resident in inside:
        desk.quarantine.leave(resident, "call")
    assert [name for name, _ in desk.begun] == ["one", "two a"]


# --- waiting for a slot ---------------------------------------------------------------------------------------------
async def test_a_suspect_begins_when_it_gets_a_slot(desk: Desk) -> None:
    desk.full = {"first"}
    desk.admit("first")
    desk.admit("second")
    assert desk.begun == [("second", True)], "it waits for nobody"
    desk.waiting.pop("first")()
    assert len(desk.begun) == 1, "it is not recorded yet that the other one gets company"
    [second] = desk.told
    second.attempts["call"] = evidence.accompanied(second.attempts["call"])
    desk.quarantine.recorded(second, "call")
    assert (desk.begun, desk.given_back) == ([("second", True), ("first", False)], [])


async def test_nobody_gets_company_that_has_no_slot_yet(desk: Desk) -> None:
    desk.admit("first")
    desk.full = {"second"}
    desk.admit("second")
    assert desk.told == []


async def test_a_suspect_that_is_held_up_gives_its_slot_back(desk: Desk) -> None:
    """Whoever gets the slot then is held up, too. They begin when the time of the doubtful one alone is over."""
    names = [f"call {n}" for n in range(50)]
    desk.full = set(names)
    for name in names:
        desk.admit(name)
    doubtful = desk.admit("doubtful", crashes=3, doubtful=True)
    assert desk.begun == [("doubtful", True)]
    desk.waiting.pop(names[0])()
    assert desk.given_back == names
    assert (desk.begun, desk.quarantine.waiting) == ([("doubtful", True)], len(names))
    desk.full.clear()
    doubtful.attempts["call"] = evidence.accompanied(doubtful.attempts["call"])
    desk.quarantine.leave(doubtful, "call")
    assert [name for name, _ in desk.begun[1:]] == names[:2], "there are two slots"


async def test_a_suspect_that_left_gives_its_slot_back(desk: Desk) -> None:
    desk.full = {"first"}
    first = desk.admit("first")
    first.is_gone = True
    desk.waiting.pop("first")()
    assert (desk.begun, desk.given_back, desk.quarantine.waiting) == ([], ["first"], 0)


async def test_a_doubtful_suspect_gives_its_slot_back_while_others_can_begin(desk: Desk) -> None:
    desk.full = {"doubtful"}
    desk.admit("doubtful", crashes=3, doubtful=True)
    inside = [desk.admit("first"), desk.admit("second"), desk.admit("third")]
    inside[0].attempts["call"] = evidence.accompanied(inside[0].attempts["call"])
    desk.quarantine.recorded(inside[0], "call")
    assert [name for name, _ in desk.begun] == ["first", "second"], "there are two slots"
    desk.clock.turn_to(10 * SECOND)
    desk.waiting.pop("doubtful")()
    assert (desk.given_back, len(desk.begun)) == (["doubtful"], 2)


async def test_slots_are_given_back_when_the_quarantine_is_cleared(desk: Desk) -> None:
    first = desk.admit("first")
    second = desk.admit("second")
    assert (desk.told, desk.given_back) == ([first], []), "the second one has a slot, and waits for a record"
    second.is_gone = True
    desk.quarantine.clear()
    assert (desk.begun, desk.given_back) == ([("first", True)], ["second"])
