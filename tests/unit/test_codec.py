"""Values come back exactly as they were, or are refused."""

import inspect
import math
import os
import subprocess
import sys
import typing
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypeVar, Union
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
import typing_extensions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, computed_field

from romancy.core.codec import Codec
from romancy.errors import NotStorable


class Colour(Enum):
    RED = 1
    GREEN = "green"


class Size(StrEnum):
    SMALL = "s"
    LARGE = "l"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Line:
    sku: str
    weight: float
    digest: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    id: UUID
    lines: list[Line]
    tags: frozenset[str] = frozenset()
    parent: "Order | None" = None


T = TypeVar("T")


@dataclass
class Box(Generic[T]):
    inside: T


class Point(NamedTuple):
    x: float
    label: bytes = b""


class Basket(typing.TypedDict):
    when: datetime
    price: typing.NotRequired[Decimal]


class Nested(typing_extensions.TypedDict, total=False):
    colours: dict[Colour, set[Level]]


class Payment(BaseModel):
    amount: Decimal
    at: datetime
    payment_id: str = Field(alias="paymentId")
    secret: bytes = b""
    rate: float = 0.0
    kinds: set[Colour] = set()


class Forbidding(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    data: bytes
    other: str = Field(validation_alias="in", serialization_alias="out")
    nan: float

    @computed_field
    def size(self) -> int:
        return len(self.data)


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    x: int


class Tree(BaseModel):
    value: bytes
    children: "list[Tree]" = []


class Kind(Enum):
    DOG = "dog"
    CAT = 2


class Dog(BaseModel):
    kind: Literal[Kind.DOG]
    chip: bytes


class Cat(BaseModel):
    kind: Literal[Kind.CAT]


Pet = Annotated[Dog | Cat, Field(discriminator="kind")]


@dataclass
class Computed:
    width: int
    area: int = field(init=False)

    def __post_init__(self) -> None:
        self.area = self.width**2


BERLIN = ZoneInfo("Europe/Berlin")
MOMENT = datetime(2024, 2, 29, 23, 59, 59, 1, tzinfo=UTC)
ID = UUID("12345678-1234-5678-1234-567812345678")
ORDER = Order(id=ID, lines=[Line("a", math.inf, b"\xff"), Line("b", -0.0)], tags=frozenset({"x", "y"}))


def coded(annotation: Any, value: Any) -> Any:
    codec = Codec(annotation, "it")
    raw = codec.encode(value)
    assert type(raw) is bytes
    raw.decode("utf-8")
    assert Codec(annotation, "it").encode(value) == raw
    return codec.decode(raw)


def assert_exact(value: Any, back: Any) -> None:
    """Independent of the codec's own comparing: a repr shows types, signs, zeros, zones and NaN."""
    assert type(value) is type(back)
    if isinstance(value, (set, frozenset)):
        assert sorted(map(repr, typing.cast(set[Any], value))) == sorted(map(repr, back))
    else:
        assert repr(value) == repr(back)


# fmt: off
EXACT: list[tuple[Any, Any]] = [
    *[(int, v) for v in (0, -1, 2**63, 2**4000, -(2**4000))],
    *[(float, v) for v in (0.1, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan, 1e22, 5.0)],
    *[(str, v) for v in ("", "\x00", "\U0001f600", "  ", '"\\/', "é\u0301", "\ufeff", "null", "1")],
    *[(bytes, v) for v in (b"", b"\x00\xff", bytes(range(256)))],
    *[(bool, v) for v in (True, False)],
    (None, None), (type(None), None), (complex, 1 - 2j),
    *[(datetime, v) for v in (datetime.min, datetime.max, MOMENT, MOMENT.replace(tzinfo=None))],
    (datetime, MOMENT.replace(tzinfo=timezone(timedelta(hours=-3, minutes=-30)))),
    (datetime, datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=0)),
    (datetime, datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1)),
    (datetime, datetime(2024, 3, 31, 2, 30, tzinfo=BERLIN)),  # a time the clocks jump over
    (datetime, datetime(1800, 1, 1, tzinfo=BERLIN)),  # +00:53:28
    *[(datetime, datetime(2024, 1, 1, fold=1, tzinfo=zone)) for zone in (None, UTC, BERLIN)],
    (time, time(1, fold=1)),
    *[(date, v) for v in (date.min, date.max)],
    *[(time, v) for v in (time(1, 2, 3, 4), time.max, time(5, tzinfo=UTC))],
    *[(timedelta, v) for v in (timedelta(0), timedelta.min, timedelta.max, -timedelta(microseconds=1))],
    (timedelta, timedelta(days=-400, microseconds=3)),
    *[
        (Decimal, Decimal(v))
        for v in ("1.500", "1E+5", "0E-10", "-0", "1E+999", "NaN", "sNaN", "-Infinity", "0." + "1" * 60)
    ],
    (UUID, ID),
    *[(Colour, v) for v in Colour],
    *[(Size, v) for v in Size],
    *[(Level, v) for v in Level],
    (list[int], [1, 2]), (tuple[int, str], (1, "1")), (tuple[bytes, ...], (b"\xff",)), (tuple[()], ()),
    (set[float], {1.5, math.inf, math.nan}), (set[bytes], {b"\xff", b"a"}),
    (frozenset[tuple[int, str]], frozenset({(1, "b"), (1, "a")})), (deque[int], deque([1, 2])),
    (Sequence[int], [1]), (Path, Path("/a/b")), (dict[int, str], {1: "a", -(2**70): "b"}),
    (dict[UUID, set[int]], {ID: {3, 1, 2}}), (dict[Colour, int], {Colour.GREEN: 1, Colour.RED: 2}),
    (tuple[dict[Colour, int], Colour], ({Colour.RED: 2}, Colour.RED)), (dict[Size, int], {Size.LARGE: 1}),
    (dict[Level, int], {Level.LOW: 1}), (dict[date, date], {date.min: date.max}),
    (dict[datetime, int], {MOMENT: 1, MOMENT.astimezone(BERLIN) + timedelta(1): 2}),
    (dict[Decimal, int], {Decimal("1.50"): 1}), (dict[bool, int], {True: 1}), (dict[bytes, int], {b"\xff": 1}),
    (dict[float, int], {-0.0: 1, math.inf: 2, 0.1: 3}), (Line, Line("x", math.nan, b"\x80")), (Order, ORDER),
    (Order, Order(id=ID, lines=[], parent=ORDER)), (Box[int], Box(1)), (Box[Box[bytes]], Box(Box(b"\xff"))),
    (Point, Point(math.nan, b"\xff")), (list[Point], [Point(1.0)]),
    (Basket, {"when": MOMENT, "price": Decimal("1.0")}), (list[Basket] | None, [{"when": MOMENT}]),
    (Nested, {"colours": {Colour.RED: {Level.HIGH, Level.LOW}}}),
    (Payment, Payment(amount=Decimal("1.10"), at=datetime(2024, 1, 1, tzinfo=UTC), paymentId="p", secret=b"\xff")),
    (Payment, Payment(amount=Decimal(1), at=datetime(2024, 1, 1), paymentId="p", rate=math.nan, kinds={Colour.RED})),
    (dict[str, list[Payment]], {"a": [Payment(amount=Decimal(1), at=MOMENT, paymentId="p", rate=math.inf)]}),
    (Forbidding, Forbidding.model_validate({"data": b"\xff\xfe", "in": "x", "nan": math.nan})),
    (Open, Open.model_validate({"x": 1, "y": [1, "a"]})),
    (Tree, Tree(value=b"\xff", children=[Tree(value=b"\xfe")])), (Computed, Computed(3)),
    (list[Pet], [Dog(kind=Kind.DOG, chip=b"\xff"), Cat(kind=Kind.CAT)]),
    (Optional[int], None),  # noqa: UP045
    (int | None, 5), (Literal["a", 1, True], True), (Literal["a", 1, True], 1),
    (Literal[Colour.RED], Colour.RED), (int | str, "1"), (int | float, 1), (int | float, 1.0), (bool | int, 1),
    (Decimal | float, 1.5), (Decimal | float, Decimal("1.50")), (datetime | str, MOMENT),
    (datetime | str, "hello"), (date | datetime, date(2024, 1, 1)), (date | datetime, datetime(2024, 1, 1)),
    (Nested | None, None), (Line | Point, Point(1.0)),
    (Union[Line, Payment], Line("a", 1.0)),  # noqa: UP007
    (Annotated[int, Field(gt=0)], 5), (Any, {"a": [1, 2.5, None, True, "x", {"b": math.nan}]}),
    (inspect.Parameter.empty, [2**4000, -0.0]), (dict[str, Any], {"a": {"b": [1, "2", None]}}),
    (list, [1, "a"]),
]
# fmt: on


