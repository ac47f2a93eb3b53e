"""The timer refresh reads the timers of this worker's instances that fall due soon into memory."""

from __future__ import annotations

from collections.abc import Callable

from romancy.core.clock import Clock
from romancy.engine.leases import NEVER, Lease
from romancy.engine.timers import Timers
from romancy.storage.protocol import Storage

LIMIT = 50_000
"""The most timers read at once. Further ones come with the next refresh."""


class TimerRefresh:
    """Each round reads once. The next one comes only when `refresh` is called."""

    def __init__(
        self, storage: Storage, clock: Clock, lease: Lease, timers: Timers, refresh: Callable[[], None]
    ) -> None:
        self._storage, self._clock, self._lease, self._timers, self._refresh = storage, clock, lease, timers, refresh
        self.is_behind = False
        """Timers must be read, but could not be read yet."""

    async def round(self) -> float:
        worker = self._lease.worker
        if worker is not None:
            self.is_behind = True
            await self._read(worker)
        self.is_behind = False
        return NEVER

    async def _read(self, worker: str) -> None:
        # Move the horizon first: timers committed during the read are then added by their commit.
        horizon = self._clock.now() + self._timers.window
        self._timers.extend(horizon)
        found = await self._storage.due(worker, horizon, LIMIT)
        for timer in found:
            self._timers.add(timer.due, timer.instance, timer.op)
        if len(found) == LIMIT:
            self._clock.call_at(found[-1].due, self._refresh)
