"""Timers: a heap of timers that fall due soon, refreshed from the database, with one alarm. Nothing polls."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from romancy.core.clock import Alarm, Clock
from romancy.core.model import SECOND
from romancy.engine.metrics import Metrics

WINDOW = 60 * SECOND
"""How far ahead timers are kept in memory."""


class Timers:
    """Calls `fire(instance, op)` when a timer is due, never earlier, and `refresh()` before the window runs out."""

    def __init__(
        self,
        clock: Clock,
        fire: Callable[[str, str], None],
        refresh: Callable[[], None],
        window: int,
        metrics: Metrics,
    ) -> None:
        self._clock, self._fire, self._refresh, self.window = clock, fire, refresh, window
        self._lag = metrics.timer_lag
        self._heap: list[tuple[int, str, str]] = []
        self._known: dict[tuple[str, str], int] = {}
        self._horizon = 0
        self._alarm: Alarm | None = None
        self._alarm_at = 0
        self._stopped = False

    def __repr__(self) -> str:
        return f"<Timers armed={len(self._known)} heap={len(self._heap)}>"

    @property
    def armed(self) -> int:
        return len(self._known)

    def add(self, due: int, instance: str, op: str) -> None:
        """Keep a timer if it falls due within the window. Later ones are found by a refresh."""
        if due <= self._horizon and self._known.get((instance, op)) != due:
            self._known[instance, op] = due
            heapq.heappush(self._heap, (due, instance, op))
            self._arm()

    def discard(self, instance: str, op: str) -> None:
        """Forget a timer. Its item in the heap is skipped later."""
        self._known.pop((instance, op), None)
        if len(self._heap) > 1000 and len(self._heap) > 4 * len(self._known):
            self._heap = [t for t in self._heap if self._known.get(t[1:]) == t[0]]
            heapq.heapify(self._heap)

    def extend(self, horizon: int) -> None:
        """Keep all timers due up to `horizon`."""
        self._horizon = max(self._horizon, horizon)
        self._arm()

    def clear(self) -> None:
        self._heap.clear()
        self._known.clear()
        self._horizon = 0

    def stop(self) -> None:
        self._stopped = True
        if self._alarm is not None:
            self._alarm.cancel()

    def next_due(self) -> int | None:
        """Return when the next timer in memory falls due."""
        while self._heap and self._known.get(self._heap[0][1:]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _arm(self) -> None:
        if self._stopped:
            return
        due = self.next_due()
        refresh_at = self._horizon - self.window // 2
        at = refresh_at if due is None else min(due, refresh_at)
        if self._alarm is not None:
            if self._alarm_at <= at:
                return
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = self._clock.call_at(at, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self._clock.now()
        heap, known, fire = self._heap, self._known, self._fire
        while heap and heap[0][0] <= now:
            due, instance, op = heapq.heappop(heap)
            if known.get((instance, op)) == due:
                del known[instance, op]
                self._lag.observe((now - due) / SECOND)
                fire(instance, op)
        if now >= self._horizon - self.window // 2:
            self._refresh()
        else:
            self._arm()
