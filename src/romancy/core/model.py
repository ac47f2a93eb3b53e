"""Shared data types: events, statuses, durations."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Generic, Literal, TypeAlias, TypeVar

T_co = TypeVar("T_co", covariant=True)

Duration: TypeAlias = timedelta | float
"""A length of time: a `timedelta`, or a number of seconds."""
Scalar: TypeAlias = str | int | bool | None
"""What `where=` compares with: text, a whole number, true, false, or None."""
Attribute: TypeAlias = str | int | bool
Status: TypeAlias = Literal[
    "queued",
    "running",
    "waiting_for_event",
    "waiting_for_timer",
    "waiting_for_child",
    "compensating",
    "completed",
    "failed",
    "cancelled",
    "blocked",
]
"""The status of an instance. `completed`, `failed` and `cancelled` are final; `blocked` lasts until you resume it."""
WaitKind: TypeAlias = Literal["event", "timer", "activity", "retry", "child", "queue", "answer"]
"""`retry` is an activity between two attempts."""
BUSIEST_FIRST: tuple[Status, ...] = ("running", "waiting_for_event", "waiting_for_timer", "waiting_for_child")
"""The statuses of open operations. An instance has the first one that any of its operations has."""
WAITING: frozenset[Status] = frozenset(BUSIEST_FIRST[1:])
"""The instance only waits: no worker is busy with it."""
WORKING: frozenset[Status] = frozenset({"running", "compensating"})
"""The instance has work to do: a worker is busy with it, or should be."""
FINAL: frozenset[Status] = frozenset({"completed", "failed", "cancelled"})
STOPPED: frozenset[Status] = frozenset({*FINAL, "blocked"})
"""The instance does not run any more; a blocked one runs again once it is resumed."""

MICROSECOND = 1
SECOND = 1_000_000 * MICROSECOND
FOREVER_US = 2**62
"""Later than any date Python can represent. Durations are capped here."""

MAX_RESULT = 16 * 1024 * 1024
"""Maximum bytes of one input or result. Store larger data elsewhere and pass a reference."""

MAGIC = b"\0romancy\xa7\x1e\x01"
"""How values begin that a codec has sealed. The data of an event must not."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Short(reprlib.Repr):
    def repr_Decimal(self, x: Decimal, level: int) -> str:
        """Return a number as in JSON."""
        return str(x)[: self.maxother]


_short = _Short()
_short.maxstring = _short.maxother = 60
show = _short.repr
"""Return a short `repr` of a value, for messages."""


def to_us(moment: datetime) -> int:
    """Return an aware datetime as integer microseconds since the epoch, exactly."""
    if not isinstance(moment, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"expected an aware datetime, got {moment!r}")
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone; use an aware datetime, e.g. datetime.now(timezone.utc)")
    return (moment - EPOCH) // timedelta(microseconds=1)


@lru_cache(maxsize=64)  # hooks get the same times several times
def from_us(us: int) -> datetime:
    """Return integer microseconds since the epoch as an aware UTC datetime."""
    try:
        return EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def duration_us(duration: Duration, what: str = "duration") -> int:
    """Return a duration in microseconds, rounded up so that nothing is ever early."""
    if isinstance(duration, timedelta):
        us = duration // timedelta(microseconds=1)
    elif isinstance(duration, bool) or not isinstance(duration, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"{what} must be a timedelta or a number of seconds, not {duration!r}")
    elif math.isnan(duration):
        raise ValueError(f"{what} must be a number of seconds, not NaN")
    else:
        us = FOREVER_US if duration > FOREVER_US / SECOND else math.ceil(round(duration * SECOND, 3))
    if us < 0:
        raise ValueError(f"{what} must not be negative, got {duration!r}")
    return min(us, FOREVER_US)


@dataclass(slots=True)
class Event:
    """A CloudEvent as it is stored: data as the received bytes, times in microseconds.

    Never changed once it is created. Not frozen, because creating one would take three times as long.
    """

    id: str
    source: str
    type: str
    data: bytes | None = None
    subject: str | None = None
    time: int | None = None
    datacontenttype: str | None = None
    dataschema: str | None = None
    extensions: Mapping[str, Attribute] | None = None
    target: str | None = None
    accepted_at: int = 0
    expires_at: int | None = None
    seq: int = 0
    parsed: Any = field(default=None, repr=False, compare=False)
    """The data as strict JSON, where it was parsed on the way in."""
    origin: str | None = field(default=None, compare=False)
    """How it came in from outside: "http", "webhook". None: the app itself sent it, and its sinks pass it on."""

    def accepted(self, at: int) -> Event:
        """Return the event as accepted at this time, which also becomes its own time if it has none."""
        return Event(  # `dataclasses.replace` takes more than twice as long
            self.id,
            self.source,
            self.type,
            self.data,
            self.subject,
            at if self.time is None else self.time,
            self.datacontenttype,
            self.dataschema,
            self.extensions,
            self.target,
            at,
            self.expires_at,
            self.seq,
            self.parsed,
            self.origin,
        )


@dataclass(frozen=True)
class ReceivedEvent(Generic[T_co]):
    """An event as workflow code sees it. `data` is parsed with `model=`, or is plain JSON.

    `time` is when it happened, as its sender says, or else when it was accepted. Don't trust it for deadlines.
    """

    data: T_co
    type: str
    source: str
    id: str
    time: datetime
    subject: str | None
    datacontenttype: str | None
    dataschema: str | None
    extensions: Mapping[str, Attribute]


JSON: TypeAlias = Any
