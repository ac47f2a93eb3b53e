"""Queues: how many instances may run at a time, and how fast they may begin.

An instance of a workflow with a queue is stored as `queued`. It is *admitted* when the limits allow it, and then holds
a *slot* until it ends, whichever worker runs it: its row says so, and nothing else. So a slot can't get lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from romancy.core.model import SECOND, Duration, duration_us
from romancy.errors import InvalidInput

MAX_KEY = 255
"""Characters of a key, and of the name of a queue."""
MOST_PRIORITY = 2**31 - 1
NO_KEY = ""
"""The key of instances that have none."""


@dataclass(frozen=True)
class Rate:
    """At most `count` instances begin in every period `per`, evenly spread. Up to `burst` of them begin at once.

    >>> Queue("mail", rate=Rate(100, timedelta(minutes=1)))

    After a pause, `burst` instances can begin at the same moment, `count` by default. With `burst=1`, each begins
    `per / count` after the one before.
    """

    count: int
    per: Duration
    burst: int | None = None

    def __post_init__(self) -> None:
        _check_positive("Rate", "count", self.count)
        if self.burst is not None:
            _check_positive("Rate", "burst", self.burst)
        if duration_us(self.per, "per") < 1:
            raise ValueError(f"Rate: per must be a positive duration, got {self.per!r}")


class Queue:
    """Limits for the instances of one or more workflows. They hold over all workers.

    >>> mail = Queue("mail", max_concurrent=50, max_concurrent_per_key=2, rate=Rate(100, timedelta(minutes=1)))
    >>> @workflow(queue=mail, key="customer")
    ... async def send_mail(ctx: WorkflowContext, customer: str, text: str) -> None: ...

    An instance is `queued` until it is admitted, and counts until it ends; a blocked one counts, too. Keys take turns;
    within a key, a higher priority comes first, then the instance that was started first. Time limits run from the
    admission. `max_waiting` bounds how many wait while no slot is free: another start raises `QueueFull`. Children, and
    instances started by events, are never refused.
    """

    def __init__(
        self,
        name: str,
        *,
        max_concurrent: int | None = None,
        max_concurrent_per_key: int | None = None,
        rate: Rate | None = None,
        rate_per_key: Rate | None = None,
        max_waiting: int | None = None,
    ) -> None:
        if not isinstance(name, str) or not 0 < len(name) <= MAX_KEY or not name.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"the name of a queue must be 1 to {MAX_KEY} printable characters, got {name!r}")
        self.name = name
        self.max_concurrent = _check_limit(name, "max_concurrent", max_concurrent)
        self.max_concurrent_per_key = _check_limit(name, "max_concurrent_per_key", max_concurrent_per_key)
        self.max_waiting = _check_limit(name, "max_waiting", max_waiting)
        for what, given in (("rate", rate), ("rate_per_key", rate_per_key)):
            if given is not None and not isinstance(given, Rate):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"queue {name!r}: {what} must be a Rate, e.g. Rate(100, 60), got {given!r}")
        self.rate, self.rate_per_key = rate, rate_per_key

    def __repr__(self) -> str:
        given = {name: value for name, value in vars(self).items() if name != "name" and value is not None}
        return f"Queue({', '.join([repr(self.name), *(f'{name}={value!r}' for name, value in given.items())])})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Queue) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self.name)


class Place(NamedTuple):
    """Where an instance waits: its queue, its key there, and its priority."""

    queue: str
    key: str = NO_KEY
    priority: int = 0


class Arrivals:
    """Gives each start that waits in a queue a moment of its own.

    Who comes first is decided by the time of the start, and ids don't sort by it. Several starts can have the same
    microsecond: children of one step, events of one batch, and everything while the clock of a test stands still.
    """

    def __init__(self) -> None:
        self._last = 0

    def next(self, now: int) -> int:
        """Return the current time, or the first microsecond after the last one that was given."""
        is_ahead = now <= self._last < now + SECOND  # further ahead: the clock was set back
        self._last = self._last + 1 if is_ahead else now
        return self._last


def check_key(key: object) -> str:
    """Return the key of one start: text that databases can store and people can read. Integers become text."""
    if isinstance(key, int):
        key = str(key).lower() if isinstance(key, bool) else str(key)  # True becomes "true", as in JSON
    if not isinstance(key, str) or len(key) > MAX_KEY or not (key == "" or key.isprintable()):
        raise InvalidInput(
            f"the key of a queue must be a string of at most {MAX_KEY} printable characters, or an integer, got {key!r}"
        )
    return key


def check_priority(priority: object) -> int:
    """Check a priority: higher ones come first."""
    if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > MOST_PRIORITY:
        raise InvalidInput(f"priority must be a whole number of at most {MOST_PRIORITY}, got {priority!r}")
    return priority


def _check_limit(queue: str, what: str, value: int | None) -> int | None:
    if value is not None:
        _check_positive(f"queue {queue!r}", what, value)
    return value


def _check_positive(where: str, what: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{where}: {what} must be a whole number of at least 1, got {value!r}")
