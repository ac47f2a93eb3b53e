"""Whose lease has ended: by the clock, and by what was seen.

Leases are times of the machine's clock, which somebody may set: then all of them seem to have ended at once. So nobody
is taken over whom we have not also watched for as long as it may take to renew a lease, in ticks that nobody can set.
"""

from __future__ import annotations

from collections.abc import Sequence

from romancy.core.clock import Clock, SystemClock, ticks


class Leases:
    """The leases of the workers of one file, as one process sees them; used by one thread."""

    def __init__(self, clock: Clock) -> None:
        self._watches = isinstance(clock, SystemClock)  # a clock that a test turns is to rule
        self.length = 0
        """Of our own lease, in microseconds: others have about the same."""
        self._seen: dict[str, tuple[int, int]] = {}
        """Until when a worker has its lease, and when that was first seen."""

    def __repr__(self) -> str:
        return f"<Leases watched={len(self._seen)}>"

    def ended(self, workers: Sequence[tuple[str, int]], now: int) -> set[str]:
        """Which of these workers (id, until) have not renewed their lease in time."""
        if not self._watches:
            return {id for id, until in workers if until < now}
        at, before = ticks(), self._seen
        self._seen = {id: before[id] if before.get(id, (None,))[0] == until else (until, at) for id, until in workers}
        patience = self.length * 2 // 3  # a lease is renewed when a third of it is over
        return {id for id, until in workers if until < now and at - self._seen[id][1] >= patience}
