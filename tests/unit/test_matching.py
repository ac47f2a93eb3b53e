"""Matching: what a filter accepts, and that the hash finds exactly that."""

from __future__ import annotations

import json
import timeit
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Context, Decimal, localcontext
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from romancy.core.filters import MAX_ANCHORS, NO_FILTER, Filter, event_anchors, event_key
from romancy.core.strict_json import parse_json
from romancy.errors import InvalidEvent

BIG = 2**53
LONG = Decimal("1" + "0" * 4999 + "1")


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


def fits(where: dict[Any, Any], raw: str) -> bool:
    """Whether the data fits, asserting that index and comparison say the same."""
    narrowed, data = Filter.build(where=where), parse_json(raw.encode())
    accepted = narrowed.accepts(None, "s", data)
    assert (event_key(narrowed.fields, None, "s", data) == narrowed.key) is accepted
    assert (narrowed.nearest(None, "s", data) == []) is accepted
    return accepted


@pytest.mark.parametrize(
    ("where", "raw"),
    [
        ({"x": 7}, '{"x": 7}'),
        ({"x": 7}, '{"x": 7.0}'),
        ({"x": 7}, '{"x": 7e0}'),
        ({"x": 7}, '{"x": 700E-2}'),
        ({"x": 700}, '{"x": 7e2}'),
        ({"x": 700}, '{"x": 700}'),
        ({"x": 0}, '{"x": -0}'),
        ({"x": 0}, '{"x": -0.0}'),
        ({"x": 0}, '{"x": 0e99999999999999999999}'),
        ({"x": -7}, '{"x": -7.00}'),
        ({"x": BIG + 1}, f'{{"x": {BIG + 1}}}'),
        ({"x": 10**400}, '{"x": 1e400}'),
        ({"x": LONG}, '{"x": 1' + "0" * 4999 + "1}"),
        ({"x": Decimal("1e999999999")}, '{"x": 10e999999998}'),
        ({"x": Decimal("1.50")}, '{"x": 1.5}'),
        ({"x": Decimal("0." + "1" * 60)}, '{"x": 0.' + "1" * 60 + "}"),
        ({"x": None}, '{"x": null}'),
        ({"x": True}, '{"x": true}'),
        ({"x": "é"}, '{"x": "\\u00e9"}'),
        ({"x": "\U0001f600"}, '{"x": "\\ud83d\\ude00"}'),
        ({"x": ""}, '{"x": ""}'),
        ({"x": "\0"}, '{"x": "\\u0000"}'),
        ({"order.id": 7}, '{"order": {"id": 7}}'),
        ({("order.id",): 7}, '{"order.id": 7}'),
        ({("items", 1, "sku"): "b"}, '{"items": [{"sku": "a"}, {"sku": "b"}]}'),
        ({(0,): 1}, "[1]"),
        ({("",): 1}, '{"": 1}'),
        ({"a": 1, "b": 2}, '{"b": 2, "a": 1}'),
        ({"x": Colour.RED}, '{"x": "red"}'),
        ({"x": Level.HIGH}, '{"x": 3}'),
        ({"x": UUID(int=5)}, '{"x": "00000000-0000-0000-0000-000000000005"}'),
        ({"x": date(2026, 1, 2)}, '{"x": "2026-01-02"}'),
        ({"x": datetime(2026, 1, 2, tzinfo=UTC)}, '{"x": "2026-01-02T00:00:00+00:00"}'),
    ],
)
def test_matches(where: dict[Any, Any], raw: str) -> None:
    assert fits(where, raw)


