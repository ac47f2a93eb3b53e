"""Types as forms."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from romancy.core.forms import TICK, VALUE, NotAForm, fields_of, read_form


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Street(BaseModel):
    name: str
    number: int


@dataclass
class Everything:
    approved: bool
    amount: Decimal
    share: float
    count: Annotated[int, Field(ge=1, le=10)]
    note: Annotated[str, Field(max_length=100, title="A note", description="Short.")]
    colour: Colour
    size: Literal["S", "M"]
    on: date
    at: datetime
    hour: time
    tags: list[str]
    street: Street
    comment: Annotated[str, Field(max_length=1000)] | None = None
    urgent: bool | None = None


FULL = {
    "approved": "true", "amount": "1234.50", "share": "0.5", "count": "3", "note": "hi", "colour": '"blue"',
    "size": '"M"', "on": "2026-01-31", "at": "2026-01-31T18:30", "hour": "18:30", "tags": "a\r\nb\n\n",
    "street.name": "Main", "street.number": "7", "comment": "", "urgent": "",
}  # fmt: skip


def form(type: Any) -> list[Any]:
    return fields_of(TypeAdapter(type).json_schema())


def filled(type: Any, **values: str) -> tuple[Any, dict[str, str]]:
    return read_form(form(type), {name: [value] for name, value in values.items()})


def test_everything_a_form_can_have() -> None:
    answer, wrong = read_form(form(Everything), {name: [value] for name, value in FULL.items()})
    assert not wrong
    assert TypeAdapter(Everything).validate_python(answer) == Everything(
        True, Decimal("1234.50"), 0.5, 3, "hi", Colour.BLUE, "M", date(2026, 1, 31),
        datetime(2026, 1, 31, 18, 30, tzinfo=UTC), time(18, 30), ["a", "b"], Street(name="Main", number=7),
    )  # fmt: skip


def test_what_a_field_is() -> None:
    found = {field.name: field for field in form(Everything)}
    kinds = {name: field.kind for name, field in found.items()}
    assert kinds == {
        "approved": "choice", "amount": "decimal", "share": "number", "count": "integer", "note": "text",
        "colour": "choice", "size": "choice", "on": "date", "at": "datetime", "hour": "time", "tags": "lines",
        "street.name": "text", "street.number": "integer", "comment": "area", "urgent": "choice",
    }  # fmt: skip
    assert (found["note"].label, found["note"].help) == ("A note", "Short.")
    assert found["street.name"].group == "Street"
    assert [name for name, field in found.items() if not field.required] == ["comment", "urgent"]
    assert found["approved"].choices == [("true", "Yes"), ("false", "No")]


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("approved", "", "needed"),
        ("approved", "on", "Choose"),
        ("amount", "4.000,00", "without separators"),
        ("amount", "12,5", "without separators"),
        ("amount", "NaN", "a number"),
        ("amount", "1e400", "a number"),
        ("count", "0", "at least 1"),
        ("count", "11", "at most 10"),
        ("count", "2.5", "whole"),
        ("count", "٣", "a number"),
        ("note", "x" * 101, "at most 100"),
        ("colour", '"green"', "Choose"),
        ("on", "31.1.2026", "2026-01-31"),
        ("at", "soon", "2026-01-31T18:30"),
        ("street.number", "", "needed"),
    ],
)
def test_what_is_wrong_is_said_at_the_field(name: str, value: str, problem: str) -> None:
    _, wrong = read_form(form(Everything), {key: [text] for key, text in {**FULL, name: value}.items()})
    assert list(wrong) == [name]
    assert problem in wrong[name]


def test_a_field_that_was_sent_twice() -> None:
    _, wrong = read_form(form(Street), {"name": ["a", "b"], "number": ["1"]})
    assert wrong == {"name": "This was sent twice."}


def test_what_nobody_asked_for_is_left_out() -> None:
    assert filled(Street, name="a", number="1", admin="true") == ({"name": "a", "number": 1}, {})


def test_a_type_that_is_no_object() -> None:
    [field] = form(bool)
    assert (field.name, field.kind) == (VALUE, "choice")
    assert filled(bool, value="false") == (False, {})
    assert filled(bool)[1] == {VALUE: "This is needed."}


class Optional(BaseModel):
    comment: str = ""
    approved: bool = True


def test_an_empty_form_decides_nothing() -> None:
    """Something that follows links and sends forms must not be able to answer."""
    assert form(Optional)[-1].name == TICK
    assert filled(Optional)[1] == {TICK: "This is needed."}
    assert filled(Optional, **{TICK: "on"}) == ({}, {})


@pytest.mark.parametrize("type", [list[str], bool | None])
def test_an_only_field_that_can_be_empty_needs_the_box(type: Any) -> None:
    assert [field.name for field in form(type)] == [VALUE, TICK]
    assert filled(type)[1] == {TICK: "This is needed."}
    assert filled(type, garbage="x")[1] == {TICK: "This is needed."}
    answer, wrong = filled(type, **{TICK: "on"})
    assert not wrong
    assert answer == ([] if type == list[str] else None)


def test_lists_that_can_be_empty_need_the_box() -> None:
    @dataclass
    class Lists:
        tags: list[str]
        names: Annotated[list[str], Field(min_length=0)]

    assert form(Lists)[-1].name == TICK
    assert filled(Lists, **{TICK: "on"}) == ({"tags": [], "names": []}, {})


def test_a_list_that_can_not_be_empty_needs_no_box() -> None:
    type = Annotated[list[str], Field(min_length=1)]
    assert [field.name for field in form(type)] == [VALUE]
    assert "at least 1" in filled(type)[1][VALUE]


@dataclass
class Nullable:
    approved: bool
    note: str | None
    tags: list[str] | None
    amount: Decimal | None = None


def test_what_has_no_default_is_null_if_it_is_left_empty() -> None:
    answer, wrong = filled(Nullable, approved="true", note="", tags="")
    assert not wrong
    assert answer == {"approved": True, "note": None, "tags": None}
    assert TypeAdapter(Nullable).validate_python(answer) == Nullable(True, None, None)


@dataclass
class Extras:
    a: str = ""
    b: str = ""


@dataclass
class Nested:
    extras: Extras


@dataclass
class Grouped:
    approved: bool
    extras: Extras
    nested: Nested
    others: Extras = field(default_factory=lambda: Extras("x"))
    perhaps: Nested = field(default_factory=lambda: Nested(Extras("y")))


def test_a_group_that_is_left_empty() -> None:
    answer, wrong = filled(Grouped, approved="true")
    assert not wrong
    assert answer == {"approved": True, "extras": {}, "nested": {"extras": {}}}
    read = TypeAdapter(Grouped).validate_python(answer)
    assert read == Grouped(True, Extras(), Nested(Extras()))


class Deep(BaseModel):
    street: Street


class Deeper(BaseModel):
    deep: Deep


class Deepest(BaseModel):
    deeper: Deeper


class Endless(BaseModel):
    more: Endless | None = None


def test_groups_have_a_depth() -> None:
    assert [field.name for field in form(Deeper)] == ["deep.street.name", "deep.street.number"]
    with pytest.raises(NotAForm, match="nested too deeply"):
        form(Deepest)


@pytest.mark.parametrize("type", [int | str, dict[str, int], list[int], Endless, Any, bytes | None, list[Street]])
def test_types_that_are_no_form(type: Any) -> None:
    class Odd(BaseModel):
        value_of_it: type  # type: ignore[valid-type]

    for tried in (type, Odd):
        if tried is not Endless:
            with pytest.raises(NotAForm):
                form(tried)
