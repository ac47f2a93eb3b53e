"""Times and values as text for people."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from romancy.core.durations import lasting
from romancy.core.filters import Filter
from romancy.core.model import from_us
from romancy.records import HistoryEntry, Wait
from romancy.storage.batch import STATUS_CODES

_NEVER = datetime.max.replace(tzinfo=UTC)
SHOWN = 300
"""Maximum characters of a value in a table."""


def stamp(moment: datetime) -> str:
    """A time for machines."""
    return "" if moment == _NEVER else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def absolute(moment: datetime) -> str:
    return "never" if moment == _NEVER else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def clock_time(moment: datetime, now: datetime) -> str:
    """A time of today as `12:03`, and any other time with its date."""
    return f"{moment:%H:%M}" if moment.date() == now.date() else f"{moment:%Y-%m-%d %H:%M}"


def pretty(value: Any) -> str:
    """A stored value: text as it is, everything else as indented JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)


def brief(value: Any, limit: int = SHOWN) -> str:
    """A value on one line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    line = " ".join(text[: limit * 4].split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def error_line(error: Mapping[str, Any] | None) -> str:
    return "" if error is None else f"{error['type']}: {error['message']}"


def narrowing(wait: Wait) -> list[str]:
    """The conditions of a wait besides the type: `order.id = 7`."""
    parts = [f"{path} = {json.dumps(value, ensure_ascii=False, default=str)}" for path, value in wait.where.items()]
    return parts + [f"{name} = {text!r}" for name, text in (("subject", wait.subject), ("source", wait.source)) if text]


def waited_for(stored: Any) -> str:
    """What a history entry waited for, as written in the code."""
    try:
        narrow = Filter.from_json(stored.get("filter", {}))
        types = ", ".join(stored["types"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return pretty(stored)  # written by another version: show it as it is
    where = [f"{'.'.join(map(str, path))} = {json.dumps(value, default=str)}" for path, value in narrow.where]
    where += [f"{name} = {text!r}" for name, text in (("subject", narrow.subject), ("source", narrow.source)) if text]
    return "\n".join([types, *where])


def attempt_words(entry: HistoryEntry) -> str:
    """The times in a failed attempt's mark: `ran for 120 ms; the next was due 2 s later`."""
    if not entry.input:
        return ""  # it is sealed, and there is no key
    pause = f"the next was due {lasting((from_us(entry.input['next']) - entry.at).total_seconds())} later"
    began = entry.input.get("began")
    if began is None:
        return pause
    took = lasting((entry.at - from_us(began)).total_seconds())
    return f"ran for {took}; {pause}" if entry.input["attempt"] == 1 else f"failed {took} after it was due; {pause}"


def middle(id: str, limit: int = 24) -> str:
    """A long id without its middle, since similar ids differ at one end."""
    return id if len(id) <= limit else f"{id[: limit // 2]}…{id[-(limit // 3) :]}"


def cut(text: str, limit: int) -> str:
    """A long text without its end; line breaks are kept."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def place(location: str) -> str:
    """The location without its folders: `shop.py:12 in order`."""
    path, colon, rest = location.rpartition(":")
    return f"{path.replace(chr(92), '/').rpartition('/')[2]}{colon}{rest}"


def count(n: int, cap: int) -> str:
    return f"{cap - 1:,}+" if n >= cap else f"{n:,}"


def size(n: int) -> str:
    """A number of bytes: `312 B`, `1.2 kB`."""
    return f"{n} B" if n < 1000 else f"{n / 1000:,.1f} kB" if n < 1_000_000 else f"{n / 1_000_000:,.1f} MB"


def curl(body: Any, path: str, content_type: str = "application/json", with_token: bool = False) -> str:
    """A command that posts to this server. `{origin}` is where the visitor's browser found it."""
    token = ' -H "Authorization: Bearer $ROMANCY_TOKEN"' if with_token else ""
    sent = shlex.quote(json.dumps(body, default=str))
    return f"curl -X POST '{{origin}}{path}' -H 'Content-Type: {content_type}'{token} -d {sent}"


def url_part(text: str) -> str:
    """Quote text as one segment of a path."""
    return quote(text, safe="")


STATUS_WORDS: Mapping[str, str] = {status: status.replace("_", " ") for status in (*STATUS_CODES, "retrying")}
"""Statuses as people read them. "retrying" is only shown: its activity failed and is tried again."""
