"""One instance: a workflow coroutine on its own loop, driven by its history.

`begin` runs the code to its first wait, `feed` feeds it one entry, and `replay` feeds it the recorded ones. After
each, the code has run until nothing is ready, and `take` returns what it asked for. Live runs and replays use the same
path, so the same entries always lead to the same state. There is no clock, database or I/O in here.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextvars import Context, ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from romancy.core import failure as failures
from romancy.core.body import run_body
from romancy.core.budget import Budget, endless, idle
from romancy.core.compensation import Compensation
from romancy.core.culprits import culprits_of
from romancy.core.divergence import answered, ended_before, explain, unknown_kind, unlike, unmade
from romancy.core.dropped import Dropped, standing
from romancy.core.eviction import Halted, Refusal, close_all
from romancy.core.failure import Failure
from romancy.core.history import Entry, Kind, Marks, with_marks
from romancy.core.inputs import BOUND, UNBOUND, is_from_input
from romancy.core.loop import TimerHandle, WorkflowLoop
from romancy.core.model import FOREVER_US, SECOND, Event, ReceivedEvent, Status
from romancy.core.offspring import Offspring, note_sent, with_child
from romancy.core.open_operations import NONE_OPENED, OpenOperations
from romancy.core.operations import ChildCall, Operation, OperationFuture, Timer, user_line
from romancy.core.outcome import Asked, Outcome, ending
from romancy.core.patches import Patches, is_to_mark, own_marks, without_patches
from romancy.core.published import Published
from romancy.core.registry import WorkflowDefinition
from romancy.core.run import TOO_LONG, Run
from romancy.core.sequences import added
from romancy.errors import InvalidInput, NonDeterminismError, NotStorable, WorkflowStuck

current: ContextVar[Any] = ContextVar("romancy.current")
"""The context of the running workflow or activity."""

_KINDS = frozenset(Kind)
_NO_MARKS: Marks = {}


class Instance:
    """The code of one instance in memory. The engine feeds it; user code reaches it through its context."""

    # Thousands of instances are in memory.
    __slots__ = (
        "_activation", "_budget", "_context", "_cuts", "_description", "_entries", "_fault", "_input", "_input_kind",
        "_log", "_marks", "_root", "_rung", "_sent", "_stuck", "_taken", "_timed_out", "at", "cancelling",
        "compensation", "created_at", "dead", "deadline", "definition", "dropped", "emitted", "id", "length", "loop",
        "offspring", "ops", "outcome", "patches", "published", "refusals", "replaying", "run", "started_at", "state",
    )  # fmt: skip

    def __init__(
        self,
        definition: WorkflowDefinition,
        instance_id: str,
        input: bytes,
        started_at: int,
        *,
        input_kind: int = BOUND,
        deadline: int | None = None,
        run: Run | None = None,
        state: Any = None,
        log: Callable[[str, str], None] = lambda instance, message: None,
    ) -> None:
        self.definition, self.id, self.created_at = definition, instance_id, started_at
        self.started_at = started_at if run is None or run.started_at is None else run.started_at
        self.at = started_at if run is None else run.began_at
        self.run = run or Run(1, 0, started_at)
        self.state, self._log, self.length = state, log, self.run.base
        self.replaying = self.dead = self._timed_out = False
        self.ops = OpenOperations()
        self.cancelling: str | None = None
        self.outcome: Outcome | None = None
        self.patches: Patches | None = None
        self.published: Published | None = None
        self.dropped: Dropped | None = None
        self._cuts: tuple[int, ...] = ()  # entries that cancelled it, or ended its time
        self._rung: int | None = None
        self.loop = WorkflowLoop(self)
        self._input, self._input_kind, self.deadline = input, input_kind, deadline
        self._fault: NonDeterminismError | None = None
        self._stuck: WorkflowStuck | None = None
        self._budget = Budget()
        self._marks = _NO_MARKS
        self._entries: Sequence[Entry] = ()
        self._activation = self._taken = self.refusals = 0
        self.offspring: Offspring | None = None
        self.compensation: Compensation | None = None
        self._sent: Sequence[Event] = ()
        self.emitted: Sequence[tuple[str, bytes]] = ()
        self._description: str | None = None
        self._root: asyncio.Task[bytes] | None = None
        self._context = Context()

    def __repr__(self) -> str:
        return f"<Instance {self.id!r} {self.definition.name} entries={self.length} open={list(self.ops)}>"

    # --- driving ----------------------------------------------------------------------------------------------------
    def begin(self) -> None:
        """Run the code to its first wait."""
        self._run(self._create)

    def record(self, kind: Kind, op: str, at: int, payload: bytes | None = None, event: int | None = None) -> Entry:
        """Add an entry to the history without feeding it. It must be fed before any other entry."""
        asked = None if (operation := self.ops.get(op)) is None else operation.input
        self.length += 1
        entry = Entry(self.length, kind, op, at if at > self.at else self.at, asked, payload, event)
        self._entries = added(self._entries, entry)
        return entry

    def replay(self, entries: Sequence[Entry]) -> None:
        """Run the code over its recorded history, to the point it had reached."""
        for _ in self.replay_by_entry(entries):
            pass

    def replay_by_entry(self, entries: Sequence[Entry]) -> Generator[None]:
        """Like `replay`, with a pause after each entry. Until it is exhausted, the instance can only be evicted."""
        self.length = entries[-1].n if entries else self.run.base
        entries, self.dropped = standing(entries)
        for entry, marks in with_marks(entries):
            self.repeat(entry, marks)
            yield
        if self.dropped is not None and self.offspring is not None:
            self.offspring.pass_cut(self.ops.values(), self.run, self.id, self.dropped)

    def repeat(self, entry: Entry | None, marks: Marks) -> None:
        """Replay one activation: the start, or that of an entry. The code must make these marks, and no others."""
        self.replaying, self._marks = True, marks
        try:
            if entry is None:
                self._run(self._create)
            else:
                self.feed(entry)
            self._expect_marks()
        finally:
            self.replaying, self._taken, self._marks = False, self._activation, _NO_MARKS

    def reconcile(self, rows: Mapping[str, int | None], *, is_reopened: bool = False) -> list[str]:
        """After loading, compare the open operations with the stored waits (op, due). Return the rows to delete.

        A stored deadline is kept even if the code would compute another one today. A wait that the code opens but
        that is not stored (no first commit, or a compatible change of the code) counts as newly opened. What a
        reopened instance shows of itself is not stored, or was changed by entries that were dropped.
        """
        if not is_reopened:
            self._description = None
            if self.published is not None:
                self.published.settle()
        if self.offspring is not None:
            self.offspring.reload(self.ops.values())
        return self.ops.reconcile(rows)

    def _create(self) -> None:
        self.loop.open(self.run.seeds[0][1] if self.run.seeds else self.id)
        context = self.definition.context(self)
        self._context.run(current.set, context)
        body = run_body(self, context, self._input_kind, self._input)
        self._root = self.loop.create_root(body, self.id, self._context)
        if self.deadline is not None:
            self.ops.open(Timer(self.run.timeout_id, self.at, self.run_out_of_time, due=self.deadline))

    def feed(self, entry: Entry, value: ReceivedEvent[Any] | None = None) -> None:
        """Feed a recorded entry to the code, and run until nothing is ready."""
        if self.outcome is not None:
            raise ended_before(self.id, entry)
        run, n, payload = self.run, entry.n, entry.payload
        if entry.at > self.at:
            self.at = entry.at
        if n > self.length:
            self.length = n
        before, run.fed = run.fed, n
        if run.seeds and self.offspring is not None:
            self.offspring.pass_on(self.ops.values(), before, run, self.id, self.dropped, entry.op)
        if payload is not None:
            run.size += len(payload)
        if n == run.too_long and not self.replaying:
            self._log(self.id, TOO_LONG)
        if entry.kind == Kind.CANCEL_REQUESTED:
            self._cancel((payload or b"").decode() or "cancelled")
            return
        if entry.kind not in _KINDS:
            raise unknown_kind(self.id, entry)
        operation = answered(self.id, self.definition.name, self.ops, entry)
        self.ops.close(operation)
        if operation.given_up:
            self._run(operation.settle_late, entry)
        else:
            self._run(operation.settle, entry, value)

    def _cancel(self, reason: str) -> None:
        """Let the code handle the first request. After another one, end it if it still only waits for events."""
        again, self.cancelling = self.cancelling is not None, reason
        self._cuts += (self.run.fed,)
        assert self._root is not None
        self._run(self._root.cancel, reason)
        if again and self.outcome is None and self.waits_for_good:
            self._end(Outcome("cancelled", error=Failure("CancelledError", reason)))

    @property
    def waits_for_good(self) -> bool:
        """Whether it only waits for events, without time limits: nothing happens until one arrives."""
        return all(op.is_endless or op.id == self.run.timeout_id for op in self.ops.values())

    def _expect_marks(self) -> None:
        if self._marks:
            self.patches = without_patches(self.patches, self._marks)
        for entry in self._marks.values():
            raise unmade(self.id, self.definition.name, self.ops, entry)

    def _run(self, first: Callable[..., Any], *args: Any) -> None:
        """Run one activation, then check whether the code ended, is stuck, or left its history."""
        self._budget.renew()
        self._activation += 1
        entries, sent, emitted = len(self._entries), len(self._sent), len(self.emitted)
        try:
            self.loop.run(first, *args)
            if self.compensation is not None:
                self.compensation.go_on()
        except WorkflowStuck as stuck:
            self._stuck = stuck
        if self._fault is not None:
            raise self._fault from None
        assert self._root is not None
        if self._stuck is not None:
            # Drop everything the code of an endless activation asked for: it can be very much.
            kept = own_marks(self._entries[entries:])
            self.length -= len(self._entries) - entries - len(kept)
            self._entries = [*self._entries[:entries], *kept]
            self._sent, self.emitted = self._sent[:sent], self.emitted[:emitted]
            self._end(Outcome("failed", error=failures.capture(self._stuck)))
        elif self.compensation is not None and self.compensation.unsent is not None:
            raise self.compensation.unsent
        elif self._root.done() or not self.ops or self.deadline is not None or self.compensation is not None:
            self._see_whether_it_ended()

    def _see_whether_it_ended(self) -> None:
        if (root := self._root) is not None and root.done():
            self._finish(self._outcome_of(root))
        elif not self.ops or (len(self.ops) == 1 and self.run.timeout_id in self.ops):
            self._end(Outcome("failed", error=failures.capture(idle(self.id))))

    def _end(self, outcome: Outcome) -> None:
        """End an instance whose code can't go on. What it owes is undone first."""
        compensation = self.compensation
        if compensation is None or not compensation.is_due:
            self._finish(outcome)
            return
        self.silence(self._unfinished)
        self._stuck, self.loop.halted = None, False

        def begin() -> None:
            self._root = self.loop.create_root(compensation.take_over(outcome), self.id, self._context)

        self.loop.run(begin)
        compensation.go_on()
        self._see_whether_it_ended()

    def silence(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Close tasks without letting them act, and give up what they wait for."""
        self.dead = True
        self._context.copy().run(self.loop.run, close_all, tasks, self._unclosable)
        self.dead = False
        for task in tasks:
            self.loop.tasks.pop(hash(task), None)
        for op in [op.id for op in self.ops.values() if not (op.given_up or op.goes_on)]:
            self.withdraw(op)

    def _outcome_of(self, root: asyncio.Task[bytes]) -> Outcome:
        if self.compensation is not None and self.compensation.outcome is not None:
            return self.compensation.outcome
        error = asyncio.CancelledError() if root.cancelled() else root.exception()
        if self._input_kind != UNBOUND and isinstance(error, NotStorable | InvalidInput) and is_from_input(error):
            raise error  # the stored input no longer fits the code: that must not end the instance
        output = root.result() if error is None else None
        culprits = [*self._cuts]
        if error is not None and not culprits:
            culprits = culprits_of(error, self.id, self.run.number, self._rung)
        if self._timed_out:
            return Outcome("failed", output, Failure("WorkflowTimeout", f"instance {self.id!r} ran out of time"))
        return ending(output, error and explain(error), self.cancelling, culprits)

    def run_out_of_time(self) -> None:
        """End the workflow at its time limit: its code sees a cancellation, and the instance fails."""
        self._timed_out = True
        self._cuts += (self.run.fed,)
        assert self._root is not None
        self._root.cancel("the workflow ran out of time")

    def _finish(self, outcome: Outcome) -> None:
        if outcome.error is not None and outcome.error.culprits is None:
            outcome = replace(outcome, error=replace(outcome.error, culprits=[*self._cuts]))
        self.outcome = outcome
        if self.offspring is not None:
            self.offspring.end(self.ops.opened.values(), None if self._stuck is None else self._activation)
        for operation in list(self.ops.values()):
            self.ops.close(operation)

    def take(self) -> Asked:
        """Return everything asked for since the last call, except operations that were opened and closed again."""
        ops = self.ops
        asked = Asked(self._entries, [*ops.opened.values()], ops.closed, self._sent, self.outcome, self._description)
        if self.published is not None:
            asked.publication = self.published.take(self.created_at)
        if self.offspring is not None:
            self.offspring.take(asked, ops)
        asked.emitted, self.emitted = self.emitted, ()
        if ops.given_up:
            asked.given_up = ops.take_given_up()
        self._taken = self._activation
        self._entries, ops.opened, ops.closed, self._sent, self._description = (), NONE_OPENED, (), (), None
        return asked

    @property
    def status(self) -> Status:
        """The status shown to people, derived from the open operations."""
        if self.outcome is not None:
            return self.outcome.status
        if self.compensation is not None and self.compensation.is_under_way:
            return "compensating"
        return self.ops.status

    @property
    def is_cut_short(self) -> bool:
        """Whether it was cancelled or ran out of time: it does not complete, even if its code returns."""
        return self._timed_out or self.cancelling is not None

    # --- called by user code ----------------------------------------------------------------------------------------
    def perform(self, operation: Operation) -> Awaitable[Any]:
        """Open an operation. Its future is done when its entry is fed."""
        if self.is_halted:
            return Refusal(self)
        if not self.loop.running:
            self.check_alive()
        self.spend(len(operation.input or b""))
        operation.line = user_line()
        future = operation.future = OperationFuture(self, operation.id)
        self.ops.open(operation)
        if operation.stays_open:
            operation.note_origin(self._activation)
            if isinstance(operation, ChildCall):
                self.offspring = with_child(self.offspring, operation)
        return future

    def send(self, op: str, event: Event, identity: bytes) -> None:
        """Send an event with the commit of this step. On replay, it was already sent."""
        self.check_alive()
        self.spend(len(event.data or b""))
        sent_before = self.dropped is not None and self.dropped.was_sent(op, identity)
        if self.mark_again(Kind.EVENT_SENT, op, identity) and not sent_before:
            self._sent = added(self._sent, event)
            note_sent(self.offspring)

    def mark_again(self, kind: Kind, op: str, identity: bytes) -> bool:
        """Make a mark, and return true. On replay, check that the code made it before, and return false."""
        if not self.replaying:
            self.mark(kind, op, self.at, identity)
            return True
        mark = self._marks.pop((kind, op), None)
        if mark is None or mark.input != identity:
            fault = unlike(self.id, self.definition.name, mark, kind, op, identity)
            if mark is not None or self.compensation is None:
                self.halt(fault)
            self.compensation.unsent = self.compensation.unsent or fault
        return False

    def recorded(self, op: str) -> bytes | None:
        """Return what identifies the event that was sent under this id, if that is being replayed."""
        mark = self._marks.get((Kind.EVENT_SENT, op))
        return None if mark is None else mark.input

    def patched(self, change: str) -> bool:
        """Return whether this run takes the new way of a change."""
        self.check_alive()
        answers = self.patches = {} if self.patches is None else self.patches
        self.glance() if change in answers else self.spend(len(change))
        if is_to_mark(answers, change, self._marks if self.replaying else None):
            self.mark(Kind.PATCHED, change, self.at)
        return answers[change] is True

    def mark(self, kind: Kind, op: str, at: int, input: bytes | None = None, payload: bytes | None = None) -> None:
        """Record an entry that is not fed to the code."""
        self.length += 1
        self._entries = added(self._entries, Entry(self.length, kind, op, at, input, payload))

    def halt(self, fault: NonDeterminismError) -> NoReturn:
        """Stop the code where it is. `except Exception` in user code can't catch this."""
        self._fault = self._fault or fault
        self.loop.halted = True
        raise Halted

    def spend(self, size: int) -> None:
        if (problem := self._budget.command(size)) is not None:
            self.exceed(problem)

    def glance(self) -> None:
        """Count a request that is answered immediately and not stored, such as the time."""
        if (problem := self._budget.call()) is not None:
            self.exceed(problem)

    def exceed(self, problem: str) -> None:
        """Stop code that never waits for anything, as `halt` does. The instance fails."""
        self._stuck = self._stuck or endless(self.id, self.definition.name, problem, user_line())
        self.loop.halted = True
        raise Halted

    def describe(self, text: str) -> None:
        self.glance()
        self._description = text

    def publish(self) -> Published:
        """Return what the code shows of itself, to be changed."""
        self.check_alive()
        self.glance()
        if self.published is None:
            self.published = Published()
        return self.published

    def withdraw(self, op: str) -> None:
        """Close or give up an operation that the code no longer waits for."""
        self.ops.withdraw(op, self._activation)

    @property
    def unbegun(self) -> Sequence[Operation]:
        """Operations opened since the last `take`, and given up: they were not begun, and need not be."""
        return [op for op in self.ops.given_up if op.activation > self._taken and op.id in self.ops]

    @property
    def is_halted(self) -> bool:
        """Whether the code is evicted, left its history or never waits: its requests are no longer executed."""
        return self.dead or self._fault is not None or self._stuck is not None

    def check_alive(self) -> None:
        if self.is_halted:
            raise Halted
        if not self.loop.running:
            raise RuntimeError(
                f"the context of instance {self.id!r} was used outside its workflow function; "
                "workflow primitives only work in the workflow's own code"
            )

    @property
    def alias(self) -> str:
        """The id from which the ids of sent events are made: see `Run.alias`."""
        return self.run.alias(self.id)

    # --- called by the loop -----------------------------------------------------------------------------------------
    def seconds(self) -> float:
        return (self.at - self.started_at) / SECOND

    def arm(self, timer: TimerHandle) -> None:
        self.check_alive()
        self.spend(0)
        when = timer.when() * SECOND
        due = FOREVER_US if when > FOREVER_US else self.started_at + math.ceil(round(when, 3))
        operation = Timer(self.run.next_id("timer"), self.at, partial(self._ring, timer), due=max(due, self.at))
        timer.operation = operation.id
        operation.line = user_line()
        self.ops.open(operation)

    def _ring(self, timer: TimerHandle) -> None:
        self._rung = self.run.fed
        timer.ring((self.id, self.run.number, self.run.fed))

    def disarm(self, timer: TimerHandle) -> None:
        if timer.operation is not None:
            self.withdraw(timer.operation)

    def report(self, context: dict[str, Any]) -> None:
        if not (self.dead or self.replaying):
            error = context.get("exception")
            self._log(self.id, f"{context.get('message')}: {error!r}" if error else str(context.get("message")))

    # --- eviction ---------------------------------------------------------------------------------------------------
    def evict(self) -> None:
        """Drop the code without letting it act: its `finally` blocks run, but every primitive in them raises."""
        self.dead = True
        self.ops = OpenOperations()
        if tasks := self._unfinished:
            self._context.copy().run(self.loop.run, close_all, tasks, self._unclosable)
        # Leave nothing to the garbage collector: thousands of instances per second end here.
        self._root, self.compensation, self._context = None, None, Context()
        self.loop.release()

    def _unclosable(self) -> None:
        name = self.definition.name
        self._log(self.id, f"workflow {name!r} catches all exceptions and can't be closed; it stays suspended")

    @property
    def _unfinished(self) -> list[asyncio.Task[Any]]:
        """The tasks of the code that have not ended, oldest first."""
        tasks: list[asyncio.Task[Any]] = [*self.loop.tasks.values()]
        return tasks if self._root is None or self._root.done() else [self._root, *tasks]
