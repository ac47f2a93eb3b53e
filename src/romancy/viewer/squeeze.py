"""The scale of a timeline: to scale, or with long idle stretches squeezed. Pure.

A stretch is idle if nothing runs in it and nothing begins or ends in it: the instance waits, sleeps, or rests between
two attempts. The longest stretches are replaced by breaks of a fixed width, one after the other, until the next one
would not become much narrower. All times are seconds, all places are percent of the width.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

WIDEST, TOGETHER, NARROWEST = 12.0, 36.0, 1.5
"""A break is at most this wide; all of them together; and a break is at least this wide."""
SHARE = 8.0
"""A stretch is squeezed only if it takes more than this."""
GAIN = 1.5
"""... and if it takes so many times the width of the break that replaces it."""
_STEPS = (
    *(digit * unit for unit in (0.001, 0.01, 0.1) for digit in (1, 2, 5)),
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400, 172_800, 604_800),
)
_INSTANT = 1e-6
"""Something must be left that takes at least this long."""
Interval = tuple[float, float]


@dataclass(frozen=True)
class Break:
    """A squeezed stretch: its place, when it began, and its real length."""

    x: float
    width: float
    begin: float
    seconds: float


@dataclass(frozen=True)
class Scale:
    """A piecewise linear function from moments to places. It never falls."""

    times: Sequence[float]
    places: Sequence[float]
    breaks: Sequence[Break] = ()

    def __call__(self, time: float) -> float:
        if time <= self.times[0]:
            return self.places[0]
        if time >= self.times[-1]:
            return self.places[-1]
        i = bisect_right(self.times, time)
        begin, end, left, right = self.times[i - 1], self.times[i], self.places[i - 1], self.places[i]
        return min(right, left + (right - left) * (time - begin) / (end - begin))

    @property
    def drawn_seconds(self) -> float:
        """How much time is drawn to scale."""
        return self.times[-1] - self.times[0] - sum(one.seconds for one in self.breaks)


def linear(begin: float, end: float) -> Scale:
    """The scale without breaks."""
    return Scale([begin, max(end, begin + 0.001)], [0.0, 100.0])


def idle(edges: Collection[float], busy: Collection[Interval]) -> list[Interval]:
    """The stretches between neighbouring edges during which nothing is busy, in order."""
    found: list[Interval] = []
    moments, running = sorted(set(edges)), sorted(busy)
    covered, at = float("-inf"), 0
    for begin, end in pairwise(moments):
        while at < len(running) and running[at][0] <= begin:
            covered = max(covered, running[at][1])
            at += 1
        if covered <= begin:
            found.append((begin, end))
    return found


def squeeze(begin: float, end: float, edges: Collection[float], busy: Collection[Interval]) -> Scale:
    """The scale from `begin` to `end` with breaks for the longest idle stretches."""
    whole = linear(begin, end)
    inner = {edge for edge in edges if begin <= edge <= whole.times[-1]}
    waiting = sorted(idle(inner | {begin, whole.times[-1]}, busy), key=lambda one: one[0] - one[1])
    cut: list[Interval] = []
    left = whole.times[-1] - begin
    for stretch in waiting[: int(TOGETHER / NARROWEST)]:
        length = stretch[1] - stretch[0]
        share = length / left * (100 - _width(len(cut)) * len(cut))
        if left - length < _INSTANT or share <= max(SHARE, GAIN * _width(len(cut) + 1)):
            break
        cut.append(stretch)
        left -= length
    return _with_breaks(whole, sorted(cut), left)


def _width(breaks: int) -> float:
    """How wide each of so many breaks is."""
    return min(WIDEST, TOGETHER / breaks) if breaks else 0.0


def _with_breaks(whole: Scale, cut: Sequence[Interval], left: float) -> Scale:
    each = _width(len(cut))
    per_second = (100 - each * len(cut)) / left
    times, places, breaks = [whole.times[0]], [0.0], list[Break]()
    for begin, end in cut:
        x = min(100.0 - each, places[-1] + (begin - times[-1]) * per_second)
        if begin > times[-1]:
            times.append(begin)
            places.append(x)
        times.append(end)
        places.append(min(100.0, x + each))
        breaks.append(Break(x, each, begin, end - begin))
    if whole.times[-1] > times[-1]:
        times.append(whole.times[-1])
        places.append(100.0)
    places[-1] = 100.0
    return Scale(times, places, breaks)


def ticks(scale: Scale, apart: float = 13.0) -> list[tuple[float, float]]:
    """Place and moment of the ticks: where each linear piece begins, and at round moments within."""
    found: list[tuple[float, float]] = []
    cuts = {one.begin for one in scale.breaks}
    pieces = zip(scale.times, scale.times[1:], scale.places, scale.places[1:], strict=False)
    for begin, end, left, right in pieces:
        if begin in cuts or end <= begin:
            continue
        if not found or (left - found[-1][0] >= apart * 0.8 and left <= 100 - apart * 0.6):
            found.append((left, begin))
        step = next((step for step in _STEPS if step * (right - left) / (end - begin) >= apart), None)
        moment = end if step is None else (begin // step + 1) * step
        while step is not None and moment < end:
            x = scale(moment)
            if x - found[-1][0] >= apart * 0.8 and x <= 100 - apart * 0.6:
                found.append((x, moment))
            moment += step
    return found
