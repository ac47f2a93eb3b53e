"""A clock that stands still until it is set."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

from romancy.core.clock import SystemClock
from romancy.core.model import FOREVER_US


class _Alarm:
    def __init__(self, due: int, callback: Callable[[], None]) -> None:
        self.due, self.callback, self.off = due, callback, False

    def cancel(self) -> None:
        self.off = True


class ManualClock:
    """A clock that the test controls. It starts at the current time."""

    def __init__(self, now: int | None = None) -> None:
        self._now = SystemClock().now() if now is None else now
        self._alarms: list[tuple[int, int, _Alarm]] = []
        self._numbers = count()

    def now(self) -> int:
        return self._now

    def call_at(self, due: int, callback: Callable[[], None]) -> _Alarm:
        alarm = _Alarm(due, callback)
        heapq.heappush(self._alarms, (due, next(self._numbers), alarm))
        if due <= self._now:
            asyncio.get_running_loop().call_soon(self.ring)
        return alarm

    def next_alarm(self) -> int | None:
        """Return when the next alarm is due; None if there is none."""
        while self._alarms and self._alarms[0][2].off:
            heapq.heappop(self._alarms)
        due = self._alarms[0][0] if self._alarms else None
        return due if due is not None and due < FOREVER_US // 2 else None

    def turn_to(self, moment: int) -> None:
        """Set the clock; it can also go back, as real clocks do."""
        self._now = moment
        self.ring()

    def ring(self) -> None:
        while (due := self.next_alarm()) is not None and due <= self._now:
            _, _, alarm = heapq.heappop(self._alarms)
            alarm.callback()
