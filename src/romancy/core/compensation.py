"""Compensation: what an instance owes to undo, and how that is undone.

Nothing is stored when an undo becomes owed: replay feeds the same results, and leads to the same list. Undos are
activity calls like any other. An instance has a `Compensation` once it calls something that has an undo.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from romancy.core.failure import Failure
from romancy.core.loop import WorkflowLoop
from romancy.core.open_operations import OpenOperations
from romancy.core.operations import Hold, Operation, Undo, UndoableCall, UndoCall, undo_name
from romancy.core.outcome import Outcome
from romancy.core.patches import BLOCKS_WAIT
from romancy.core.registry import ActivityDefinition
from romancy.core.retry import RetryPolicy
from romancy.core.run import Run
from romancy.core.scope import Scope, current_scope
from romancy.errors import CompensationFailed, NonDeterminismError


class News(NamedTuple):
    """What hooks are told: undoing began, or ended; `failed` if some undos failed for good."""

    outcome: str
    owed: tuple[str, ...]
    failed: tuple[str, ...] = ()


class _Left(NamedTuple):
    """A block that failed, and the task that leaves it."""

    scope: Scope
    by: asyncio.Task[Any] | None


class _Instance(Protocol):
    """The instance that compensates."""

    loop: WorkflowLoop
    run: Run
    ops: OpenOperations
    at: int
    replaying: bool
    compensation: Compensation | None

    def perform(self, operation: Operation) -> Any: ...
    def check_alive(self) -> None: ...
    def patched(self, change: str) -> bool: ...
    def withdraw(self, op: str) -> None: ...
    def silence(self, tasks: Sequence[asyncio.Task[Any]]) -> None: ...
    @property
    def waits_for_good(self) -> bool: ...


class Compensation:
    """The undos of one instance."""

    def __init__(self, instance: _Instance) -> None:
        self._instance = instance
        self._outermost = Scope()
        self._root: asyncio.Task[Any] | None = None
        self._owed: list[Undo] = []
        self._not_mine: list[Undo] = []
        """Undos of what a fork has from its original, which owes them. They only count while the copied part is fed:
        there, the code took the same turns."""
        self._blocks: set[asyncio.Task[None]] = set()
        self._left: dict[_Left, asyncio.Future[None]] = {}
        """Blocks that are undone once everything that was begun in them has ended."""
        self._pause: asyncio.Future[None] | None = None
        self.is_unwinding = False
        """The workflow's code has ended, and what it did is undone."""
        self._undoes_all = True
        """Everything owed is undone if the code ends now. If it completed, that is only what it gave up."""
        self.goes_on = False
        """After that, the instance goes on with its next run."""
        self.outcome: Outcome | None = None
        """How the instance ends if its code could not go on."""
        self.unsent: NonDeterminismError | None = None
        """The code sent something that is not recorded: right if it turns out that it never waits, else a fault."""
        self._news: list[News] = []

    def __repr__(self) -> str:
        return f"<Compensation {len(self._owed)} owed{' unwinding' if self.is_unwinding else ''}>"

    # --- owing ------------------------------------------------------------------------------------------------------
    @property
    def scope(self) -> Scope:
        """The scope of the code that runs."""
        return current_scope.get(self._outermost)

    def enter(self) -> Scope:
        """Return a new scope inside the current one."""
        return Scope(self.scope)

    @property
    def owing(self) -> Callable[[UndoableCall, bytes], None]:
        """What a call made now does with its result."""
        return partial(self._owe, self.scope)

    def _owe(self, scope: Scope, call: UndoableCall, result: bytes) -> None:
        is_copied = self._instance.run.fed <= self._instance.run.copied
        rule = call.activity.undo
        assert rule is not None
        arguments = partial(call.undo_arguments, result)
        undo = Undo(call.id, rule.activity, rule.retry, rule.timeout, arguments, scope, is_late=call.given_up)
        (self._not_mine if is_copied else self._owed).append(undo)

    def missed(self, call: UndoableCall) -> None:
        """The code that awaited a call was cancelled. If the result had just come, it is as if it had come later."""
        for undo in (*self._owed, *self._not_mine):
            if undo.of == call.id and not undo.is_by_hand:
                undo.is_late = True

    def owe_by_hand(
        self, activity: ActivityDefinition, retry: RetryPolicy | None, timeout: int | None, arguments: bytes
    ) -> None:
        """Owe an undo that the code asked for, unless it did so in the copied part of a fork."""
        owed = self._not_mine if self._is_in_copied_part else self._owed
        given = partial(bytes, arguments)
        owed.append(Undo(activity.name, activity, retry, timeout, given, self.scope, is_by_hand=True))

    # --- state ------------------------------------------------------------------------------------------------------
    @property
    def is_under_way(self) -> bool:
        """Whether something is being undone."""
        return self.is_unwinding or bool(self._blocks)

    @property
    def is_due(self) -> bool:
        """Whether something must be undone, or may have to be, if the workflow fails."""
        return bool(self._counted or self._open_calls)

    @property
    def _is_due_late(self) -> bool:
        """Whether the code gave up a call that completed, or still may."""
        return any(undo.is_late for undo in self._counted) or any(call.given_up for call in self._open_calls)

    @property
    def _is_in_copied_part(self) -> bool:
        return self._instance.run.fed < self._instance.run.copied

    @property
    def _counted(self) -> Sequence[Undo]:
        """The undos that decide how the code ends."""
        return [*self._not_mine, *self._owed] if self._is_in_copied_part else self._owed

    @property
    def _open_calls(self) -> list[UndoableCall | UndoCall]:
        return [op for op in self._instance.ops.values() if isinstance(op, UndoableCall | UndoCall)]

    @property
    def holds(self) -> list[Hold]:
        """Undos that failed for good, and for which the instance is blocked."""
        return [op for op in self._instance.ops.values() if isinstance(op, Hold)]

    @property
    def failure(self) -> Failure:
        """Why the instance is blocked. If it is cancelled, the undos that were not tried yet are given up as well."""
        failed = [undo for hold in self.holds for undo in hold.failed]
        text = "; ".join(f"{undo}: {undo.problem}" for undo in failed)
        untried = [undo for undo in reversed(self._owed) if self._will_be_tried(undo) and undo not in failed]
        later = f"; not tried yet: {', '.join(map(str, untried))}" if untried else ""
        names = [undo.of for undo in (*failed, *untried)]
        return Failure(CompensationFailed.__name__, f"could not be undone: {text}{later}", not_undone=names)

    def _will_be_tried(self, undo: Undo) -> bool:
        return not undo.is_done and (self._undoes_all or undo.is_late)

    # --- undoing ----------------------------------------------------------------------------------------------------
    async def unwind(self, *, is_failed: bool, goes_on: bool = False) -> None:
        """After the workflow's code has ended: undo what it owes. If it completed, only calls that it gave up.

        `goes_on`: the instance continues as new.
        """
        if not (self.is_due if is_failed else self._is_due_late):
            return
        self._instance.check_alive()
        self.is_unwinding, self._undoes_all, self.goes_on = True, is_failed, goes_on
        self._instance.withdraw(self._instance.run.timeout_id)
        self._root = asyncio.current_task()
        for task in self._others:
            if task not in self._blocks:
                task.cancel()
        self._pause = self._instance.loop.create_future()
        await self._pause
        await self._undo([undo for undo in reversed(self._owed) if self._will_be_tried(undo)])

    def go_on(self) -> None:
        """After an activation: let undoing begin where nothing else is in progress."""
        while not self._instance.loop.halted and (pause := self._take_pause()) is not None:
            self._instance.loop.run(pause.set_result, None)

    def _take_pause(self) -> asyncio.Future[None] | None:
        for left in self._left:
            if self._has_ended(left):
                return self._left.pop(left)
        if self._pause is None or any(op.given_up for op in self._instance.ops.values()):
            return None
        if self._others:
            if not self._instance.waits_for_good:
                return None
            self._instance.silence(self._others)  # they were cancelled, and wait for events all the same
        pause, self._pause = self._pause, None
        return pause

    @property
    def _others(self) -> list[asyncio.Task[Any]]:
        return [task for task in self._instance.loop.tasks.values() if task is not self._root]

    async def take_over(self, outcome: Outcome) -> bytes:
        """Undo what is owed in place of code that can't go on, and was closed."""
        self.outcome, self.unsent = outcome, None
        self._blocks.clear()
        self._left.clear()
        await self.unwind(is_failed=True)
        return b""

    async def undo_block(self, scope: Scope) -> None:
        """Undo a block that failed. A cancellation that comes meanwhile is raised afterwards.

        First, its tasks are cancelled, and they and all that was given up in it are waited for. Older versions did not
        wait. A run that was undone in that way keeps to it.
        """
        self._instance.check_alive()
        left = _Left(scope, asyncio.current_task())
        if not self._has_ended(left) and self._instance.patched(BLOCKS_WAIT):
            self._left[left] = self._instance.loop.create_future()
            for task in self._tasks_of(left):
                if task not in self._blocks:
                    task.cancel()
            await self._undo_shielded(self._undo_later(left, self._left[left]))
        elif undos := self._close(scope):
            await self._undo_shielded(self._undo(undos))

    def _has_ended(self, left: _Left) -> bool:
        """Whether what was begun in a block is over. Tasks that were cancelled and wait for events do not count."""
        ops, scope = self._instance.ops, left.scope
        is_due = any(undo.scope.responsible is scope for undo in self._counted) or any(
            isinstance(op, UndoableCall) and _is_in(op.scope, scope) for op in ops.values()
        )
        if is_due and any(op.given_up and _is_in(op.scope, scope) for op in ops.values()):
            return False
        return not self._tasks_of(left) or (left in self._left and self._instance.waits_for_good)

    def _tasks_of(self, left: _Left) -> list[asyncio.Task[Any]]:
        tasks = self._instance.loop.tasks.values()
        return [task for task in tasks if task is not left.by and _is_in(task.scope, left.scope)]

    def _close(self, scope: Scope) -> list[Undo]:
        """Return what a block owes, the last one first. What comes later is owed by the surrounding one."""
        undos = [undo for undo in reversed(self._owed) if undo.scope.responsible is scope]
        scope.is_closed = True
        return undos

    async def _undo_later(self, left: _Left, pause: asyncio.Future[None]) -> None:
        await pause
        await self._undo(self._close(left.scope))

    async def _undo_shielded(self, undoing: Coroutine[Any, Any, None]) -> None:
        """Undo a block in a task of its own, which nothing interrupts."""
        task = self._instance.loop.create_task(undoing)
        self._blocks.add(task)
        task.add_done_callback(self._blocks.discard)
        interruption: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as error:
                interruption = error
        if interruption is not None:
            raise interruption

    async def _undo(self, undos: Sequence[Undo]) -> None:
        mine = [undo for undo in undos if not (undo.is_done or undo.is_under_way)]
        for undo in mine:
            undo.is_under_way = True
        try:
            await self._undo_all(mine)
        finally:
            for undo in mine:
                undo.is_under_way = False

    async def _undo_all(self, undos: list[Undo]) -> None:
        """Undo one after the other. Those that fail for good are tried again when the instance is resumed."""
        todo: list[Undo] = undos
        while todo:
            owed = tuple(undo.of for undo in todo)
            self._tell(News("started", owed))
            for undo in todo:
                await self._run(undo)
            self._owed = [undo for undo in self._owed if not undo.is_done]
            todo = [undo for undo in todo if not undo.is_done]
            if todo:
                self._tell(News("failed", owed, tuple(undo.of for undo in todo)))
                await self._instance.perform(Hold(self._instance.run.next_id("hold"), self._instance.at, todo))
            else:
                self._tell(News("completed", owed))

    async def _run(self, undo: Undo) -> None:
        instance, activity = self._instance, undo.activity
        id = instance.run.next_id(undo_name(undo.of))
        await instance.perform(UndoCall(id, instance.at, activity, undo.arguments(), undo.retry, undo.timeout, undo))

    def _tell(self, news: News) -> None:
        if not self._instance.replaying:
            self._news.append(news)

    def take_news(self) -> list[News]:
        """Return what happened since the last call."""
        news, self._news = self._news, []
        return news


def _is_in(scope: Scope | None, block: Scope) -> bool:
    return scope is not None and scope.is_in(block)


def compensation_of(instance: _Instance) -> Compensation:
    """Return what keeps track of the undos of an instance. It begins with the first use."""
    if instance.compensation is None:
        instance.compensation = Compensation(instance)
    return instance.compensation
