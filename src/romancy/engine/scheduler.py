"""The scheduler: which instances are in memory, who is fed next, and what follows a commit.

State changes only on the event loop, with no await between reading and writing it: hence no locks. Instances run from
plain loop callbacks, never inside an asyncio task.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from romancy import hooks as h
from romancy.core import failure as failures
from romancy.core.clock import Clock
from romancy.core.history import pack_event
from romancy.core.instance import Instance
from romancy.core.model import Event, from_us
from romancy.core.operations import ActivityCall, EventWait
from romancy.core.registry import Registry
from romancy.engine.activation import After, Step
from romancy.engine.activities import Activities
from romancy.engine.committer import Committer
from romancy.engine.hooks import HookRunner
from romancy.engine.resident import (
    AttemptChanged,
    CancelAsked,
    Due,
    EventOffered,
    Input,
    Looked,
    Resident,
    SuspectBegins,
    TimedOut,
)
from romancy.engine.results import Results
from romancy.engine.suspects import MAX_DEATHS, Suspects, after_death
from romancy.engine.timers import Timers
from romancy.engine.watchdog import Watchdog
from romancy.errors import InvalidInput, NonDeterminismError, NotStorable, RomancyError
from romancy.storage.protocol import (
    CANCEL,
    Accept,
    Answer,
    Commit,
    RefusedValue,
    Snapshot,
    Start,
    Started,
    Storage,
)

_logger = logging.getLogger("romancy")


class Scheduler:
    """Feeds instances and follows up on their commits."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        registry: Registry,
        committer: Committer,
        hooks: HookRunner,
        results: Results,
        state: Any,
        max_resident: int,
    ) -> None:
        self._storage, self._clock, self._registry, self._committer = storage, clock, registry, committer
        self._hooks, self._results, self._state, self._max = hooks, results, state, max_resident
        self.residents: dict[str, Resident] = {}
        self._idle: OrderedDict[str, Resident] = OrderedDict()
        """Residents that only wait, longest idle first: they may be evicted."""
        self._ready: deque[Resident] = deque()
        self._draining = False
        self._loading: dict[str, list[Input]] = {}
        self._loads: set[asyncio.Task[None]] = set()
        self.activities: Activities
        self.timers: Timers
        self.watchdog = Watchdog()
        self.suspects = Suspects(lambda resident, op: self.post(resident, SuspectBegins(op)))
        self.closed = False
        self._reserved = 0
        self.on_work: Callable[[], None] = lambda: None
        """There may be something to claim."""
        self._backlog = False
        self._requests: dict[str, list[asyncio.Future[None]]] = {}

    def __repr__(self) -> str:
        return f"<Scheduler resident={len(self.residents)} ready={len(self._ready)} loading={len(self._loading)}>"

    @property
    def is_idle(self) -> bool:
        return not self._ready and not self._loading

    @property
    def has_room(self) -> bool:
        """Whether more instances may be taken on."""
        return len(self.residents) + len(self._loading) + self._reserved < self._max or bool(self._idle)

    def reserve(self) -> bool:
        """Keep a place for an instance that is about to be created; `unreserve` gives it back."""
        if not self.has_room:
            return False
        self._reserved += 1
        return True

    def unreserve(self) -> None:
        self._reserved -= 1

    # --- coming in --------------------------------------------------------------------------------------------------
    def begin(self, start: Start | Started) -> None:
        """Run an instance that was just created and is this worker's."""
        definition = self._registry.get(start.workflow)
        if definition is None or start.id in self.residents or self.closed:
            return
        instance = Instance(
            definition,
            start.id,
            start.input,
            start.created_at,
            input_kind=start.input_kind,
            deadline=start.deadline,
            state=self._state,
            log=self._logger_for(start.id),
        )
        self._admit(Resident(instance, 0))

    def _admit(self, resident: Resident) -> None:
        self.residents[resident.instance.id] = resident
        self._shrink()
        self._schedule(resident)

    def wake(self, instance: str, input: Input) -> None:
        """Something happened to an instance of this worker's; bring it to memory if it is not there."""
        resident = self.residents.get(instance)
        if resident is not None:
            self.post(resident, input)
            return
        waiting = self._loading.get(instance)
        if waiting is not None:
            waiting.append(input)
            return
        self.load(instance, input)

    def load(self, instance: str, *inputs: Input, crashed: bool = False) -> None:
        """Read an instance and replay it; then feed it."""
        if self.closed:
            return
        if instance in self._loading:
            self._loading[instance] += inputs
            return
        self._loading[instance] = list(inputs)
        task = asyncio.create_task(self._load(instance, crashed))
        self._loads.add(task)
        task.add_done_callback(self._loads.discard)

    async def _load(self, instance: str, crashed: bool) -> None:
        while True:
            try:
                snapshot = await self._storage.load(instance)
                break
            except RomancyError as error:
                _logger.warning("instance %r can't be read (%s); trying again", instance, error)
                await asyncio.sleep(1)
        # Replaying runs user code, which must not happen inside a task.
        asyncio.get_running_loop().call_soon(self._revive, instance, snapshot, crashed)

    def _revive(self, instance_id: str, snapshot: Snapshot | None, crashed: bool) -> None:
        inputs = self._loading.pop(instance_id, [])
        if self.closed:
            return
        if instance_id in self.residents:
            for input in inputs:
                self.post(self.residents[instance_id], input)
            return
        mine = snapshot is not None and snapshot.row.owner == self._committer.worker and snapshot.row.owner is not None
        definition = self._registry.get(snapshot.row.workflow) if snapshot is not None and mine else None
        if snapshot is None or definition is None:
            self._acknowledge(instance_id)
            return
        row = snapshot.row
        instance = Instance(
            definition,
            row.id,
            row.input,
            row.created_at,
            input_kind=row.input_kind,
            deadline=row.deadline,
            state=self._state,
            log=self._logger_for(row.id),
        )
        resident = Resident(instance, row.version, row.status, begun=bool(snapshot.history), crashed=crashed)
        resident.attempts = {a.op: a for a in snapshot.attempts}
        resident.announced = crashed
        if not self._replay(resident, snapshot):
            return
        for op, due in snapshot.waits.items():
            if due is not None and op in instance.ops:
                self.timers.add(due, row.id, op)
        resident.inbox += [CancelAsked(id, raw.decode()) for id, kind, raw in snapshot.requests if kind == CANCEL]
        resident.inbox += inputs
        self._admit(resident)
        if snapshot.deliveries or any(isinstance(op, EventWait) for op in instance.ops.values()):
            self.look_for(resident, snapshot.deliveries)

    def look_for(self, resident: Resident, deliveries: list[int]) -> None:
        """Look for events for all its waits. The hints that led here go only after what was found is in the inbox."""
        id = resident.instance.id
        self._committer.look(id, None, lambda: self.wake(id, Looked(deliveries)))

    def _replay(self, resident: Resident, snapshot: Snapshot) -> bool:
        instance = resident.instance
        info = {"instance_id": instance.id, "workflow": instance.definition.name, "entries": len(snapshot.history)}
        self.watchdog.begin(instance)
        try:
            if snapshot.history:
                self._hooks.tell(h.ReplayStartedInfo, at=from_us(self._clock.now()), **info)
                instance.replay(snapshot.history)
                self._hooks.tell(h.ReplayCompletedInfo, at=from_us(self._clock.now()), **info)
            elif snapshot.waits:
                instance.replay([])  # nothing happened since, but its waits are recorded
                resident.begun = True
            if resident.begun:
                resident.stale_waits = instance.reconcile(snapshot.waits)
        except (NonDeterminismError, InvalidInput, NotStorable) as error:
            self._block(resident, error)
            return False
        finally:
            self.watchdog.end()
        return True

    def post(self, resident: Resident, input: Input) -> None:
        """Put something into an inbox; it is fed as soon as the instance's last commit is in."""
        if not resident.gone and not self.closed:
            resident.inbox.append(input)
            self._schedule(resident)

    def _schedule(self, resident: Resident) -> None:
        if resident.scheduled or resident.committing:
            return
        resident.scheduled = True
        self._idle.pop(resident.instance.id, None)
        self._ready.append(resident)
        if not self._draining:
            self._draining = True
            asyncio.get_running_loop().call_soon(self._drain)

    # --- running ----------------------------------------------------------------------------------------------------
    def _drain(self) -> None:
        """Feed everybody who is ready. A plain callback of the loop."""
        self._draining = False
        for _ in range(len(self._ready)):
            resident = self._ready.popleft()
            resident.scheduled = False
            if not resident.gone:
                self._activate(resident)
        if self._ready and not self._draining:
            self._draining = True
            asyncio.get_running_loop().call_soon(self._drain)
        self._committer.flush()

    def _activate(self, resident: Resident) -> None:
        instance = resident.instance
        step = Step(resident, self._clock.now(), self.stamp, self._hooks.wanted)
        self.watchdog.begin(instance)
        try:
            after = step.run()
        except (NonDeterminismError, InvalidInput, NotStorable) as error:
            self._block(resident, error)
            return
        finally:
            self.watchdog.end()
        if resident.crashed:
            resident.crashed = False
            if self._count_death(resident, step):
                return
        if step.is_empty:
            self._follow(resident, after)
            return
        resident.committing = True
        commit = step.commit
        self._committer.commit(
            commit, lambda applied, refusal: self._committed(resident, commit, after, applied, refusal)
        )

    def stamp(self, event: Event) -> Accept:
        """An event that is about to be stored gets its time."""
        event = _accepted(event, self._clock.now())
        return Accept(event, pack_event(event), self.unfit_triggers(event))

    def unfit_triggers(self, event: Event) -> list[str]:
        """Workflows this event's type starts, but whose model its data does not fit."""
        unfit: list[str] = []
        for definition in self._registry.on_event(event.type):
            model = definition.event_model
            try:
                if model is not None:
                    model.judge(event.data if event.data is not None else b"null")
            except NotStorable as error:
                _logger.warning("event %r does not start workflow %r: %s", event.id, definition.name, error)
                unfit.append(definition.name)
        return unfit

    def _count_death(self, resident: Resident, step: Step) -> bool:
        """A worker died over this instance: remember it for what was running; true if something killed too often."""
        for op in resident.instance.ops.values():
            if not isinstance(op, ActivityCall):
                continue
            record = after_death(op, resident.attempts.get(op.id), self._clock.now())
            if record is None:
                continue
            if record.crashes >= MAX_DEATHS:
                reason = (
                    f"activity {op.id!r} was running each of the {MAX_DEATHS} times its worker died; "
                    "it is not run again until you resume the instance"
                )
                self._block(resident, RomancyError(reason))
                return True
            step.record_attempt(record)
        return False

    # --- after a commit ---------------------------------------------------------------------------------------------
    def _committed(
        self, resident: Resident, commit: Commit, after: After, applied: bool, refusal: RefusedValue | None
    ) -> None:
        resident.committing = False
        if resident.gone:
            return
        if refusal is not None:
            self._block(resident, refusal)
        elif not applied:
            self._refused(resident)
        else:
            resident.version += 1
            resident.status = commit.status
            if commit.requests_done:
                self._acknowledge(commit.instance)
            for wait in commit.opened:
                if wait.due is not None:
                    self.timers.add(wait.due, commit.instance, wait.op)
            for op in commit.closed:
                self.timers.discard(commit.instance, op)
            self._follow(resident, after)

    def _follow(self, resident: Resident, after: After) -> None:
        """Now that it is stored: start activities, ring timers, tell hooks, hand out the result."""
        instance, activation = resident.instance, after.activation
        for op in activation.closed:
            if isinstance(op, ActivityCall):
                self.activities.withdraw(instance.id, op.id)
        for info in after.told:
            self._hooks.run(info)
        if activation.outcome is not None:
            self._finished(resident)
            return
        for op in activation.opened:
            if isinstance(op, ActivityCall):
                self._start_activity(resident, op)
        for attempt in after.retries:
            op = instance.ops.get(attempt.op)
            if isinstance(op, ActivityCall) and attempt.next_due is not None:
                self.activities.retry_at(resident, op, attempt.next_due)
        for id in after.begin:
            op = instance.ops.get(id)
            if isinstance(op, ActivityCall):
                self.activities.start(resident, op)
        for op in after.confirm:
            self._confirm_timeout(resident, op)
        if resident.inbox:
            self._schedule(resident)
        elif resident.is_evictable:
            self._idle[instance.id] = resident
            self._shrink()

    def _start_activity(self, resident: Resident, op: ActivityCall) -> None:
        attempt = resident.attempts.get(op.id)
        if attempt is not None and attempt.next_due is not None and attempt.next_due > self._clock.now():
            self.activities.retry_at(resident, op, attempt.next_due)
        elif attempt is not None and attempt.crashes and not attempt.started:
            self.suspects.admit(resident, attempt)
        else:
            self.activities.start(resident, op)

    def _confirm_timeout(self, resident: Resident, op: str) -> None:
        """A tie goes to the event: look once for one that was accepted before the time ran out."""
        id = resident.instance.id

        def looked() -> None:
            offered = any(isinstance(i, EventOffered) and i.op == op for i in resident.inbox)
            # Should an offer turn out void, the time is still over: ask again.
            self.wake(id, Due(op) if offered else TimedOut(op))

        self._committer.look(id, op, looked)

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
        self._results.announce(instance.id, outcome.status, outcome.output, outcome.error)
        if outcome.status == "failed" and outcome.error is not None:
            _logger.warning(
                "workflow %s failed: %s: %s",
                instance.definition.name,
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

    def _refused(self, resident: Resident) -> None:
        """Somebody else wrote to the instance: forget what we think of it, and read it again if it is still ours."""
        inputs = [i for i in resident.inbox if not isinstance(i, AttemptChanged)]
        self.drop(resident)
        self.load(resident.instance.id, *inputs)

    def _block(self, resident: Resident, error: Exception) -> None:
        """Set an instance aside, with all it has, until somebody mends what is wrong."""
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

        def done(applied: bool, refusal: RefusedValue | None) -> None:
            if applied:
                self._results.announce(instance.id, "blocked", None, failure)
                self._tell_workflow(resident, h.WorkflowBlockedInfo, failure)

        self._committer.commit(commit, done)

    # --- what a batch brought ---------------------------------------------------------------------------------------
    def answered(self, answer: Answer) -> None:
        """Offers go to their instances; what events started begins."""
        if answer.fenced:
            return
        elsewhere = False
        for accepted in (*answer.accepts, *answer.sent):
            elsewhere = elsewhere or any(wait.instance not in self.residents for wait in accepted.matched)
            for started in accepted.started:
                if started.owner is not None:
                    self.begin(started)
                else:
                    elsewhere = True
        if elsewhere:
            self.on_work()  # perhaps nobody owns them: somebody has to claim them
        for offer in answer.offers:
            self.wake(offer.instance, EventOffered(offer.op, offer.event))

    # --- leaving memory ---------------------------------------------------------------------------------------------
    def drop(self, resident: Resident) -> None:
        """Forget an instance; its code is not to act any more."""
        resident.gone = True
        self.residents.pop(resident.instance.id, None)
        self._idle.pop(resident.instance.id, None)
        self._acknowledge(resident.instance.id)
        if self._backlog and self.has_room:
            self._backlog = False
            self.on_work()
        self.activities.withdraw_all(resident)
        self.suspects.over(resident)
        resident.instance.evict()

    async def seen_to(self, instance: str) -> None:
        """Wait until a request to an instance of this worker's has been fed and stored, or it left memory."""
        if instance in self.residents or instance in self._loading:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._requests.setdefault(instance, []).append(future)
            await future

    def _acknowledge(self, instance: str) -> None:
        for future in self._requests.pop(instance, ()):
            if not future.done():
                future.set_result(None)

    def want_room(self) -> None:
        """More instances wait to be taken on: say when there is room."""
        self._backlog = True

    def _shrink(self) -> None:
        """Make room: the longest idle go first. Waiting ones cost nothing in the database."""
        while len(self.residents) > self._max and self._idle:
            self.drop(self._idle.popitem(last=False)[1])

    def drop_all(self) -> None:
        for resident in list(self.residents.values()):
            self.drop(resident)
        self.stop_loading()
        self._ready.clear()
        self.timers.clear()

    def stop_loading(self) -> None:
        for task in self._loads:
            task.cancel()
        for instance in list(self._loading):
            self._acknowledge(instance)
        self._loading.clear()

    def fire(self, instance: str, op: str) -> None:
        """A timer's time has come."""
        self.wake(instance, Due(op))

    def _logger_for(self, instance_id: str) -> Callable[[str], None]:
        return lambda message: _logger.warning("in instance %r: %s", instance_id, message)

    def knows(self, instance: str) -> bool:
        """Whether it is in memory, or on its way there."""
        return instance in self.residents or instance in self._loading


def _accepted(event: Event, now: int) -> Event:
    return replace(event, accepted_at=now, time=event.time if event.time is not None else now)