@pytest.mark.parametrize(
    ("annotation", "value"), EXACT, ids=[f"{n}-{str(case[0])[:40]}" for n, case in enumerate(EXACT)]
)
def test_exact(annotation: Any, value: Any) -> None:
    assert_exact(value, coded(annotation, value))


class Opaque:
    pass


class Shout(str):
    pass


class OddZone(tzinfo):
    def utcoffset(self, dt: datetime | None) -> timedelta:
        return timedelta(hours=1)


@dataclass
class LongLine(Line):
    more: int = 0


class Private(BaseModel):
    x: int
    _hidden: int = 0


hidden = Private(x=1)
hidden._hidden = 5  # pyright: ignore[reportPrivateUsage]
mutated = Payment(amount=Decimal(1), at=MOMENT, paymentId="p")
mutated.amount = "2"  # type: ignore[assignment]

# fmt: off
REFUSED: list[tuple[Any, Any, str]] = [
    (Any, MOMENT, "a datetime"), (Any, {1, 2}, "a set"), (Any, b"x", "a bytes"), (Any, {1: 2}, "key 1"),
    (Any, {"a": [{"b": MOMENT}]}, "it.a[0].b is a datetime"),
    (Any, {"a": [1, Opaque()]}, "it.a[1] is an Opaque"), (Any, Opaque(), "an Opaque"),
    (Any, Size.SMALL, "a Size"), (Any, [Level.LOW], "it[0] is a Level"), (Any, Shout("x"), "a Shout"),
    (Any, Decimal(1), "a Decimal"), (Any, Line("a", 1.0), "a Line"), (Any, "\ud800", "a str"),
    (Any, {"\ud800": 1}, "surrogates"), (Any, OrderedDict(a=1), "OrderedDict"),
    (dict[str, Any], {"a": MOMENT}, "it.a is a datetime"), (dict[str, Any], {"a b": {1}}, "it['a b'] is a set"),
    (str, "\udfff", "surrogates"), (str, Size.SMALL, "a Size"), (str, Shout("a"), "a Shout"),
    (str, 5, "an int"), (str, None, "None"), (str, b"a", "a bytes"), (int, "5", "a str"), (int, True, "a bool"),
    (int, 5.0, "a float"), (int, Level.LOW, "a Level"), (int, 10**5000, "an int"), (float, "1.5", "a str"),
    (float, True, "a bool"), (float, 2**53 + 1, "an int"), (bool, 1, "an int"), (bool, "true", "a str"),
    (None, 0, "an int"), (bytes, "abc", "a str"), (bytes, bytearray(b"a"), "a bytearray"),
    (list[bytes], [bytearray(b"a")], "it[0] is a bytearray"), (datetime, "2024-01-01T00:00:00", "a str"),
    (datetime, date(2024, 1, 1), "a date"), (datetime, datetime(2024, 1, 1, tzinfo=OddZone()), "OddZone"),
    (datetime, datetime(2024, 1, 1, tzinfo=timezone(timedelta(seconds=1))), "seconds=1"),
    (date, datetime(2024, 1, 1), "a datetime"), (time, time(1, tzinfo=BERLIN), "Berlin"),
    (Decimal, 1.5, "a float"), (UUID, str(ID), "a str"), (Colour, 1, "an int"), (list[int], (1,), "a tuple"),
    (list[int], ["1"], "it[0] is a str"), (tuple[int, ...], [1], "a list"),
    (set[int], frozenset({1}), "a frozenset"), (set[int], {True}, "a bool"), (dict[str, int], {1: 1}, "key 1"),
    (dict[str, str], {"a": Size.SMALL}, "it.a is a Size"), (dict[int | str, int], {1: 1}, "key 1"),
    (dict[str | None, int], {None: 1}, "key None"), (dict[int | str, int], {1: 1, "1": 2}, "2 keys, but only 1"),
    (tuple[list[int], Any], ((1,), (2,)), "it[0]"), (Line, {"sku": "a", "weight": 1.0}, "a dict"),
    (list[int], [1, "a"], "it[1] is a str"), (Line, Line("a", "b"), "it.weight is a str"),  # type: ignore
    (Line, LongLine("a", 1.0), "a LongLine"),
    (Line, Line("a", "1.0"), "it.weight is a str"),  # type: ignore[arg-type]
    (list[Line], [Line(Opaque(), 1.0)], "it[0].sku is an Opaque"),  # type: ignore[arg-type]
    (Payment, mutated, "it.amount is a str"), (Private, hidden, "it._hidden is 5"),
    (Basket, {"when": MOMENT, "extra": 1}, "2 keys, but only 1"),
    (datetime | str, "2024-01-01T00:00:00", "a str"), (UUID | str, str(ID), "a str"),
    (list[int] | tuple[int, ...], (1,), "a tuple"), (set[int] | list[int], {1}, "a set"),
    (Colour | int, Colour.RED, "a Colour"), (Literal["a"], "b", "a str"), (Literal["s"], Size.SMALL, "a Size"),
    (Annotated[int, Field(gt=0)], -1, "greater than 0"),
]
# fmt: on


