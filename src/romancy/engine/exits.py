"""Exits: how instances leave memory. They end, are blocked, are read again, or are evicted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from romancy import hooks as h
from romancy.core import failure as failures
from romancy.core.clock import Clock
from romancy.core.instance import Instance
from romancy.core.logs import fields
from romancy.core.model import SECOND, from_us
from romancy.core.outcome import Outcome
from romancy.engine.activities import Activities
from romancy.engine.committer import Committer
from romancy.engine.endings import Endings
from romancy.engine.hook_runner import HookRunner
from romancy.engine.inquest import Inquest
from romancy.engine.loader import Loader
from romancy.engine.metrics import Metrics
from romancy.engine.resident import (
    GONE,
    AttemptChanged,
    Resident,
    Stored,
    SuspectAccompanied,
    SuspectBegins,
    SuspectRuns,
)
from romancy.engine.residents import Residents
from romancy.engine.timers import Timers
from romancy.errors import CodecError, NonDeterminismError, RomancyError
from romancy.storage.attempts import Attempt
from romancy.storage.batch import Commit
from romancy.storage.errors import RefusedValue
from romancy.storage.records import with_build

_logger = logging.getLogger("romancy")
OF_THIS_STAY = (AttemptChanged, Stored, SuspectBegins, SuspectRuns, SuspectAccompanied)
"""Inputs that are dropped when an instance is read again."""
ENDS = {
    "completed": h.WorkflowCompletedInfo,
    "failed": h.WorkflowFailedInfo,
    "cancelled": h.WorkflowCancelledInfo,
}


def is_for_others(error: Exception) -> bool:
    """Return whether another build may be able to run the instance: its code may follow it, or it may have the key."""
    return isinstance(error, NonDeterminismError) or (isinstance(error, CodecError) and error.missing is not None)


class Exits:
    """Removes instances from memory, and tells callers and hooks."""

    def __init__(
        self,
        clock: Clock,
        residents: Residents,
        loader: Loader,
        committer: Committer,
        inquest: Inquest,
        activities: Activities,
        timers: Timers,
        endings: Endings,
        hooks: HookRunner,
        metrics: Metrics,
        build: str,
        on_freed: Callable[[str, str], None],
    ) -> None:
        """`on_freed` is called with a queue and an instance that held a slot of it and has ended."""
        self._clock, self._residents, self._loader, self._committer = clock, residents, loader, committer
        self._quarantine, self._activities, self._timers = inquest.quarantine, activities, timers
        self._endings, self._hooks, self._metrics, self._build = endings, hooks, metrics, build
        self._on_freed = on_freed

    def drop(self, resident: Resident) -> None:
        """Remove an instance from memory. Its code must not act any more."""
        resident.state = GONE
        self._residents.remove(resident)
        self._activities.withdraw_all(resident)
        self._quarantine.leave(resident)
        resident.instance.evict()

    def shrink(self) -> None:
        """Evict idle instances beyond the limit. They continue to wait in the database."""
        while (resident := self._residents.surplus()) is not None:
            for op in resident.resting:
                self._timers.add(resident.attempts[op].next_due or 0, resident.instance.id, op)
            self.drop(resident)

    def reload(self, resident: Resident) -> None:
        """Drop an instance that another process wrote to, and read it again if it is still ours."""
        inputs = [i for i in resident.inbox if not isinstance(i, OF_THIS_STAY)]
        self.drop(resident)
        self._loader.load(resident.instance.id, *inputs)

    def finish(self, resident: Resident) -> None:
        """Remove an instance whose end is stored, and tell callers and hooks."""
        instance = resident.instance
        outcome = instance.outcome
        assert outcome is not None
        self.drop(resident)
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
                extra=fields(instance.id, instance.definition.name, instance.run.headers),
            )
        self._tell(resident, ENDS[outcome.status], outcome.error)
        if instance.definition.queue is not None:
            self._on_freed(instance.definition.queue.name, instance.id)

    def block(self, resident: Resident, error: Exception, record: Attempt | None = None) -> None:
        """Set an instance aside, with all its state, until the problem is fixed. `record`: the guilty attempt."""
        instance = resident.instance
        failure = failures.capture(error)
        if isinstance(error, CodecError):
            failure = replace(failure, missing=error.missing)
        self.drop(resident)
        self._log_blocked(instance, str(error))
        commit = Commit(
            instance.id, resident.version, "blocked", self._clock.now(), error=failure.encode(), release=True
        )
        if record is not None:
            commit.attempts = [record]
        if is_for_others(error):
            commit.builds = with_build(resident.builds, self._build)

        def done(applied: bool, refusal: RefusedValue | None) -> None:
            if applied:
                self._blocked(resident, failure)
            elif refusal is None:
                # The row has another version, for example because an earlier submission of the step was stored after
                # all. Only the database has the current state.
                self._loader.load(instance.id)

        self._committer.commit(commit, done)

    def hold(self, resident: Resident, failure: failures.Failure) -> None:
        """Remove an instance whose step stored that it is blocked, because undos failed."""
        self.drop(resident)
        self._log_blocked(resident.instance, failure.message)
        self._blocked(resident, failure)

    def _log_blocked(self, instance: Instance, problem: str) -> None:
        _logger.error(
            "instance %r (workflow %s) is blocked: %s",
            instance.id,
            instance.definition.name,
            problem,
            extra=fields(instance.id, instance.definition.name, instance.run.headers),
        )

    def _blocked(self, resident: Resident, failure: failures.Failure) -> None:
        instance = resident.instance
        self._metrics.workflows_ended[instance.definition.name, "blocked"] += 1
        self._endings.announce(instance.id, Outcome("blocked", None, failure))
        self._tell(resident, h.WorkflowBlockedInfo, failure)

    def _tell(self, resident: Resident, info: type, error: failures.Failure | None) -> None:
        if self._hooks.wanted:
            problem = None if error is None else RomancyError(f"{error.error_type}: {error.message}")
            self._hooks.tell(
                info,
                instance_id=resident.instance.id,
                workflow=resident.instance.definition.name,
                at=from_us(self._clock.now()),
                error=problem,
                started_at=from_us(resident.instance.started_at),
                headers=resident.instance.run.headers or h.NO_HEADERS,
            )
