"""How a timeline is laid out: what is squeezed, folded, stacked and nested."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from romancy.viewer.attempts import Attempt
from romancy.viewer.folds import Fold, folds
from romancy.viewer.spans import Bar
from romancy.viewer.squeeze import TOGETHER, idle, linear, squeeze, ticks
from romancy.viewer.timeline import LANES, Timeline, draw

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def bar(label: str, begin: float, end: float | None, kind: str = "activity", outcome: str = "completed") -> Bar:
    return Bar(label, kind, "open" if end is None else outcome, at(begin), None if end is None else at(end), n=1)


def line(*bars: Bar, until: float, **options: object) -> Timeline:
    return draw(sorted(bars, key=lambda one: one.begin), T0, at(until), **options)  # type: ignore[arg-type]


# --- squeezing --------------------------------------------------------------------------------------------------------
def test_without_idle_time_it_is_drawn_to_scale() -> None:
    scale = squeeze(0, 20, [0, 10, 20], [(0, 10), (10, 20)])
    assert (scale.breaks, scale(5), scale(20)) == ([], 25, 100)


def test_a_long_wait_becomes_a_break_with_its_length() -> None:
    drawn = line(
        bar("a:1", 0, 1), bar("pay:1", 1, 11_521, "event", "received"), bar("b:1", 11_521, 11_523), until=11_523
    )
    [gap] = drawn.gaps
    assert (gap.seconds, gap.begin, gap.has_label) == (11_520, at(1), True)
    first, _, last = (row.segments[0] for row in drawn.rows)
    assert last.width == pytest.approx(2 * first.width, rel=1e-3), "what is left is to scale"
    assert first.width > 25
    assert (drawn.is_squeezed, drawn.drawn_seconds) == (True, 3)
    whole = line(bar("a:1", 0, 1), bar("b:1", 11_521, 11_523), until=11_523, is_squeezed=False)
    assert (whole.gaps, whole.is_squeezed, whole.can_squeeze) == ([], False, True)


@pytest.mark.parametrize(
    ("edges", "busy"),
    [
        ([0, 10, 10.5, 20], [(0, 10), (10.5, 20)]),  # a short pause
        ([0, 86_400, 86_401], [(0, 86_400), (86_400, 86_401)]),  # something runs all the time
        ([0, 100], []),  # nothing but waiting
    ],
)
def test_what_runs_or_is_short_is_not_squeezed(edges: list[float], busy: list[tuple[float, float]]) -> None:
    assert squeeze(edges[0], edges[-1], edges, busy).breaks == []


def test_a_wait_beside_work_is_not_idle() -> None:
    assert idle([0, 40, 100], [(0, 100)]) == []
    assert idle([0, 40, 100], [(0, 40)]) == [(40, 100)]


def test_squeezing_goes_on_until_nothing_is_long() -> None:
    edges = [0, 1, 1001, 1002, 1042, 1043, 1044]
    scale = squeeze(0, 1044, edges, [(0, 1), (1001, 1002), (1042, 1043), (1043, 1044)])
    assert [one.seconds for one in scale.breaks] == [1000, 40]


def test_rests_between_attempts_are_squeezed() -> None:
    tries = [Attempt(f"attempt {n}", "failed", at(b), at(e), n, "", True) for n, b, e in ((1, 0, 1), (2, 61, 62))]
    one = Bar(
        "a:1", "activity", "completed", at(0), at(183), 3, attempts=[*tries, Attempt("3", "", at(182), at(183), 3)]
    )
    drawn = line(one, until=183)
    assert len(drawn.gaps) == 2
    assert [s.look for s in drawn.rows[0].segments] == ["try", "rest", "try", "rest", "run"]
    assert drawn.rows[0].tries == 3


MOMENTS = st.lists(st.floats(0, 1e6, allow_nan=False), min_size=2, max_size=30)


@settings(max_examples=60, deadline=None)
@given(MOMENTS, st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e4)), max_size=10))
def test_a_scale_never_falls(edges: list[float], runs: list[tuple[float, float]]) -> None:
    begin, end = min(edges), max(edges)
    scale = squeeze(begin, end, edges, [(a, a + length) for a, length in runs])
    places = [scale(moment) for moment in sorted([*edges, *(begin + (end - begin) * i / 50 for i in range(51))])]
    assert places == sorted(places)
    assert (places[0], scale(end + 1)) == (0, 100)
    assert sum(one.width for one in scale.breaks) <= TOGETHER + 1e-6
    for one in scale.breaks:
        assert one.width < 100 * one.seconds / scale.drawn_seconds, "it became narrower"
    marks = [x for x, _ in ticks(scale)]
    assert marks == sorted(marks)
    assert all(0 <= x <= 100 for x in marks)


def test_ticks_are_at_round_moments() -> None:
    assert [moment for _, moment in ticks(linear(3, 63))] == [3, 10, 20, 30, 40, 50]


# --- folding ----------------------------------------------------------------------------------------------------------
def test_loops_are_folded_by_their_period() -> None:
    assert folds(list("aaaaaaaa")) == [Fold(0, 1, 8)]
    assert folds(list("xabababab")) == [Fold(0), Fold(1, 2, 4)]
    assert folds(list("abcdabcdabcd")) == [Fold(0, 4, 3)]
    assert [fold.times for fold in folds(list("abcdeabcdeabcde"))] == [1] * 15, "too long a loop"
    assert [fold.times for fold in folds(list("aaaa"))] == [1] * 4, "that saves too little"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["a", "b", None]), max_size=40))
def test_folds_cover_everything_once(keys: list[str | None]) -> None:
    found = folds(keys)
    assert [fold.first for fold in found] == [0, *(fold.end for fold in found)][: len(found)]
    assert (found[-1].end if found else 0) == len(keys)
    for fold in found:
        part = keys[fold.first : fold.end]
        assert fold.times == 1 or (None not in part and part == part[: fold.period] * fold.times)


def test_repeats_are_one_row_with_all_of_them_below() -> None:
    drawn = line(*(bar(f"tick:{i}", i, i + 0.5) for i in range(400)), until=400)
    [row] = drawn.rows
    assert (row.name, len(row.members), row.lanes) == ("tick", 400, 1)
    assert row.seconds == pytest.approx(200)
    assert row.members[7].bar.label == "tick:7"


def test_a_loop_of_two_is_two_rows() -> None:
    bars = [bar(f"poll:{i}", 2 * i, 2 * i + 1) for i in range(9)]
    bars += [bar(f"sleep:{i}@2", 2 * i + 1, 2 * i + 2, "timer", "fired") for i in range(9)]
    assert [(row.name, len(row.members), row.group) for row in line(*bars, until=18).rows] == [
        ("poll", 9, 1),
        ("sleep", 9, 1),
    ]


@pytest.mark.parametrize(
    "odd",
    [
        bar("a:5", 5, 6, outcome="failed"),
        bar("a:5", 5, 6, outcome="withdrawn"),
        bar("a:5", 5, None),
    ],
)
def test_what_failed_or_is_open_is_never_folded(odd: Bar) -> None:
    bars = [bar(f"a:{i}", i, i + 1) for i in range(11) if i != 5]
    counts = [len(row.members) or 1 for row in line(*bars, odd, until=11).rows]
    assert counts == [5, 1, 5]


def test_what_is_undone_or_has_rows_below_it_is_never_folded() -> None:
    bars = [bar(f"a:{i}", i, i + 1) for i in range(11)]
    undo = Bar("undo a:5:1", "activity", "completed", at(11), at(12), 20, undoes="a:5")
    undone = line(*bars, undo, until=12)
    assert [len(row.members) or 1 for row in undone.rows] == [5, 1, 5]
    assert [s.look for s in undone.rows[1].segments] == ["run", "link", "undo"]
    nested = line(*bars, until=12, below={"a:5": [bar("b:1", 5, 6)], "unknown": [bar("c:1", 5, 6)]})
    assert [(row.name, row.depth) for row in nested.rows] == [("a", 0), ("a:5", 0), ("b:1", 1), ("a", 0)]


def test_retried_ones_are_folded_and_counted() -> None:
    tries = [
        Attempt("attempt 1", "failed", at(5), at(5.2), 3, "no", True),
        Attempt("2", "completed", at(5.5), at(6), 4),
    ]
    bars = [bar(f"a:{i}", i, i + 1) for i in range(10)]
    bars[5] = Bar("a:5", "activity", "completed", at(5), at(6), 4, attempts=tries)
    [row] = line(*bars, until=10).rows
    assert (len(row.members), row.retried, row.lanes) == (10, 1, 1)
    assert "try" in {s.look for s in row.segments}


def test_what_overlaps_is_stacked() -> None:
    [row] = line(*(bar(f"pack:{i}", 0, 10 + i, "child") for i in range(9)), until=20).rows
    assert (row.lanes, {s.lane for s in row.segments}) == (LANES, set(range(LANES)))


def test_repeats_too_close_to_be_told_apart_are_drawn_as_one() -> None:
    [row] = line(*(bar(f"tick:{i}", i, i + 0.99) for i in range(5000)), until=5000).rows
    assert len(row.segments) < 1000
    assert sum(s.count for s in row.segments) == 5000


def test_five_hundred_entries_are_laid_out_in_no_time() -> None:
    bars = [bar(f"step-{i % 7}:{i}", i * 3, i * 3 + 1, "event" if i % 5 == 0 else "activity") for i in range(500)]
    took = []
    for _ in range(5):
        begin = time.process_time()
        line(*bars, until=1500)
        took.append(time.process_time() - begin)
    assert min(took) < 0.02
