"""A history as bars: what began when, ended when, and how. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from romancy.core.history import Kind
from romancy.core.model import from_us
from romancy.records import Wait
from romancy.storage.catalog import ShownEntry

MOST = 300
"""Bars that are drawn."""
_KINDS: Mapping[int, tuple[str, str]] = {
    Kind.ACTIVITY_COMPLETED: ("activity", "completed"),
    Kind.ACTIVITY_FAILED: ("activity", "failed"),
    Kind.TIMER_FIRED: ("timer", "fired"),
    Kind.EVENT_RECEIVED: ("event", "received"),
    Kind.WAIT_TIMED_OUT: ("event", "timed out"),
}
_MARKS: Mapping[int, str] = {Kind.EVENT_SENT: "sent", Kind.CANCEL_REQUESTED: "cancel asked"}
_TICKS = 6


@dataclass(frozen=True)
class Opened:
    """When an operation began, and when it was over or given up, as the code tells."""

    kind: str
    began: int
    over: int | None = None


@dataclass(frozen=True)
class Bar:
    """One operation. `end` None: it is open. `n`: the entry that ended it."""

    label: str
    kind: str
    outcome: str
    begin: datetime
    end: datetime | None
    n: int | None = None
    is_guess: bool = False
    """When it began is not recorded; it is taken for when the entry before was."""


@dataclass(frozen=True)
class Drawn:
    """A bar in its place: percent of the width."""

    bar: Bar
    x: float
    width: float
    seconds: float
    is_open: bool


@dataclass(frozen=True)
class Timeline:
    """Bars by when they began, and the scale above them."""

    bars: Sequence[Drawn]
    ticks: Sequence[tuple[float, str]]
    begin: datetime
    end: datetime
    left_out: int
    has_guesses: bool


def bars_of(
    entries: Sequence[ShownEntry], waits: Sequence[Wait], opened: Mapping[str, Opened] | None, began: datetime
) -> list[Bar]:
    """What has ended by the history, and what is open now."""
    found: list[Bar] = []
    known, seen, before = opened or {}, set[str](), began
    for shown in entries:
        entry = shown.entry
        at = from_us(entry.at)
        if entry.kind in _KINDS:
            kind, outcome = _KINDS[entry.kind]
            start = known.get(entry.op)
            begin = before if start is None else from_us(start.began)
            found.append(Bar(entry.op, kind, outcome, min(begin, at), at, entry.n, is_guess=start is None))
            seen.add(entry.op)
            before = at
        elif entry.kind in _MARKS:
            found.append(Bar(entry.op or "cancel", "mark", _MARKS[entry.kind], at, at, entry.n))
    found += [
        Bar(op, start.kind, "withdrawn", from_us(start.began), from_us(start.over))
        for op, start in known.items()
        if start.over is not None and op not in seen
    ]
    found += [Bar(wait.wait_id, wait.kind, "open", wait.since, None) for wait in waits if wait.wait_id not in seen]
    return sorted(found, key=lambda bar: (bar.begin, bar.n or 2**62))


def draw(bars: Sequence[Bar], began: datetime, until: datetime) -> Timeline:
    """The newest bars, in proportion to time."""
    kept = bars[-MOST:]
    begin = kept[0].begin if len(kept) < len(bars) else began
    end = max([until, *(bar.end for bar in kept if bar.end is not None)])
    whole = max((end - begin).total_seconds(), 0.001)
    drawn: list[Drawn] = []
    for bar in kept:
        seconds = ((bar.end or end) - bar.begin).total_seconds()
        x = 100 * (bar.begin - begin).total_seconds() / whole
        drawn.append(Drawn(bar, round(x, 4), round(100 * seconds / whole, 4), seconds, bar.end is None))
    ticks = [(round(100 * i / _TICKS, 3), _tick(begin + (end - begin) * i / _TICKS, whole)) for i in range(_TICKS + 1)]
    return Timeline(drawn, ticks, begin, end, len(bars) - len(kept), any(bar.is_guess for bar in kept))


def _tick(moment: datetime, whole: float) -> str:
    if whole < 10:
        return f"{moment.astimezone(UTC):%H:%M:%S}.{moment.microsecond // 1000:03}"
    if timedelta(seconds=whole) < timedelta(hours=20):
        return f"{moment:%H:%M:%S}"
    return f"{moment:%b %d %H:%M}"
