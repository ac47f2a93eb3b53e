"""Bars, forms and source: what pages are made of, without a browser."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from romancy import WorkflowContext, workflow
from romancy.core.history import Entry, Kind
from romancy.core.model import to_us
from romancy.core.replay import Opened
from romancy.records import Wait
from romancy.storage.catalog import ShownEntry
from romancy.viewer.forms import fields_of, schema_of, skeleton, source_of
from romancy.viewer.spans import bars_of
from romancy.viewer.timeline import MOST, Timeline, draw
from tests.viewer.conftest import Order, buy, payment

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def entry(n: int, kind: Kind, op: str, seconds: float) -> ShownEntry:
    return ShownEntry(Entry(n, kind, op, to_us(at(seconds))), 0, 0)


def to_scale(*given: Any) -> Timeline:
    return draw(*given, is_squeezed=False)


def wait(op: str, since: float) -> Wait:
    return Wait("i", op, "event", ("go",), {}, at(since), None, "")


def test_bars_lie_in_proportion_to_time() -> None:
    opened = {"a:1": Opened("activity", to_us(at(0)), to_us(at(25))), "b:1": Opened("activity", to_us(at(0)))}
    entries = [entry(1, Kind.ACTIVITY_COMPLETED, "a:1", 25), entry(2, Kind.ACTIVITY_FAILED, "b:1", 50)]
    line = to_scale(bars_of(entries, [wait("go:1", 50)], opened, T0), T0, at(100))
    shown = [(r.bar.label, r.bar.outcome, r.segments[0].x, r.segments[0].width) for r in line.rows]
    assert shown == [("a:1", "completed", 0, 25), ("b:1", "failed", 0, 50), ("go:1", "open", 50, 50)]
    assert "guess" not in line.looks


def test_without_the_code_a_beginning_is_guessed_and_said_so() -> None:
    entries = [entry(1, Kind.ACTIVITY_COMPLETED, "a:1", 25), entry(2, Kind.TIMER_FIRED, "sleep:1", 50)]
    line = to_scale(bars_of(entries, [], None, T0), T0, at(50))
    assert [(r.bar.label, r.segments[0].x, r.segments[0].width) for r in line.rows] == [
        ("a:1", 0, 50),
        ("sleep:1", 50, 50),
    ]
    assert "guess" in line.looks


def test_what_was_given_up_is_shown_as_withdrawn() -> None:
    opened = {"timer:1": Opened("timer", to_us(at(10)), to_us(at(20))), "go:1": Opened("event", to_us(at(10)))}
    line = to_scale(bars_of([entry(1, Kind.EVENT_RECEIVED, "go:1", 20)], [], opened, T0), T0, at(20))
    assert {(bar.label, bar.outcome) for bar in line.bars} == {("timer:1", "withdrawn"), ("go:1", "received")}


def test_a_child_that_outlives_its_parent_is_not_withdrawn() -> None:
    opened = {"kid:1": Opened("child", to_us(at(0)), to_us(at(20)), goes_on=True)}
    [bar] = to_scale(bars_of([], [], opened, T0), T0, at(20)).bars
    assert (bar.label, bar.outcome) == ("kid:1", "goes on by itself")


def test_of_very_many_rows_the_newest_are_drawn_and_it_is_said() -> None:
    entries = [entry(n, Kind.ACTIVITY_COMPLETED, f"step-{n}:1", n) for n in range(1, 1001)]
    line = to_scale(bars_of(entries, [], None, T0), T0, at(1000))
    assert (len(line.rows), line.left_out) == (MOST, 1000 - MOST)
    assert line.rows[0].segments[0].x == 0
    assert line.rows[-1].bar.label == "step-1000:1"


def test_an_instance_of_no_length_can_be_drawn() -> None:
    line = draw(bars_of([entry(1, Kind.EVENT_SENT, "send:1", 0)], [], None, T0), T0, T0)
    assert [(s.x, s.width) for row in line.rows for s in row.segments] == [(0, 0)]


def test_a_change_is_drawn_as_a_mark() -> None:
    (bar,) = bars_of([entry(1, Kind.PATCHED, "fraud-check", 0)], [], None, T0)
    assert (bar.label, bar.kind, bar.outcome) == ("fraud-check", "mark", "patched")


def test_a_form_knows_types_defaults_and_what_is_needed() -> None:
    order, note = fields_of(buy._definition)
    assert (order["required"], note["required"], note["default"]) == (True, False, "")
    kinds = order["schema"]["properties"]
    assert kinds["count"]["type"] == "integer"
    assert kinds["when"]["anyOf"][0]["format"] == "date"
    assert order["schema"]["$defs"]["Size"]["enum"] == ["small", "large"]


def test_a_type_without_schema_is_asked_for_as_json() -> None:
    @workflow
    async def odd(ctx: WorkflowContext, value: Any, *rest: int, **more: str) -> None: ...

    value, rest, more = fields_of(odd._definition)
    assert value["schema"] == {}
    assert rest["schema"]["items"] == {"type": "integer"}
    assert (rest["required"], more["required"]) == (False, False)


def test_the_source_marks_only_lines_of_its_own_file() -> None:
    lines, first = payment.fn.__code__.co_filename, payment.fn.__code__.co_firstlineno
    source = source_of(payment._definition, [f"{lines}:{first + 3} in payment", "/etc/passwd:1 in x", "nonsense"])
    assert source is not None
    assert set(source.marked) == {first + 3}
    assert source.lines[1][1].startswith("async def payment")
    text = source.lines[3][1]
    assert source_of(payment._definition, [], (first + 3, text.strip())).failed == first + 3  # type: ignore[union-attr]
    assert source_of(payment._definition, [], (first + 3, "changed since")).failed is None  # type: ignore[union-attr]
    made: dict[str, Any] = {}
    exec("async def made(ctx): pass", made)
    assert source_of(workflow(made["made"])._definition, []) is None


def test_a_skeleton_has_what_is_needed_and_no_more() -> None:
    found = skeleton(schema_of(Order))
    assert found == {
        "sku": "",
        "count": 0,
        "price": 0,
        "size": "small",
        "to": {"street": "", "zip": ""},
        "tags": [],
    }


@dataclass
class Tree:
    name: str
    kind: Literal["oak", "elm"]
    left: Tree
    right: Tree | None
    age: Annotated[int, Field(ge=3)] | str


def test_a_skeleton_ends_where_a_model_holds_itself() -> None:
    found = skeleton(schema_of(Tree))
    assert (found["name"], found["kind"], found["right"], found["age"]) == ("", "oak", None, 0)
    assert "left" in found["left"]
    assert len(str(found)) < 2000
    assert skeleton({}) is None
    assert skeleton({"type": "object"}) == {}


def test_an_undo_is_drawn_in_the_row_of_the_call_it_undoes() -> None:
    done = Kind.ACTIVITY_COMPLETED
    entries = [entry(1, done, "a:1", 25), entry(2, done, "undo a:1:1", 75), entry(3, done, "undo tell:1", 100)]
    opened = {
        "a:1": Opened("activity", to_us(at(0)), to_us(at(25))),
        "undo a:1:1": Opened("activity", to_us(at(50)), to_us(at(75))),
        "undo tell:1": Opened("activity", to_us(at(75)), to_us(at(100))),
    }
    line = to_scale(bars_of(entries, [], opened, T0), T0, at(100))
    assert [(row.bar.label, [(s.look, s.x, s.width) for s in row.segments]) for row in line.rows] == [
        ("a:1", [("run", 0, 25), ("link", 25, 25), ("undo", 50, 25)]),
        ("undo tell:1", [("run", 75, 25)]),  # by hand: it undoes no call that is known
    ]
