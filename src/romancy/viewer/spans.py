"""A history as bars on a timeline: when each operation began, when it ended, and how. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from romancy.core.history import OTHER_MEANINGS, Kind
from romancy.core.model import from_us
from romancy.core.operations import SETTLED_BY, meaning_of, undone_by
from romancy.core.replay import Opened
from romancy.records import Wait
from romancy.storage.catalog import ShownEntry
from romancy.viewer.attempts import Attempt, Failed, attempts_of, failed_attempts

MOST = 300
"""Maximum of bars."""
_TICKS = 6


@dataclass(frozen=True)
class Bar:
    """One operation. `end` is None while it is open; `n` is the entry that ended it."""

    label: str
    kind: str
    outcome: str
    begin: datetime
    end: datetime | None
    n: int | None = None
    is_guess: bool = False
    """The start is not recorded; the time of the previous entry is used instead."""
    attempts: Sequence[Attempt] = ()
    """Set if there was more than one."""
    undoes: str | None = None
    """The operation it undoes."""


@dataclass(frozen=True)
class Piece:
    """An attempt with its position and the pause after it, in percent of the width."""

    attempt: Attempt
    x: float
    width: float
    seconds: float
    rest: float


@dataclass(frozen=True)
class Drawn:
    """A bar with its position, in percent of the width."""

    bar: Bar
    x: float
    width: float
    seconds: float
    is_open: bool
    pieces: Sequence[Piece] = ()
    undone: tuple[float, int] | None = None
    """Where the call that it undoes ended, and in which row that is drawn."""


@dataclass(frozen=True)
class Timeline:
    """Bars ordered by start, and the scale above them."""

    bars: Sequence[Drawn]
    ticks: Sequence[tuple[float, str]]
    begin: datetime
    end: datetime
    left_out: int
    has_guesses: bool
    has_attempts: bool
    has_undos: bool = False
    has_children: bool = False


def bars_of(
    entries: Sequence[ShownEntry], waits: Sequence[Wait], opened: Mapping[str, Opened] | None, began: datetime
) -> list[Bar]:
    """Bars for operations that ended according to the history, and for those that are open."""
    found: list[Bar] = []
    known, seen, before = opened or {}, set[str](), began
    for shown in entries:
        entry = shown.entry
        at = from_us(entry.at)
        answered, outcome = SETTLED_BY.get(entry.kind), meaning_of(entry.kind).outcome
        if answered is not None:
            start = known.get(entry.op)
            begin = before if start is None else from_us(start.began)
            found.append(Bar(entry.op, answered.name, outcome, min(begin, at), at, entry.n, is_guess=start is None))
            seen.add(entry.op)
            before = at
        elif entry.kind in OTHER_MEANINGS and entry.kind != Kind.ATTEMPT_FAILED:  # those are parts of another bar
            found.append(Bar(entry.op or "cancel", "mark", outcome, at, at, entry.n))
    found += [
        Bar(op, start.kind, "withdrawn", from_us(start.began), from_us(start.over))
        for op, start in known.items()
        if start.over is not None and op not in seen
    ]
    found += [Bar(wait.wait_id, wait.kind, "open", wait.since, None) for wait in waits if wait.wait_id not in seen]
    found = [replace(bar, undoes=undone_by(bar.label)) for bar in found]
    return sorted(_with_attempts(found, failed_attempts(entries)), key=lambda bar: (bar.begin, bar.n or 2**62))


def _with_attempts(bars: Sequence[Bar], failed: Mapping[str, Sequence[Failed]]) -> list[Bar]:
    """Split bars of activities with several attempts. Activities with marks only are drawn up to the last mark."""
    known = {bar.label for bar in bars if bar.kind != "mark"}
    alone = [
        Bar(op, "activity", "tried", marks[0].began or marks[0].at, marks[-1].at)
        for op, marks in failed.items()
        if op not in known
    ]
    return [
        _in_pieces(bar, failed[bar.label]) if bar.label in failed and bar.kind != "mark" else bar
        for bar in (*bars, *alone)
    ]


def _in_pieces(bar: Bar, failed: Sequence[Failed]) -> Bar:
    first = failed[0]
    is_guess = bar.is_guess and (first.attempt > 1 or first.began is None)
    begin = min(bar.begin if not bar.is_guess or first.began is None else first.began, first.at)
    attempts = attempts_of(failed, begin, bar.end, bar.outcome, bar.n)
    return replace(bar, begin=begin, is_guess=is_guess, attempts=attempts)


def draw(bars: Sequence[Bar], began: datetime, until: datetime) -> Timeline:
    """Place the newest bars to scale."""
    kept = bars[-MOST:]
    begin = kept[0].begin if len(kept) < len(bars) else began
    end = max([until, *(bar.end for bar in kept if bar.end is not None)])
    whole = max((end - begin).total_seconds(), 0.001)

    def percent(since: datetime, to: datetime) -> float:
        return round(100 * (to - since).total_seconds() / whole, 4)

    def piece(attempt: Attempt, following: datetime) -> Piece:
        over = attempt.end or end
        place = percent(begin, attempt.begin), percent(attempt.begin, over)
        return Piece(attempt, *place, (over - attempt.begin).total_seconds(), max(0.0, percent(over, following)))

    drawn: list[Drawn] = []
    rows = {bar.label: row for row, bar in enumerate(kept)}
    for bar in kept:
        over = bar.end or end
        begun = [attempt for attempt in bar.attempts if attempt.begin <= end]
        pieces = [piece(a, b) for a, b in zip(begun, [*(a.begin for a in begun[1:]), over], strict=False)]
        place = percent(begin, bar.begin), percent(bar.begin, over)
        row = rows.get(bar.undoes or "")
        undone = None if row is None else (percent(begin, kept[row].end or end), row)
        drawn.append(Drawn(bar, *place, (over - bar.begin).total_seconds(), bar.end is None, pieces, undone))
    ticks = [(round(100 * i / _TICKS, 3), _tick(begin + (end - begin) * i / _TICKS, whole)) for i in range(_TICKS + 1)]
    guesses, attempts = any(bar.is_guess for bar in kept), any(bar.attempts for bar in kept)
    undos, children = any(bar.undoes for bar in kept), any(bar.kind == "child" for bar in kept)
    return Timeline(drawn, ticks, begin, end, len(bars) - len(kept), guesses, attempts, undos, children)


def _tick(moment: datetime, whole: float) -> str:
    if whole < 10:
        return f"{moment.astimezone(UTC):%H:%M:%S}.{moment.microsecond // 1000:03}"
    if timedelta(seconds=whole) < timedelta(hours=20):
        return f"{moment:%H:%M:%S}"
    return f"{moment:%b %d %H:%M}"
