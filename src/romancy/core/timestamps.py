"""Parses RFC 3339 times to microseconds and formats them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from romancy.core.model import from_us, show, to_us
from romancy.errors import InvalidEvent

_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[Tt](?:[01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(?:\.\d+)?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_FIRST = to_us(datetime.min.replace(tzinfo=UTC))
_LAST = to_us(datetime.max.replace(tzinfo=UTC))


def parse_time(name: str, text: Any) -> int:
    """Return the time in an attribute. Fractions of a microsecond are cut off."""
    match = _TIME.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidEvent(f"{name} must be an RFC 3339 time such as 2026-01-31T12:00:00Z, got {show(text)}")
    try:
        return _leap_second(match) if match[1] == "60" else _read(text)
    except ValueError as error:
        raise InvalidEvent(f"{name} must be a valid time, got {show(text)}: {error}") from None


def format_time(us: int) -> str:
    """Return a time in UTC in RFC 3339 format."""
    return from_us(us).replace(tzinfo=None).isoformat() + "Z"


def _read(text: str) -> int:
    us = to_us(datetime.fromisoformat(text.upper()))
    if not _FIRST <= us <= _LAST:
        raise ValueError("the year must be from 0001 to 9999 in UTC")
    return us


def _leap_second(match: re.Match[str]) -> int:
    """Return the last microsecond before it: the event keeps its day and order, and nothing expires late."""
    us = _read(f"{match[0][:17]}59.999999{match[2]}")
    moment = from_us(us)
    if (moment.hour, moment.minute) != (23, 59) or (moment.day < 31 and (moment + timedelta(days=1)).day != 1):
        raise ValueError("a leap second must be at the end of a month in UTC")
    return us
