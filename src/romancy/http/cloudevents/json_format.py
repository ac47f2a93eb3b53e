"""The JSON format: one event as an object, a batch as an array of them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, TypeVar

from romancy.core.history import is_json
from romancy.core.model import Event, show
from romancy.core.strict_json import DATA
from romancy.errors import InvalidEvent
from romancy.http.cloudevents.attributes import make
from romancy.http.cloudevents.members import BODY, Element, Member, Object, elements, read_object, skip_blank
from romancy.http.cloudevents.model import InvalidBatch, Limits

T = TypeVar("T")


def parse_structured(body: bytes, limits: Limits) -> Event:
    """The single event in a body."""
    text = BODY.decode(body)
    found = _outermost(text, "{", "one JSON object; several events are application/cloudevents-batch+json", read_object)
    return _event(text, found, limits)


def parse_batch(body: bytes, limits: Limits) -> list[Event]:
    """All events of a batch; if some are invalid, `InvalidBatch` lists all of those."""
    text = BODY.decode(body)
    found = _outermost(
        text,
        "[",
        "a JSON array of events; a single event is application/cloudevents+json",
        lambda text, at: elements(text, at, limits.max_batch),
    )
    events: list[Event] = []
    failures: list[tuple[int, str]] = []
    for index, element in enumerate(found):
        try:
            events.append(_element(text, element, limits))
        except InvalidEvent as error:
            failures.append((index, str(error)))
    if failures:
        raise InvalidBatch(failures, len(found))
    return events


def _outermost(text: str, opening: str, expected: str, read: Callable[[str, int], tuple[T, int]]) -> T:
    """Apply `read` to the text, which must be a single value."""
    start = skip_blank(text, 0)
    if not text.startswith(opening, start):
        raise InvalidEvent(f"the body must be {expected}; found {_excerpt(text, start)}")
    try:
        found, end = read(text, start)
    except RecursionError:
        raise InvalidEvent("the body is nested too deeply; make the data flatter") from None
    end = skip_blank(text, end)
    if end != len(text):
        raise InvalidEvent(f"the body continues after its JSON: {_excerpt(text, end)}; send a single value")
    return found


def _element(text: str, element: Element, limits: Limits) -> Event:
    if element.object is None:
        raise InvalidEvent(f"an event must be a JSON object, found {_excerpt(text, element.start)}")
    return _event(text, element.object, limits)


def _event(text: str, found: Object, limits: Limits) -> Event:
    if found.twice is not None:
        raise InvalidEvent(f"the event has {show(found.twice)} twice; send each attribute once")
    plain, encoded = found.data, found.values.pop("data_base64", None)
    if plain is not None and encoded is not None:
        raise InvalidEvent("the event has both data and data_base64; send only one")
    attributes = {name: value for name, value in found.values.items() if value is not None}
    if plain is None:
        return make(attributes, None if encoded is None else _encoded(encoded), limits)
    content_type = attributes.setdefault("datacontenttype", "application/json")
    if not isinstance(content_type, str) or not is_json(content_type):
        return make(attributes, _plain(text, plain, content_type), limits)
    data = text[plain.start : plain.end].encode()
    DATA.check_depth(data, limits.max_depth)
    DATA.check_surrogates(data, plain.value)
    return make(attributes, data, limits, plain.value)


def _plain(text: str, member: Member, content_type: Any) -> bytes | None:
    """Data that is not JSON, as text."""
    if member.value is None:
        return None
    if not isinstance(member.value, str):
        raise InvalidEvent(
            f"data of type {show(content_type)} must be a string, found {_excerpt(text, member.start)}; "
            "send a string, use data_base64, or set a JSON datacontenttype"
        )
    try:
        return member.value.encode()
    except UnicodeEncodeError:
        raise InvalidEvent(
            f"the data contains a lone surrogate: {show(member.value)}; send bytes as data_base64"
        ) from None


def _encoded(text: Any) -> bytes:
    if isinstance(text, str) and len(text) % 4 == 0:
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            pass  # raised below
    raise InvalidEvent(f"data_base64 must be a base64 string (RFC 4648, padded, no line breaks), got {show(text)}")


def _excerpt(text: str, at: int) -> str:
    return show(text[at : at + 40]) if at < len(text) else "nothing"