@pytest.mark.parametrize(
    ("where", "raw"),
    [
        ({"x": 7}, '{"x": "7"}'),
        ({"x": 1}, '{"x": true}'),
        ({"x": 0}, '{"x": false}'),
        ({"x": True}, '{"x": 1}'),
        ({"x": "true"}, '{"x": true}'),
        ({"x": None}, "{}"),
        ({"x": None}, '{"x": "null"}'),
        ({"x": None}, '{"x": 0}'),
        ({"x": 0}, '{"x": null}'),
        ({"x": ""}, '{"x": null}'),
        ({"x": BIG}, f'{{"x": {BIG + 1}}}'),
        ({"x": BIG}, f'{{"x": {BIG}.0000000000000000000000000000000000000001}}'),
        ({"x": 1}, '{"x": 1e999999999}'),
        ({"x": 10**400}, '{"x": 1e401}'),
        ({"x": 7}, '{"x": -7}'),
        ({"x": 7}, '{"x": 70}'),
        ({"x": "é"}, '{"x": "e\\u0301"}'),
        ({"x": "a"}, '{"x": "A"}'),
        ({"x": "a"}, '{"x": "a "}'),
        ({"order.id": 7}, '{"order.id": 7}'),
        ({("order.id",): 7}, '{"order": {"id": 7}}'),
        ({"items.0": 7}, '{"items": [7]}'),
        ({("items", 0): 7}, '{"items": {"0": 7}}'),
        ({("items", 1): 7}, '{"items": [7]}'),
        ({"x.y": 7}, '{"x": 7}'),
        ({"x.y": 7}, '{"x": "y"}'),
        ({"x": 7}, '{"x": {"x": 7}}'),
        ({"x": 7}, '{"x": [7]}'),
        ({"x": 7}, "[7]"),
        ({"x": 7}, "7"),
        ({"x": 7}, "null"),
        ({"a": 1, "b": 2}, '{"a": 1}'),
        ({"a": 1, "b": 2}, '{"a": 2, "b": 1}'),
    ],
)
def test_does_not_match(where: dict[Any, Any], raw: str) -> None:
    assert not fits(where, raw)


def test_data_that_is_not_json_has_no_fields() -> None:
    narrowed = Filter.build(where={"x": None})
    assert not narrowed.accepts(None, "s", b'{"x": null}')
    assert event_key(narrowed.fields, None, "s", b'{"x": null}') is None


def test_plain_floats_in_data_count_by_their_text() -> None:
    narrowed = Filter.build(where={"x": Decimal("0.1")})
    assert narrowed.accepts(None, "s", {"x": 0.1})
    assert event_key(narrowed.fields, None, "s", {"x": float("nan")}) is None


def test_subject_and_source() -> None:
    both = Filter.build(subject="a", source="s")
    assert both.accepts("a", "s", None)
    assert not both.accepts(None, "s", None)
    assert not both.accepts("a", "t", None)
    assert event_key(both.fields, "a", "s", None) == both.key
    assert event_key(both.fields, "s", "a", None) != both.key
    assert event_key(both.fields, None, "s", None) is None


def test_the_attribute_is_not_the_field_of_that_name() -> None:
    assert Filter.build(subject="a").fields != Filter.build(where={"subject": "a"}).fields


def test_nothing_narrowed() -> None:
    assert Filter.build() == Filter.build(where={}) == NO_FILTER
    assert (NO_FILTER.fields, NO_FILTER.key, NO_FILTER.where) == ("", b"", ())
    assert NO_FILTER.accepts(None, "s", b"\x00")
    assert event_key("", None, "s", None) == b""


def test_the_shape_does_not_depend_on_order_or_spelling() -> None:
    one = Filter.build(where={"b": 1, "a.c": 2, ("a", 0): 3})
    two = Filter.build(where={("a", 0): 3, ("a", "c"): Decimal("2.0"), "b": 1})
    assert one == two
    assert hash(one) == hash(two)
    assert len(one.key) == 16
    assert [path for path, _ in one.where] == [("a", "c"), ("a", 0), ("b",)]
    assert one.fields == '[["a","c"],["a",0],["b"]]'
    assert Filter.build(subject="x", source="y", where={"é": 1}).fields == '["subject","source",["\\u00e9"]]'


def test_values_do_not_run_into_each_other() -> None:
    assert Filter.build(where={"a": "x", "b": "yz"}).key != Filter.build(where={"a": "xy", "b": "z"}).key


