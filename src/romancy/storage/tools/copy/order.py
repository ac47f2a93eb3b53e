"""The order of events, rewritten.

SQLite numbers events in the order they were accepted in, and every beginning ("all events after this one") is such a
number. PostgreSQL goes by (xid, seq), and a beginning is a snapshot: what it sees was there before. So the log is cut
where a wait has a beginning of its own, and each piece gets an xid, in order, all of them used up by the time the copy
commits: whatever is accepted afterwards has a greater one. A snapshot can then begin at any cut; an instance that
begins within a piece is told like one that was started by an event there, which has read it and those before it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

Snapshot = tuple[int, int, tuple[int, ...]]
"""xmin, xmax, and who was under way: as the driver wants it."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where an instance begins: what the snapshot sees is before it, and so are (xid, up to seq)."""

    born: Snapshot
    xid: int | None = None
    seq: int | None = None


class Order:
    """Gives the events of a log their xids. `last` is the greatest of them: there is one for each cut, and one more."""

    def __init__(self, cuts: Iterable[int], last: int) -> None:
        self._cuts = sorted(set(cuts))
        self._first = last - len(self._cuts)

    def xid(self, seq: int) -> int:
        """Of the event with this number: it grows at every cut."""
        return self._first + bisect_left(self._cuts, seq)

    def after(self, seq: int) -> Beginning:
        """Exactly the events after this one."""
        before = bisect_right(self._cuts, seq)
        xid = self._first + before
        born: Snapshot = (xid, xid, ())
        if seq == 0 or (before and self._cuts[before - 1] == seq):
            return Beginning(born)
        return Beginning(born, xid, seq)
