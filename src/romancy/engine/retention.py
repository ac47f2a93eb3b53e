"""Retention: deletes old instances and events, a few at a time."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from romancy.core.clock import Clock
from romancy.core.model import SECOND, Duration, duration_us, from_us
from romancy.core.registry import Registry
from romancy.engine.metrics import Metrics
from romancy.options import Retention, kept_events
from romancy.storage.emissions import Place
from romancy.storage.interests import Held
from romancy.storage.protocol import Storage

_logger = logging.getLogger("romancy")
CHUNK = 500
"""How many instances, and how many events, are deleted at a time."""
BRISK, REST = 0.05, 60.0
"""Seconds between rounds: while they delete as much as one may, and otherwise."""
SURVEY = 3600 * SECOND
"""Microseconds between counts of the events that are kept for open instances."""
DAY = 24 * 3600 * SECOND
"""Microseconds for which it is kept what happened in each minute."""
START: Place = (0, "")
MANY = 1_000_000
"""From how many on a warning names the instance that they are kept for."""
_SHOWN = 100
"""How many types the metrics show: those of which most are kept."""


class Pruner:
    """Deletes instances some time after they ended, and events that nobody can take any more."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        registry: Registry,
        kept: Retention,
        metrics: Metrics,
        sinks: Sequence[str] = (),
    ) -> None:
        """`sinks`: the names of those that this process declares."""
        self._storage, self._clock, self._registry, self._kept = storage, clock, registry, kept
        self._metrics, self._sinks = metrics, sinks
        self._expected: Sequence[str] = ()
        """Workflows whose interest in events is stored. Until then, everything is kept for their instances."""
        self._surveyed: int | None = None
        self._swept: int | None = None
        self._emitted: Place = START
        """Up to here in the order in which instances ended, what they emitted is removed."""

    async def round(self) -> float:
        await self._expect()
        instances, failed = map(self._before, (self._kept.instances, self._kept.failed))
        events = self._before(kept_events(self._kept))
        if await self._storage.prune(instances, events, CHUNK, failed_before=failed) >= CHUNK:
            return BRISK
        if self._kept.events is not None and await self._cut(self._before(self._kept.events)):
            return BRISK
        if self._kept.emissions is not None and await self._remove_emissions(self._before(self._kept.emissions)):
            return BRISK
        await self._forget_sinks()
        await self._survey(events)
        return REST

    async def _remove_emissions(self, before: int) -> bool:
        """Remove what instances have emitted that ended before a time. Return whether there may be more."""
        self._emitted, is_more = await self._storage.emissions.remove(before, self._emitted, CHUNK)
        return is_more

    async def _expect(self) -> None:
        names = self._registry.names
        if names != self._expected:
            await self._storage.expect(self._registry.interests)
            self._expected = names

    async def _forget_sinks(self) -> None:
        gone = await self._storage.sinks.forget(self._clock.now(), self._before(self._kept.failed), self._sinks)
        for name in gone:
            _logger.warning("sink %r is forgotten, because no process has declared it for long", name)

    async def _cut(self, before: int) -> bool:
        """Delete events that are held for longer than the app allows. What is left by now is all wanted."""
        cuts = await self._storage.cut(before, CHUNK)
        for cut in cuts:
            self._metrics.events_cut[cut.type] += cut.count
        n = sum(cut.count for cut in cuts)
        if n:
            _logger.warning(
                "removed %s that open instances might have taken, because of Retention(events=...): "
                "accepted before %s, of %s",
                "1 event" if n == 1 else f"{n:,} events",
                from_us(max(cut.upto for cut in cuts)),
                ", ".join(repr(cut.type) for cut in cuts[:5]) + (" and others" if len(cuts) > 5 else ""),
            )
        return n >= CHUNK

    async def _survey(self, before: int) -> None:
        """Count what is kept for open instances from time to time. Say so if it is much, and nothing limits it.

        As often, forget the minutes of the day before.
        """
        now = self._clock.now()
        if self._surveyed is not None and now - self._surveyed < SURVEY:
            return
        self._surveyed, self._emitted = now, START  # once more: the clocks of workers may differ
        await self._sweep(now)
        await self._storage.desk.forget_minutes((now - DAY) // (60 * SECOND))
        held = await self._storage.held(before, MANY)
        counts = Counter[str]()
        for one in held:
            counts[one.type] += one.count
        self._metrics.events_held = dict(counts.most_common(_SHOWN))
        self._metrics.held_since = min((one.oldest for one in held), default=None)
        if self._kept.events is None and sum(one.count for one in held) >= MANY:
            _logger.warning(_explain(held))

    async def _sweep(self, now: int) -> None:
        """Remove once a day what is left outside the database of instances and events that are gone."""
        if self._swept is None or now - self._swept >= DAY:
            self._swept = now
            removed = await self._storage.sweep()
            if removed:
                files = "1 file" if removed == 1 else f"{removed:,} files"
                _logger.info("removed %s of values that were kept outside the database", files)

    def _before(self, kept: Duration | None) -> int:
        return 0 if kept is None else self._clock.now() - duration_us(kept)


def _explain(held: list[Held]) -> str:
    oldest = held[0]
    return (
        f"at least {sum(one.count for one in held):,} events are older than the retention period, and kept because "
        f"open instances may still take them. The oldest one, of type {oldest.type!r}, was accepted "
        f"{from_us(oldest.oldest)} and is kept for instance {oldest.instance!r} of workflow {oldest.workflow!r}. End "
        "that instance if nobody needs it, declare what the workflow waits for with @workflow(expects=[...]), or limit "
        "how long events are kept with Retention(events=...); `romancy events --held` lists them all"
    )
