"""Arguments are bound by name, stored, and called again, also by code that has changed since."""

from __future__ import annotations

import functools
import json
import math
import typing
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from romancy.core.signature import Signature
from romancy.errors import InvalidInput

if TYPE_CHECKING:
    from nowhere import Unknown  # pyright: ignore

MOMENT = datetime(2024, 1, 1, tzinfo=UTC)
ID = UUID("12345678-1234-5678-1234-567812345678")


ZERO = Decimal(0)


class Colour(Enum):
    RED = 1


@dataclass
class Item:
    sku: str
    weight: float = math.nan


class Customer(BaseModel):
    name: str = Field(alias="Name")
    secret: bytes = b"\xff"


class Extra(typing.TypedDict, total=False):
    note: str
    at: datetime


def signature(fn: Callable[..., Any]) -> Signature:
    return Signature(fn, "activity 'charge'")


def again(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    made = signature(fn)
    back_args, back_kwargs = made.decode(made.encode(made.bind(args, kwargs)))
    return fn(None, *back_args, **back_kwargs)


def charge(ctx: Any, amount: int, currency: str = "EUR") -> str:
    return f"{amount} {currency}"


def nothing(ctx: Any) -> None: ...


def everything(
    ctx: Any, a: int, /, b: list[Item], *rest: datetime, key: Customer, colour: Colour = Colour.RED, **more: Decimal
) -> Any:
    return a, b, rest, key, colour, more


def untyped(ctx: Any, a: Any, b: Any = None, *args: Any, **kwargs: Any) -> Any:
    return a, b, args, kwargs


untyped.__annotations__.clear()


def test_binding() -> None:
    made = signature(charge)
    assert made.names == ("amount", "currency")
    assert made.annotations == {"amount": int, "currency": str}
    assert made.bind((1, "USD"), {}) == {"amount": 1, "currency": "USD"}
    assert made.bind((1,), {}) == made.bind((), {"amount": 1}) == {"amount": 1, "currency": "EUR"}
    assert list(made.bind((), {"currency": "X", "amount": 1})) == ["amount", "currency"]
    assert "charge" in repr(made)


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((), {}, "missing a required argument: 'amount'"),
        ((1, "a", 2), {}, "too many positional"),
        ((1,), {"amount": 2}, "multiple values"),
        ((1,), {"other": 2}, "unexpected keyword argument 'other'"),
    ],
)
def test_what_does_not_bind(args: tuple[Any, ...], kwargs: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        signature(charge).bind(args, kwargs)
    message = str(caught.value)
    assert says in message
    assert message.startswith("activity 'charge' ")
    assert "charge(ctx, amount: int" in message


def test_stored_form() -> None:
    made = signature(charge)
    assert made.encode({"amount": 42, "currency": "EUR"}) == b'{"amount":42,"currency":"EUR"}'
    assert made.encode({"currency": "EUR", "amount": 42}) == b'{"amount":42,"currency":"EUR"}'
    assert signature(nothing).encode({}) == b"{}"
    assert signature(nothing).decode(b"{}") == ((), {})
    assert made.result.encode("x") == b'"x"'
    assert made.result.fingerprint


def test_every_kind_of_parameter() -> None:
    lines = [Item("a"), Item("b", 2.0)]
    customer = Customer(Name="Ada")
    expected = (2**4000, lines, (MOMENT, MOMENT), customer, Colour.RED, {"x": Decimal("1.50")})
    assert repr(again(everything, 2**4000, lines, MOMENT, MOMENT, key=customer, x=Decimal("1.50"))) == repr(expected)
    assert again(untyped, 1, 2, 3, [4], x="y") == (1, 2, (3, [4]), {"x": "y"})
    assert again(untyped, (1, 2)) == ([1, 2], None, (), {})
    assert again(charge, 2**80) == f"{2**80} EUR"


def test_unpacked_keywords() -> None:
    def fn(ctx: Any, **extra: typing.Unpack[Extra]) -> Any:
        return extra

    assert again(fn, note="a", at=MOMENT) == {"note": "a", "at": MOMENT}
    with pytest.raises(InvalidInput, match="extra"):
        again(fn, other=1)


def test_huge_and_odd_scalars() -> None:
    def fn(ctx: Any, n: int, x: float, s: str, b: bool, z: None = None) -> Any:
        return n, x, s, b, z

    for args in [(2**70, math.nan, "é" * 9000, True), (0, -0.0, "\0", False), (1, 5.0, "", True)]:
        assert repr(again(fn, *args)) == repr((*args, None))
    assert repr(again(fn, 1, 5, "", True)[1]) == "5.0"
    with pytest.raises(InvalidInput):
        again(fn, 10**5000, 1.0, "", True)


@pytest.mark.parametrize(
    ("fn", "args", "says"),
    [
        (charge, ("5",), "argument 'amount' of activity 'charge' can't be stored: amount is a str"),
        (charge, (True,), "amount is a bool"),
        (charge, (5, None), "argument 'currency'"),
        (charge, (5, "\ud800"), "argument 'currency'"),
        (untyped, (MOMENT,), "argument 'a' of activity 'charge' can't be stored: a is a datetime"),
        (untyped, ({"x": [{1}]},), "a.x[0] is a set"),
        (untyped, (1, 2, MOMENT), "args[0] is a datetime"),
        (everything, (1, [Item("a", "b")]), "argument 'b'"),  # type: ignore[arg-type]
        (everything, (1, (Item("a"),)), "b is a tuple"),
    ],
)
def test_arguments_that_do_not_fit(fn: Callable[..., Any], args: tuple[Any, ...], says: str) -> None:
    made = signature(fn)
    bound = made.bind(args, {"key": Customer(Name="a")} if fn is everything else {})
    with pytest.raises(InvalidInput) as caught:
        made.encode(bound)
    assert says in str(caught.value)
    assert "annotate it" in str(caught.value)


def test_unknown_names_are_not_stored() -> None:
    with pytest.raises(InvalidInput, match="no parameter 'other'"):
        signature(charge).encode({"amount": 1, "other": 2})


# Code that has changed


def test_a_removed_or_renamed_parameter() -> None:
    stored = signature(charge).encode({"amount": 1, "currency": "EUR"})

    def renamed(ctx: Any, amount: int, money: str = "") -> None: ...

    with pytest.raises(InvalidInput) as caught:
        signature(renamed).decode(stored)
    message = str(caught.value)
    assert "'currency', since removed or renamed" in message
    assert "new: 'money'" in message
    assert "keep the name" in message


def test_a_new_parameter() -> None:
    stored = signature(charge).encode({"amount": 1, "currency": "EUR"})

    def needs(ctx: Any, amount: int, vat: int, currency: str = "EUR") -> None: ...

    def has(ctx: Any, vat: list[int] = [7], amount: int = 0, currency: str = "X", *rest: int, at: Any = None, **k: int) -> Any:  # noqa: B006, E501  # fmt: skip
        return vat, amount, currency, rest, at, k

    with pytest.raises(InvalidInput, match=r"before it had the parameter 'vat'; add a default"):
        signature(needs).decode(stored)
    args, kwargs = signature(has).decode(stored)
    assert has(None, *args, **kwargs) == ([7], 1, "EUR", (), None, {})
    args[0].append(1)
    assert signature(has).decode(stored)[0][0] == [7]


def test_a_changed_annotation() -> None:
    def changed(ctx: Any, amount: datetime, currency: str = "EUR") -> None: ...

    with pytest.raises(InvalidInput, match=r"stored argument of activity 'charge' no longer fits: amount"):
        signature(changed).decode(b'{"amount":{},"currency":"EUR"}')


def test_same_call() -> None:
    def fn(ctx: Any, a: float, b: list[int] = [1], *rest: int, c: datetime = MOMENT) -> None: ...  # noqa: B006

    made = signature(fn)
    full = made.encode(made.bind((math.nan,), {}))
    assert made.same_call(full, full)
    assert made.same_call(b'{"a":NaN}', full)
    assert made.same_call(full, b'{"c":"2024-01-01T00:00:00Z","a":NaN,"rest":[]}')
    assert not made.same_call(full, b'{"a":1.0}')
    assert not made.same_call(b'{"a":NaN,"b":[2]}', b'{"a":NaN}')
    assert not made.same_call(b'{"a":NaN,"b":[2]}', b'{"a":NaN,"b":[1]}')
    assert not made.same_call(b'{"a":NaN,"gone":1}', b'{"a":NaN}')
    assert not made.same_call(b'{"a":1}', b'{"a":true}')
    assert not made.same_call(b"{}", b'{"a":1}')


# Annotations


def test_the_context_may_be_anything() -> None:
    def fn(ctx: Unknown, a: int) -> int: ...  # pyright: ignore

    assert signature(fn).annotations == {"a": int}  # pyright: ignore


def test_local_classes() -> None:
    @dataclass
    class Inner:
        at: datetime

    @dataclass
    class Outer:
        inner: Inner

    def fn(ctx: Any, outer: Outer) -> Inner:
        return outer.inner

    assert again(fn, Outer(Inner(MOMENT))) == Inner(MOMENT)
    assert signature(fn).result.decode(b'{"at":"2024-01-01T00:00:00Z"}') == Inner(MOMENT)


def test_wrapped_functions() -> None:
    @functools.wraps(charge)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return charge(*args, **kwargs)

    assert again(wrapper, 5) == "5 EUR"


class Opaque: ...


def test_annotations_that_can_not_be_stored() -> None:
    def unresolved(ctx: Any, a: Unknown) -> None: ...  # pyright: ignore

    def opaque(ctx: Any, a: int, b: Opaque) -> None: ...

    def result(ctx: Any) -> Opaque: ...  # type: ignore[empty-body]  # pyright: ignore

    def default(ctx: Any, a: str = None) -> None: ...  # type: ignore[assignment]  # pyright: ignore # noqa: RUF013

    with pytest.raises(TypeError, match=r"annotation of activity 'charge' names 'Unknown'"):
        signature(unresolved)  # pyright: ignore
    with pytest.raises(TypeError, match=r"the parameter 'b' of activity 'charge' is annotated Opaque"):
        signature(opaque)
    with pytest.raises(TypeError, match=r"the result of activity 'charge' is annotated Opaque"):
        signature(result)
    with pytest.raises(TypeError, match=r"the default of argument 'a' of activity 'charge'"):
        signature(default)


# The command line


def test_reading_words() -> None:
    def fn(
        ctx: Any,
        n: int,
        s: str,
        items: list[Item],
        at: datetime | None = None,
        *,
        price: Decimal = ZERO,
        anything: Any = 1,
    ) -> None: ...

    read = signature(fn).read_arguments
    words = ["7", "7", '[{"sku": "a"}]', "2024-01-01T00:00:00Z", "price=1.50", 'anything={"a": 1}']
    bound = read(words)
    assert repr(bound) == repr(
        {"n": 7, "s": "7", "items": [Item("a")], "at": MOMENT, "price": Decimal("1.50"), "anything": {"a": 1}}
    )
    assert signature(fn).encode(bound)
    assert read(["7", "x=y", "[]", "null"])["s"] == "x=y"
    assert read(["s=n=1", "n=2", "items=[]", "anything=plain"]) == {
        "n": 2, "s": "n=1", "items": [], "at": None, "price": Decimal(0), "anything": "plain",
    }  # fmt: skip
    assert read(["7", '{"json": "stays text"}', "[]"])["s"] == '{"json": "stays text"}'


def test_reading_more_words() -> None:
    def fn(ctx: Any, on: bool, id: UUID, colour: Colour, c: Customer, *rest: int, **more: float) -> None: ...

    bound = signature(fn).read_arguments(["true", str(ID), "1", '{"Name": "Ada"}', "1", "2", "x=1.5"])
    assert list(bound.values()) == [True, ID, Colour.RED, Customer(Name="Ada"), (1, 2), {"x": 1.5}]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["x"], "'x' can't be read as the argument 'amount' (amount: int"),
        (["amount=1", "amount=2"], "'amount' twice"),
        ([], "missing a required argument"),
        (["1", "2", "3"], "too many positional"),
        (["amount=1", "2"], "can't be"),
    ],
)
def test_words_that_do_not_fit(words: list[str], says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        signature(charge).read_arguments(words)
    assert says in str(caught.value)


def test_stored_arguments_are_json() -> None:
    made = signature(everything)
    stored = json.loads(made.encode(made.bind((1, []), {"key": Customer(Name="a")})))
    assert list(stored) == ["a", "b", "rest", "key", "colour", "more"]
    assert stored["key"] == {"name": "a", "secret": "_w=="}


def test_stored_arguments_are_passed_in_the_order_of_the_parameters_whatever_their_order_was() -> None:
    def charge(ctx: Any, b: int, a: str, c: float = 1.0) -> None: ...

    assert signature(charge).decode(b'{"c":2.5,"a":"x","b":1}') == ((1, "x", 2.5), {})
    assert signature(charge).decode(b'{"a":"x","b":1}') == ((1, "x", 1.0), {})


def test_a_call_is_encoded_as_if_bound_first() -> None:
    def charge(ctx: Any, amount: int, note: str = "-") -> None: ...

    made = signature(charge)
    for args, kwargs in [((1, "x"), {}), ((1,), {}), ((), {"note": "x", "amount": 1})]:
        assert made.encode_call(args, kwargs) == made.encode(made.bind(args, kwargs))
    for args in [(True, "x"), (1, "\ud800"), (1, "x", 2)]:
        with pytest.raises(InvalidInput):
            made.encode_call(args, {})


def test_errors_show_types_without_metadata() -> None:
    async def refund(
        ctx: object, cents: Annotated[int, Field(description="how much", ge=1)], note: str = ""
    ) -> None: ...

    with pytest.raises(InvalidInput) as caught:
        Signature(refund, "workflow 'refund'").decode_given(b'{"cents": 0}')
    assert str(caught.value).endswith("its signature is refund(ctx, cents: int, note: str = '')")
