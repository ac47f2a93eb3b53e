"""Numbers by the minute as points and bars of small charts. Pure; positions are in units of its viewBox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

MINUTES = 60
"""How far back charts go."""


@dataclass(frozen=True)
class Bar:
    """What ended in a minute: heights in percent of the highest bar, upwards and downwards."""

    x: float
    at: datetime
    completed: int
    failed: int
    up: float
    down: float


@dataclass(frozen=True)
class Throughput:
    """An hour of bars, what they add up to, and what the highest one stands for."""

    bars: Sequence[Bar]
    completed: int
    failed: int
    top: int
    ticks: Sequence[tuple[float, datetime]]


def points(values: Sequence[float]) -> str:
    """A line through values from left to right, 100 high: `0,98 1,40.5 ...`."""
    top = max(*values, 1) * 1.12
    return " ".join(f"{x},{98 - 96 * value / top:.1f}" for x, value in enumerate(values))


def by_minute(found: dict[int, int], last: int) -> list[int]:
    """The values of the last hour; a minute without one counts as zero."""
    return [found.get(minute, 0) for minute in range(last - MINUTES + 1, last + 1)]


def throughput(now: datetime, completed: Sequence[int], failed: Sequence[int]) -> Throughput:
    """Bars for the minutes up to now, oldest first."""
    top = max(*completed, *failed, 1)
    first = now.replace(second=0, microsecond=0) - timedelta(minutes=len(completed) - 1)
    each = 100 / len(completed)
    height: Callable[[int], float] = lambda n: round(max(100 * n / top, 2), 1) if n else 0.0  # noqa: E731
    bars = [
        Bar(round(each * i, 3), first + timedelta(minutes=i), up, down, height(up), height(down))
        for i, (up, down) in enumerate(zip(completed, failed, strict=True))
    ]
    ticks = [(bar.x, bar.at) for bar in bars if bar.at.minute % 15 == 0]
    return Throughput(bars, sum(completed), sum(failed), top, ticks)
