"""Repeated operations as one row: `tick ×400`, or `poll ×200` and `sleep ×200` for a loop of two. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

MOST_PERIOD = 4
"""The longest loop that is recognized."""
LEAST, LEAST_SAVED = 3, 4
"""What repeats is folded if it does so at least this often, and if that saves at least this many rows."""


@dataclass(frozen=True)
class Fold:
    """Items from `first` on: `period` of them, `times` times. Not folded if `times` is 1."""

    first: int
    period: int = 1
    times: int = 1

    @property
    def end(self) -> int:
        return self.first + self.period * self.times


def folds(keys: Sequence[Hashable | None]) -> list[Fold]:
    """Divide items into folds by their keys; an item with key None is never folded.

    From left to right, the period that covers the most items wins, the shortest among equals.
    """
    alone = [(i,) if key is None else (key, "") for i, key in enumerate(keys)]
    found: list[Fold] = []
    at = 0
    while at < len(alone):
        best = Fold(at)
        for period in range(1, MOST_PERIOD + 1):
            times = _times(alone, at, period)
            is_worth_it = times >= LEAST and (times - 1) * period >= LEAST_SAVED
            if is_worth_it and times * period > best.end - at:
                best = Fold(at, period, times)
        found.append(best)
        at = best.end
    return found


def _times(keys: Sequence[tuple[Hashable, ...]], at: int, period: int) -> int:
    """How often the next `period` keys follow each other. Only the last comparison can meet the end of the keys."""
    times, end = 1, at + 2 * period
    while end <= len(keys) and keys[end - period : end] == keys[at : at + period]:
        times, end = times + 1, end + period
    return times
