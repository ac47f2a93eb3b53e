"""Timers with a clock that is turned, and nobody behind them."""

from __future__ import annotations

from romancy.core.model import SECOND
from romancy.engine.metrics import Metrics
from romancy.engine.timers import Timers
from romancy.testing import ManualClock

WINDOW = 60 * SECOND


class Case:
    def __init__(self) -> None:
        self.clock, self.fired, self.refreshed = ManualClock(0), list[tuple[int, str, str]](), 0
        self.timers = Timers(self.clock, self.fire, self.refresh, WINDOW, Metrics())
        self.timers.extend(WINDOW)

    def fire(self, instance: str, op: str) -> None:
        self.fired.append((self.clock.now() // SECOND, instance, op))

    def refresh(self) -> None:
        self.refreshed += 1

    def turn(self, *seconds: int) -> None:
        for second in seconds:
            self.clock.turn_to(second * SECOND)


async def test_they_fire_in_order_once_and_never_before_their_time() -> None:
    case = Case()
    for due, instance in ((3, "late"), (1, "early"), (2, "middle")):
        case.timers.add(due * SECOND, instance, "t")
    case.turn(0, 1, 3, 4)
    assert case.fired == [(1, "early", "t"), (3, "middle", "t"), (3, "late", "t")]
    assert case.timers.armed == 0


async def test_one_that_is_discarded_does_not_fire() -> None:
    case = Case()
    case.timers.add(SECOND, "one", "a")
    case.timers.add(SECOND, "one", "b")
    case.timers.discard("one", "a")
    case.timers.discard("one", "unknown")
    case.turn(1)
    assert case.fired == [(1, "one", "b")]


async def test_one_that_is_moved_fires_at_its_new_time_only() -> None:
    case = Case()
    case.timers.add(SECOND, "one", "t")
    case.timers.add(3 * SECOND, "one", "t")
    case.timers.add(SECOND, "other", "t")
    case.timers.add(2 * SECOND, "one", "t")
    case.timers.add(4 * SECOND, "one", "t")
    case.turn(3)
    assert case.fired == [(3, "other", "t")]
    case.turn(4, 5)
    assert case.fired[1:] == [(4, "one", "t")]


async def test_what_is_far_ahead_is_left_to_a_refresh() -> None:
    case = Case()
    case.timers.add(WINDOW + 1, "far", "t")
    assert case.timers.armed == 0
    case.turn(29)
    assert case.refreshed == 0
    case.turn(30)
    assert case.refreshed == 1, "half the window is over"
    case.timers.extend(90 * SECOND)
    case.timers.add(WINDOW + 1, "far", "t")
    case.turn(61)
    assert case.fired == [(61, "far", "t")]


async def test_discarded_ones_do_not_pile_up() -> None:
    case = Case()
    case.timers.add(SECOND, "first", "t")
    for n in range(5000):
        case.timers.add(2 * SECOND, str(n), "t")
        case.timers.discard(str(n), "t")
    assert len(case.timers._heap) <= 1001
    case.turn(2)
    assert case.fired == [(2, "first", "t")]


async def test_none_fires_after_a_stop_nor_after_all_are_forgotten() -> None:
    stopped, cleared = Case(), Case()
    for case in (stopped, cleared):
        case.timers.add(SECOND, "one", "t")
    stopped.timers.stop()
    stopped.timers.add(SECOND // 2, "another", "t")
    cleared.timers.clear()
    for case in (stopped, cleared):
        case.turn(1)
        assert case.fired == []
    assert stopped.refreshed == 0
    assert cleared.timers.next_due() is None
