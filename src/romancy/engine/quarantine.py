"""The quarantine: decides which suspects can begin now (see evidence.py).

Before a suspect begins, it is recorded that it does, and whether it is the only one. Suspects with only one death
against them begin together, as many as there are. Doubtful suspects wait until no other suspect has begun lately, begin
alone, and stay alone for a while. Before another suspect joins them, it is recorded that they are no longer alone.

A call begins as soon as that is recorded, because a death counts against it from then on. So it gets its slot first.
One that has to wait for a slot holds up no other suspects meanwhile. If it can't begin when it gets the slot, for
example because a doubtful one has begun, it gives the slot back.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from romancy.core.clock import Alarm, Clock
from romancy.core.model import SECOND
from romancy.engine.evidence import LONGEST_RUN, suspicion_of
from romancy.engine.resident import Resident
from romancy.storage.attempts import Attempt
from romancy.storage.batch import BODY

HOLD, BODY_HOLD = 3 * SECOND, SECOND // 2
"""How long doubtful suspects wait after another suspect began: until then, that one may kill the worker."""
LEAST_HOLD, MOST_HOLD = 3 * SECOND // 10, 3600 * SECOND
"""How long all suspects wait after a doubtful one began: three times its usual running time until a death."""
BODIES = 5
"""How many bodies with several deaths run together. They take only a moment, and a culprit has few neighbors."""
TELLING = SECOND // 20
"""How soon to try again if it can't be recorded yet that a suspect gets company."""


class Desk(Protocol):
    """Carries out the decisions of the quarantine. Each is recorded first; then `recorded` is called."""

    def reserve(self, resident: Resident, op: str, granted: Callable[[], None]) -> bool:
        """Whether a suspect has all it needs to run. If not, `granted` is called when it has, unless it leaves."""
        ...

    def give_back(self, resident: Resident, op: str) -> None:
        """Free what is reserved for a suspect, if it has not begun."""
        ...

    def begin(self, resident: Resident, op: str, is_alone: bool) -> None: ...
    def run_on(self, resident: Resident, op: str, ran: int) -> None: ...
    def have_company(self, resident: Resident, op: str) -> bool:
        """Return False if that can't be recorded yet; then it must be called again."""
        ...

    def is_open(self, resident: Resident, op: str) -> bool:
        """Whether the suspect still has to run."""
        ...


@dataclass(slots=True, eq=False)
class _Suspect:
    resident: Resident
    op: str
    is_doubtful: bool
    hold: int
    crashes: int
    since: int = 0
    is_alone: bool = False
    is_told: bool = False
    alarm: Alarm | None = None

    def is_company_of(self, other: _Suspect) -> bool:
        """A body and the calls of the same instance are one suspect: they are blocked together."""
        return self.resident is not other.resident or BODY not in (self.op, other.op)

    def holds_up(self, other: _Suspect) -> int:
        """Return until when another suspect waits because of this one, unless this one ends earlier."""
        if not other.is_doubtful:
            return self.since + self.hold if self.is_doubtful else 0
        return self.since + (BODY_HOLD if self.op == BODY else max(HOLD, self.hold, other.hold))


