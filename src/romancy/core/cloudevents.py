"""CloudEvents as requests, in each of the three modes. `http/cloudevents` reads them back."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import TypeAlias
from urllib.parse import quote

from romancy.core.events import TARGET
from romancy.core.history import is_json
from romancy.core.model import Attribute, Event
from romancy.core.strict_json import parse_json
from romancy.core.timestamps import format_time
from romancy.errors import InvalidEvent

Message: TypeAlias = tuple[list[tuple[bytes, bytes]], bytes]
"""Headers and body."""

VERSION = "1.0"
_UNESCAPED = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


def structured(event: Event) -> Message:
    """Structured mode: everything in the body, as JSON."""
    return [(b"content-type", b"application/cloudevents+json")], _to_json(event)


def batched(events: Iterable[Event]) -> Message:
    """Batched mode: several events in one body."""
    body = b"[" + b",".join(map(_to_json, events)) + b"]"
    return [(b"content-type", b"application/cloudevents-batch+json")], body


def binary(event: Event) -> Message:
    """Binary mode: attributes as headers, data as the body. Numbers and booleans become text, empty data no data."""
    content_type = event.datacontenttype
    if content_type is not None and content_type.lower().startswith("application/cloudevents"):
        raise InvalidEvent(
            f"the data of event {event.id!r} is an event ({content_type}); send it structured, not binary"
        )
    headers = [(b"content-type", content_type.encode("latin-1"))] if content_type is not None else []
    for name, value in _attributes(event).items():
        if name != "datacontenttype":
            text = str(value).lower() if isinstance(value, bool) else str(value)
            headers.append((b"ce-" + name.encode(), quote(text, safe=_UNESCAPED).encode()))
    return headers, event.data or b""


def _attributes(event: Event) -> dict[str, Attribute]:
    known: dict[str, Attribute | None] = {
        "specversion": VERSION,
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "subject": event.subject,
        "time": None if event.time is None else format_time(event.time),
        "datacontenttype": event.datacontenttype,
        "dataschema": event.dataschema,
        **(event.extensions or {}),
    }
    if event.target is not None:
        known[TARGET] = event.target
    return {name: value for name, value in known.items() if value is not None}


def _to_json(event: Event) -> bytes:
    head = json.dumps(_attributes(event), ensure_ascii=False, separators=(",", ":")).encode()
    if event.data is None:
        return head
    name, value = _data(event.data, event.datacontenttype)
    return b'%b,"%b":%b}' % (head[:-1], name, value)


def _data(data: bytes, content_type: str | None) -> tuple[bytes, bytes]:
    """The member for the data; base64 if nothing else preserves the bytes."""
    if content_type is not None and is_json(content_type) and _is_bare_json(data):
        return b"data", data
    if content_type is not None and content_type.lower().startswith("text/"):
        try:
            return b"data", json.dumps(data.decode(), ensure_ascii=False).encode()
        except UnicodeDecodeError:
            pass  # another encoding: keep the bytes
    return b"data_base64", b'"%b"' % base64.b64encode(data)


def _is_bare_json(data: bytes) -> bool:
    """Whether it is JSON without surrounding white space, which would be lost."""
    if data[:1].isspace() or data[-1:].isspace():
        return False
    try:
        parse_json(data)
    except InvalidEvent:
        return False
    return True
