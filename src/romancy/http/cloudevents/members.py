"""The outermost level of a JSON text: members with the position of each value, so that data keeps its bytes.

Python does not preserve numbers such as 1.0 or 1e400. To get a value exactly as it was sent, cut it out of the text.
"""

from __future__ import annotations

import re
from collections import Counter
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
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")


class Member(NamedTuple):
    """A name, its parsed value, and the position of the value in the text."""

    name: str
    value: Any
    start: int
    end: int


class Object(NamedTuple):
    """The values of an object by name, except `data`. `twice` is a name that it has more than once."""

    values: dict[str, Any]
    data: Member | None
    twice: str | None = None


class Element(NamedTuple):
    """One element of an array: what it is if it is an object, and its position in the text."""

    object: Object | None
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


def read_object(text: str, at: int) -> tuple[Object, int]:
    """The object that starts here, and where it ends."""
    usual = _usual(text, at)
    if usual is not None:
        return usual
    found, end = members(text, at)
    by_name = {member.name: member for member in found}
    repeated = len(by_name) < len(found)
    twice = Counter(member.name for member in found).most_common(1)[0][0] if repeated else None
    data = by_name.pop("data", None)
    return Object({name: member.value for name, member in by_name.items()}, data, twice), end


def _usual(text: str, at: int) -> tuple[Object, int] | None:
    """Like `read_object`, in half the time. None if there is any doubt, and if the text is not valid JSON."""
    try:
        found, end = BODY.read_at(text, at)
    except (InvalidEvent, RecursionError):
        return None
    if "data" not in found:
        return Object(found, None), end
    name = text.find('"data"', at, end)
    if text.find('"data"', name + 1, end) >= 0 or text.find("\\u", at, end) >= 0:
        return None  # another one may be in a value, or the name be written with an escape
    colon = _COLON.match(text, name + len('"data"'))
    if colon is None:
        return None
    start = colon.end()
    if next(reversed(found)) == "data":
        stop = start + len(text[start : end - 1].rstrip(" \t\n\r"))
    else:
        _, stop = BODY.read_at(text, start)
    return Object(found, Member("data", found.pop("data"), start, stop)), end


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
            inside, at = read_object(text, start)
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
