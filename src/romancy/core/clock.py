"""The only module that reads the clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from romancy.core.model import SECOND

_RECHECK = 1.0
"""Seconds. An alarm checks the wall clock at least this often, to notice when it was set."""


_TICKING: int | None = getattr(time, "CLOCK_BOOTTIME", None)
"""A clock that also counts while the machine is suspended, if there is one."""


class Alarm(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """The clock of the engine: microseconds since the epoch, and alarms that are never early."""

    def now(self) -> int: ...
    def call_at(self, due: int, callback: Callable[[], None]) -> Alarm: ...


class SystemClock:
    """The machine's wall clock, or the database's once it follows one. Alarms ring on the running event loop."""

    def __init__(self) -> None:
        self._offset: int | None = None
        self._reached = 0

    def now(self) -> int:
        if self._offset is None:
            return time.time_ns() // 1000
        self._reached = max(self._reached, ticks() + self._offset)
        return self._reached

    def wall(self) -> int:
        """Return the time of this machine."""
        return time.time_ns() // 1000

    def follow(self, database_time: int, asked: int) -> None:
        """Follow a database that just reported its time; `asked` is our tick count when we asked for it.

        The database read its clock between then and now, so its time is now the reported one or later. A clock set
        to the reported time is never early. An offset that is still possible is kept, so a slow answer does no harm.
        """
        least, most = database_time - ticks(), database_time - asked
        if self._offset is not None:
            if least <= self._offset <= most:
                return
            if self._offset - most > SECOND:
                self._reached = 0  # it was set back; a smaller difference means that our ticks run fast: wait it out
        self._offset = least

    def call_at(self, due: int, callback: Callable[[], None]) -> Alarm:
        return _SystemAlarm(self, due, callback)


class _SystemAlarm:
    def __init__(self, clock: SystemClock, due: int, callback: Callable[[], None]) -> None:
        self._clock, self._due, self._callback = clock, due, callback
        self._loop = asyncio.get_running_loop()
        self._arm()

    def _arm(self) -> None:
        delay = (self._due - self._clock.now()) / SECOND
        self._handle = self._loop.call_later(min(max(delay, 0.0), _RECHECK), self._ring)

    def _ring(self) -> None:
        # The loop uses monotonic time and can be slightly early, or the wall clock was set back: check again.
        if self._clock.now() >= self._due:
            self._callback()
        else:
            self._arm()

    def cancel(self) -> None:
        self._handle.cancel()


def ticks() -> int:
    """Return monotonic microseconds since an arbitrary moment."""
    return time.clock_gettime_ns(_TICKING) // 1000 if _TICKING is not None else time.monotonic_ns() // 1000


stopwatch = time.perf_counter
"""Monotonic seconds, for measuring how long something took."""
