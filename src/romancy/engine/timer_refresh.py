"""Refreshing timers: those of this worker's instances that fall due soon are read into memory."""

from __future__ import annotations

from collections.abc import Callable

from romancy.core.clock import Clock
from romancy.engine.leases import NEVER, Lease
from romancy.engine.timers import Timers
from romancy.storage.protocol import Storage

LIMIT = 50_000
"""How many at most are read at once; further ones come with the next refresh."""


class TimerRefresh:
    """A round reads; the next one comes when somebody calls `refresh`, and never by itself."""

    def __init__(
        self, storage: Storage, clock: Clock, lease: Lease, timers: Timers, refresh: Callable[[], None]
    ) -> None:
        self._storage, self._clock, self._lease, self._timers, self._refresh = storage, clock, lease, timers, refresh
        self.is_behind = False
        """They are to be read, and could not be yet."""

    async def round(self) -> float:
        worker = self._lease.worker
        if worker is not None:
            self.is_behind = True
            await self._read(worker)
        self.is_behind = False
        return NEVER

    async def _read(self, worker: str) -> None:
        # The horizon moves first: what is committed while the read is under way adds itself.
        horizon = self._clock.now() + self._timers.window
        self._timers.extend(horizon)
        found = await self._storage.due(worker, horizon, LIMIT)
        for timer in found:
            self._timers.add(timer.due, timer.instance, timer.op)
        if len(found) == LIMIT:
            self._clock.call_at(found[-1].due, self._refresh)
