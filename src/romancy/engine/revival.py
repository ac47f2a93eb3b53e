"""Revival: brings instances into memory. Stored ones are replayed; new ones have no history yet."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import Any

from romancy.core.history import Kind
from romancy.core.inputs import UNBOUND
from romancy.core.instance import Instance
from romancy.core.model import WAITING
from romancy.core.operations import EventWait
from romancy.core.registry import Registry, WorkflowDefinition
from romancy.core.retrial import Retrial, RetryAsk
from romancy.core.run import Run
from romancy.engine.around import Around
from romancy.engine.committer import Committer
from romancy.engine.custody import Custody, Held
from romancy.engine.exits import Exits
from romancy.engine.inbox import Inboxes
from romancy.engine.inquest import Inquest
from romancy.engine.loader import Arrival, Loader
from romancy.engine.mail import to_input
from romancy.engine.metrics import Metrics
from romancy.engine.recollection import Recollection
from romancy.engine.replays import Replays
from romancy.engine.resident import Answered, CancelAsked, ChildEnded, EventOffered, Input, Looked, Resident, Stored
from romancy.engine.timers import Timers
from romancy.engine.waiting_room import Unplaced
from romancy.storage.batch import BODY, RETRY, Continuation, Start, Started
from romancy.storage.instances import InstanceRow
from romancy.storage.records import Snapshot

_logger = logging.getLogger("romancy")
_log = partial(_logger.warning, "in instance %r: %s")


class Revival:
    """Brings instances into memory."""

    def __init__(
        self,
        registry: Registry,
        state: Any,
        inboxes: Inboxes,
        loader: Loader,
        committer: Committer,
        custody: Custody,
        inquest: Inquest,
        timers: Timers,
        exits: Exits,
        replays: Replays,
        recollection: Recollection,
        unplaced: Unplaced,
        metrics: Metrics,
        around: Around,
    ) -> None:
        self._around = around
        self._registry, self._state, self._metrics = registry, state, metrics
        self._inboxes, self._residents, self._loader = inboxes, inboxes.residents, loader
        self._committer, self._custody, self._inquest = committer, custody, inquest
        self._timers, self._exits, self._replays = timers, exits, replays
        self._recollection, self._unplaced = recollection, unplaced

    def begin(self, start: Start | Started) -> None:
        """Run an instance that was just created and is owned by this worker."""
        definition = self._registry.get(start.workflow)
        if definition is not None and start.id not in self._residents:
            if definition.queue is not None and self._unplaced.divert(definition, start, 0):
                return
            resident = Resident(self._instance(definition, start), 0)
            if isinstance(start, Start):
                resident.instance.run.headers = start.headers
                if start.parent is not None:
                    resident.parent = start.parent, start.parent_op or ""
            if self._around.adopts:
                self._adopt(resident, start)
            if start.id in self._residents.loading:
                resident.inbox += self._loader.overtake(start.id)
            self._enter(resident)
            self._metrics.workflows_started[start.workflow] += 1

    def begin_again(self, ended: Resident, continuation: Continuation, at: int) -> bool:
        """Run the next run of an instance. Return whether its workflow is registered here."""
        old, next_run = ended.instance, continuation.run
        definition = self._registry.get(next_run.workflow)
        if definition is None:
            return False
        instance = Instance(
            definition,
            old.id,
            next_run.input,
            old.created_at,
            input_kind=next_run.input_kind,
            deadline=old.deadline if next_run.deadline is None else next_run.deadline,
            run=Run(old.run.number + 1, continuation.base, at, old.run.seeds),
            state=self._state,
            log=_log,
        )
        if old.published is not None:
            instance.published = old.published.for_next_run()
        resident = Resident(instance, ended.version, announced=True, parent=ended.parent)
        instance.run.headers = old.run.headers
        if self._around.adopts:
            resident.new_headers = self._around.carry_on(old, instance.run.number, at)
            if resident.new_headers is not None:
                instance.run.headers = resident.new_headers or None
        resident.inbox = [*(ended.kept or ()), *(input for input in ended.inbox if isinstance(input, CancelAsked))]
        resident.requests, resident.consumed = ended.requests, ended.consumed
        self._enter(resident)
        return True

    def _adopt(self, resident: Resident, of: Start | Started | InstanceRow) -> None:
        """Let middleware give headers to an instance that has none."""
        run = resident.instance.run
        if not run.headers:
            run.headers = resident.new_headers = self._around.adopt(resident.instance, of.input, of.input_kind)

    def _enter(self, resident: Resident) -> None:
        self._inboxes.admit(resident)
        self._exits.shrink()

    def revive(self, arrival: Arrival) -> None:
        """Bring an instance that was read into memory."""
        row = arrival.snapshot.row
        definition = self._registry.get(row.workflow)
        if definition is None:
            return
        try:
            self._revive(definition, *arrival)
        except Exception as error:  # a damaged row: set it aside for inspection
            self._exits.block(Resident(self._instance(definition, row), row.version, builds=row.builds), error)

    def _revive(self, definition: WorkflowDefinition, snapshot: Snapshot, inputs: list[Input], crashed: bool) -> None:
        if snapshot.problem is not None:
            raise snapshot.problem
        row, attempts = snapshot.row, {a.op: a for a in snapshot.attempts}
        if (
            definition.queue is not None
            and _lacks_place(snapshot)
            and self._unplaced.divert(definition, row, row.version)
        ):
            return
        unfed = snapshot.unfed
        if unfed is not None:
            snapshot = replace(snapshot, history=snapshot.fed)
        instance = self._instance(definition, row)
        resident = Resident(instance, row.version, row.status, begun=bool(snapshot.history), crashed=crashed)
        resident.attempts, resident.parent, resident.builds = attempts, row.child_of, row.builds
        resident.is_read = True
        instance.run.headers = snapshot.headers or None
        if self._around.adopts:
            self._adopt(resident, row)
        if unfed is not None:
            resident.inbox.append(Stored(unfed))
        # If its worker died, it had begun, and hooks heard of that there. Only the first run is a start.
        resident.announced = crashed or row.generation > 0 or row.status in WAITING
        if not resident.begun and not snapshot.waits and (crashed or not _is_untouched(snapshot)):
            resident.reopened = None
        if not crashed and _is_untouched(snapshot):
            self._metrics.workflows_started[row.workflow] += 1  # by a process without a worker, or in a queue
        ask = next((request for request in snapshot.requests if request.kind == RETRY), None)
        if ask is not None:
            make = partial(self._instance, definition, row)
            resident.retrial = Retrial(ask.id, RetryAsk.decode(ask.payload), make)
        if crashed or BODY in resident.attempts:
            self._hold(resident, snapshot, inputs)
        else:
            self._go_on(resident, snapshot, inputs)

    # --- code that may have killed its worker -----------------------------------------------------------------------
    def _hold(self, resident: Resident, snapshot: Snapshot, inputs: list[Input]) -> None:
        self._custody.hold(resident, Held(snapshot, inputs, self._go_on, self._read_again))
        old = resident.attempts.get(BODY)
        guilty = self._inquest.admit_body(resident, snapshot.row.created_at)
        if guilty is not None:
            self._exits.block(resident, *guilty)
            self._custody.let_go(resident)
        elif old is not resident.attempts[BODY]:
            self._custody.record(resident)

    def _read_again(self, resident: Resident, snapshot: Snapshot, inputs: list[Input]) -> None:
        self._inquest.quarantine.leave(resident)
        self._loader.load(snapshot.row.id, *inputs, crashed=resident.crashed)

    # --- going on ---------------------------------------------------------------------------------------------------
    def _go_on(self, resident: Resident, snapshot: Snapshot, inputs: list[Input]) -> None:
        """Replay it. New inputs are added to `inputs` until that is done."""
        self._residents.loading[snapshot.row.id] = inputs
        done = partial(self._replayed, resident, snapshot, inputs)

        def recall(error: Exception | None) -> None:
            done(error) if error is not None else self._recollection.begin(resident, partial(done, None))

        self._replays.begin(resident, snapshot, recall)

    def _replayed(self, resident: Resident, snapshot: Snapshot, inputs: list[Input], error: Exception | None) -> None:
        id = snapshot.row.id
        self._residents.loading.pop(id, None)
        try:
            if error is None:
                self._admit(resident, snapshot, inputs)
        except Exception as damaged:
            error = damaged
        if error is not None:  # damaged, or its code has changed: set it aside for inspection, never lose it
            self._exits.block(resident, error)
        self._inquest.quarantine.recorded(resident, BODY)
        if not self._residents.knows(id):
            self._residents.acknowledge(id)

    def _admit(self, resident: Resident, snapshot: Snapshot, inputs: list[Input]) -> None:
        row, instance = snapshot.row, resident.instance
        for op, due in snapshot.waits.items():
            if due is not None and op in instance.ops:
                self._timers.add(due, row.id, op)
        if instance.compensation is not None and row.status == "running":
            # It was blocked, as stored with the entry that led to the hold: only `resume` makes it running.
            resident.inbox += [Answered(hold.id, Kind.RESUMED, b"") for hold in instance.compensation.holds]
        mail = [to_input(request.id, request.kind, request.payload, request.op) for request in snapshot.requests]
        resident.inbox += [input for input in mail if input is not None]
        # Nothing that was offered to an instance, or was due, before it was retried is still valid.
        inputs = inputs if resident.retrial is None else [i for i in inputs if isinstance(i, CancelAsked | ChildEnded)]
        resident.inbox += inputs
        resident.offered = any(isinstance(input, EventOffered) for input in inputs)
        self._enter(resident)
        if snapshot.deliveries or any(isinstance(op, EventWait) for op in instance.ops.values()):
            if resident.offered:
                resident.unlooked = snapshot.deliveries
            else:
                self.look_for(resident, snapshot.deliveries)

    def look_for(self, resident: Resident, deliveries: list[int]) -> None:
        """Look for events for all its waits. Its deliveries are deleted only after the offers are in the inbox."""
        id = resident.instance.id
        # Without deliveries there is nothing to do afterwards. Waking it for that would load it again if it has been
        # evicted meanwhile, and lead to another look, and so on.
        done = (lambda: self._loader.wake(id, Looked(deliveries))) if deliveries else None
        self._committer.look(id, None, done)

    def _instance(self, definition: WorkflowDefinition, of: Start | Started | InstanceRow) -> Instance:
        return Instance(
            definition,
            of.id,
            of.input,
            of.created_at,
            input_kind=of.input_kind,
            deadline=_deadline(definition, of),
            run=of.run if isinstance(of, InstanceRow) else None,
            state=self._state,
            log=_log,
        )

    def stop(self) -> None:
        """Stop loading and replaying."""
        self._loader.stop()
        self._custody.clear()
        self._replays.drop_all()
        self._recollection.drop_all()


def _lacks_place(snapshot: Snapshot) -> bool:
    """Return whether an instance that has not begun was started by a process that did not know its queue."""
    row = snapshot.row
    return row.queue is None and row.generation == 0 and not snapshot.history and not snapshot.waits


def _is_untouched(snapshot: Snapshot) -> bool:
    """Return whether an instance has never run: all that happened to it is that it was admitted and claimed."""
    row = snapshot.row
    return row.version <= (1 if row.queue is None else 2) and row.generation == 0 and not snapshot.history


def _deadline(definition: WorkflowDefinition, of: Start | Started | InstanceRow) -> int | None:
    """Return the deadline. It is computed here if the instance was started by a process that lacks the workflow."""
    if of.input_kind == UNBOUND and of.deadline is None and definition.timeout is not None:
        since = of.limited_from if isinstance(of, InstanceRow) else None
        return (of.created_at if since is None else since) + definition.timeout
    return of.deadline
