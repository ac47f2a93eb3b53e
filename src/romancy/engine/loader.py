"""The loader: brings instances to memory, new ones and those that only the database knows, and hands them what came."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from romancy.core.clock import Clock
from romancy.core.inputs import UNBOUND
from romancy.core.instance import Instance
from romancy.core.operations import EventWait
from romancy.core.registry import Registry, WorkflowDefinition
from romancy.engine.evidence import begun, body_run
from romancy.engine.hook_runner import HookRunner
from romancy.engine.metrics import Metrics
from romancy.engine.replays import Replays
from romancy.engine.resident import GONE, CancelAsked, Due, EventOffered, Input, Looked, Resident, Stored
from romancy.engine.scheduler import Scheduler
from romancy.storage.batch import BODY, CANCEL, Commit, Start, Started
from romancy.storage.errors import RefusedValue, TransientError
from romancy.storage.protocol import Storage
from romancy.storage.records import InstanceRow, Snapshot

_logger = logging.getLogger("romancy")


@dataclass(slots=True, eq=False)
class _Held:
    """What an instance needs to go on, once it is its turn. `turn`: it has come, and whether it is alone."""

    snapshot: Snapshot
    inputs: list[Input]
    is_storing: bool = False
    turn: bool | None = None


class Loader:
    """The way into memory. Everything that happens to an instance comes through `wake`."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        registry: Registry,
        scheduler: Scheduler,
        hooks: HookRunner,
        state: Any,
        metrics: Metrics,
    ) -> None:
        self._storage, self._clock, self._registry = storage, clock, registry
        self._scheduler, self._state = scheduler, state
        self._residents, self._metrics = scheduler.residents, metrics
        self._replays = Replays(clock, hooks, scheduler.watchdog)
        self._loads: set[asyncio.Task[None]] = set()
        self._unreadable: set[str] = set()
        self._held: dict[Resident, _Held] = {}
        """Instances whose code may have killed its worker, until it is their turn."""
        self._left_by_dead: set[str] = set()
        """Instances that only wait, and whose worker died: perhaps over them."""

    def holds(self, resident: Resident) -> bool:
        return resident in self._held

    def begin(self, start: Start | Started) -> None:
        """Run an instance that was just created and is this worker's."""
        definition = self._registry.get(start.workflow)
        if definition is not None and start.id not in self._residents:
            self._scheduler.admit(Resident(self._instance(definition, start), 0))
            self._metrics.workflows_started[start.workflow] += 1

    def wake(self, instance: str, input: Input) -> None:
        """Something happened to an instance of this worker's; bring it to memory if it is not there."""
        resident = self._residents.get(instance)
        if resident is not None:
            self._scheduler.post(resident, input)
        else:
            self.load(instance, input)

    def fire(self, instance: str, op: str) -> None:
        """A timer's time has come."""
        self.wake(instance, Due(op))

    def expect(self, instance: str, *, crashed: bool) -> None:
        """It only waits, and is read when its time comes. If it killed its worker, that was when its time came."""
        if crashed:
            self._left_by_dead.add(instance)

    def load(self, instance: str, *inputs: Input, crashed: bool = False) -> None:
        """Read an instance and replay it; then feed it."""
        if self._scheduler.closed:
            return
        if instance in self._residents.loading:
            self._residents.loading[instance] += inputs
            return
        if instance in self._left_by_dead:
            self._left_by_dead.discard(instance)
            crashed = True
        self._residents.loading[instance] = list(inputs)
        task = asyncio.create_task(self._load(instance, crashed))
        self._loads.add(task)
        task.add_done_callback(self._loads.discard)

    async def _load(self, instance: str, crashed: bool) -> None:
        pause, outage = 0.1, self._scheduler.committer.outage
        while True:
            try:
                snapshot = await self._storage.load(instance)
                outage.over(f"load {instance}")
                break
            except TransientError as error:
                outage.noticed(f"load {instance}", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 30.0)
            except Exception as error:
                if instance not in self._unreadable:
                    self._unreadable.add(instance)
                    _logger.error("instance %r can't be read (%s); it is left alone", instance, error)
                snapshot = None
                break
        # Replaying runs user code, which must not happen inside a task.
        asyncio.get_running_loop().call_soon(self._arrived, instance, snapshot, crashed)

    def _arrived(self, instance: str, snapshot: Snapshot | None, crashed: bool) -> None:
        inputs = self._residents.loading.pop(instance, None)
        if inputs is None:
            return  # this worker was taken over, or stops
        resident = self._residents.get(instance)
        if resident is not None:
            for input in inputs:
                self._scheduler.post(resident, input)
        elif snapshot is not None and self._scheduler.is_mine(snapshot.row.owner):
            definition = self._registry.get(snapshot.row.workflow)
            if definition is not None:
                try:
                    self._revive(definition, snapshot, inputs, crashed)
                except Exception as error:  # a damaged row: set it aside for people to look at
                    row = snapshot.row
                    self._scheduler.block(Resident(self._instance(definition, row), row.version), error)
        if not self._residents.knows(instance):
            self._residents.acknowledge(instance)

    def _revive(self, definition: WorkflowDefinition, snapshot: Snapshot, inputs: list[Input], crashed: bool) -> None:
        row, attempts = snapshot.row, {a.op: a for a in snapshot.attempts}
        unheard = snapshot.unheard
        if unheard is not None:
            snapshot = replace(snapshot, history=snapshot.heard)
        instance = self._instance(definition, row)
        resident = Resident(instance, row.version, row.status, begun=bool(snapshot.history), crashed=crashed)
        resident.attempts = attempts
        if unheard is not None:
            resident.inbox.append(Stored(unheard))
        resident.announced = crashed
        if crashed or BODY in resident.attempts:
            self._hold(resident, snapshot, inputs)
        else:
            self._go_on(resident, snapshot, inputs)

    # --- code that may have killed its worker -----------------------------------------------------------------------
    def _hold(self, resident: Resident, snapshot: Snapshot, inputs: list[Input]) -> None:
        """It is not replayed before it is its turn, and that is recorded."""
        self._residents.hold(snapshot.row.id, inputs)
        held = self._held[resident] = _Held(snapshot, inputs)
        old = resident.attempts.get(BODY)
        if not self._scheduler.inquest.admit_body(resident, snapshot.row.created_at):
            self._held.pop(resident, None)
            self._residents.let_in(snapshot.row.id)
        elif not held.is_storing and old is not resident.attempts[BODY]:
            # The death is counted now: if this worker dies before it is its turn, that is no news about it.
            self._store(resident, held, partial(self._counted, resident))

    def _counted(self, resident: Resident) -> None:
        turn = self._held[resident].turn
        if turn is not None:
            self.begin_body(resident, turn)

    def begin_body(self, resident: Resident, is_alone: bool) -> None:
        """Its turn has come: once that is recorded, its code runs."""
        held = self._held[resident]
        if held.is_storing:
            held.turn = is_alone
            return
        run = body_run(resident.attempts[BODY], len(held.snapshot.history))
        resident.attempts[BODY] = begun(resident.attempts[BODY], is_alone, run)
        self._store(resident, held, partial(self._begin_body, resident))

    def _store(self, resident: Resident, held: _Held, then: Callable[[], None]) -> None:
        """Store the record of a body that is held. What follows has a callback of its own: it may run user code."""
        row, records = held.snapshot.row, [resident.attempts[BODY]]
        now = self._clock.now()
        commit = Commit(row.id, resident.version, resident.status, now, same_status=True, attempts=records)
        held.is_storing = True

        def done(applied: bool, refusal: RefusedValue | None) -> None:
            if self._held.get(resident) is not held:
                return  # this worker was taken over, or stops
            if applied:
                resident.version += 1
                asyncio.get_running_loop().call_soon(stored)
            else:
                self._let_go(resident)
                self.load(row.id, *held.inputs, crashed=resident.crashed)

        def stored() -> None:
            if self._held.get(resident) is held:
                held.is_storing = False
                then()

        self._scheduler.committer.commit(commit, done)

    def _begin_body(self, resident: Resident) -> None:
        held = self._held.pop(resident)
        self._residents.let_in(held.snapshot.row.id)
        self._go_on(resident, held.snapshot, held.inputs)

    def _let_go(self, resident: Resident) -> None:
        held = self._held.pop(resident)
        self._residents.let_in(held.snapshot.row.id)
        resident.state = GONE
        self._scheduler.inquest.quarantine.leave(resident)

    # --- going on ---------------------------------------------------------------------------------------------------
    def _go_on(self, resident: Resident, snapshot: Snapshot, inputs: list[Input]) -> None:
        """Replay it; what happens to it until it is through joins `inputs`."""
        self._residents.loading[snapshot.row.id] = inputs
        self._replays.begin(resident, snapshot, partial(self._replayed, resident, snapshot, inputs))

    def _replayed(self, resident: Resident, snapshot: Snapshot, inputs: list[Input], error: Exception | None) -> None:
        id = snapshot.row.id
        self._residents.loading.pop(id, None)
        try:
            if error is None:
                self._admit(resident, snapshot, inputs)
        except Exception as damaged:
            error = damaged
        if error is not None:  # damaged or left behind: set aside for people to look at, never lost
            self._scheduler.block(resident, error)
        self._scheduler.inquest.quarantine.recorded(resident, BODY)
        if not self._residents.knows(id):
            self._residents.acknowledge(id)

    def _admit(self, resident: Resident, snapshot: Snapshot, inputs: list[Input]) -> None:
        row, instance = snapshot.row, resident.instance
        for op, due in snapshot.waits.items():
            if due is not None and op in instance.ops:
                self._scheduler.timers.add(due, row.id, op)
        resident.inbox += [
            CancelAsked(id, raw.decode("utf-8", "replace")) for id, kind, raw in snapshot.requests if kind == CANCEL
        ]
        resident.inbox += inputs
        resident.offered = any(isinstance(input, EventOffered) for input in inputs)
        self._scheduler.admit(resident)
        if snapshot.deliveries or any(isinstance(op, EventWait) for op in instance.ops.values()):
            if resident.offered:
                resident.unlooked = snapshot.deliveries
            else:
                self.look_for(resident, snapshot.deliveries)

    def look_for(self, resident: Resident, deliveries: list[int]) -> None:
        """Look for events for all its waits. The hints that led here go only after what was found is in the inbox."""
        id = resident.instance.id
        # Without hints there is nothing to say afterwards; and to bring it back to memory for that, where it may have
        # had to leave meanwhile, would lead to another look, and so on.
        told = (lambda: self.wake(id, Looked(deliveries))) if deliveries else None
        self._scheduler.committer.look(id, None, told)

    def _instance(self, definition: WorkflowDefinition, of: Start | Started | InstanceRow) -> Instance:
        return Instance(
            definition,
            of.id,
            of.input,
            of.created_at,
            input_kind=of.input_kind,
            deadline=_deadline(definition, of),
            state=self._state,
            log=lambda message: _logger.warning("in instance %r: %s", of.id, message),
        )

    def stop(self) -> None:
        for task in self._loads:
            task.cancel()
        self._residents.stop_loading()
        for resident in self._held:
            resident.state = GONE
        self._held.clear()
        self._replays.drop_all()


def _deadline(definition: WorkflowDefinition, of: Start | Started | InstanceRow) -> int | None:
    """One started by name, by somebody who does not have the workflow, gets its time limit here."""
    if of.input_kind == UNBOUND and of.deadline is None and definition.timeout is not None:
        return of.created_at + definition.timeout
    return of.deadline
