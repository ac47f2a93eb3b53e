"""Creates and checks outgoing events, and encodes their data."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from romancy.core.given_back import COPY_OF
from romancy.core.model import MAGIC, Attribute, Event, show
from romancy.core.timestamps import parse_time
from romancy.errors import InvalidEvent

MAX_PARSED = 64 * 1024
"""Bytes of data that are kept parsed until the event is stored, which may take a while: it is many times as large."""
MAX_DATA = 8 * 1024 * 1024
"""Maximum bytes of data in one event."""
MAX_TEXT = 1024
"""Maximum characters of a standard attribute: `type`, `source`, `id` and the like."""
MAX_BYTES = 1300
"""Maximum bytes of one of these: `source` and `id` together must fit into one index entry of a database."""
_PLAIN = (str, int, float, bool, type(None))
_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode
_RESERVED = frozenset("data data_base64 id source type specversion subject time datacontenttype dataschema".split())
_NAME = re.compile("[a-z0-9]+")
_ABSOLUTE = re.compile(r"[a-z][a-z0-9+.-]*:.", re.ASCII | re.IGNORECASE)
_PLANES = "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(17))
_NO_TEXT = re.compile(f"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef{_PLANES}]")
OURS = "romancy."
"""The types of events that only Romancy itself sends begin so."""
TARGET = "romancyinstanceid"
"""The extension attribute that names the only instance that can receive an event."""


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
    """Return a checked event, ready to be stored; raise `InvalidEvent` if it is not valid."""
    for name, value in (("type", type), ("source", source), ("id", id)):
        check_text(name, value)
    for name, value in (("subject", subject), ("to", to)):
        if value is not None:
            check_text(name, value)
    check_not_ours(type, source)
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
        target=_target(to, checked),
        expires_at=_expiry(checked),
    )


def encode_data(data: object, what: str) -> tuple[str | None, bytes | None]:
    """Return data as (content type, bytes): JSON for everything except bytes."""
    if data is None:
        return None, None
    if isinstance(data, bytes):
        content_type, raw = "application/octet-stream", data
        check_data(raw, what)
    else:
        content_type, raw = "application/json", _to_json(data, what)
    if len(raw) > MAX_DATA:
        raise InvalidEvent(
            f"the data of event {what!r} is {len(raw):,} bytes, more than the {MAX_DATA:,} allowed; "
            "store it elsewhere and send a reference to it"
        )
    return content_type, raw


def check_data(raw: bytes, what: str) -> None:
    """Check data that was sent as bytes. Data that looks sealed could not be told from a value that is."""
    if raw.startswith(MAGIC):
        raise InvalidEvent(f"the data of event {what!r} begins like a sealed value of Romancy; send it as text")


def _to_json(data: Any, what: str) -> bytes:
    kind = type(data).__qualname__
    try:
        if isinstance(data, (dict, list, *_PLAIN)):
            try:
                return _encode(data).encode()
            except TypeError:
                pass  # something inside is not plain JSON: a model, a datetime; converted below
        return to_json(data, by_alias=True)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise InvalidEvent(
            f"the data of event {what!r} can't be sent as JSON: {error} (it is a {kind}); "
            "send plain values, a dataclass or a pydantic model"
        ) from None


def check_text(name: str, value: Any) -> None:
    """Check the value of a standard attribute, such as `type`."""
    if not isinstance(value, str) or not value:
        raise InvalidEvent(f"an event's {name} must be a non-empty string, got {show(value)}")
    if len(value) > MAX_TEXT:
        raise InvalidEvent(f"an event's {name} must be at most {MAX_TEXT} characters, got {len(value)}")
    _check_characters(f"an event's {name}", value)
    if len(value) > MAX_BYTES // 4 and len(value.encode()) > MAX_BYTES:
        raise InvalidEvent(f"an event's {name} must be at most {MAX_BYTES} bytes, got {len(value.encode())}")


def check_not_ours(type: str, source: str) -> None:
    """Refuse what only Romancy itself sends: someone else could answer a question in another's name."""
    if type.startswith(OURS) or source.startswith("romancy:"):
        raise InvalidEvent(
            f"events of types romancy.* and from sources romancy:* are Romancy's own and can't be sent, got the type "
            f"{show(type)} from {show(source)}; choose another name"
        )


def check_dataschema(value: Any) -> None:
    """Check that a dataschema is an absolute URI."""
    check_text("dataschema", value)
    if not _ABSOLUTE.match(value):
        raise InvalidEvent(f"dataschema must be an absolute URI such as https://example.com/x, got {show(value)}")


def check_extension(name: Any, value: Any) -> None:
    """Check the name and value of an extension attribute."""
    if not isinstance(name, str):
        raise InvalidEvent(f"an extension attribute's name must be a string, got {show(name)}")
    if not _NAME.fullmatch(name) or name in _RESERVED or len(name) > MAX_TEXT:
        raise InvalidEvent(
            f"an extension attribute's name must use only a-z and 0-9 and not be a core name, got {show(name)}"
        )
    if name == COPY_OF:
        raise InvalidEvent(f"the extension {show(name)} marks events that Romancy gives back; use another name")
    if isinstance(value, str):
        _check_characters(f"extension {show(name)}", value)
    elif not isinstance(value, int):
        raise InvalidEvent(f"extension {show(name)} must be a string, an integer or a boolean, got {show(value)}")
    elif not -(2**31) <= value < 2**31:
        raise InvalidEvent(f"extension {show(name)} must be a 32-bit integer; send a larger one as a string")


def _check_characters(what: str, text: str) -> None:
    if not text.isprintable() and _NO_TEXT.search(text):
        raise InvalidEvent(
            f"{what} must not contain control characters, noncharacters or lone surrogates, got {show(text)}"
        )


def _check_extensions(extensions: Mapping[str, Attribute] | None) -> Mapping[str, Attribute] | None:
    if not isinstance(extensions, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidEvent(f"extensions must be a mapping of names to values, got {show(extensions)}")
    for name, value in (extensions or {}).items():
        check_extension(name, value)
    return dict(extensions) if extensions else None


def _expiry(extensions: Mapping[str, Attribute] | None) -> int | None:
    """Return the time in the extension `expirytime`, after which the event is no longer useful."""
    text = (extensions or {}).get("expirytime")
    return None if text is None else parse_time("expirytime", text)


def _target(to: str | None, extensions: Mapping[str, Attribute] | None) -> str | None:
    """Return the target instance, given by `to` or, as in events from outside, by the extension."""
    named = (extensions or {}).get(TARGET)
    if named is None:
        return to
    check_text(TARGET, named)
    if to is not None and to != named:
        raise InvalidEvent(f"to={to!r} and the extension {TARGET}={named!r} name different instances; use only one")
    return str(named)
