"""Making events: what may be sent, and how its data is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from romancy.core.model import Attribute, Event, to_us
from romancy.errors import InvalidEvent

MAX_DATA = 8 * 1024 * 1024
"""Bytes of data one event may carry."""
_PLAIN = (str, int, float, bool, type(None))
_RESERVED = frozenset("data data_base64 id source type specversion subject time datacontenttype dataschema".split())


def make_event(
    type: str,
    source: str,
    data: object,
    *,
    id: str,
    subject: str | None = None,
    to: str | None = None,
    ext: Mapping[str, Attribute] | None = None,
) -> Event:
    """A checked event, ready to be stored; raises `InvalidEvent` that says what is wrong."""
    for name, value in (("type", type), ("source", source), ("id", id)):
        _check_text(name, value)
    for name, value in (("subject", subject), ("to", to)):
        if value is not None:
            _check_text(name, value)
    content_type, raw = encode_data(data, type)
    checked = _check_extensions(ext)
    return Event(
        id=id,
        source=source,
        type=type,
        data=raw,
        subject=subject,
        datacontenttype=content_type,
        extensions=checked,
        target=to,
        expires_at=_expiry(checked),
    )


def encode_data(data: object, what: str) -> tuple[str | None, bytes | None]:
    """Data as (content type, bytes): JSON for everything but bytes."""
    if data is None:
        return None, None
    if isinstance(data, bytes):
        content_type, raw = "application/octet-stream", data
    else:
        content_type, raw = "application/json", _to_json(data, what)
    if len(raw) > MAX_DATA:
        raise InvalidEvent(
            f"the data of event {what!r} is {len(raw):,} bytes, more than the {MAX_DATA:,} allowed; "
            "store it elsewhere and send where it is"
        )
    return content_type, raw


def _to_json(data: Any, what: str) -> bytes:
    kind = type(data).__qualname__
    try:
        if isinstance(data, (dict, list, *_PLAIN)):
            try:
                return json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
            except TypeError:
                pass  # something inside is not plain JSON: a model, a datetime
        return to_json(data, by_alias=True)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise InvalidEvent(
            f"the data of event {what!r} can't be sent as JSON: {error} (it is a {kind}); "
            "send plain values, a dataclass or a pydantic model"
        ) from None


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidEvent(f"an event's {name} must be a text that is not empty, got {value!r}")
    if len(value) > 1024:
        raise InvalidEvent(f"an event's {name} must be at most 1024 characters, got {len(value)}")
    if not value.isprintable() and any(ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 for c in value):
        raise InvalidEvent(f"an event's {name} must not hold control characters, got {value!r}")


def _check_extensions(extensions: Mapping[str, Attribute] | None) -> Mapping[str, Attribute] | None:
    if not isinstance(extensions, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidEvent(f"extensions must be a mapping of names to values, got {extensions!r}")
    for name, value in (extensions or {}).items():
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidEvent(f"an extension attribute's name must be a text, got {name!r}")
        if not (name.isascii() and name.isalnum() and name == name.lower()) or name in _RESERVED:
            raise InvalidEvent(
                f"an extension attribute is named with a-z and 0-9 and not like a core one, got {name!r}"
            )
        if not isinstance(value, str | int | bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidEvent(f"extension {name!r} must be a text, an integer or a boolean, got {value!r}")
    return dict(extensions) if extensions else None


def _expiry(extensions: Mapping[str, Attribute] | None) -> int | None:
    """The extension `expirytime` says until when an event is of use."""
    text = (extensions or {}).get("expirytime")
    if text is None:
        return None
    try:
        return to_us(datetime.fromisoformat(str(text)))
    except ValueError:
        raise InvalidEvent(f"the extension expirytime must be an RFC 3339 time with a zone, got {text!r}") from None
