"""The order of events, rewritten.

SQLite numbers events in the order in which they were accepted, and every beginning ("all events after this one") is
such a number. PostgreSQL orders events by (xid, seq), and a beginning is a snapshot: events that it sees came before.
So the log is cut where a wait has a beginning of its own. Each piece gets an xid, in order. All of these are used up by
the time the copy commits, so events accepted later have greater ones. A snapshot can then begin at any cut. An instance
that begins within a piece is stored like one that was started by an event there: it has read all up to that event.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

Snapshot = tuple[int, int, tuple[int, ...]]
"""xmin, xmax and the running transactions, in the format of the driver."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where an instance begins: events that the snapshot sees come before it, and so do those of (xid, up to seq)."""

    born: Snapshot
    xid: int | None = None
    seq: int | None = None


class Order:
    """Assigns xids to the events of a log: one for each cut, and one more. `last` is the greatest."""

    def __init__(self, cuts: Iterable[int], last: int) -> None:
        self._cuts = sorted(set(cuts))
        self._first = last - len(self._cuts)

    def xid(self, seq: int) -> int:
        """Return the xid of the event with this number; it grows at every cut."""
        return self._first + bisect_left(self._cuts, seq)

    def after(self, seq: int) -> Beginning:
        """Return the beginning that includes exactly the events after this one."""
        before = bisect_right(self._cuts, seq)
        xid = self._first + before
        born: Snapshot = (xid, xid, ())
        if seq == 0 or (before and self._cuts[before - 1] == seq):
            return Beginning(born)
        return Beginning(born, xid, seq)