def test_the_key_is_stored_so_it_must_never_change() -> None:
    assert Filter.build(where={"order.id": 7}).key.hex() == "817d0a235d256cac11ed78ac8644d7c4"
    whole = Filter.build("a", "s", {"n": None, "t": True, "x": "é", "d": Decimal("-1.5")})
    assert whole.key.hex() == "796cd9f848556e021f4dfc1450c7621f"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"": 1}, "empty"),
        ({(): 1}, "empty"),
        ({"a..b": 1}, "empty"),
        ({".a": 1}, "empty"),
        ({"a": 1.5}, "use int, str, bool or None"),
        ({"a": 7.0}, "use int, str, bool or None"),
        ({"a": float("nan")}, "NaN"),
        ({"a": float("inf")}, "infin"),
        ({"a": Decimal("NaN")}, "NaN"),
        ({"a": Decimal("-Infinity")}, "infin"),
        ({"a": [1]}, "list"),
        ({"a": {}}, "dict"),
        ({"a": b"x"}, "bytes"),
        ({"a": "\ud800"}, "surrogate"),
        ({"\ud800": 1}, "surrogate"),
        ({("a", -1): 1}, "negative"),
        ({("a", True): 1}, "bool"),
        ({("a", 1.0): 1}, "float"),
        ({7: 1}, "int"),
        ({"a.b": 1, ("a", "b"): 1}, "twice"),
    ],
)
def test_what_cannot_be_matched_is_refused(where: dict[Any, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Filter.build(where=where)


def test_subject_and_source_are_text() -> None:
    with pytest.raises(ValueError, match="subject"):
        Filter.build(subject=7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="surrogate"):
        Filter.build(source="\udfff")


@pytest.mark.parametrize(
    ("narrowed", "data", "said"),
    [
        (Filter.build(where={"order.id": 7}), {"order": {"id": 8}}, ["where order.id = 7 but got 8"]),
        (Filter.build(where={"x": 7}), {"x": "7"}, ["where x = 7 but got '7'"]),
        (Filter.build(where={"x": Decimal("1.5")}), {"x": Decimal("2.50")}, ["where x = 1.5 but got 2.50"]),
        (Filter.build(where={"x": 1}), {"y": 1}, ["where x = 1 but the field is absent"]),
        (Filter.build(where={"x": 1}), {"x": {}}, ["where x = 1 but got an object"]),
        (Filter.build(where={"x": 1}), {"x": []}, ["where x = 1 but got an array"]),
        (Filter.build(where={"x": 1}), b"\x00", ["where x = 1 but the data is not JSON"]),
        (Filter.build(where={("a.b", 0): 1}), {"a.b": [2]}, ["where ('a.b', 0) = 1 but got 2"]),
        (Filter.build(subject="a"), None, ["subject = 'a' but got None"]),
        (Filter.build(source="t", where={"x": 1}), {"x": 1}, ["source = 't' but got 's'"]),
        (
            Filter.build(where={"x": 1, "y": 1}),
            {"x": 2},
            ["where x = 1 but got 2", "where y = 1 but the field is absent"],
        ),
    ],
)
def test_says_what_did_not_match(narrowed: Filter, data: Any, said: list[str]) -> None:
    assert narrowed.nearest(None, "s", data) == said


def test_what_came_is_shown_in_short() -> None:
    (said,) = Filter.build(where={"x": 1}).nearest(None, "s", {"x": "a" * 100_000})
    assert len(said) < 120


SCALARS = st.one_of(
    st.sampled_from([0, 1, 7, -7, 70, BIG, BIG + 1, 10**400, True, False, None, "", "7", "1", "true", "null", "é"]),
    st.integers(),
    st.text(),
    st.decimals(allow_nan=False, allow_infinity=False),
)
STEPS = st.one_of(st.sampled_from(["a", "b", "a.b", ""]), st.integers(0, 2))
PATHS = st.lists(STEPS, min_size=1, max_size=3).map(tuple)
WHERES = st.dictionaries(PATHS, SCALARS, max_size=3)
ATTRIBUTES = st.one_of(st.none(), st.sampled_from(["", "a", "s"]))
NUMBERS = st.one_of(
    st.sampled_from(["0", "-0", "-0.0", "1", "1.0", "10e-1", "7", "7e0", "0.7E+1", "70", "7e1", "1e400", str(BIG + 1)]),
    st.integers().map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda d: f"{d:E}"),
)
LEAVES = st.one_of(
    NUMBERS, st.sampled_from(["true", "false", "null"]), SCALARS.filter(lambda s: isinstance(s, str)).map(json.dumps)
)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"),
        st.dictionaries(st.sampled_from(["a", "b", "a.b", ""]), inner, max_size=3).map(
            lambda items: "{" + ", ".join(f"{json.dumps(k)}: {v}" for k, v in items.items()) + "}"
        ),
    ),
    max_leaves=12,
)


def same(wanted: Any, came: Any) -> bool:
    """JSON equality written another way, as the oracle."""
    number = (int, Decimal)
    if isinstance(wanted, bool) or isinstance(came, bool) or wanted is None or came is None:
        return wanted is came
    if isinstance(wanted, number) and isinstance(came, number):
        return Fraction(wanted) == Fraction(came)
    return type(wanted) is type(came) and bool(wanted == came)


