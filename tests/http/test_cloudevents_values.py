"""How a header's value and a time are read."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from romancy.core.events import make_event
from romancy.core.model import from_us
from romancy.core.timestamps import format_time
from romancy.errors import InvalidEvent
from romancy.http.cloudevents import Limits, parse
from tests.http.cloudevents_cases import (
    DECODED,
    NO_TIMES,
    NOT_DECODABLE,
    STRICTLY_REFUSED,
    STRUCTURED,
    TIMES,
    body,
    ce,
)


def table(cases: dict[str, Any]) -> Any:
    return pytest.mark.parametrize("case", cases.values(), ids=cases.keys())


def subject(value: bytes, strict: bool = False) -> str | None:
    (event,) = parse(ce(subject=value), b"", Limits(strict=strict)).events
    return event.subject


@table(DECODED)
def test_a_header_stands_for_a_text(case: tuple[bytes, str]) -> None:
    value, text = case
    assert subject(value) == text


@pytest.mark.parametrize("reason", DECODED)
def test_strictly_only_what_senders_may_send(reason: str) -> None:
    value, text = DECODED[reason]
    if reason in STRICTLY_REFUSED:
        with pytest.raises(InvalidEvent, match="'ce-subject'"):
            subject(value, strict=True)
    else:
        assert subject(value, strict=True) == text


@table(NOT_DECODABLE)
@pytest.mark.parametrize("strict", [False, True])
def test_a_header_stands_for_no_text(case: bytes, strict: bool) -> None:
    with pytest.raises(InvalidEvent, match="'ce-subject'"):
        subject(case, strict)


@pytest.mark.timeout(5)
def test_quotes_without_end_take_no_time() -> None:
    with pytest.raises(InvalidEvent, match="not closed"):
        subject(b'"' + b'\\"' * 30_000)


@pytest.mark.parametrize(("text", "expected"), TIMES.items())
def test_times(text: str, expected: str) -> None:
    (event,) = parse(STRUCTURED, body(time=text, expirytime=text)).events
    assert event.time is not None
    assert from_us(event.time) == datetime.fromisoformat(expected)
    assert event.expires_at == event.time
    (binary,) = parse(ce(time=text), b"").events
    assert binary.time == event.time
    (again,) = parse(STRUCTURED, body(time=format_time(event.time))).events
    assert again.time == event.time


@table(NO_TIMES)
def test_no_times(case: str) -> None:
    for attribute in ("time", "expirytime"):
        with pytest.raises(InvalidEvent, match=attribute):
            parse(STRUCTURED, body(**{attribute: case}))


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 10**5000, "\ufdd0", "\udc00", "a\nb"], ids=range(6))
def test_nothing_is_sent_that_nobody_could_read(value: str | int) -> None:
    with pytest.raises(InvalidEvent, match="extension 'ext'"):
        make_event("t", "/s", None, id="1", ext={"ext": value})
