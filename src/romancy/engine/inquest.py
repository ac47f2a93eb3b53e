"""The inquest after the death of a worker: what ran there, the evidence against it, and how it continues.

It counts the death for each suspect (evidence.py) and blocks the guilty. The others begin when the quarantine lets
them, and only after that is recorded.
"""

from __future__ import annotations

from collections.abc import Callable

from romancy.core.clock import Clock
from romancy.core.model import SECOND
from romancy.core.operations import ActivityCall
from romancy.engine.activities import Activities
from romancy.engine.custody import Custody
from romancy.engine.evidence import Finding, Fleet, Verdict, after_death, judge, rested
from romancy.engine.inbox import Inboxes
from romancy.engine.quarantine import Quarantine
from romancy.engine.resident import Resident, SuspectAccompanied, SuspectBegins, SuspectRuns
from romancy.engine.step import Step
from romancy.errors import KillsWorkers
from romancy.storage.attempts import Attempt, Suspicion
from romancy.storage.batch import BODY
from romancy.storage.records import Mortality

Guilty = tuple[KillsWorkers, Attempt]
"""Why an instance is to be blocked, and the record of what is guilty."""
WARY = 60 * SECOND
"""How long after a death even new calls of activities that are known to kill begin apart from others."""


class Inquest:
    """What this worker knows about deaths and suspects."""

    def __init__(self, clock: Clock, limit: int, inboxes: Inboxes, custody: Custody, activities: Activities) -> None:
        self._clock, self._inboxes, self._custody, self._activities = clock, inboxes, custody, activities
        self._fleet, self._wary_until, self._since = Fleet(), 0, clock.now()
        self.quarantine = Quarantine(clock, limit, self)

    def __repr__(self) -> str:
        return f"<Inquest {self._fleet!r} {self.quarantine!r}>"

    def inform(self, mortality: Mortality) -> None:
        """Set the known deaths of workers, and the tallies by name."""
        self._fleet = Fleet(mortality.deaths, mortality.tallies)
        self._wary_until = self._clock.now() + WARY if mortality.tallies else 0

    # --- calls ------------------------------------------------------------------------------------------------------
    def count_death(self, resident: Resident, step: Step) -> Guilty | None:
        """Record a worker's death for the calls that were open in this instance, unless one of them is guilty."""
        now = self._clock.now()
        for op in resident.instance.ops.values():
            if not isinstance(op, ActivityCall):
                continue
            old = resident.attempts.get(op.id)
            record = after_death(op.id, op.opened_at, old, now, may_have_waited=_is_limited(op))
            if record is not None:
                record.culprit = op.activity.name
                finding = self._judge(record)
                if finding.verdict is Verdict.GUILTY:
                    return _reason(f"activity {op.id!r}", finding), record
                step.record_attempt(rested(record, finding, self._died_at(now)))
                if step.tell and record.crashes > (0 if old is None else old.crashes):
                    step.say([op.lost_info(record.n + 1, record.crashes, step.about)])
        return None

    def detains(self, resident: Resident, op: ActivityCall) -> bool:
        """Return whether a call is a suspect, and must not start now. It begins when the quarantine lets it."""
        record = resident.attempts.get(op.id)
        if record is None and self._wary_until:
            record = self._wary(resident, op)
        if record is None or record.suspicion is None:
            return False
        self._let_in(resident, record, _is_limited(op))
        return True

    def _wary(self, resident: Resident, op: ActivityCall) -> Attempt | None:
        """Make a new call a suspect from the start if other calls of its activity are known to kill."""
        now = self._clock.now()
        if now > self._wary_until:
            self._wary_until = 0
            return None
        record = Attempt(op.id, 0, op.opened_at, suspicion=Suspicion(now), culprit=op.activity.name)
        finding = self._judge(record)
        if finding.verdict is Verdict.CLEAR:
            return None
        resident.attempts[op.id] = record = rested(record, finding, now)
        return record

    # --- bodies -----------------------------------------------------------------------------------------------------
    def admit_body(self, resident: Resident, created_at: int) -> Guilty | None:
        """Let a body begin when the quarantine allows it, unless it is guilty."""
        now, old = self._clock.now(), resident.attempts.get(BODY)
        news = after_death(BODY, created_at, old, now) if resident.crashed else None
        record = news or old or Attempt(BODY, 0, created_at, crashes=1, suspicion=Suspicion(now))
        record.culprit = f"{resident.instance.definition.name} (code)"
        finding = self._judge(record)
        if finding.verdict is Verdict.GUILTY:
            return _reason("the code of the workflow", finding), record
        resident.attempts[BODY] = record = rested(record, finding, self._died_at(now)) if news else record
        self._let_in(resident, record)
        return None

    def _judge(self, record: Attempt) -> Finding:
        return judge(record, record.culprit, self._fleet)

    def _died_at(self, now: int) -> int:
        """Return the time from which rests count: the last death, because an instance may be loaded long after it.

        But not a time before this worker began: only its own time without the suspect can be compared.
        """
        return min(max(self._fleet.last_death or now, self._since), now)

    def _let_in(self, resident: Resident, record: Attempt, is_limited: bool = False) -> None:
        is_doubtful = self._judge(record).verdict is not Verdict.CLEAR
        self.quarantine.admit(resident, record, is_doubtful=is_doubtful, is_behind_body=is_limited)

    # --- called by the quarantine -----------------------------------------------------------------------------------
    def reserve(self, resident: Resident, op: str, granted: Callable[[], None]) -> bool:
        call = resident.instance.ops.get(op)
        return not isinstance(call, ActivityCall) or self._activities.reserve(resident, call, granted)

    def give_back(self, resident: Resident, op: str) -> None:
        self._activities.give_back(resident, op)

    def begin(self, resident: Resident, op: str, is_alone: bool) -> None:
        if op == BODY:
            self._custody.begin(resident, is_alone)
        else:
            self._inboxes.post(resident, SuspectBegins(op, is_alone))

    def run_on(self, resident: Resident, op: str, ran: int) -> None:
        if self._is_here(resident):
            self._inboxes.post(resident, SuspectRuns(op, ran))

    def have_company(self, resident: Resident, op: str) -> bool:
        if self._is_here(resident):
            self._inboxes.post(resident, SuspectAccompanied(op))
            return True
        return False

    def is_open(self, resident: Resident, op: str) -> bool:
        return resident in self._custody if op == BODY else op in resident.instance.ops

    def _is_here(self, resident: Resident) -> bool:
        return self._inboxes.residents.get(resident.instance.id) is resident


def _is_limited(op: ActivityCall) -> bool:
    """Return whether a call may have waited for one of the places of its activity when its worker died."""
    return op.activity.max_per_worker is not None


def _reason(what: str, finding: Finding) -> KillsWorkers:
    return KillsWorkers(f"{what} {finding.describe()}. It is not run again until you resume the instance")
