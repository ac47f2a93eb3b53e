"""The outermost level of a JSON text: members with the position of each value, so that data keeps its bytes.

Python does not preserve numbers such as 1.0 or 1e400. To get a value exactly as it was sent, cut it out of the text.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from romancy.core.model import show
from romancy.core.strict_json import Reader
from romancy.errors import InvalidEvent
from romancy.http.cloudevents.model import TooLarge

BODY = Reader("the body", InvalidEvent, exact=True)
_PLAIN = r'[^"\\\x00-\x1f]*+'
_MEMBER = re.compile(rf'[ \t\n\r]*"({_PLAIN}(?:\\.{_PLAIN})*+)"[ \t\n\r]*:[ \t\n\r]*(?:"({_PLAIN})"[ \t\n\r]*([,}}]))?')
"""A name and the colon; if a string without escapes follows, as usual, also that and the next character."""
_BLANK = re.compile(r"[ \t\n\r]*")
_AFTER = re.compile(r"[ \t\n\r]*([,}\]])")


class Member(NamedTuple):
    """A name, its parsed value, and the position of the value in the text."""

    name: str
    value: Any
    start: int
    end: int


class Element(NamedTuple):
    """One element of an array: its members if it is an object, and its position in the text."""

    members: list[Member] | None
    start: int


def skip_blank(text: str, at: int) -> int:
    """The position after any white space."""
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
            raise _malformed("expected a name in double quotes and a colon", text, at)
        name, value, mark = match.groups()
        at = match.end()
        if "\\" in name:
            name, _ = BODY.read_at(text, match.start(1) - 1)
        if mark is None:
            start = at
            value, end = BODY.read_at(text, start)
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
            raise TooLarge(f"the batch has more than the {most:,} events allowed; send it in parts")
        start = skip_blank(text, at)
        if text.startswith("{", start):
            inside, at = members(text, start)
        else:
            inside, (_, at) = None, BODY.read_at(text, start)
        found.append(Element(inside, start))
        mark, at = _after(text, at, "]")
    return found, at


def _after(text: str, at: int, closing: str) -> tuple[str, int]:
    """The comma or closing bracket after a value, and where it ends."""
    match = _AFTER.match(text, at)
    if match is None or match[1] not in (",", closing):
        raise _malformed(f"expected a comma or {closing}", text, skip_blank(text, at))
    return match[1], match.end()


def _malformed(what: str, text: str, at: int) -> InvalidEvent:
    return InvalidEvent(f"the body is not valid JSON: {what} at character {at}, found {show(text[at : at + 40])}")