@pytest.mark.parametrize(
    ("annotation", "value", "says"), REFUSED, ids=[f"{n}-{str(case[0])[:40]}" for n, case in enumerate(REFUSED)]
)
def test_refused(annotation: Any, value: Any, says: str) -> None:
    with pytest.raises(NotStorable) as caught:
        Codec(annotation, "the result of activity 'x'").encode(value)
    message = str(caught.value)
    assert message.startswith("the result of activity 'x' can't be stored: it")
    assert says in message
    assert "annotate it" in message


def test_endless_values_are_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    for value in (endless, deep):
        with pytest.raises(NotStorable):
            Codec(Any, "it").encode(value)


def test_tuples_become_lists_where_nothing_is_annotated() -> None:
    assert coded(Any, (1, ("a",))) == [1, ["a"]]
    assert coded(dict[str, Any], {"a": (1,)}) == {"a": [1]}


def test_an_int_is_a_float() -> None:
    for annotation, value in ((float, 5), (list[float], [5]), (Line, Line("a", 5)), (float | None, 5)):
        back = coded(annotation, value)
        assert back == value
        assert "5.0" in repr(back)


def test_keys_of_a_typed_dict_in_any_order() -> None:
    value = {"price": Decimal(1), "when": MOMENT}
    assert coded(Basket, value) == value


