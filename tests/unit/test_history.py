"""What workflow code without a model sees of an event's data."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any

import pytest

from romancy.core.history import plain_data, showable
from romancy.core.model import Event


@pytest.mark.parametrize(
    ("content_type", "raw", "seen"),
    [
        ("application/json", b'{"a":1}', {"a": 1}),
        ("Application/Vnd.X+JSON; charset=utf-8", b"[1]", [1]),
        (None, b'{"a":1}', {"a": 1}),
        (None, b"\x00\xff", b"\x00\xff"),
        (None, b"hello", b"hello"),
        ("text/plain", "café".encode(), "café"),
        ("text/plain; charset=iso-8859-1", "café".encode("latin-1"), "café"),
        ('text/plain; Charset="ISO-8859-1"', "café".encode("latin-1"), "café"),
        ("text/plain; charset=klingon", b"\xff", b"\xff"),
        ("image/png", b"\x89PNG", b"\x89PNG"),
    ],
)
def test_data_by_content_type(content_type: str | None, raw: bytes, seen: Any) -> None:
    assert plain_data(Event("1", "s", "t", raw, datacontenttype=content_type)) == seen


def test_an_integer_longer_than_python_reads_is_exact_all_the_same() -> None:
    data = plain_data(Event("1", "s", "t", b'{"n":' + b"9" * 5000 + b',"m":7}', datacontenttype="application/json"))
    assert data["m"] == 7
    assert data["n"] == Decimal("9" * 5000)


@pytest.mark.parametrize("text", ["1e400", "-2.5E+999", "9" * 400 + ".5"])
def test_a_number_no_float_can_hold_is_not_infinite(text: str) -> None:
    assert plain_data(Event("1", "s", "t", text.encode(), datacontenttype="application/json")) == Decimal(text)


def test_json_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        plain_data(Event("1", "s", "t", b"{", datacontenttype="application/json"))


def test_whatever_is_stored_can_be_shown() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    assert showable(b'{"a":1}') == {"a": 1}
    assert showable(deep) == {"base64": base64.b64encode(deep).decode()}
    assert showable(b"\xff") == {"base64": "/w=="}
    assert showable(None) is None
