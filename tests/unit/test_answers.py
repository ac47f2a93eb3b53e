"""Answers of programs: what is refused before the workflow sees it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from romancy.core.answers import misfits, shape_of


class Size(Enum):
    SMALL = 1
    LARGE = 2


@dataclass
class Address:
    street: str
    zip: Annotated[str, Field(max_length=5)] = ""


@dataclass
class Order:
    approved: bool
    size: Size
    amount: Annotated[int, Field(ge=1, le=9)]
    price: Decimal
    on: date | None
    address: Address
    other: Address = field(default_factory=lambda: Address("none"))
    within: timedelta = timedelta(1)
    notes: list[str] = field(default_factory=list[str])


@dataclass
class Lax:
    approved: bool = False


GOOD = {"approved": True, "size": 1, "amount": 3, "price": "1.5", "on": None, "address": {"street": "x"}}


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (bool, "true|false"),
        (Lax, "{approved?: true|false}"),
        (Literal["a", "b"], '"a"|"b"'),
        (Address, "{street: text, zip?: text}"),
        (list[str], "[text, ...]"),
    ],
)
def test_how_an_answer_looks(model: Any, shape: str) -> None:
    assert shape_of(TypeAdapter(model).json_schema()) == shape


@pytest.mark.parametrize(
    ("model", "answer", "says"),
    [
        (bool, {"yes": 1}, ["it must be true or false"]),
        (Lax, {"yes": True}, ["it has none of the fields"]),
        (Lax, True, ["it must be an object"]),
        (Order, GOOD | {"address": "x"}, ["address must be an object"]),
        (Order, {k: v for k, v in GOOD.items() if k not in ("on", "address")}, ["on is missing", "address is missing"]),
        (Order, GOOD | {"amount": 10}, ["amount must be at most 9"]),
        (Order, GOOD | {"size": 3}, ["size must be one of 1, 2"]),
        (Order, GOOD | {"address": {"zip": "123456"}}, ["address.street is missing", "address.zip can have at most 5"]),
    ],
)
def test_what_is_wrong(model: Any, answer: Any, says: list[str]) -> None:
    found = misfits(TypeAdapter(model).json_schema(), answer)
    assert [text[: len(said)] for text, said in zip(found, says, strict=True)] == says


TEXTS = ["", "yes", "2", "1.5", "nan", "2026-01-31", "x" * 6]
VALUES: list[Any] = [None, True, 0, 1, 2, 5.0, 1.5, 10, *TEXTS, [], ["a"], {}]


@pytest.mark.parametrize("name", ["approved", "size", "amount", "price", "on", "address", "other", "within", "notes"])
def test_nothing_is_refused_that_the_workflow_would_accept(name: str) -> None:
    read, schema = TypeAdapter(Order), TypeAdapter(Order).json_schema()
    for answer in ({k: v for k, v in GOOD.items() if k != name}, *(GOOD | {name: value} for value in VALUES)):
        if misfits(schema, answer):
            with pytest.raises(ValidationError):
                read.validate_json(json.dumps(answer))
