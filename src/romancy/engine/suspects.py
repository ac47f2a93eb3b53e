"""Activities that were running when their worker died. One of them may be what kills it: find out which, gently.

The first death makes every open call a suspect. A suspect begins only after the database says so: the next death then
counts only against those that had really begun. Those with one death to go run one at a time: the next one convicts
the culprit alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from romancy.core.operations import ActivityCall
from romancy.engine.resident import Resident
from romancy.storage.protocol import Attempt

MAX_DEATHS = 3
"""A call that was running so many times when its worker died is blocked, not run again."""


def after_death(call: ActivityCall, old: Attempt | None, now: int) -> Attempt | None:
    """The record of an open call after its worker died; None: this death is no news about it."""
    if old is None or old.crashes == 0:
        first = old or Attempt(call.id, 0, call.since)
        resting = first.next_due is not None and first.next_due > now
        return None if resting else _with(first, crashes=1)
    return _with(old, crashes=old.crashes + 1) if old.started else None


def begun(record: Attempt) -> Attempt:
    """The record of a suspect that is about to begin."""
    return _with(record, crashes=record.crashes, started=True)


def _with(old: Attempt, *, crashes: int, started: bool = False) -> Attempt:
    return Attempt(old.op, old.n, old.first_at, None, old.error, old.progress, crashes, started)


class Suspects:
    """Lets suspects begin: most at once, the last-chance ones in single file."""

    def __init__(self, begin: Callable[[Resident, str], None]) -> None:
        self._begin = begin
        self._file: deque[tuple[Resident, str]] = deque()
        self._inside: tuple[Resident, str] | None = None

    def __repr__(self) -> str:
        return f"<Suspects waiting={len(self._file)} inside={self._inside}>"

    def admit(self, resident: Resident, record: Attempt) -> None:
        """A suspect wants to begin."""
        if record.crashes < MAX_DEATHS - 1:
            self._begin(resident, record.op)
        else:
            self._file.append((resident, record.op))
            self._next()

    def over(self, resident: Resident, op: str | None = None) -> None:
        """An attempt ended; without `op`: the instance left memory, so nothing of it will begin."""
        if self._inside is not None and self._inside[0] is resident and op in (None, self._inside[1]):
            self._inside = None
            self._next()

    def _next(self) -> None:
        while self._file and self._inside is None:
            resident, op = self._file.popleft()
            if not resident.gone and op in resident.instance.ops:
                self._inside = resident, op
                self._begin(resident, op)
