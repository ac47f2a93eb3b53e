"""Reads strict JSON. All JSON from outside is read here.

It must be UTF-8 without a byte order mark. NaN, infinities, objects with a repeated name, lone surrogates, numbers that
are out of range, and values that are nested too deeply are rejected.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from decimal import (
    MAX_EMAX,
    MAX_PREC,
    MIN_EMIN,
    Context,
    Decimal,
    DecimalException,
    Inexact,
    InvalidOperation,
    Overflow,
)
from itertools import accumulate
from typing import Any, cast

from romancy.core.model import show
from romancy.errors import InvalidEvent, InvalidInput

MAX_DEPTH = 200
MAX_INT_DIGITS = 300
"""Longer ints are read as Decimal, because converting them to text and back takes quadratic time."""
EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation, Inexact, Overflow])

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_LEVELS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class Reader:
    """Reads JSON of one kind. `what` names it in messages. `exact`: read numbers as int and Decimal, never as float."""

    def __init__(self, what: str, error: type[InvalidEvent | InvalidInput], *, exact: bool) -> None:
        self._what, self._error = what, error
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_int=self._exact_int if exact else self._int,
            parse_float=self._decimal if exact else self._float,
            parse_constant=self._no_constant,
        )

    def read(self, raw: bytes, max_depth: int = MAX_DEPTH) -> Any:
        """Parse a whole text."""
        text = self.decode(raw)
        self.check_depth(raw, max_depth)  # before decoding, because the decoder recurses
        try:
            value = self._decoder.decode(text)
        except json.JSONDecodeError as error:
            raise self._error(f"{self._what} is not JSON: {error}") from None
        self.check_surrogates(raw, value)
        return value

    def read_at(self, text: str, at: int) -> tuple[Any, int]:
        """Return the value that starts at `at`, and where it ends. Depth and surrogates are not checked yet."""
        try:
            return self._decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise self._error(f"{self._what} is not JSON: {error}") from None

    def decode(self, raw: bytes) -> str:
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise self._error(f"{self._what} is not UTF-8: {error.reason} at byte {error.start}") from None
        if text.startswith("\ufeff"):
            raise self._error(f"{self._what} starts with a byte order mark, which JSON does not allow; remove it")
        return text

    def check_depth(self, raw: bytes, most: int) -> None:
        """Reject brackets that nest too deeply outside strings. Without more brackets than `most`, none can."""
        if raw.count(b"[") + raw.count(b"{") <= most:
            return
        brackets = _STRING.sub(b"", raw).translate(None, _NOT_BRACKETS)
        if max(accumulate(map(_LEVELS.__getitem__, brackets)), default=0) > most:
            raise self._error(f"{self._what} is nested deeper than {most} levels; make it flatter")

    def check_surrogates(self, raw: bytes, value: Any) -> None:
        """Reject lone surrogates, which can only be written as escapes."""
        if not _SURROGATE.search(raw):
            return
        pending: list[Any] = [value]
        while pending:
            item = pending.pop()
            if isinstance(item, dict):
                members = cast("dict[str, Any]", item)
                pending += members.keys()
                pending += members.values()
            elif isinstance(item, list):
                pending += cast("list[Any]", item)
            elif isinstance(item, str) and not _is_encodable(item):
                raise self._error(f"{self._what} contains a lone surrogate: {show(item)}")

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            [(repeated, _)] = Counter(name for name, _ in pairs).most_common(1)
            raise self._error(f"an object in {self._what} has the name {show(repeated)} twice")
        return members

    def _exact_int(self, text: str) -> int | Decimal:
        return int(text) if len(text) <= MAX_INT_DIGITS else self._decimal(text)

    def _decimal(self, text: str) -> Decimal:
        try:
            return EXACT.create_decimal(text)
        except DecimalException:
            raise self._out_of_range(text) from None

    def _int(self, text: str) -> int:
        try:
            return int(text)
        except ValueError:  # too many digits for Python
            raise self._out_of_range(text) from None

    def _float(self, text: str) -> float:
        number = float(text)
        if math.isinf(number):
            raise self._out_of_range(text)
        return number

    def _out_of_range(self, text: str) -> Exception:
        return self._error(f"{self._what} contains a number that is out of range: {text[:40]}")

    def _no_constant(self, name: str) -> Any:
        raise self._error(f"{self._what} contains {name}, which is not JSON; send null or a string instead")


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


DATA = Reader("the data", InvalidEvent, exact=True)
"""Reads the data of events."""
parse_json = DATA.read
