"""Times and values in words."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from romancy.core.durations import span
from romancy.core.model import Status
from romancy.core.visible import printable
from romancy.records import CODE, Wait

RESERVED: frozenset[Status] = frozenset({"compensating"})
"""Statuses no instance has yet: accepted everywhere, offered nowhere."""
_NEVER = datetime.max.replace(tzinfo=UTC)
_FRAME = re.compile(r'^ *File "(.+)", line \d+', re.MULTILINE)
_OURS = re.compile(r"[/\\](?:romancy[/\\](?:api|core|engine|storage|app\.py)|asyncio[/\\])")


def relative(moment: datetime, now: datetime) -> str:
    """`in 4 min 10 s`, `3 min ago`, `now`: what is left to wait is told more exactly."""
    seconds = (moment - now).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds, finer=False)} ago"


def when(moment: datetime | None, now: datetime) -> str:
    """Local time, and how far off that is: `2026-01-02T03:04:05+01:00 (in 4 min)`."""
    if moment is None:
        return ""
    if moment == _NEVER:
        return "never"
    try:
        shown = moment.astimezone()
    except (OverflowError, OSError, ValueError):  # too far off for the machine's time zone
        shown = moment
    return f"{shown.isoformat(timespec='seconds')} ({relative(moment, now)})"


def clean(text: str) -> str:
    """Text that can't move the cursor, change colours or turn around: whatever is not printable is an escape."""
    return printable(text)


def one_line(text: str, limit: int) -> str:
    """Text of several lines, or a long one, as a short line."""
    line = " ".join(text.split())
    return clean(line if len(line) <= limit else f"{line[: limit - 3]}...")


def value(given: Any, limit: int | None = None) -> str:
    """A stored value as one line: text as it is, everything else as JSON."""
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)
    return clean(text if limit is None or len(text) <= limit else f"{text[: limit - 3]}...")


def error_line(error: Mapping[str, Any] | None) -> str:
    """`ValueError: boom`"""
    return "" if error is None else clean(f"{error['type']}: {error['message']}")


def is_worth_showing(traceback: str) -> bool:
    """Whether a traceback leads through the user's code; one through nothing but Romancy tells them nothing."""
    return any(not _OURS.search(file) for file in _FRAME.findall(traceback))


def place(location: str) -> str:
    """A line of code, as seen from here."""
    path, _, rest = location.partition(":")
    inside = os.path.relpath(path) if path.startswith(os.getcwd() + os.sep) else path
    return clean(f"{inside}:{rest}" if rest else inside)


def wanted(wait: Wait) -> str:
    """What a wait is for, with what narrows it: `paid, refused where order.id = 7`."""
    if wait.kind == "retry":
        if wait.wait_id == CODE:
            return one_line(wait.error or "its code", 300)
        return one_line(f"next attempt after {wait.error}" if wait.error else "next attempt", 300)
    parts = [", ".join(wait.types)]
    parts += [f"where {path} = {json.dumps(want, default=str)}" for path, want in wait.where.items()]
    parts += [f"{name} = {want!r}" for name, want in (("subject", wait.subject), ("source", wait.source)) if want]
    return clean(" ".join(filter(None, parts)))


def plural(n: int, noun: str) -> str:
    """`1 event`, `2 events`, `3 entries`."""
    if n != 1 and noun.endswith("y"):
        return f"{n} {noun[:-1]}ies"
    return f"{n} {noun}{'' if n == 1 else 's'}"
