"""The one module that knows what time it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from romancy.core.model import SECOND

_RECHECK = 1.0
"""An alarm looks at the wall clock at least this often (seconds), so that a stepped clock is noticed."""


class Alarm(Protocol):
    """A call that is due at some time and may still be called off."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """What the engine knows of time: microseconds since the epoch, and alarms that are never early."""

    def now(self) -> int: ...
    def call_at(self, due: int, callback: Callable[[], None]) -> Alarm: ...


class SystemClock:
    """The machine's wall clock; alarms ring on the running event loop."""

    def now(self) -> int:
        return time.time_ns() // 1000

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


def stopwatch() -> float:
    """Monotonic seconds, for measuring how long something took."""
    return time.perf_counter()
