"""Retention: deletes old instances and events, a few at a time."""

from __future__ import annotations

from romancy.core.clock import Clock
from romancy.core.model import Duration, duration_us
from romancy.options import Retention
from romancy.storage.protocol import Storage

CHUNK = 500
"""How many instances, and how many events, are deleted at a time."""
BRISK, REST = 0.05, 60.0
"""Seconds between rounds: while there is more to delete, and otherwise."""


class Pruner:
    """Deletes instances some time after they ended, and events some time after they were accepted."""

    def __init__(self, storage: Storage, clock: Clock, kept: Retention) -> None:
        self._storage, self._clock, self._kept = storage, clock, kept

    async def round(self) -> float:
        instances, failed, events = map(self._before, (self._kept.instances, self._kept.failed, self._kept.events))
        return BRISK if await self._storage.prune(instances, events, CHUNK, failed_before=failed) else REST

    def _before(self, kept: Duration | None) -> int:
        return 0 if kept is None else self._clock.now() - duration_us(kept)