class Quarantine:
    """Lets suspects begin. After a takeover thousands may be inside, but few of them affect others."""

    def __init__(self, clock: Clock, limit: int, desk: Desk) -> None:
        self._clock, self._limit, self._desk = clock, limit, desk
        self._free_bodies: deque[_Suspect] = deque()
        self._free_calls: deque[_Suspect] = deque()
        self._doubtful: deque[_Suspect] = deque()
        self._ready: list[_Suspect] = []
        """Suspects that have a slot, and begin when it is recorded that others are no longer alone."""
        self._inside: dict[Resident, dict[str, _Suspect]] = {}
        self._notable: dict[_Suspect, None] = {}
        """Suspects inside that are doubtful, or alone."""
        self._calls = self._bodies = 0
        """Calls inside, and bodies with more than one death."""
        self._resting: dict[_Suspect, Alarm] = {}
        self._behind: dict[Resident, list[_Suspect]] = {}
        """Calls that wait until the body of their instance is no longer suspected."""
        self._alarm: Alarm | None = None
        self._deciding = self._is_undecided = False

    def __repr__(self) -> str:
        return f"<Quarantine waiting={self.waiting} inside={len(self._inside)}>"

    @property
    def waiting(self) -> int:
        """How many suspects have not begun yet, except for those that wait for a slot."""
        queues = self._resting, self._free_bodies, self._free_calls, self._doubtful, self._ready
        return sum(map(len, (*queues, *self._behind.values())))

    def admit(self, resident: Resident, record: Attempt, *, is_doubtful: bool, is_behind_body: bool = False) -> None:
        """Queue a suspect, after its rest.

        `is_behind_body`: fewer deaths may be counted for this call than for the body of its instance. So the body
        would be convicted in its place if the next death counted against both. It begins when the body is through.
        """
        suspect = _Suspect(resident, record.op, is_doubtful, _hold(record, is_doubtful), record.crashes)
        if record.next_due is not None and record.next_due > self._clock.now():
            self._resting[suspect] = self._clock.call_at(record.next_due, partial(self._enqueue, suspect))
        elif is_behind_body and BODY in self._inside.get(resident, ()):
            self._behind.setdefault(resident, []).append(suspect)
        else:
            self._enqueue(suspect)

    def recorded(self, resident: Resident, op: str) -> None:
        """Note that a suspect's start, longer run or company is recorded. Set when the next record is due."""
        suspect, record = self._inside.get(resident, {}).get(op), resident.attempts.get(op)
        if suspect is None or record is None:
            return
        known = suspicion_of(record)
        suspect.is_alone = known.is_alone
        if not (suspect.is_alone or suspect.is_doubtful):
            self._notable.pop(suspect, None)
        if suspect.alarm is not None:
            suspect.alarm.cancel()
            suspect.alarm = None
        if known.run < LONGEST_RUN:
            due = self._clock.now() + known.run * 3 // 4
            suspect.alarm = self._clock.call_at(due, partial(self._run_on, suspect))
        self._decide()

    def _run_on(self, suspect: _Suspect) -> None:
        self._desk.run_on(suspect.resident, suspect.op, self._clock.now() - suspect.since)

    def leave(self, resident: Resident, op: str | None = None) -> None:
        """Remove an attempt that ended. Without `op`: remove all of an instance that left memory."""
        inside = self._inside.get(resident)
        if inside is None:
            return
        for left in [op] if op is not None else list(inside):
            suspect = inside.pop(left, None)
            if suspect is not None:
                self._forget(suspect)
        if not inside:
            del self._inside[resident]
        if self._behind and BODY not in inside:
            for suspect in self._behind.pop(resident, ()):
                self._add(suspect)
        self._decide()

    def _forget(self, suspect: _Suspect) -> None:
        if suspect.alarm is not None:
            suspect.alarm.cancel()
        self._notable.pop(suspect, None)
        self._count(suspect, -1)
        self._desk.give_back(suspect.resident, suspect.op)

    def _count(self, suspect: _Suspect, change: int) -> None:
        if suspect.op != BODY:
            self._calls += change
        elif suspect.crashes > 1:
            self._bodies += change

    def clear(self) -> None:
        """Remove all suspects."""
        for queue in (self._free_bodies, self._free_calls, self._doubtful):
            queue.clear()
        self._behind.clear()
        for suspect in self._take_ready():
            self._desk.give_back(suspect.resident, suspect.op)
        for alarm in self._resting.values():
            alarm.cancel()
        self._resting.clear()
        for suspect in self._all():
            self._forget(suspect)
        self._inside.clear()

    def _all(self) -> Iterator[_Suspect]:
        return (suspect for inside in self._inside.values() for suspect in inside.values())

    # --- deciding ---------------------------------------------------------------------------------------------------
    def _enqueue(self, suspect: _Suspect) -> None:
        self._resting.pop(suspect, None)
        self._add(suspect)
        self._decide()

    def _add(self, suspect: _Suspect) -> None:
        if suspect.is_doubtful:
            self._doubtful.append(suspect)
        else:
            # Fewest deaths first: otherwise the first hundred of a fan-out run during each kill and look like culprits.
            insort(self._free_bodies if suspect.op == BODY else self._free_calls, suspect, key=_crashes)

    def _decide(self) -> None:
        """Let suspects begin, those that are not doubtful first: others make progress while a culprit waits."""
        self._is_undecided = True
        if self._deciding:
            return
        self._deciding = True
        try:
            while self._is_undecided:
                self._is_undecided = False
                self._begin_ready()
                self._begin_some(self._free_bodies)
                self._begin_some(self._free_calls)
                if not self._are_free_waiting:
                    self._begin_some(self._doubtful)
        finally:
            self._deciding = False

    @property
    def _are_free_waiting(self) -> bool:
        return bool(self._free_bodies or self._free_calls)

    def _begin_some(self, queue: deque[_Suspect]) -> None:
        while queue and not self._ready:
            if self._has_left(queue[0]):
                queue.popleft()
            elif self._is_held_up(queue[0]):
                break
            else:
                self._reserve(queue.popleft())

    def _reserve(self, suspect: _Suspect) -> None:
        """Let a suspect begin if it has a slot. Otherwise it waits for one, and holds up no others meanwhile."""
        if self._desk.reserve(suspect.resident, suspect.op, partial(self._granted, suspect)):
            self._ready.append(suspect)
            self._begin_ready()

    def _granted(self, suspect: _Suspect) -> None:
        self._ready.append(suspect)
        self._decide()

    def _take_ready(self) -> list[_Suspect]:
        taken, self._ready = self._ready, []
        return taken

    def _begin_ready(self) -> None:
        for suspect in self._take_ready():
            if self._has_left(suspect):
                self._desk.give_back(suspect.resident, suspect.op)
            elif self._is_held_up(suspect) or (suspect.is_doubtful and self._are_free_waiting):
                self._add(suspect)
                self._desk.give_back(suspect.resident, suspect.op)
            elif self._have_told(suspect):
                self._begin(suspect)
            else:
                self._ready.append(suspect)

    def _has_left(self, suspect: _Suspect) -> bool:
        resident, op = suspect.resident, suspect.op
        return resident.is_gone or op in self._inside.get(resident, ()) or not self._desk.is_open(resident, op)

    def _is_held_up(self, suspect: _Suspect) -> bool:
        """Whether the suspect must wait, until some time or until another one leaves."""
        now = self._clock.now()
        until = max((other.holds_up(suspect) for other in self._company_of(suspect)), default=now)
        if until > now:
            self._decide_at(until)
        return until > now or self._is_full(suspect)

    def _company_of(self, suspect: _Suspect) -> list[_Suspect]:
        """Return the suspects that have begun and matter to this one."""
        others = self._all() if suspect.is_doubtful else iter(self._notable)
        return [other for other in others if other.is_company_of(suspect)]

    def _is_full(self, suspect: _Suspect) -> bool:
        """Whether the suspect must wait until another one leaves."""
        if suspect.op != BODY:
            return self._calls >= self._limit
        return suspect.crashes > 1 and self._bodies >= BODIES

    def _have_told(self, suspect: _Suspect) -> bool:
        """Whether it is recorded of all lone suspects that they are no longer alone."""
        lonely = [other for other in self._company_of(suspect) if other.is_alone]
        for other in lonely:
            if not other.is_told:
                other.is_told = self._desk.have_company(other.resident, other.op)
        if any(not other.is_told for other in lonely):
            self._decide_at(self._clock.now() + TELLING)
        return not lonely

    def _decide_at(self, at: int) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._clock.call_at(at, self._decide)

    def _begin(self, suspect: _Suspect) -> None:
        is_only_one = suspect.is_doubtful or not (self._are_free_waiting or self._ready)
        suspect.is_alone = is_only_one and not any(other.is_company_of(suspect) for other in self._all())
        suspect.since = self._clock.now()
        self._inside.setdefault(suspect.resident, {})[suspect.op] = suspect
        self._count(suspect, 1)
        if suspect.is_doubtful or suspect.is_alone:
            self._notable[suspect] = None
        self._desk.begin(suspect.resident, suspect.op, suspect.is_alone)


def _crashes(suspect: _Suspect) -> int:
    return suspect.crashes


def _hold(record: Attempt, is_doubtful: bool) -> int:
    if not is_doubtful:
        return 0
    usual = suspicion_of(record).tried // max(record.crashes - 1, 1)
    return min(max(3 * usual, LEAST_HOLD), MOST_HOLD)