def found(data: Any, path: tuple[str | int, ...]) -> list[Any]:
    for step in path:
        named = isinstance(step, str) and isinstance(data, dict) and step in data
        counted = isinstance(step, int) and isinstance(data, list) and step < len(data)
        if not named and not counted:
            return []
        data = data[step]
    return [data]


@given(ATTRIBUTES, ATTRIBUTES, WHERES, ATTRIBUTES, st.sampled_from(["", "a", "s"]), DOCUMENTS)
@example(None, None, {("a",): 7}, None, "s", '{"a": 7.0}')
@example("a", "s", {("a",): None}, "a", "s", '{"a": null}')
def test_the_key_finds_exactly_what_is_accepted(
    subject: str | None, source: str | None, where: Any, came_subject: str | None, came_source: str, raw: str
) -> None:
    narrowed, data = Filter.build(subject, source, where), parse_json(raw.encode())
    accepted = narrowed.accepts(came_subject, came_source, data)
    assert (event_key(narrowed.fields, came_subject, came_source, data) == narrowed.key) is accepted
    assert (narrowed.nearest(came_subject, came_source, data) == []) is accepted
    expected = subject in (None, came_subject) and source in (None, came_source)
    assert accepted is (expected and all(any(same(v, came) for came in found(data, p)) for p, v in where.items()))


@given(ATTRIBUTES, ATTRIBUTES, WHERES, st.lists(WHERES, max_size=2), ATTRIBUTES, st.sampled_from(["", "s"]), DOCUMENTS)
@example(None, None, {("a",): 7, ("b",): 1}, [{("a",): 1}], None, "s", '{"a": 7.0, "b": 1}')
def test_the_anchor_finds_whatever_is_accepted(
    subject: str | None, source: str | None, where: Any, others: Any, came_subject: str | None, came: str, raw: str
) -> None:
    narrowed, data = Filter.build(subject, source, where), parse_json(raw.encode())
    if narrowed.fields and narrowed.accepts(came_subject, came, data):
        shapes = [Filter.build(where=other).fields for other in others if other]
        assert narrowed.anchor(shapes) in (event_anchors(came_subject, came, data) or ())


def test_the_anchor_is_a_field_that_no_shape_looks_at() -> None:
    narrowed = Filter.build("S", where={"kind": "a", "order-7": 1, "zone": 2})
    assert narrowed.anchor(['[["kind"]]']) == Filter.build(where={"order-7": 1}).anchor([])
    assert narrowed.anchor(['[["kind"],["order-7"]]']) == Filter.build(where={"zone": 2}).anchor([])
    assert narrowed.anchor(['[["kind"],["order-7"],["zone"]]']) == Filter.build(where={"kind": "a"}).anchor([])
    assert Filter.build("S", "s").anchor([]) in (event_anchors("S", "other", None) or ())


def test_anchors_are_stored_so_they_must_never_change() -> None:
    assert Filter.build(where={"order.id": 7}).anchor([]).hex() == "2404d75a0da64338635c75c57a0e6883"
    assert Filter.build(source="s").anchor([]).hex() == "9d4765ee6b0cd0a8143167e9110e9f18"


def test_an_event_of_very_many_values_has_no_anchors() -> None:
    assert event_anchors(None, "s", list(range(MAX_ANCHORS + 1))) is None
    assert len(event_anchors(None, "s", list(range(MAX_ANCHORS))) or ()) == MAX_ANCHORS + 1


@given(SCALARS, SCALARS)
def test_equal_keys_mean_equal_values(one: Any, two: Any) -> None:
    assert (Filter.build(where={"x": one}).key == Filter.build(where={"x": two}).key) is same(one, two)


@given(ATTRIBUTES, ATTRIBUTES, WHERES)
def test_round_trip(subject: str | None, source: str | None, where: Any) -> None:
    narrowed = Filter.build(subject, source, where)
    back = Filter.from_json(json.loads(json.dumps(narrowed.to_json())))
    assert back == narrowed
    assert [type(value) for _, value in back.where] == [type(value) for _, value in narrowed.where]


@pytest.mark.parametrize("value", [LONG, Decimal("1e999999999"), Decimal("-0.10"), "\0", True, None])
def test_round_trip_of_odd_values(value: Any) -> None:
    narrowed = Filter.build(where={("a", 0): value})
    assert Filter.from_json(json.loads(json.dumps(narrowed.to_json()))) == narrowed
    assert NO_FILTER.to_json() == {}
    assert Filter.from_json({}) == NO_FILTER


