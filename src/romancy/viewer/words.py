"""Times and values as people read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from romancy.core.durations import lasting
from romancy.core.filters import Filter
from romancy.core.model import from_us
from romancy.records import HistoryEntry, Wait

_NEVER = datetime.max.replace(tzinfo=UTC)
SHOWN = 300
"""Characters of a value in a table."""


def stamp(moment: datetime) -> str:
    """For machines."""
    return "" if moment == _NEVER else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def absolute(moment: datetime) -> str:
    return "never" if moment == _NEVER else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def pretty(value: Any) -> str:
    """A stored value, to be read: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)


def brief(value: Any, limit: int = SHOWN) -> str:
    """A value on one line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    line = " ".join(text[: limit * 4].split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def error_line(error: Mapping[str, Any] | None) -> str:
    return "" if error is None else f"{error['type']}: {error['message']}"


def narrowing(wait: Wait) -> list[str]:
    """What a wait asks of an event besides its type: `order.id = 7`."""
    parts = [f"{path} = {json.dumps(want, ensure_ascii=False, default=str)}" for path, want in wait.where.items()]
    return parts + [f"{name} = {want!r}" for name, want in (("subject", wait.subject), ("source", wait.source)) if want]


def waited_for(stored: Any) -> str:
    """What an entry of the history says was waited for, as it was written in the code."""
    try:
        narrow = Filter.from_json(stored.get("filter", {}))
        types = ", ".join(stored["types"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return pretty(stored)  # written by another version: as it is
    where = [f"{'.'.join(map(str, path))} = {json.dumps(value, default=str)}" for path, value in narrow.where]
    where += [f"{name} = {want!r}" for name, want in (("subject", narrow.subject), ("source", narrow.source)) if want]
    return "\n".join([types, *where])


def attempt_words(entry: HistoryEntry) -> str:
    """What a failed attempt's mark says of time: `ran for 120 ms; the next was due 2 s later`."""
    rest = f"the next was due {lasting((from_us(entry.input['next']) - entry.at).total_seconds())} later"
    began = entry.input.get("began")
    if began is None:
        return rest
    took = lasting((entry.at - from_us(began)).total_seconds())
    return f"ran for {took}; {rest}" if entry.input["attempt"] == 1 else f"failed {took} after it was due; {rest}"


def middle(id: str, limit: int = 24) -> str:
    """A long id without its middle: ids that are alike differ at one end."""
    return id if len(id) <= limit else f"{id[: limit // 2]}…{id[-(limit // 3) :]}"


def cut(text: str, limit: int) -> str:
    """A long text without its end; its lines stay lines."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def place(location: str) -> str:
    """`shop.py:12 in order` of a whole path."""
    path, colon, rest = location.rpartition(":")
    return f"{path.replace(chr(92), '/').rpartition('/')[2]}{colon}{rest}"


def count(n: int, cap: int) -> str:
    return f"{cap - 1:,}+" if n >= cap else f"{n:,}"


def url_part(text: str) -> str:
    """Anything as one part of a path."""
    return quote(text, safe="")


STATUS_WORDS: Mapping[str, str] = {
    "running": "running",
    "waiting_for_event": "waiting for event",
    "waiting_for_timer": "waiting for timer",
    "compensating": "compensating",
    "blocked": "blocked",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
}
