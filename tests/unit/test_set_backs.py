"""Rates after the clock was set back: never too many, and no long standstill."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from romancy import Queue, Rate
from romancy.core.admission import QueueState, allowed, reserve
from romancy.core.model import SECOND
from romancy.engine.set_backs import PATIENCE, SetBacks

HOUR = 3600 * SECOND


def beginnings(rate: Rate, jumps: dict[int, int], seconds: int) -> list[int]:
    """Return when instances begin if some always wait. `jumps`: by how much the clock is changed in which second."""
    queue, set_backs, reserved, offset = Queue("q", rate=rate), SetBacks(), 0, 10 * 24 * HOUR
    begun: list[int] = []
    for second in range(seconds):
        offset += jumps.get(second, 0)
        now = second * SECOND + offset
        made = set_backs.correction(queue, QueueState(0, None, reserved, 0, True), (), now)
        reserved = reserved if made is None else made.reserved
        n = allowed(rate, reserved, now)
        reserved = reserve(rate, reserved, now, n) if n else reserved
        begun += [second] * n
    return begun


def most_in(begun: list[int], seconds: int) -> int:
    return max(sum(at <= other < at + seconds for other in begun) for at in begun)


def longest_pause(begun: list[int]) -> int:
    return max(after - before for before, after in pairwise(begun))


@pytest.mark.parametrize("back", [1, 5, 20, 40, 3600, 9 * 24 * 3600])
def test_a_clock_that_is_set_back(back: int) -> None:
    rate = Rate(10, 60, burst=3)
    begun = beginnings(rate, {300: -back * SECOND}, 600)
    assert longest_pause(begun) <= min(back + 6, PATIENCE // SECOND + 2 * 6), "one more interval before and after"
    assert most_in(begun, 60) <= 10 + 3


@pytest.mark.parametrize("seed", range(20))
def test_a_clock_that_is_set_back_again_and_again(seed: int) -> None:
    choose = random.Random(seed)
    jumps = {choose.randrange(1000): -choose.choice([1, 10, 50, 500]) * SECOND for _ in range(8)}
    begun = beginnings(Rate(10, 60, burst=3), jumps, 1000)
    for window in (6, 60, 300):
        assert most_in(begun, window) <= 3 + window // 6
    assert len(begun) >= (1000 - len(jumps) * (PATIENCE // SECOND + 12)) // 6


def test_a_rate_that_was_raised_counts_soon() -> None:
    """What the old rate has used up lies an hour ahead."""
    slow, fast, set_backs, now = Rate(1, 3600), Queue("q", rate=Rate(10, 1)), SetBacks(), 10 * 24 * HOUR
    state = QueueState(0, None, reserve(slow, 0, now, 1), 0, True)
    assert set_backs.correction(fast, state, (), now) is None
    assert set_backs.correction(fast, state, (), now + PATIENCE - 1) is None
    made = set_backs.correction(fast, state, (), now + PATIENCE)
    assert made is not None
    assert fast.rate is not None
    assert allowed(fast.rate, made.reserved, now + PATIENCE + SECOND) == 10


def test_what_is_within_reach_is_left_alone() -> None:
    rate, now = Rate(10, 60), 10 * 24 * HOUR
    reserved = reserve(rate, 0, now, 10)
    for later in (now, now + PATIENCE, now + HOUR):
        state = QueueState(0, None, reserved, 0, True)
        assert SetBacks().correction(Queue("q", rate=rate), state, (), later) is None