def test_ints_of_any_length() -> None:
    narrowed = Filter.build(where={"x": 10**5000 + 1})
    assert narrowed == Filter.build(where={"x": LONG})
    assert narrowed.accepts(None, "s", {"x": 10**5000 + 1})
    assert not narrowed.accepts(None, "s", {"x": 10**5000})


def test_the_users_decimal_context_changes_nothing() -> None:
    where = {"x": Decimal("1.23456789012345678901234567890123456789")}
    expected = Filter.build(where=where).key
    with localcontext(Context(prec=3, traps=[])):
        narrowed = Filter.build(where=where)
        data = parse_json(b'{"x": 1.234567890123456789012345678901234567890}')
        assert narrowed.key == expected == event_key(narrowed.fields, None, "s", data)
        with pytest.raises(InvalidEvent):
            parse_json(b"1e9999999999999999999")


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b' {"a": [1, 2.50, "x", true, null]} ', {"a": [1, Decimal("2.50"), "x", True, None]}),
        (b"1e400", Decimal("1e400")),
        (b"9007199254740993", BIG + 1),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\\\\ud800"', "\\ud800"),
        (b'{"a": {"x": 1}, "b": {"x": 1}}', {"a": {"x": 1}, "b": {"x": 1}}),
        (b'"[[[["', "[[[["),
        (b'"' + b'\\"' * 9 + b"[" * 500 + b'"', '"' * 9 + "[" * 500),
        (b"[" * 200 + b"]" * 200, None),
        (b"[" + b"[]," * 1000 + b"[]]", None),
    ],
)
def test_reads_json_exactly(raw: bytes, value: Any) -> None:
    read = parse_json(raw)
    assert value is None or (read == value and repr(read) == repr(value))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"{'a': 1}", "JSON"),
        (b'"a\nb"', "JSON"),
        (b"01", "JSON"),
        (b"1 2", "JSON"),
        (b'{"a": 1, "a": 2}', "'a' twice"),
        (b'[{"a": {"b": 1, "\\u0062": 2}}]', "'b' twice"),
        (b"NaN", "NaN"),
        (b"[Infinity]", "Infinity"),
        (b"[-Infinity]", "-Infinity"),
        (b'"\\ud800"', "surrogate"),
        (b'{"\\uDFFF": 1}', "surrogate"),
        (b'[["\\ude00\\ud83d"]]', "surrogate"),
        (b'"\xff"', "UTF-8"),
        (b'"\xed\xa0\x80"', "UTF-8"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ('{"a": 1}'.encode("utf-16"), "UTF-8"),
        (b"[" * 201 + b"]" * 201, "200"),
        (b"[" * 100_000, "200"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "200"),
        (b"1e9999999999999999999", "number"),
        (b"1e-9999999999999999999", "number"),
    ],
)
def test_refuses_what_is_not_strict_json(raw: bytes, message: str) -> None:
    with pytest.raises(InvalidEvent, match=message) as caught:
        parse_json(raw)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "raw",
    [
        b'"' + b'\\"' * 500_000,
        b"1" * 500_000,
        b"[" + b"{}," * 200_000 + b"{}]",
        b"1e" + b"9" * 500_000,
        b"0." + b"1" * 500_000,
    ],
    ids=["quotes", "digits", "brackets", "exponent", "fraction"],
)
def test_hostile_input_costs_no_more_than_its_length(raw: bytes) -> None:
    def read() -> None:
        with suppress(InvalidEvent):
            event_key(narrowed.fields, None, "s", {"x": parse_json(raw)})

    narrowed = Filter.build(where={"x": 1})
    assert min(timeit.repeat(read, number=1, repeat=2)) < 1.5


def test_the_hot_path_is_quick() -> None:
    narrowed = Filter.build(subject="a", where={"order.id": 7, "kind": "x"})
    data = {"order": {"id": 7}, "kind": "x"}
    took = min(timeit.repeat(lambda: event_key(narrowed.fields, "a", "s", data), number=2000, repeat=5)) / 2000
    assert took < 50e-6  # a few microseconds on a quiet machine


def test_a_name_that_comes_twice_among_very_many_is_found_at_once() -> None:
    names = [f'"x{i}":1' for i in range(200_000)]
    raw = ("{" + ",".join([*names, names[-1]]) + "}").encode()
    with pytest.raises(InvalidEvent, match="'x199999' twice"):
        parse_json(raw)  # the suite's time limit is the assertion: looking each one up took hours
