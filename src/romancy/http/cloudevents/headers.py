"""Binary mode: attributes as headers, data as the body.

A value is read in this order: bytes as UTF-8 (as Latin-1 if they are not), double-quoted parts without their quotes,
then exactly one round of percent-decoding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote_to_bytes

from romancy.core.history import is_json
from romancy.core.model import Event, show
from romancy.errors import InvalidEvent
from romancy.http.cloudevents.attributes import make
from romancy.http.cloudevents.model import Limits, UnsupportedFormat

_PREFIX = b"ce-"
_QUOTE = r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
_QUOTED = re.compile(_QUOTE, re.DOTALL)
_CLOSED = re.compile(rf'[^"]*+(?:{_QUOTE}[^"]*+)*+', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_LONE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CHARSET = re.compile(r';\s*charset\s*=\s*"?([^\s;"]*)', re.IGNORECASE)
_UTF_8 = frozenset(("utf-8", "utf8", "us-ascii", "ascii"))


def split(headers: Iterable[tuple[bytes, bytes]]) -> tuple[str | None, list[tuple[str, bytes]]]:
    """The content type, and the headers that are attributes, without their prefix."""
    content_type: str | None = None
    attributes: list[tuple[str, bytes]] = []
    for name, value in headers:
        name = name.lower()
        if name.startswith(_PREFIX):
            attributes.append((name[3:].decode("latin-1"), value))
        elif name == b"content-type":
            if content_type is not None:
                raise InvalidEvent("the Content-Type header is repeated; send it once")
            content_type = value.decode("latin-1").strip(" \t")
    return content_type or None, attributes


def parse_binary(content_type: str | None, headers: list[tuple[str, bytes]], body: bytes, limits: Limits) -> Event:
    """The event with these headers as attributes; an empty body means no data."""
    attributes: dict[str, Any] = {}
    for name, value in headers:
        if name in attributes:
            raise InvalidEvent(f"the header {show('ce-' + name)} is repeated; send each attribute once")
        attributes[name] = decode_value(name, value, limits.strict)
    if "datacontenttype" in attributes:
        raise InvalidEvent("the header ce-datacontenttype must not be sent; Content-Type says what the data is")
    if content_type is not None:
        attributes["datacontenttype"] = content_type
    if body and is_json(content_type):
        check_charset(content_type or "")
    return make(attributes, body or None, limits)


def check_charset(content_type: str) -> None:
    """Refuse a charset other than UTF-8, which JSON requires."""
    charset = _CHARSET.search(content_type)
    if charset and charset[1].lower() not in _UTF_8:
        raise UnsupportedFormat(f"JSON must be UTF-8, not charset {show(charset[1])}; encode the body as UTF-8")


def decode_value(name: str, value: bytes, strict: bool) -> str:
    """The text of a header value."""
    text = _to_text(name, value, strict).strip(" \t")
    if '"' in text:
        text = _unquote(name, text)
    return _percent_decode(name, text, strict) if "%" in text else text


def _to_text(name: str, value: bytes, strict: bool) -> str:
    if strict and not value.isascii():
        raise _bad(name, value, "contains non-ASCII bytes; percent-encode them")
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _unquote(name: str, text: str) -> str:
    if not _CLOSED.fullmatch(text):
        raise _bad(name, text, "has a double quote that is not closed; send a quote as %22")
    return _QUOTED.sub(lambda quoted: _ESCAPED.sub(r"\1", quoted[1]), text)


def _percent_decode(name: str, text: str, strict: bool) -> str:
    if strict and _LONE_PERCENT.search(text):
        raise _bad(name, text, "has a % that does not begin an escape; send it as %25")
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise _bad(name, text, "is not UTF-8 when percent-decoded; encode the text as UTF-8 first") from None


def _bad(name: str, value: str | bytes, what: str) -> InvalidEvent:
    return InvalidEvent(f"the header {show('ce-' + name)} {what}, got {show(value)}")
