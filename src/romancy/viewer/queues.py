"""The page that shows queues: their limits, what runs and waits, and whose turn is next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from romancy.core.admission import KeyState, QueueState, allowed, next_at, opens_at, room, room_of_key
from romancy.core.model import FINAL, from_us
from romancy.core.queues import Queue, Rate
from romancy.cursors import read_cursor, write_cursor
from romancy.http.responses import Response
from romancy.http.routes import Request
from romancy.obstacles import rate_words
from romancy.records import (
    QueueRecord,
    to_queue_record,
)
from romancy.storage.batch import STATUS_CODES
from romancy.storage.queues import Queues, WaitingKey
from romancy.viewer.catalog import CAP
from romancy.viewer.html import page
from romancy.viewer.pages import Query

SHOWN, KEYS, FIRST = 50, 20, 3
"""How many queues a page shows, how many keys of each, and how many instances of each key."""
HOLDING = [status for status in STATUS_CODES if status not in FINAL and status != "queued"]
"""The statuses of instances that hold a slot."""


@dataclass(frozen=True, slots=True)
class KeyLine:
    """A key that has instances waiting, in the order of turns."""

    shown: WaitingKey
    first: Sequence[str]
    """The instances that are next."""
    why: str
    """What it waits for, if this process knows the limits."""
    opens_at: datetime | None

    @property
    def oldest_at(self) -> datetime | None:
        return None if self.shown.oldest_at is None else from_us(self.shown.oldest_at)


@dataclass(frozen=True, slots=True)
class Line:
    """A queue as the page shows it."""

    record: QueueRecord
    queue: Queue | None
    """Its limits; None if the code of this process does not have it."""
    limits: Sequence[str]
    rate: str
    opens_at: datetime | None
    """When the rate allows the next instance, if it is used up."""
    keys: Sequence[KeyLine]
    has_more_keys: bool


async def queues(request: Request) -> Response:
    """The queues by name, with the keys whose turn is next."""
    query: Query = request.query
    known, storage = request.runtime.registry.queues, request.runtime.engine.storage
    (after,) = read_cursor(query.cursor, str) or ("",)
    records = list(map(to_queue_record, await storage.catalog.queues(known, after, SHOWN + 1)))
    now, shown = request.runtime.clock.now(), records[:SHOWN]
    lines = [await _line(storage.queues, record, known.get(record.name), now) for record in shown]
    more = write_cursor((shown[-1].name,)) if len(records) > SHOWN else None
    about: dict[str, Any] = {"holding": HOLDING, "now": from_us(now), "cap": CAP, "is_first": query.cursor is None}
    return page(request, "queues.html", lines=lines, cursor=more, **about)


async def _line(storage: Queues, record: QueueRecord, queue: Queue | None, now: int) -> Line:
    turn, reserved = await storage.turn(record.name)
    keys = await _next_keys(storage, record.name, turn) if record.waiting else []
    first = await storage.first(record.name, [key.key for key in keys[:KEYS]], FIRST) if keys else {}
    state = QueueState(0, turn, reserved, record.running, record.waiting > 0)
    lines = [_key_line(queue, state, key, first[key.key], now) for key in keys[:KEYS]]
    rate, opens = ("", None) if queue is None or queue.rate is None else _rate_used(queue.rate, reserved, now)
    return Line(record, queue, _limits(queue), rate, opens, lines, len(keys) > KEYS)


async def _next_keys(storage: Queues, queue: str, turn: str | None) -> list[WaitingKey]:
    """Return the keys in the order of their turns: those after the one that was served last, then the others."""
    keys = await storage.shown_keys(queue, turn, KEYS + 1, CAP)
    if turn is None or len(keys) > KEYS:
        return keys
    return keys + [key for key in await storage.shown_keys(queue, None, KEYS + 1, CAP) if key.key <= turn]


def _key_line(queue: Queue | None, state: QueueState, key: WaitingKey, first: Sequence[str], now: int) -> KeyLine:
    if queue is None:
        return KeyLine(key, first, "", None)
    held = KeyState(key.key, key.running, key.reserved)
    if room_of_key(queue, held, now) == 0:
        opens = None if queue.max_concurrent_per_key == key.running else next_at_key(queue, held, now)
        return KeyLine(key, first, "its rate" if opens else "an end: its key is at the limit", opens)
    if room(queue, state, now) == 0:
        opens = opens_at(queue, state, (), now)
        return KeyLine(key, first, "the rate" if opens else "an end: the queue is at its limit", _time(opens))
    return KeyLine(key, first, "a worker", None)


def next_at_key(queue: Queue, key: KeyState, now: int) -> datetime | None:
    """Return when the rate of a key allows the next instance; None if the rate is not what holds it back."""
    rate = queue.rate_per_key
    return None if rate is None or allowed(rate, key.reserved, now) else _time(next_at(rate, key.reserved))


def _time(at: int | None) -> datetime | None:
    return None if at is None else from_us(at)


def _rate_used(rate: Rate, reserved: int, now: int) -> tuple[str, datetime | None]:
    n = allowed(rate, reserved, now)
    return (f"{n:,} can begin now", None) if n else ("used up", from_us(next_at(rate, reserved)))


def _limits(queue: Queue | None) -> list[str]:
    if queue is None:
        return []
    given = [
        (queue.max_concurrent, "at most {} at a time"),
        (queue.max_concurrent_per_key, "at most {} of a key at a time"),
        (queue.rate, "{}"),
        (queue.rate_per_key, "{} for each key"),
        (queue.max_waiting, "at most {} waiting"),
    ]
    return [text.format(_words(value)) for value, text in given if value is not None]


def _words(value: int | Rate) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return rate_words(value)
