"""The one module that knows what time it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from romancy.core.model import SECOND

_RECHECK = 1.0
"""An alarm looks at the wall clock at least this often (seconds), so that a stepped clock is noticed."""


_TICKING: int | None = getattr(time, "CLOCK_BOOTTIME", None)
"""Where there is one that also counts while the machine is suspended."""


class Alarm(Protocol):
    """A call that is due at some time and may still be called off."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """What the engine knows of time: microseconds since the epoch, and alarms that are never early."""

    def now(self) -> int: ...
    def call_at(self, due: int, callback: Callable[[], None]) -> Alarm: ...


class SystemClock:
    """The machine's wall clock, or that of the database once it follows one; alarms ring on the running event loop."""

    def __init__(self) -> None:
        self._offset: int | None = None
        self._reached = 0

    def now(self) -> int:
        if self._offset is None:
            return time.time_ns() // 1000
        self._reached = max(self._reached, ticks() + self._offset)
        return self._reached

    def wall(self) -> int:
        """What this machine thinks."""
        return time.time_ns() // 1000

    def follow(self, said: int, asked: int) -> None:
        """A database said what time it is, just now; the question was put when our ticks were `asked`.

        It had that time somewhere in between, so it is as late there now as it said, or later: whoever goes by that
        is never early. Nothing changes while it may be right as it is, so that a slow answer does no harm.
        """
        least, most = said - ticks(), said - asked
        if self._offset is not None:
            if least <= self._offset <= most:
                return
            if self._offset - most > SECOND:
                self._reached = 0  # it was set back; what is less is only that our ticks are quicker, and is waited out
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
        # The loop runs on monotonic time and may be a hair early, or the wall clock was set back: look again.
        if self._clock.now() >= self._due:
            self._callback()
        else:
            self._arm()

    def cancel(self) -> None:
        self._handle.cancel()


def ticks() -> int:
    """Microseconds that nobody can set, since some moment or other."""
    return time.clock_gettime_ns(_TICKING) // 1000 if _TICKING is not None else time.monotonic_ns() // 1000


stopwatch = time.perf_counter
"""Monotonic seconds, for measuring how long something took."""
