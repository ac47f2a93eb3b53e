"""Minutes: each worker adds what it did in a minute to a row of that minute, shortly after it ended.

The first worker that comes also counts what needs attention. A worker that stops adds its last minute before.
If there is nothing to add, nothing is written.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence

from romancy.core.clock import Clock
from romancy.core.model import SECOND
from romancy.engine.metrics import Metrics
from romancy.errors import StorageError
from romancy.storage.desk import LATE, Minute
from romancy.storage.protocol import Storage

_logger = logging.getLogger("romancy")
MINUTE = 60 * SECOND
FIRST, LAST = 0.5, 5.0
"""Seconds after the end of a minute: workers come one after the other, so that one of them counts for all."""
LONGEST = 1.0
"""Seconds a stopping worker waits for the database."""
ENDS = ("completed", "failed", "cancelled")


class MinuteCounts:
    """Adds up what happened in each minute."""

    def __init__(self, storage: Storage, clock: Clock, metrics: Metrics) -> None:
        self._storage, self._clock, self._metrics = storage, clock, metrics
        self._since = clock.now() // MINUTE
        self._added = self._totals()
        self._delay = random.uniform(FIRST, LAST)

    def __repr__(self) -> str:
        return f"<MinuteCounts since={self._since} added={self._added}>"

    async def round(self) -> float:
        """Add what happened since the last round to the minute that ended. If that fails, the next round adds it."""
        minute = self._clock.now() // MINUTE
        if minute > self._since:
            await self._add(minute - 1)
        self._since = minute  # earlier if the clock was set back
        return (MINUTE - self._clock.now() % MINUTE) / SECOND + self._delay

    async def _add(self, minute: int) -> None:
        rows, totals = self._storage.desk, self._totals()
        counts = self._since_added(totals)
        if any(counts):
            is_surveyed = await rows.add(Minute(minute, *counts))
            self._added = totals
        else:
            is_surveyed = await rows.is_surveyed(minute)
        if not is_surveyed:
            now = self._clock.now()
            found = await rows.tallies(now, now - LATE)
            needs_attention = found.failed, found.blocked, found.retrying, found.overdue, found.queued
            if any(counts) or any(tally.n for tally in needs_attention):
                await rows.survey(minute, found)

    async def finish(self) -> None:
        """Add what happened in the current minute, because this worker stops. If that can't be stored, it is lost."""
        counts = self._since_added(self._totals())
        if any(counts):
            try:
                async with asyncio.timeout(LONGEST):
                    await self._storage.desk.add(Minute(self._clock.now() // MINUTE, *counts))
            except (StorageError, TimeoutError) as error:
                _logger.info("can't add what happened in the last minute (%s)", error)

    def _since_added(self, totals: Sequence[int]) -> list[int]:
        return [total - before for total, before in zip(totals, self._added, strict=True)]

    def _totals(self) -> tuple[int, ...]:
        ended = dict.fromkeys(ENDS, 0)
        for (_, status), n in self._metrics.workflows_ended.items():
            if status in ended:
                ended[status] += n
        return sum(self._metrics.workflows_started.values()), *ended.values()
