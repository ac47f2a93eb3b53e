"""The scheduler: who is fed next, and what follows a commit.

State changes only on the event loop, with no await between reading and writing it: hence no locks. Instances run from
plain loop callbacks, never inside an asyncio task.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from romancy import hooks as h
from romancy.core import failure as failures
from romancy.core.activation import Outcome
from romancy.core.clock import Clock, stopwatch
from romancy.core.history import Kind
from romancy.core.model import SECOND, from_us
from romancy.core.operations import ActivityCall, EventWait
from romancy.engine.activities import Activities
from romancy.engine.committer import Committer
from romancy.engine.delivery import Delivery
from romancy.engine.endings import Endings
from romancy.engine.hook_runner import HookRunner
from romancy.engine.inquest import Inquest
from romancy.engine.metrics import Metrics
from romancy.engine.resident import (
    COMMITTING,
    GONE,
    IDLE,
    READY,
    AttemptChanged,
    Due,
    EventOffered,
    Input,
    Resident,
    Stored,
    SuspectAccompanied,
    SuspectBegins,
    SuspectRuns,
    TimedOut,
)
from romancy.engine.residents import Residents
from romancy.engine.step import Step
from romancy.engine.timers import Timers
from romancy.engine.watchdog import Watchdog
from romancy.errors import RomancyError
from romancy.storage.batch import Attempt, BatchResult, Commit
from romancy.storage.errors import RefusedValue

if TYPE_CHECKING:
    from romancy.engine.loader import Loader

_logger = logging.getLogger("romancy")
WAIT_OUTCOMES: dict[int, str] = {Kind.EVENT_RECEIVED: "received", Kind.WAIT_TIMED_OUT: "timed_out"}
MANY = 100
"""Instances fed in one go without a pause for the garbage collector: it would look at all that are in memory."""

OF_THIS_STAY = (AttemptChanged, Stored, SuspectBegins, SuspectRuns, SuspectAccompanied)
"""Inputs that mean nothing to an instance that was read again."""
MOMENT = 0.002
"""Seconds for which instances that become ready by their own commit are fed before anybody else has a turn."""


class Scheduler:
    """Feeds instances and follows up on their commits."""

    loader: Loader
    activities: Activities
    timers: Timers

    def __init__(
        self,
        clock: Clock,
        committer: Committer,
        delivery: Delivery,
        hooks: HookRunner,
        endings: Endings,
        max_resident: int,
        max_activities: int,
        metrics: Metrics,
    ) -> None:
        self._clock, self.committer, self._delivery = clock, committer, delivery
        self._hooks, self._endings, self._metrics = hooks, endings, metrics
        self.residents = Residents(max_resident)
        self.watchdog = Watchdog()
        self.inquest = Inquest(clock, max_activities, self)
        self.closed = False
        self._ready: deque[Resident] = deque()
        self._draining = self._feeding = False

    def __repr__(self) -> str:
        return f"<Scheduler {self.residents!r} ready={len(self._ready)}>"

    @property
    def is_idle(self) -> bool:
        return not self._ready and not self.residents.is_loading

    def is_mine(self, owner: str | None) -> bool:
        return owner is not None and owner == self.committer.worker

    def admit(self, resident: Resident) -> None:
        """An instance has come to memory."""
        if not self.closed:
            self.residents.add(resident)
            self._shrink()
            self._schedule(resident)

    def post(self, resident: Resident, input: Input) -> None:
        """Put something into an inbox; it is fed as soon as the instance's last commit is in."""
        if not resident.is_gone and not self.closed:
            resident.inbox.append(input)
            resident.offered = resident.offered or isinstance(input, EventOffered)
            self._schedule(resident)

    def _schedule(self, resident: Resident) -> None:
        if resident.state is not IDLE:
            return
        resident.state = READY
        self.residents.rouse(resident)
        self._ready.append(resident)
        if not self._draining:
            self._draining = True
            asyncio.get_running_loop().call_soon(self._drain)

    # --- running ----------------------------------------------------------------------------------------------------
    def _drain(self) -> None:
        """Feed everybody who is ready. A plain callback of the loop.

        What is stored by the time `flush` returns may have made some ready again: they are fed without a turn of the
        loop in between, for a moment.
        """
        until = stopwatch() + MOMENT
        self._feeding = True
        try:
            self._feed()
            while self._ready and stopwatch() < until:
                self._feed()
        finally:
            self._feeding = False
            self._draining = bool(self._ready)
            if self._draining:
                asyncio.get_running_loop().call_soon(self._drain)

    def settled(self) -> None:
        """A batch is in: whom it made ready is fed at once, not when the loop comes round to it."""
        if self._ready and not self._feeding:
            self._drain()

    def _feed(self) -> None:
        self.committer.gather()
        ready = len(self._ready)
        collect = ready > MANY and gc.isenabled()
        if collect:
            gc.disable()  # all that a drain makes is in use until its commit is in: looking for garbage is in vain
        try:
            for _ in range(ready):
                resident = self._ready.popleft()
                if not resident.is_gone:
                    resident.state = IDLE
                    self._activate(resident)
        finally:
            if collect:
                gc.enable()
            self.committer.flush()

    def _activate(self, resident: Resident) -> None:
        instance = resident.instance
        step = Step(resident, self._clock.now(), self._delivery.prepare, self._hooks.wanted)
        self.watchdog.begin(instance)
        try:
            step.run()
        except Exception as error:  # the user's own errors end the workflow; what arrives here is about its history
            self.block(resident, error)
            return
        finally:
            self.watchdog.end()
        if resident.crashed:
            resident.crashed = False
            if self.inquest.count_death(resident, step):
                return
        if step.is_empty:
            self._follow(step)
            return
        resident.state = COMMITTING
        self.committer.commit(step.commit, partial(self._committed, step))

    # --- after a commit ---------------------------------------------------------------------------------------------
    def _committed(self, step: Step, applied: bool, refusal: RefusedValue | None) -> None:
        resident, commit = step.resident, step.commit
        if resident.is_gone:
            return
        resident.state = IDLE
        if refusal is not None:
            self.block(resident, refusal)
        elif not applied:
            self.reload(resident)
        else:
            if not commit.append_only:
                self._record(step)
            self._follow(step)

    def _record(self, step: Step) -> None:
        """What is stored now, besides entries."""
        resident, commit = step.resident, step.commit
        resident.version += 1
        resident.status = commit.status
        if commit.requests_done:
            self.residents.acknowledge(commit.instance)
        for wait in commit.opened:
            if wait.due is not None:
                self.timers.add(wait.due, commit.instance, wait.op)
        for op in commit.closed:
            self.timers.discard(commit.instance, op)
        if commit.closed:
            self._count_waits(step)

    def _count_waits(self, step: Step) -> None:
        outcomes = {entry.op: WAIT_OUTCOMES.get(entry.kind, "withdrawn") for entry in step.commit.entries}
        for op in step.activation.closed:
            if isinstance(op, EventWait):
                self._metrics.wait_ended(outcomes.get(op.id, "withdrawn"), (step.now - op.since) / SECOND)

    def _follow(self, step: Step) -> None:
        """Now that it is stored: start activities, ring timers, tell hooks, hand out the result."""
        resident, instance, activation = step.resident, step.instance, step.activation
        for op in activation.closed:
            if isinstance(op, ActivityCall):
                self.activities.withdraw(instance.id, op.id)
                self.inquest.quarantine.leave(resident, op.id)
        for info in step.told:
            self._hooks.run(info)
        if activation.outcome is not None:
            self._finished(resident)
            return
        for op in activation.opened:
            if isinstance(op, ActivityCall):
                self._start_activity(resident, op)
        for attempt in step.retries:
            op = instance.ops.get(attempt.op)
            if isinstance(op, ActivityCall) and attempt.next_due is not None:
                self.activities.retry_at(resident, op, attempt.next_due)
        self._follow_suspects(step)
        for op in step.confirm:
            self._confirm_timeout(resident, op)
        if resident.unlooked is not None:
            self.loader.look_for(resident, resident.unlooked)
            resident.unlooked = None
        if resident.inbox:
            self._schedule(resident)
        elif resident.is_evictable:
            self.residents.rest(resident)
            self._shrink()

    def _follow_suspects(self, step: Step) -> None:
        resident, quarantine = step.resident, self.inquest.quarantine
        for id in step.begin:
            op = step.instance.ops.get(id)
            if isinstance(op, ActivityCall):
                quarantine.recorded(resident, id)
                self.activities.start(resident, op)
        for id in step.recorded:
            if id in resident.attempts:
                quarantine.recorded(resident, id)
            else:
                quarantine.leave(resident, id)

    def _start_activity(self, resident: Resident, op: ActivityCall) -> None:
        if self.inquest.admit(resident, op):
            return
        attempt = resident.attempts.get(op.id)
        if attempt is not None and attempt.next_due is not None and attempt.next_due > self._clock.now():
            self.activities.retry_at(resident, op, attempt.next_due)
        else:
            self.activities.start(resident, op)

    def _confirm_timeout(self, resident: Resident, op: str) -> None:
        """A tie goes to the event: look once for one that was accepted before the time ran out."""
        id = resident.instance.id
        resident.confirming += 1  # it stays in memory: read again, it would only come here again, at once

        def looked() -> None:
            resident.confirming -= 1
            if resident.is_gone:
                return  # whoever has it now looks for itself: its timers come back with it
            # Another wait may take what was offered; then the time is still over, and there may be a further event.
            self.loader.wake(id, Due(op, again=True) if resident.offered else TimedOut(op))

        self.committer.look(id, op, looked)

    def _finished(self, resident: Resident) -> None:
        instance = resident.instance
        outcome = instance.outcome
        assert outcome is not None
        self.drop(resident)
        info = {
            "completed": h.WorkflowCompletedInfo,
            "failed": h.WorkflowFailedInfo,
            "cancelled": h.WorkflowCancelledInfo,
        }[outcome.status]
        self._endings.announce(instance.id, outcome)
        seconds = (self._clock.now() - instance.started_at) / SECOND
        self._metrics.workflow_ended(instance.definition.name, outcome.status, seconds)
        if outcome.status == "failed" and outcome.error is not None:
            _logger.warning(
                "workflow %s failed in instance %r: %s: %s",
                instance.definition.name,
                instance.id,
                outcome.error.error_type,
                outcome.error.message,
                extra={"instance_id": instance.id, "workflow": instance.definition.name},
            )
        self._tell_workflow(resident, info, outcome.error)

    def _tell_workflow(self, resident: Resident, info: type, error: failures.Failure | None) -> None:
        if self._hooks.wanted:
            problem = None if error is None else RomancyError(f"{error.error_type}: {error.message}")
            self._hooks.tell(
                info,
                instance_id=resident.instance.id,
                workflow=resident.instance.definition.name,
                at=from_us(self._clock.now()),
                error=problem,
            )

    def reload(self, resident: Resident) -> None:
        """Somebody else wrote to the instance: forget what we think of it, and read it again if it is still ours."""
        inputs = [i for i in resident.inbox if not isinstance(i, OF_THIS_STAY)]
        self.drop(resident)
        self.loader.load(resident.instance.id, *inputs)

    def block(self, resident: Resident, error: Exception, record: Attempt | None = None) -> None:
        """Set an instance aside, with all it has, until somebody mends what is wrong. `record`: of what is guilty."""
        instance = resident.instance
        failure = failures.capture(error)
        self.drop(resident)
        _logger.error(
            "instance %r (workflow %s) is blocked: %s",
            instance.id,
            instance.definition.name,
            error,
            extra={"instance_id": instance.id, "workflow": instance.definition.name},
        )
        commit = Commit(
            instance.id, resident.version, "blocked", self._clock.now(), error=failure.encode(), release=True
        )
        if record is not None:
            commit.attempts = [record]

        def done(applied: bool, refusal: RefusedValue | None) -> None:
            if applied:
                self._metrics.workflows_ended[instance.definition.name, "blocked"] += 1
                self._endings.announce(instance.id, Outcome("blocked", None, failure))
                self._tell_workflow(resident, h.WorkflowBlockedInfo, failure)
            elif refusal is None:
                # The row is at another version: an earlier submission of the step was stored after all, say. Only the
                # database knows where the instance stands now.
                self.loader.load(instance.id)

        self.committer.commit(commit, done)

    # --- what a batch brought ---------------------------------------------------------------------------------------
    def answered(self, answer: BatchResult) -> None:
        """Offers go to their instances; what events started begins."""
        if answer.fenced:
            return
        elsewhere = False
        for accepted in (*answer.accepts, *answer.sent):
            elsewhere = elsewhere or any(wait.instance not in self.residents for wait in accepted.matched)
            for started in accepted.started:
                if started.owner is not None:
                    self.loader.begin(started)
                else:
                    elsewhere = True
        if elsewhere:
            self.residents.on_work()  # perhaps nobody owns them: somebody has to claim them
        now, lag = self._clock.now(), self._metrics.delivery_lag
        for offer in answer.offers:
            lag.observe((now - offer.event.accepted_at) / SECOND)
            self.loader.wake(offer.instance, EventOffered(offer.op, offer.event, offer.group))

    # --- leaving memory ---------------------------------------------------------------------------------------------
    def drop(self, resident: Resident) -> None:
        """Forget an instance; its code is not to act any more."""
        resident.state = GONE
        self.residents.remove(resident)
        self.activities.withdraw_all(resident)
        self.inquest.quarantine.leave(resident)
        resident.instance.evict()

    def _shrink(self) -> None:
        """Make room. Waiting instances cost nothing in the database."""
        while (resident := self.residents.surplus()) is not None:
            for op in resident.resting:
                self.timers.add(resident.attempts[op].next_due or 0, resident.instance.id, op)
            self.drop(resident)

    def drop_all(self) -> None:
        for resident in self.residents.values():
            self.drop(resident)
        self.loader.stop()
        self.inquest.quarantine.clear()
        self._ready.clear()
        self.timers.clear()