def test_wire_form() -> None:
    assert Codec(dict[str, str], "").encode({"é": "\n"}) == '{"é":"\\n"}'.encode()
    assert Codec(datetime, "").encode(MOMENT) == b'"2024-02-29T23:59:59.000001Z"'
    assert Codec(datetime, "").encode(MOMENT.astimezone(BERLIN)).endswith(b'+01:00[Europe/Berlin]"')
    assert b'"payment_id"' in Codec(Payment, "").encode(Payment(amount=Decimal(1), at=MOMENT, paymentId="p"))


def test_utc_comes_back_as_utc() -> None:
    assert coded(datetime, MOMENT).tzinfo is UTC
    assert coded(Payment, Payment.model_validate_json('{"amount":1,"at":"2024-01-01T00:00:00Z","paymentId":""}')).at


def test_changed_zone_rules_keep_the_instant() -> None:
    moment = Codec(datetime, "").decode(b'"2024-07-01T12:00:00+05:00[Europe/Berlin]"')
    assert moment == datetime(2024, 7, 1, 7, tzinfo=UTC)
    assert moment.tzinfo is BERLIN


def test_decode_takes_events_from_outside() -> None:
    payment = Codec(Payment, "").decode(b'{"amount": 1, "at": "2024-01-01T00:00:00Z", "paymentId": "p"}')
    assert payment.payment_id == "p"
    assert Codec(Line, "").decode(b'{"sku": "a", "weight": 1}') == Line("a", 1.0)


@pytest.mark.parametrize(("annotation", "raw"), [(int, b'"a"'), (Line, b"{}"), (Any, b"{"), (datetime, b'"[x]"')])
def test_what_does_not_fit_any_more(annotation: Any, raw: bytes) -> None:
    with pytest.raises(NotStorable, match=r"the result of x was stored but can no longer be read as"):
        Codec(annotation, "the result of x").decode(raw)


@pytest.mark.parametrize("annotation", [Opaque, Callable[[], int], "Missing", list["Missing"]])  # noqa: F821 # pyright: ignore
def test_what_pydantic_does_not_know(annotation: Any) -> None:
    with pytest.raises(TypeError, match=r"the result of x is annotated .*can't be stored"):
        Codec(annotation, "the result of x")


