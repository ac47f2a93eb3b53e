"""Whether two events with the same source and id have the same content.

A sender that repeats an event may write its JSON differently (spaces, the order of members, 1.0 for 1), with a new
time and trace. That is still the same event. With a different type, subject, target, media type or value, it is not.
"""

from __future__ import annotations

from typing import Any, cast

from romancy.core.filters import canonical
from romancy.core.history import is_json
from romancy.core.model import Event
from romancy.core.strict_json import parse_json
from romancy.errors import InvalidEvent


def is_same_event(one: Event, other: Event) -> bool:
    """Return whether two events have the same content. Source, id, time, schema and extensions are not compared."""
    if (one.type, one.subject, one.target) != (other.type, other.subject, other.target):
        return False
    if is_json(one.datacontenttype) and is_json(other.datacontenttype):
        return one.data == other.data or _is_same_json(one.data, other.data)
    return one.data == other.data and _media_type(one) == _media_type(other)


def _media_type(event: Event) -> str:
    return (event.datacontenttype or "").partition(";")[0].strip().lower()


def _is_same_json(one: bytes | None, other: bytes | None) -> bool:
    if one is None or other is None:
        return False
    try:
        return _is_same_value(parse_json(one), parse_json(other))
    except InvalidEvent:  # only the bytes can be compared, and they differ
        return False


def _is_same_value(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        members, others = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
        if not isinstance(other, dict) or members.keys() != others.keys():
            return False
        return all(_is_same_value(value, others[name]) for name, value in members.items())
    if isinstance(one, list):
        items = cast("list[Any]", one)
        if not isinstance(other, list) or len(items) != len(cast("list[Any]", other)):
            return False
        return all(map(_is_same_value, items, cast("list[Any]", other)))
    return not isinstance(other, dict | list) and canonical(one) == canonical(other)
