"""Which leases have ended, by the clock and by observation.

Leases are times of the machine's clock. Setting the clock can make all of them appear to have ended at once. So a
worker is taken over only after it has also been watched for as long as a renewal can take, in monotonic ticks.
"""

from __future__ import annotations

from collections.abc import Sequence

from romancy.core.clock import Clock, SystemClock, ticks


class Leases:
    """The leases of the workers of one file, as seen by one process; used by one thread."""

    def __init__(self, clock: Clock) -> None:
        self._watches = isinstance(clock, SystemClock)  # a test's manual clock decides alone
        self.length = 0
        """The length of our own lease in microseconds; others have about the same."""
        self._seen: dict[str, tuple[int, int]] = {}
        """When a worker's lease ends, and when that was first seen."""

    def __repr__(self) -> str:
        return f"<Leases watched={len(self._seen)}>"

    def ended(self, workers: Sequence[tuple[str, int]], now: int) -> set[str]:
        """Return which of these workers (id, until) have not renewed their lease in time."""
        if not self._watches:
            return {id for id, until in workers if until < now}
        at, before = ticks(), self._seen
        self._seen = {id: before[id] if before.get(id, (None,))[0] == until else (until, at) for id, until in workers}
        patience = self.length * 2 // 3  # a lease is renewed when a third of it is over
        return {id for id, until in workers if until < now and at - self._seen[id][1] >= patience}
