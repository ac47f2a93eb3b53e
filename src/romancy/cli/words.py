"""Format times and values as text."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from romancy.core.durations import span
from romancy.core.model import Status
from romancy.core.questions import operation_of
from romancy.core.visible import printable
from romancy.records import CODE, Wait

RARE: frozenset[Status] = frozenset({"compensating", "waiting_for_child", "queued"})
"""Statuses that are counted only if an instance has them."""
_NEVER = datetime.max.replace(tzinfo=UTC)
_FRAME = re.compile(r'^ *File "(.+)", line \d+', re.MULTILINE)
_OURS = re.compile(r"[/\\](?:romancy[/\\](?:api|core|engine|storage|app\.py)|asyncio[/\\])")


def relative(moment: datetime, now: datetime) -> str:
    """Format a time relative to now: `in 4 min 10 s`, `3 min ago`, `now`. Future times are more exact."""
    seconds = (moment - now).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds, finer=False)} ago"


def when(moment: datetime | None, now: datetime, said: str | None = None) -> str:
    """Format a time as local and relative time: `2026-01-02T03:04:05+01:00 (in 4 min)`. `said` replaces the latter."""
    if moment is None:
        return ""
    if moment == _NEVER:
        return "never"
    try:
        shown = moment.astimezone()
    except (OverflowError, OSError, ValueError):  # out of range for the local time zone
        shown = moment
    return f"{shown.isoformat(timespec='seconds')} ({said or relative(moment, now)})"


def clock_time(moment: datetime, now: datetime) -> str:
    """Format a time of today as `12:03`, and any other time with its date. It is local."""
    local, today = moment.astimezone(), now.astimezone()
    return f"{local:%H:%M}" if local.date() == today.date() else f"{local:%Y-%m-%d %H:%M}"


def clean(text: str) -> str:
    """Escape unprintable characters, so that text can't move the cursor, change colors or reverse its direction."""
    return printable(text)


def one_line(text: str, limit: int) -> str:
    """Join the lines of a text and cut it to a maximum length."""
    line = " ".join(text.split())
    return clean(line if len(line) <= limit else f"{line[: limit - 3]}...")


def value(given: Any, limit: int | None = None) -> str:
    """Format a stored value as one line: text unchanged, everything else as JSON."""
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)
    return clean(text if limit is None or len(text) <= limit else f"{text[: limit - 3]}...")


def error_line(error: Mapping[str, Any] | None) -> str:
    """Format an error as `ValueError: boom`."""
    return "" if error is None else clean(f"{error['type']}: {error['message']}")


def is_worth_showing(traceback: str) -> bool:
    """Whether a traceback leads through the user's code, not only through Romancy."""
    return any(not _OURS.search(file) for file in _FRAME.findall(traceback))


def place(location: str) -> str:
    """Format a code location relative to the current folder."""
    path, _, rest = location.partition(":")
    inside = os.path.relpath(path) if path.startswith(os.getcwd() + os.sep) else path
    return clean(f"{inside}:{rest}" if rest else inside)


def wanted(wait: Wait) -> str:
    """Describe what a wait is for, with its filters: `paid, refused where order.id = 7`."""
    if wait.kind == "retry":
        if wait.wait_id == CODE:
            return one_line(wait.error or "its code", 300)
        return one_line(f"next attempt after {wait.error}" if wait.error else "next attempt", 300)
    if wait.kind == "child":
        return clean(wait.child or "") + (", which goes on by itself" if wait.is_free else "")
    if wait.kind == "queue":
        return f"its turn in queue {clean(wait.wait_id)}"
    if wait.kind == "answer":
        return clean(f"the answer to {operation_of(wait.subject) if wait.subject else 'a question'}")
    parts = [", ".join(wait.types)]
    parts += [f"where {path} = {json.dumps(want, default=str)}" for path, want in wait.where.items()]
    parts += [f"{name} = {want!r}" for name, want in (("subject", wait.subject), ("source", wait.source)) if want]
    return clean(" ".join(filter(None, parts)))


def either(people: Sequence[str]) -> str:
    """Name people of whom one is meant: `ann or bob`, `ann, bob, eve or one of 4 others`."""
    if len(people) > 3:
        return f"{', '.join(people[:3])} or one of {plural(len(people) - 3, 'other')}"
    return " or ".join(people)


def shown_builds(builds: Sequence[str]) -> str:
    """Name the builds of the code that could not follow an instance: the last ones, if there are many."""
    names = ", ".join(map(clean, builds[-5:]))
    return f"{'build' if len(builds) == 1 else 'builds'} {names}{', ...' if len(builds) > 5 else ''}"


def plural(n: int, noun: str) -> str:
    """Format a count with its noun: `1 event`, `2 events`, `3 entries`."""
    if n != 1 and noun.endswith("y"):
        return f"{n} {noun[:-1]}ies"
    return f"{n} {noun}{'' if n == 1 else 's'}"
