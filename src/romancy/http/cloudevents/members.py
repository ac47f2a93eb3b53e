"""The outermost level of a JSON text: members with the place of each value, so that data keeps its bytes.

A number such as 1.0, 1e400 or one of 20 digits is no longer what was sent once it has been through Python. So the
values are parsed only to find where they end; whoever needs one as it was sent cuts it out of the text.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from romancy.core.model import show
from romancy.errors import InvalidEvent
from romancy.http.cloudevents.model import TooLarge

_PLAIN = r'[^"\\\x00-\x1f]*+'
_MEMBER = re.compile(rf'[ \t\n\r]*"({_PLAIN}(?:\\.{_PLAIN})*+)"[ \t\n\r]*:[ \t\n\r]*(?:"({_PLAIN})"[ \t\n\r]*([,}}]))?')
"""A name and the colon; if a text without escapes follows, as it nearly always does, also that and what comes next."""
_BLANK = re.compile(r"[ \t\n\r]*")
_AFTER = re.compile(r"[ \t\n\r]*([,}\]])")


class Member(NamedTuple):
    """A name, its value as an attribute would have it, and where in the text that value is."""

    name: str
    value: Any
    start: int
    end: int


class Element(NamedTuple):
    """One of an array: the members if it is an object, and where in the text it is."""

    members: list[Member] | None
    start: int


def decode(body: bytes) -> str:
    """The body as text; JSON is UTF-8 without a byte order mark."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InvalidEvent(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    if text.startswith("\ufeff"):
        raise InvalidEvent("the body starts with a byte order mark, which JSON does not allow; send it without")
    return text


def skip_blank(text: str, at: int) -> int:
    """Where the next thing that is not white space begins."""
    match = _BLANK.match(text, at)
    return match.end() if match else at


def members(text: str, at: int) -> tuple[list[Member], int]:
    """The members of the object that starts here, and where it ends."""
    found: list[Member] = []
    at = skip_blank(text, at + 1)
    if text.startswith("}", at):
        return found, at + 1
    mark = ","
    while mark == ",":
        match = _MEMBER.match(text, at)
        if match is None:
            raise _malformed("a name in double quotes and a colon are expected", text, at)
        name, value, mark = match.groups()
        at = match.end()
        if "\\" in name:
            name, _ = _parse(text, match.start(1) - 1)
        if mark is None:
            start = at
            value, end = _parse(text, start)
            mark, at = _after(text, end, "}")
        else:
            start, end = match.start(2) - 1, match.end(2) + 1
        found.append(Member(name, value, start, end))
    return found, at


def elements(text: str, at: int, most: int) -> tuple[list[Element], int]:
    """The elements of the array that starts here, and where it ends; `TooLarge` if there are more than `most`."""
    found: list[Element] = []
    at = skip_blank(text, at + 1)
    if text.startswith("]", at):
        return found, at + 1
    mark = ","
    while mark == ",":
        if len(found) == most:
            raise TooLarge(f"a batch may hold {most:,} events, this one has more; send it in parts")
        start = skip_blank(text, at)
        if text.startswith("{", start):
            inside, at = members(text, start)
        else:
            inside, (_, at) = None, _parse(text, start)
        found.append(Element(inside, start))
        mark, at = _after(text, at, "]")
    return found, at


def _parse(text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise InvalidEvent(f"the body is not JSON: {error}") from None


def _after(text: str, at: int, closing: str) -> tuple[str, int]:
    """What follows a value: a comma or the closing bracket, and where that ends."""
    match = _AFTER.match(text, at)
    if match is None or match[1] not in (",", closing):
        raise _malformed(f"a comma or {closing} is expected", text, skip_blank(text, at))
    return match[1], match.end()


def _malformed(what: str, text: str, at: int) -> InvalidEvent:
    return InvalidEvent(f"the body is not JSON: {what} at character {at}, found {show(text[at : at + 40])}")


def _integer(text: str) -> int | float:
    # No attribute has more digits than this, and Python refuses to read thousands of them.
    return int(text) if len(text) <= 11 else float(text)


def _no_constant(name: str) -> Any:
    raise InvalidEvent(f"the body holds {name}, which is not JSON; send null or text instead")


_DECODER = json.JSONDecoder(parse_int=_integer, parse_constant=_no_constant)
