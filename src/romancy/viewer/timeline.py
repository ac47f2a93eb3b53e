"""Bars as rows of a timeline: where each is drawn, with its attempts, its undo, and its repeats. Pure.

Repeated operations are folded into one row, except those that failed, are open, are undone, no longer count, or have
rows below them. An undo has no row of its own: it is drawn in the row of the call that it undoes. All places are
percent of the width.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from romancy.core.durations import lasting
from romancy.viewer.attempts import Attempt
from romancy.viewer.folds import Fold, folds
from romancy.viewer.spans import LEFT, Bar
from romancy.viewer.squeeze import Interval, Scale, linear, squeeze, ticks
from romancy.viewer.words import absolute, brief

MOST = 300
"""Maximum of rows. If there are more, the newest are drawn."""
LANES = 4
"""What overlaps in a folded row is drawn in up to this many lanes."""
_RUNS = ("activity", "child", "retry")
_BAD = ("failed", "timed out")
_GOOD = ("completed", "received", "fired", "sent", "patched")
_NUMBER = re.compile(r":\d+(@\d+)?$")
_NARROW, _NEAR = 0.35, 0.12
"""Segments narrower and nearer than this are drawn as one."""
_WIDE = 0.6
_LABELS_APART = 7.0
_COLORS = {"event": "event", "answer": "event", "timer": "timer", "mark": "blocked"}


@dataclass(frozen=True)
class Segment:
    """A piece of a row.

    `look` is run, wait, failed, try (a failed attempt that was repeated), rest (until the next attempt), undo, link (to
    the undo) or mark. `count` is greater than 1 if it stands for several that lie too close to be told apart.
    """

    look: str
    x: float
    width: float
    bar: Bar
    begin: datetime
    seconds: float
    attempt: Attempt | None = None
    is_open: bool = False
    lane: int = 0
    count: int = 1

    @property
    def end(self) -> float:
        return self.x + self.width

    @property
    def n(self) -> int | None:
        """The history entry that it leads to."""
        return self.bar.n if self.attempt is None else self.attempt.n

    @property
    def classes(self) -> str:
        """Its classes in the style sheet."""
        worn = {
            self.look: True,
            color(self.bar, is_bad=self.look in ("try", "failed")): True,
            "dropped": self.bar.retried is not None,
            "open": self.is_open,
            "guess": self.bar.is_guess and self.attempt is None,
            "withdrawn": self.bar.outcome in ("withdrawn", LEFT),
            "wide": self.width > _WIDE,
            "whole": self.bar.kind != "activity",
        }
        return " ".join(name for name, is_worn in worn.items() if is_worn)

    @property
    def title(self) -> str:
        """What it says when the pointer is on it."""
        bar, attempt = self.bar, self.attempt
        label = bar.label[:100]
        what = f"{bar.kind} {label}: {bar.outcome}"
        if self.look == "link":
            what = f"undone by {label}"
        elif self.look == "rest":
            what = f"{label}: until the next attempt"
        elif self.count > 1:
            what = f"{self.count} times"
        elif attempt is not None:
            what = f"{label}, {attempt.name}: {attempt.outcome}"
        elif bar.undoes:
            what += f"; undoes {bar.undoes[:60]}"
        if bar.retried is not None:
            what += f"; retried {absolute(bar.retried.at)}"
        if (
            bar.in_transaction
            and self.look not in ("rest", "link")
            and (attempt is None or attempt.outcome != "failed")
        ):
            what += "; in one transaction with its result"
        late = " after it was due; its start is not recorded" if self.is_late else ""
        lines = [what, brief(attempt.error) if attempt else "", f"{lasting(self.seconds)}{late}"]
        lines[2:] = [] if self.look == "mark" else lines[2:]
        due = "due " if attempt is not None and not attempt.is_known else ""
        return "\n".join([*filter(None, lines), f"{due}{absolute(self.begin)}"])

    @property
    def is_late(self) -> bool:
        """Only when it was due and when it ended are known."""
        return self.attempt is not None and self.attempt.end is not None and not self.attempt.is_known


@dataclass(frozen=True)
class Row:
    """One operation, or several of one name that were folded."""

    bar: Bar
    segments: Sequence[Segment]
    seconds: float
    depth: int = 0
    undos: Sequence[Bar] = ()
    members: Sequence[Row] = ()
    """The rows that were folded into this one."""
    group: int = 0
    """Rows with the same number are the parts of one loop; 0: it is none."""
    lanes: int = 1

    @property
    def name(self) -> str:
        return base_name(self.bar.label) if self.members else self.bar.label

    @property
    def color(self) -> str:
        return color(self.bar)

    @property
    def tries(self) -> int:
        """How many attempts have begun."""
        return sum(segment.attempt is not None and segment.bar is self.bar for segment in self.segments)

    @property
    def retried(self) -> int:
        """How many of the folded operations needed more than one attempt."""
        return sum(bool(member.bar.attempts) for member in self.members)

    @property
    def is_open(self) -> bool:
        return self.bar.end is None


@dataclass(frozen=True)
class Gap:
    """A squeezed stretch. Only some have their length written above them, so that no text covers another."""

    x: float
    width: float
    begin: datetime
    seconds: float
    has_label: bool


@dataclass(frozen=True)
class Timeline:
    """Rows ordered by start, and the scale above them."""

    rows: Sequence[Row]
    gaps: Sequence[Gap]
    ticks: Sequence[tuple[float, str]]
    begin: datetime
    end: datetime
    drawn_seconds: float
    """How much of the time is drawn to scale."""
    is_squeezed: bool
    can_squeeze: bool
    left_out: int = 0
    """How many rows are not drawn."""

    @property
    def bars(self) -> list[Bar]:
        return [bar for row in self.rows for one in (row.members or (row,)) for bar in (one.bar, *one.undos)]

    @property
    def looks(self) -> set[str]:
        """What a legend must explain."""
        every = [segment for row in self.rows for segment in row.segments]
        found = {segment.look for segment in every} | {segment.bar.kind for segment in every}
        late = {"late"} if any(segment.is_late for segment in every) else set[str]()
        return found | late | ({"guess"} if any(bar.is_guess for bar in self.bars) else set())


def color(bar: Bar, *, is_bad: bool = False) -> str:
    """The status whose colors a bar has."""
    if bar.undoes:
        return "undo"
    return "failed" if is_bad or bar.outcome in _BAD else _COLORS.get(bar.kind, "running")


def base_name(label: str) -> str:
    """The name of an operation without its number: `tick` of `tick:7`."""
    return _NUMBER.sub("", label)


def draw(
    bars: Sequence[Bar],
    began: datetime,
    until: datetime,
    *,
    is_squeezed: bool = True,
    below: Mapping[str, Sequence[Bar]] | None = None,
) -> Timeline:
    """Place bars between two moments. `below`: the bars of children, by the label of the bar they are drawn below."""
    nested = {} if below is None else {bar.label: below[bar.label] for bar in bars if below.get(bar.label)}
    every = [*bars, *(bar for some in nested.values() for bar in some)]
    begin = min([began, *(bar.begin for bar in every)])
    end = max([until, *(bar.end for bar in every if bar.end is not None)])
    rows = list(_layout(bars, nested))
    kept = rows[-MOST:]
    if len(kept) < len(rows):
        begin = min(bar.begin for one in kept for bar in one.bars)
    shown = [bar for one in kept for bar in (*one.bars, *one.undos)]
    squeezed = _squeezed(shown, begin, end)
    scale = squeezed if is_squeezed else linear(begin.timestamp(), end.timestamp())
    place = _Place(scale, end)
    return Timeline(
        rows=[place.row(one) for one in kept],
        gaps=list(_gaps(scale)),
        ticks=[(round(x, 3), _moment(at, scale)) for x, at in ticks(scale, _apart(scale))],
        begin=begin,
        end=end,
        drawn_seconds=scale.drawn_seconds,
        is_squeezed=bool(scale.breaks),
        can_squeeze=bool(squeezed.breaks),
        left_out=len(rows) - len(kept),
    )


# --- which rows there are ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Planned:
    """A row before it has a place."""

    bars: Sequence[Bar]
    undos: Sequence[Bar] = ()
    depth: int = 0
    group: int = 0


def _layout(bars: Sequence[Bar], nested: Mapping[str, Sequence[Bar]], depth: int = 0) -> Iterator[_Planned]:
    last = {bar.label: i for i, bar in enumerate(bars) if bar.undoes is None}
    undos: dict[int, list[Bar]] = {}
    for bar in bars:
        if bar.undoes in last:
            undos.setdefault(last[bar.undoes], []).append(bar)
    own = [(i, bar) for i, bar in enumerate(bars) if bar.undoes not in last]
    keys = [None if i in undos or bar.label in nested else _key(bar) for i, bar in own]
    group = 0
    for fold in folds(keys):
        group += fold.times > 1 and fold.period > 1
        if fold.times == 1:
            i, bar = own[fold.first]
            yield _Planned([bar], undos.get(i, ()), depth)
            if bar.label in nested:
                yield from _layout(nested[bar.label], {}, depth + 1)
        else:
            number = group if fold.period > 1 else 0
            yield from (_Planned(each, (), depth, number) for each in _repeats([bar for _, bar in own], fold))


def _repeats(bars: Sequence[Bar], fold: Fold) -> Iterator[Sequence[Bar]]:
    for first in range(fold.first, fold.first + fold.period):
        yield bars[first : fold.end : fold.period]


def _key(bar: Bar) -> tuple[str, str] | None:
    """What bars must have in common to be folded; None if this one must be seen by itself."""
    is_plain = bar.outcome in _GOOD and bar.end is not None and bar.retried is None and bar.undoes is None
    return (base_name(bar.label), bar.kind) if is_plain else None


# --- where they are drawn ---------------------------------------------------------------------------------------------
def _squeezed(bars: Sequence[Bar], begin: datetime, end: datetime) -> Scale:
    edges: set[float] = set()
    busy: list[Interval] = []
    for bar in bars:
        over = (bar.end or end).timestamp()
        edges |= {bar.begin.timestamp(), over}
        for attempt in bar.attempts:
            started, stopped = attempt.begin.timestamp(), (attempt.end or end).timestamp()
            edges |= {started, stopped}
            busy.append((started, stopped))
        if bar.kind in _RUNS and not bar.attempts:
            busy.append((bar.begin.timestamp(), over))
    return squeeze(begin.timestamp(), end.timestamp(), edges, busy)


class _Place:
    """Gives rows their place on a scale."""

    def __init__(self, scale: Scale, end: datetime) -> None:
        self._scale, self._end = scale, end

    def row(self, planned: _Planned) -> Row:
        if len(planned.bars) > 1:
            members = [self._single(bar, (), planned.depth + 1) for bar in planned.bars]
            lanes, stacked = _stack([segment for member in members for segment in member.segments])
            seconds = sum(member.seconds for member in members)
            first = planned.bars[0]
            return Row(first, stacked, seconds, planned.depth, (), members, planned.group, lanes)
        return self._single(planned.bars[0], planned.undos, planned.depth)

    def _single(self, bar: Bar, undos: Sequence[Bar], depth: int) -> Row:
        segments = self._segments(bar)
        over = bar.end or self._end
        for undo in undos:
            segments.append(self._piece("link", undo, min(over, undo.begin), undo.begin))
            segments += [replace(one, look="undo") if one.look == "run" else one for one in self._segments(undo)]
        return Row(bar, segments, (over - bar.begin).total_seconds(), depth, undos)

    def _segments(self, bar: Bar) -> list[Segment]:
        if bar.kind == "mark":
            return [self._piece("mark", bar, bar.begin, bar.begin)]
        look = "failed" if bar.outcome in _BAD else "run" if bar.kind in _RUNS else "wait"
        begun = [attempt for attempt in bar.attempts if attempt.begin <= self._end]
        if not begun:
            return [self._piece(look, bar, bar.begin, bar.end)]
        found: list[Segment] = []
        after = [*(attempt.begin for attempt in begun[1:]), bar.end or self._end]
        for attempt, following in zip(begun, after, strict=True):
            is_repeated = attempt.outcome == "failed" and attempt.n != bar.n
            found.append(self._piece("try" if is_repeated else look, bar, attempt.begin, attempt.end, attempt))
            if attempt.end is not None and following > attempt.end:
                rest = self._piece("rest", bar, attempt.end, following)
                found.append(replace(rest, is_open=bar.end is None and attempt is begun[-1]))
        return found

    def _piece(
        self, look: str, bar: Bar, begin: datetime, end: datetime | None, attempt: Attempt | None = None
    ) -> Segment:
        over = end or self._end
        x, right = self._scale(begin.timestamp()), self._scale(over.timestamp())
        seconds, width = (over - begin).total_seconds(), max(0.0, right - x)
        return Segment(look, round(x, 4), round(width, 4), bar, begin, seconds, attempt, end is None)


def _stack(segments: Sequence[Segment]) -> tuple[int, list[Segment]]:
    """Put segments that overlap into lanes, and join those that can't be told apart."""
    ends: list[float] = []
    found: dict[int, list[Segment]] = {}
    for segment in sorted(segments, key=lambda one: one.begin):
        begin = segment.begin.timestamp()
        lane = next((i for i, end in enumerate(ends) if end <= begin + 1e-6), min(len(ends), LANES - 1))
        if lane == len(ends):
            ends.append(begin)
        ends[lane] = max(ends[lane], begin + segment.seconds)
        lined = found.setdefault(lane, [])
        if lined and _are_one(lined[-1], segment):
            last = lined[-1]
            seconds = segment.seconds + last.seconds
            lined[-1] = replace(
                last, width=max(last.width, segment.end - last.x), seconds=seconds, count=last.count + 1
            )
        else:
            lined.append(replace(segment, lane=lane))
    return max(len(ends), 1), [segment for lane in sorted(found) for segment in found[lane]]


def _are_one(one: Segment, other: Segment) -> bool:
    return one.look == other.look and max(one.width / one.count, other.width) < _NARROW and other.x - one.end < _NEAR


def _gaps(scale: Scale) -> Iterator[Gap]:
    labelled = float("-inf")
    for one in scale.breaks:
        middle = one.x + one.width / 2
        has_label = middle - labelled >= _LABELS_APART
        labelled = middle if has_label else labelled
        begin = datetime.fromtimestamp(one.begin, UTC)
        yield Gap(round(one.x, 3), round(one.width, 3), begin, one.seconds, has_label)


def _moment(at: float, scale: Scale) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    if _is_fine(scale):
        return f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03}"
    return f"{moment:%b %d %H:%M}" if _is_long(scale) else f"{moment:%H:%M:%S}"


def _apart(scale: Scale) -> float:
    """How far ticks must be apart, so that no text covers another."""
    return 20.0 if _is_fine(scale) or _is_long(scale) else 14.0


def _is_fine(scale: Scale) -> bool:
    return scale.drawn_seconds < 3 and scale.times[-1] - scale.times[0] < 60


def _is_long(scale: Scale) -> bool:
    return scale.times[-1] - scale.times[0] >= 20 * 3600