def test_fingerprints() -> None:
    def of(annotation: Any) -> str:
        return Codec(annotation, "").fingerprint

    assert of(Any) == of(inspect.Parameter.empty) == ""
    assert of(int) == of(int) != of(str)
    assert len(of(Payment)) == 16
    plain = make_dataclass("Thing", [("title", int), ("other", str, "a")])
    documented = make_dataclass("Thing", [("title", int), ("other", str, "b")], namespace={"__doc__": "Words."})
    changed = make_dataclass("Thing", [("description", int), ("other", str, "a")])
    assert of(plain) == of(documented) != of(changed)


IN_ANOTHER_PROCESS = """
import sys; sys.path.insert(0, {here!r})
from test_codec import *
codec = Codec(dict[str, set[str] | frozenset[Level]], "")
print(codec.encode({{"a": {{"x", "y", "z", "1", "2"}}}}), Codec(Payment, "").fingerprint, Codec(Order, "").fingerprint)
print(Codec(Order, "").encode(Order(id=ID, lines=[], tags=frozenset("abcdefgh"))))
"""


def test_same_bytes_whatever_the_hash_seed() -> None:
    def run(seed: str) -> bytes:
        script = IN_ANOTHER_PROCESS.format(here=os.path.dirname(__file__))
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run([sys.executable, "-c", script], env=env, check=True, capture_output=True).stdout

    assert run("1") == run("2") == run("77")


# Any annotation made of these, and a value of it

LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers()),
    (float, st.floats(allow_nan=False)),
    (str, st.text(st.characters(exclude_categories=["Cs"]))),
    (bytes, st.binary()),
    (bool, st.booleans()),
    (datetime, st.datetimes(timezones=st.none() | st.just(UTC) | st.timezones())),
    (date, st.dates()),
    (time, st.times()),
    (timedelta, st.timedeltas()),
    (Decimal, st.decimals(allow_nan=False)),
    (UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (Size, st.sampled_from(Size)),
    (Level, st.sampled_from(Level)),
]
Typed = tuple[Any, st.SearchStrategy[Any]]
KEYS: list[Typed] = LEAVES
TEXT = LEAVES[2][1]


def containers(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def record(parts: list[Typed]) -> Typed:
        names = [f"field{n}" for n in range(len(parts))]
        made = make_dataclass("Made", [(name, part[0]) for name, part in zip(names, parts, strict=True)])
        return made, st.tuples(*(part[1] for part in parts)).map(lambda values: made(*values))

    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        inner.map(lambda t: (list[t[0]], st.lists(t[1], max_size=3))),
        inner.map(lambda t: (t[0] | None, st.none() | t[1])),
        inner.map(lambda t: (Box[t[0]], t[1].map(Box))),
        several.map(lambda ts: (tuple[tuple(t[0] for t in ts)], st.tuples(*(t[1] for t in ts)))),  # type: ignore[misc]
        several.map(record),
        st.sampled_from(KEYS).map(lambda k: (set[k[0]], st.sets(k[1], max_size=3))),
        st.tuples(st.sampled_from(KEYS), inner).map(
            lambda kv: (dict[kv[0][0], kv[1][0]], st.dictionaries(kv[0][1], kv[1][1], max_size=3))
        ),
    )


typed_values = st.recursive(st.sampled_from(LEAVES), containers, max_leaves=6).flatmap(
    lambda typed: st.tuples(st.just(typed[0]), typed[1])
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
)
anything = st.recursive(
    st.one_of(st.none(), *(leaf[1] for leaf in LEAVES)),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(TEXT | st.integers() | st.uuids(), inner),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(typed_values)
def test_round_trips(typed: tuple[Any, Any]) -> None:
    annotation, value = typed
    back = coded(annotation, value)
    assert type(back) is type(value)
    assert back == value


@settings(max_examples=200, deadline=None)
@given(json_values)
def test_json_round_trips(value: Any) -> None:
    assert_exact(value, coded(Any, value))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.sampled_from([leaf[0] for leaf in LEAVES]), st.sampled_from([leaf[0] for leaf in LEAVES]), anything)
def test_exact_or_refused(one: Any, other: Any, value: Any) -> None:
    for annotation in (Any, one | other, list[one | other], dict[str, one | Any], one | list[other | None]):
        try:
            back = coded(annotation, value)
        except NotStorable:
            continue
        if annotation is float or "float" in str(annotation) or "Any" in str(annotation):
            assert back == value or repr(back) == repr(value) or "(" in repr(value)  # 1 as 1.0, tuples as lists
        else:
            assert_exact(value, back)
