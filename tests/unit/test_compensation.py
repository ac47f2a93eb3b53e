"""Undos without engine or database: what becomes owed when, the order, blocks, what was given up, and replay.

Every test replays its history through the same code and compares: the list of undos is stored nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from romancy import (
    ActivityContext,
    WorkflowContext,
    activity,
    compensate,
    saga,
    send_event,
    sleep,
    wait_event,
    workflow,
)
from romancy.core.failure import Failure
from romancy.core.history import Entry, Kind, pack_event
from romancy.core.instance import Instance
from romancy.core.model import SECOND, Event
from romancy.core.operations import ActivityCall, EventWait
from romancy.core.outcome import Outcome
from romancy.core.replay import replay

T0 = 1_800_000_000 * SECOND


@activity
async def reserve(ctx: ActivityContext, room: str) -> int:
    raise AssertionError("activities don't run here")


@reserve.compensate
async def release(ctx: ActivityContext, booking: int, room: str) -> None:
    raise AssertionError("activities don't run here")


@activity
async def charge(ctx: ActivityContext, amount: int) -> str:
    raise AssertionError("activities don't run here")


@charge.compensate
async def refund(ctx: ActivityContext, payment: str) -> None:
    raise AssertionError("activities don't run here")


@activity
async def plain(ctx: ActivityContext) -> int:
    raise AssertionError("activities don't run here")


class Drive:
    """The engine's part, by hand. After each entry, a replay of the history must be where the live instance is."""

    def __init__(self, fn: Callable[[WorkflowContext], Any], timeout: int | None = None) -> None:
        self.definition = workflow(name="wf")(fn)._definition
        self.deadline = None if timeout is None else T0 + timeout * SECOND
        self.history: list[Entry] = []
        self.instance = self._new()
        self.instance.begin()
        self.take()

    def _new(self) -> Instance:
        return Instance(self.definition, "i", b"{}", T0, deadline=self.deadline)

    def take(self) -> None:
        self.last = self.instance.take()
        self.history += self.last.entries
        again = self._new()
        again.replay(self.history)
        assert (list(again.ops), again.status) == (list(self.instance.ops), self.instance.status)
        assert [op.given_up for op in again.ops.values()] == [op.given_up for op in self.instance.ops.values()]
        assert _said(again.outcome) == _said(self.instance.outcome)
        again.evict()

    def feed(self, kind: Kind, op: str, payload: bytes | None = None) -> Drive:
        self.instance.feed(self.instance.record(kind, op, T0, payload))
        self.take()
        return self

    def done(self, *ops: str, result: bytes = b"7") -> Drive:
        for op in ops:
            call = self.instance.ops[op]
            assert isinstance(call, ActivityCall)
            text = call.activity.name == "charge"
            self.feed(Kind.ACTIVITY_COMPLETED, op, b'"p"' if text else b"null" if op.startswith("undo") else result)
        return self

    def fail(self, op: str) -> Drive:
        return self.feed(Kind.ACTIVITY_FAILED, op, Failure("ValueError", "no").encode())

    def cancel(self) -> Drive:
        return self.feed(Kind.CANCEL_REQUESTED, "", b"enough")

    def event(self, op: str) -> Drive:
        wait = self.instance.ops[op]
        assert isinstance(wait, EventWait)
        return self.feed(Kind.EVENT_RECEIVED, op, pack_event(Event("e", "test", wait.types[0], b"1")))

    @property
    def open(self) -> list[str]:
        return list(self.instance.ops)

    @property
    def status(self) -> str:
        return self.instance.status

    def undo_all(self) -> list[str]:
        """Complete undos one by one, until the instance ends; return them in order."""
        undone: list[str] = []
        while self.instance.outcome is None:
            assert self.status == "compensating"
            (op,) = self.open
            undone.append(op.removeprefix("undo ").rpartition(":")[0])
            self.done(op)
        return undone


def _said(outcome: Outcome | None) -> Any:
    return outcome and (outcome.status, outcome.output, outcome.error and outcome.error.message)


# --- failing, cancelling, running out of time ------------------------------------------------------------------------
async def fails_after_two(ctx: WorkflowContext) -> None:
    await reserve(ctx, "a")
    await charge(ctx, 5)
    await plain(ctx)
    raise ValueError("no luck")


def test_the_last_is_undone_first_with_its_result_and_its_arguments() -> None:
    drive = Drive(fails_after_two).done("reserve:1", "charge:1", "plain:1")
    assert (drive.status, drive.open) == ("compensating", ["undo charge:1:1"])
    assert drive.instance.ops["undo charge:1:1"].input == b'{"payment":"p"}'
    drive.done("undo charge:1:1")
    assert drive.instance.ops["undo reserve:1:1"].input == b'{"booking":7,"room":"a"}'
    drive.done("undo reserve:1:1")
    assert _said(drive.instance.outcome) == ("failed", None, "no luck")


def test_only_what_completed_is_undone() -> None:
    drive = Drive(fails_after_two).done("reserve:1").fail("charge:1")
    assert drive.undo_all() == ["reserve:1"]
    assert Drive(fails_after_two).fail("reserve:1").status == "failed"


def test_a_cancelled_workflow_is_undone() -> None:
    drive = Drive(fails_after_two).done("reserve:1").cancel()
    assert (drive.status, drive.open) == ("compensating", ["charge:1"])  # it may still complete
    drive.done("charge:1")
    assert drive.undo_all() == ["charge:1", "reserve:1"]
    assert _said(drive.instance.outcome) == ("cancelled", None, "enough")


def test_a_workflow_that_runs_out_of_time_is_undone_and_its_time_limit_is_gone() -> None:
    drive = Drive(fails_after_two, timeout=10).done("reserve:1", "charge:1")
    drive.feed(Kind.TIMER_FIRED, "(workflow timeout)")
    assert drive.undo_all() == ["charge:1", "reserve:1"]
    assert drive.instance.outcome is not None
    assert drive.instance.outcome.error is not None
    assert drive.instance.outcome.error.error_type == "WorkflowTimeout"


def test_the_time_limit_does_not_end_undos() -> None:
    drive = Drive(fails_after_two, timeout=10).done("reserve:1", "charge:1", "plain:1")
    assert drive.open == ["undo charge:1:1"]


async def returns_after_cancel(ctx: WorkflowContext) -> str:
    await reserve(ctx, "a")
    try:
        await wait_event(ctx, "never")
    except asyncio.CancelledError:
        return "fine"
    return "?"


def test_a_cancelled_workflow_is_undone_even_if_its_code_returns() -> None:
    drive = Drive(returns_after_cancel).done("reserve:1").cancel()
    assert drive.undo_all() == ["reserve:1"]
    assert _said(drive.instance.outcome) == ("cancelled", b'"fine"', "enough")


async def completes(ctx: WorkflowContext) -> int:
    await reserve(ctx, "a")
    try:
        await charge(ctx, 1)
        raise ValueError("caught")
    except ValueError:
        return await plain(ctx)


def test_a_completed_workflow_owes_nothing_and_a_caught_exception_undoes_nothing() -> None:
    drive = Drive(completes).done("reserve:1", "charge:1")
    assert drive.open == ["plain:1"]
    assert drive.done("plain:1").status == "completed"


async def returns_nonsense(ctx: WorkflowContext) -> int:
    await reserve(ctx, "a")
    return object()  # type: ignore[return-value]


def test_a_result_that_cannot_be_stored_is_a_failure() -> None:
    assert Drive(returns_nonsense).done("reserve:1").undo_all() == ["reserve:1"]


# --- by hand ---------------------------------------------------------------------------------------------------------
async def by_hand(ctx: WorkflowContext) -> None:
    compensate(ctx, refund, "unknown")
    compensate(ctx, refund, payment="other")
    await plain(ctx)


def test_by_hand_it_is_owed_at_once() -> None:
    drive = Drive(by_hand).fail("plain:1")
    assert drive.open == ["undo refund:1"]
    assert drive.instance.ops["undo refund:1"].input == b'{"payment":"other"}'
    drive.done("undo refund:1")
    assert drive.instance.ops["undo refund:2"].input == b'{"payment":"unknown"}'
    assert drive.done("undo refund:2").status == "failed"


def test_compensate_takes_an_activity() -> None:
    async def wrong(ctx: WorkflowContext) -> None:
        compensate(ctx, print, "x")  # type: ignore[arg-type]

    drive = Drive(wrong)
    assert "takes an activity, not <built-in function print>; put @activity on it" in str(_said(drive.instance.outcome))


# --- siblings --------------------------------------------------------------------------------------------------------
async def three_at_once(ctx: WorkflowContext) -> None:
    await asyncio.gather(*(reserve(ctx, room) for room in "abc"))
    raise ValueError("no")


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3))))
def test_undos_run_in_the_reverse_order_of_completion(order: tuple[int, ...]) -> None:
    drive = Drive(three_at_once).done(*(f"reserve:{n}" for n in order))
    assert drive.undo_all() == [f"reserve:{n}" for n in reversed(order)]


async def sibling_fails(ctx: WorkflowContext) -> None:
    await asyncio.gather(charge(ctx, 1), reserve(ctx, "a"), plain(ctx))


def test_a_sibling_that_still_runs_is_waited_for_and_undone() -> None:
    drive = Drive(sibling_fails).done("reserve:1").fail("plain:1")
    assert (drive.status, drive.open) == ("compensating", ["charge:1"])
    assert [op.id for op in drive.last.given_up] == ["charge:1"]
    drive.done("charge:1")
    assert drive.undo_all() == ["charge:1", "reserve:1"]


def test_a_sibling_that_fails_is_not_undone() -> None:
    drive = Drive(sibling_fails).fail("plain:1")
    assert drive.open == ["charge:1", "reserve:1"]
    drive.fail("charge:1").done("reserve:1")
    assert drive.undo_all() == ["reserve:1"]


def test_a_result_is_undone_even_if_the_code_never_saw_it() -> None:
    """Between the result and the task's next step, another task may cancel it."""

    async def code(ctx: WorkflowContext) -> None:
        task = asyncio.create_task(charge(ctx, 1))
        await asyncio.sleep(0)
        future = ctx._instance.ops["charge:1"].future
        assert future is not None
        future.add_done_callback(lambda _: task.cancel())
        await asyncio.wait([task])
        raise ValueError("no")

    assert Drive(code).done("charge:1").undo_all() == ["charge:1"]


async def gives_up_and_completes(ctx: WorkflowContext) -> str:
    await reserve(ctx, "kept")
    try:
        async with asyncio.timeout(5):
            await charge(ctx, 1)
    except TimeoutError:
        return "went without"
    return "paid"


def test_a_completed_workflow_undoes_what_it_gave_up() -> None:
    drive = Drive(gives_up_and_completes).done("reserve:1").feed(Kind.TIMER_FIRED, "timer:1")
    assert (drive.status, drive.open) == ("compensating", ["charge:1"])
    assert drive.done("charge:1").undo_all() == ["charge:1"]
    assert _said(drive.instance.outcome) == ("completed", b'"went without"', None)


def test_what_was_given_up_and_failed_is_over() -> None:
    drive = Drive(gives_up_and_completes).done("reserve:1").feed(Kind.TIMER_FIRED, "timer:1").fail("charge:1")
    assert drive.status == "completed"


@dataclass(slots=True, eq=False)
class Kept(ActivityCall):
    """Stays open when it is given up, but has no undo."""

    stays_open: ClassVar[bool] = True


async def gives_up_something_else(ctx: WorkflowContext) -> str:
    async def kept() -> None:
        instance = ctx._instance
        await instance.perform(Kept(instance.run.next_id("kept"), instance.at, plain._definition, b"{}", None, None))

    task = asyncio.create_task(kept())
    await reserve(ctx, "a")
    task.cancel()
    await wait_event(ctx, "how")
    return "fine"


def test_what_has_no_undo_is_only_waited_for_if_something_is_undone() -> None:
    drive = Drive(gives_up_something_else).done("reserve:1")
    assert drive.open == ["kept:1", "how:1"]
    assert drive.event("how:1").status == "completed"
    failing = Drive(gives_up_something_else).done("reserve:1").cancel()
    assert failing.open == ["kept:1"]
    assert failing.feed(Kind.ACTIVITY_COMPLETED, "kept:1", b"1").undo_all() == ["reserve:1"]


# --- blocks ----------------------------------------------------------------------------------------------------------
async def a_block(ctx: WorkflowContext) -> str:
    await reserve(ctx, "outside")
    try:
        async with saga(ctx):
            await reserve(ctx, "inside")
            await plain(ctx)
    except Exception:
        await plain(ctx)
        return "caught"
    await plain(ctx)
    raise ValueError("later")


def test_a_block_is_undone_before_its_exception_goes_on() -> None:
    drive = Drive(a_block).done("reserve:1", "reserve:2").fail("plain:1")
    assert (drive.status, drive.open) == ("compensating", ["undo reserve:2:1"])
    drive.done("undo reserve:2:1")
    assert (drive.status, drive.open) == ("running", ["plain:2"])
    assert drive.done("plain:2").status == "completed"


def test_what_a_block_owes_passes_outwards() -> None:
    drive = Drive(a_block).done("reserve:1", "reserve:2", "plain:1", "plain:2")
    assert drive.undo_all() == ["reserve:2", "reserve:1"]


def test_a_cancellation_during_the_undo_of_a_block_comes_afterwards() -> None:
    drive = Drive(a_block).done("reserve:1", "reserve:2").fail("plain:1").cancel()
    assert drive.open == ["undo reserve:2:1"]
    drive.done("undo reserve:2:1")
    assert drive.open == ["undo reserve:1:1"]
    assert drive.done("undo reserve:1:1").status == "cancelled"


async def blocks_in_branches(ctx: WorkflowContext) -> list[str]:
    async def branch(room: str) -> str:
        try:
            async with saga(ctx):
                await reserve(ctx, room)
                async with saga(ctx):
                    await reserve(ctx, room * 2)
                await plain(ctx)
            return "kept"
        except Exception:
            return "undone"

    return list(await asyncio.gather(branch("a"), branch("b")))


def test_every_branch_has_its_own_block() -> None:
    drive = Drive(blocks_in_branches).done("reserve:1", "reserve:2", "reserve:3", "reserve:4").fail("plain:1")
    assert drive.open == ["plain:2", "undo reserve:3:1"]
    drive.done("undo reserve:3:1", "plain:2", "undo reserve:1:1")
    assert _said(drive.instance.outcome) == ("completed", b'["undone","kept"]', None)


async def two_blocks_fail(ctx: WorkflowContext) -> None:
    async def branch(room: str) -> None:
        async with saga(ctx):
            await reserve(ctx, room)
            await plain(ctx)

    await asyncio.gather(branch("a"), branch("b"))


def test_the_workflow_waits_for_a_block_that_is_being_undone() -> None:
    drive = Drive(two_blocks_fail).done("reserve:1", "reserve:2").fail("plain:1")
    assert drive.open == ["plain:2", "undo reserve:1:1"]
    drive.fail("plain:2").done("undo reserve:1:1")
    assert drive.open == ["undo reserve:2:1"]
    assert drive.done("undo reserve:2:1").status == "failed"


async def failing_block(ctx: WorkflowContext) -> None:
    async with saga(ctx):
        await reserve(ctx, "a")
        await plain(ctx)


async def fails_beside_a_block(ctx: WorkflowContext) -> None:
    task = asyncio.create_task(failing_block(ctx))
    await wait_event(ctx, "stop")
    raise ValueError(f"no luck, done: {task.done()}")


def test_the_undo_of_a_block_goes_on_when_the_workflow_fails() -> None:
    drive = Drive(fails_beside_a_block).done("reserve:1").fail("plain:1").event("stop:1")
    assert (drive.status, drive.open) == ("compensating", ["undo reserve:1:1"])
    assert not drive.instance.ops["undo reserve:1:1"].given_up
    assert drive.undo_all() == ["reserve:1"]


async def block_in_a_block(ctx: WorkflowContext) -> None:
    async with saga(ctx):
        await asyncio.gather(failing_block(ctx), plain(ctx))


def test_a_surrounding_block_leaves_alone_what_is_being_undone() -> None:
    drive = Drive(block_in_a_block)
    inner = next(op for op in drive.open if op.startswith("reserve"))
    drive.done(inner).fail("plain:2")
    assert drive.open == ["plain:1", "undo reserve:1:1"]
    drive.fail("plain:1")
    assert drive.open == ["undo reserve:1:1"]
    assert drive.undo_all() == ["reserve:1"]


async def late_in_a_block(ctx: WorkflowContext) -> str:
    try:
        async with saga(ctx):
            async with asyncio.timeout(5):
                await charge(ctx, 1)
    except TimeoutError:
        await plain(ctx)
        return "fine"
    return "?"


def test_a_block_waits_for_calls_that_it_gave_up() -> None:
    drive = Drive(late_in_a_block).feed(Kind.TIMER_FIRED, "timer:1")
    assert (drive.status, drive.open) == ("compensating", ["charge:1"])
    drive.done("charge:1", "undo charge:1:1")
    assert (drive.status, drive.open) == ("running", ["plain:1"])
    assert drive.done("plain:1").status == "completed"


async def siblings_in_a_block(ctx: WorkflowContext) -> str:
    async def twice() -> None:
        await charge(ctx, 1)
        await charge(ctx, 2)

    try:
        async with saga(ctx):
            await reserve(ctx, "a")
            await asyncio.gather(twice(), plain(ctx))
    except Exception:
        await plain(ctx)
    return "fine"


def test_a_block_cancels_its_tasks_and_waits_for_what_they_called() -> None:
    drive = Drive(siblings_in_a_block).done("reserve:1").fail("plain:1")
    assert (drive.status, drive.open) == ("compensating", ["charge:1"])
    assert [op.id for op in drive.last.given_up] == ["charge:1"]
    drive.done("charge:1")
    assert drive.open == ["undo charge:1:1"]
    drive.done("undo charge:1:1", "undo reserve:1:1", "plain:2")
    assert drive.status == "completed"


def test_what_a_block_gave_up_and_failed_is_over() -> None:
    drive = Drive(siblings_in_a_block).done("reserve:1").fail("plain:1").fail("charge:1")
    assert drive.open == ["undo reserve:1:1"]


def test_a_cancellation_while_a_block_waits_comes_after_its_undos() -> None:
    drive = Drive(siblings_in_a_block).done("reserve:1").fail("plain:1").cancel()
    assert (drive.status, drive.open) == ("compensating", ["charge:1"])
    drive.done("charge:1", "undo charge:1:1").done("undo reserve:1:1")
    assert _said(drive.instance.outcome) == ("cancelled", None, "enough")


def test_a_time_limit_while_a_block_waits_comes_after_its_undos() -> None:
    drive = Drive(siblings_in_a_block, timeout=9).done("reserve:1").fail("plain:1")
    drive.feed(Kind.TIMER_FIRED, "(workflow timeout)").fail("charge:1").done("undo reserve:1:1")
    assert "ran out of time" in str(_said(drive.instance.outcome))


async def tasks_in_and_out_of_a_block(ctx: WorkflowContext) -> list[bool]:
    outside = asyncio.create_task(charge(ctx, 1))
    async with asyncio.TaskGroup() as group:
        try:
            async with saga(ctx):
                inside = group.create_task(charge(ctx, 2))
                await reserve(ctx, "a")
                await plain(ctx)
        except Exception:
            beside = group.create_task(charge(ctx, 3))
    return [outside.cancelled(), inside.cancelled(), beside.cancelled()]


def test_only_the_tasks_that_were_created_in_a_block_are_cancelled() -> None:
    drive = Drive(tasks_in_and_out_of_a_block).done("reserve:1").fail("plain:1")
    assert [op.given_up for op in drive.instance.ops.values()] == [False, True]
    assert [op.id for op in drive.last.given_up] == ["charge:2"]
    drive.fail("charge:2").done("undo reserve:1:1", "charge:1", "charge:3")
    assert _said(drive.instance.outcome) == ("completed", b"[false,true,false]", None)


async def a_branch_of_blocks(ctx: WorkflowContext) -> str:
    async def branch(room: str) -> None:
        async with saga(ctx):
            await reserve(ctx, room)
            await asyncio.gather(charge(ctx, 1), plain(ctx))

    done = await asyncio.gather(branch("a"), branch("b"), return_exceptions=True)
    return " ".join(type(found).__name__ for found in done)


def test_a_block_that_waits_leaves_those_beside_it_alone() -> None:
    drive = Drive(a_branch_of_blocks).done("reserve:1", "reserve:2").fail("plain:1")
    assert drive.open == ["charge:1", "charge:2", "plain:2"]
    drive.fail("charge:1")
    assert drive.open == ["charge:2", "plain:2", "undo reserve:1:1"]
    drive.done("charge:2", "plain:2", "undo reserve:1:1")
    assert _said(drive.instance.outcome) == ("completed", b'"ActivityError NoneType"', None)


async def blocks_in_a_block(ctx: WorkflowContext) -> str:
    async def inner() -> None:
        async with saga(ctx):
            await reserve(ctx, "inner")
            await charge(ctx, 1)

    try:
        async with saga(ctx):
            await reserve(ctx, "outer")
            await asyncio.gather(inner(), plain(ctx))
    except Exception as error:
        return type(error).__name__
    return "?"


def test_a_block_waits_for_blocks_inside_it() -> None:
    drive = Drive(blocks_in_a_block).done("reserve:1", "reserve:2").fail("plain:1")
    assert (drive.status, drive.open) == ("compensating", ["charge:1"])
    drive.done("charge:1", "undo charge:1:1", "undo reserve:2:1")
    assert drive.open == ["undo reserve:1:1"]
    drive.done("undo reserve:1:1")
    assert _said(drive.instance.outcome) == ("completed", b'"ActivityError"', None)


async def cleaning_task_in_a_block(ctx: WorkflowContext) -> None:
    async def cleaning() -> None:
        try:
            await wait_event(ctx, "never")
        finally:
            await sleep(ctx, 5)
            await charge(ctx, 1)

    async with saga(ctx):
        asyncio.create_task(cleaning())  # noqa: RUF006
        await reserve(ctx, "a")
        raise ValueError("no")


def test_a_block_waits_until_its_tasks_have_cleaned_up() -> None:
    drive = Drive(cleaning_task_in_a_block).done("reserve:1")
    assert (drive.status, drive.open) == ("compensating", ["sleep:1"])
    drive.feed(Kind.TIMER_FIRED, "sleep:1").done("charge:1")
    assert drive.undo_all() == ["charge:1", "reserve:1"]


async def stubborn_task_in_a_block(ctx: WorkflowContext) -> None:
    async with saga(ctx):
        asyncio.create_task(never_ends(ctx))  # noqa: RUF006
        await plain(ctx)
        raise ValueError("no")


def test_a_task_that_swallows_cancellations_does_not_hold_up_a_block() -> None:
    drive = Drive(stubborn_task_in_a_block).done("reserve:1", "plain:1")
    assert drive.open == ["never:2", "undo reserve:1:1"]
    drive.done("undo reserve:1:1")
    assert _said(drive.instance.outcome) == ("failed", None, "no")


async def left_by_another_task(ctx: WorkflowContext) -> None:
    stack = contextlib.AsyncExitStack()
    await stack.enter_async_context(saga(ctx))
    await reserve(ctx, "a")

    async def leave() -> None:
        async with stack:
            raise ValueError("no")

    await asyncio.create_task(leave())


def test_a_block_can_be_left_by_a_task_that_it_created() -> None:
    assert Drive(left_by_another_task).done("reserve:1").undo_all() == ["reserve:1"]


async def nothing_to_undo_in_a_block(ctx: WorkflowContext) -> str:
    task = None
    try:
        async with saga(ctx):
            task = asyncio.create_task(plain(ctx))
            await asyncio.sleep(0)
            raise ValueError("no")
    except ValueError:
        return str(task and task.cancelled())


def test_a_block_cancels_its_tasks_even_if_nothing_is_to_be_undone() -> None:
    drive = Drive(nothing_to_undo_in_a_block)
    assert _said(drive.instance.outcome) == ("completed", b'"True"', None)


async def gives_up_something_else_in_a_block(ctx: WorkflowContext) -> str:
    async def kept() -> None:
        instance = ctx._instance
        await instance.perform(Kept(instance.run.next_id("kept"), instance.at, plain._definition, b"{}", None, None))

    try:
        async with saga(ctx):
            task = asyncio.create_task(kept())
            if (await plain(ctx)) == 1:
                await reserve(ctx, "a")
            task.cancel()
            raise ValueError("no")
    except ValueError:
        await wait_event(ctx, "how")
    return "fine"


def test_a_block_waits_for_what_has_no_undo_only_if_something_is_undone() -> None:
    drive = Drive(gives_up_something_else_in_a_block).done("plain:1")
    assert drive.open == ["kept:1", "how:1"]
    drive = Drive(gives_up_something_else_in_a_block).done("plain:1", result=b"1").done("reserve:1")
    assert drive.open == ["kept:1"]
    drive.feed(Kind.ACTIVITY_COMPLETED, "kept:1", b"1").done("undo reserve:1:1")
    assert drive.open == ["how:1"]


def test_a_run_whose_block_did_not_wait_keeps_to_that() -> None:
    """As older versions did it: undone at once, and what completes later is owed by the surrounding scope."""
    drive = Drive(siblings_in_a_block).done("reserve:1").fail("plain:1")
    marks = [entry for entry in drive.history if entry.kind == Kind.PATCHED]
    assert [mark.op for mark in marks] == ["(saga blocks wait)"]
    assert replay(drive._new(), drive.history).patches == {}, "it is no change of the user's code"
    old = Drive(siblings_in_a_block)
    old.instance.evict()
    old.history = [entry for entry in drive.history if entry not in marks]
    old.instance = old._new()
    old.instance.replay(old.history)
    old.instance.reconcile({})
    assert old.open == ["charge:1", "undo reserve:1:1"]
    old.done("undo reserve:1:1", "charge:1")
    assert old.open == ["plain:2", "charge:2"]
    assert old.done("charge:2", "plain:2").status == "completed"


# --- undos that fail for good ----------------------------------------------------------------------------------------
def test_the_others_run_then_it_is_held_and_resumed() -> None:
    drive = Drive(fails_after_two).done("reserve:1", "charge:1", "plain:1").fail("undo charge:1:1")
    assert drive.open == ["undo reserve:1:1"]
    drive.done("undo reserve:1:1")
    assert (drive.status, drive.open) == ("compensating", ["hold:1"])
    assert drive.instance.compensation is not None
    failure = drive.instance.compensation.failure
    assert failure.error_type == "CompensationFailed"
    assert failure.message == "could not be undone: refund (undo of charge:1): ValueError: no"
    assert failure.not_undone == ["charge:1"]
    drive.feed(Kind.RESUMED, "hold:1")
    assert drive.open == ["undo charge:1:2"]
    drive.fail("undo charge:1:2").feed(Kind.RESUMED, "hold:2").done("undo charge:1:3")
    assert _said(drive.instance.outcome) == ("failed", None, "no luck")


async def block_then_more(ctx: WorkflowContext) -> None:
    await reserve(ctx, "a")
    async with saga(ctx):
        await charge(ctx, 1)
        raise ValueError("no luck")


def test_what_is_owed_outside_of_a_block_is_named_while_it_is_held() -> None:
    drive = Drive(block_then_more).done("reserve:1", "charge:1").fail("undo charge:1:1")
    assert drive.open == ["hold:1"]
    assert drive.instance.compensation is not None
    failure = drive.instance.compensation.failure
    assert failure.not_undone == ["charge:1", "reserve:1"]
    assert failure.message.endswith("ValueError: no; not tried yet: release (undo of reserve:1)")
    drive.feed(Kind.RESUMED, "hold:1").done("undo charge:1:2")
    assert drive.open == ["undo reserve:1:1"]


async def completes_without(ctx: WorkflowContext) -> str:
    await reserve(ctx, "a")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1):
            await charge(ctx, 1)
    return "done"


def test_what_a_completed_workflow_keeps_is_not_owed() -> None:
    drive = Drive(completes_without).done("reserve:1").feed(Kind.TIMER_FIRED, "timer:1")
    drive.done("charge:1").fail("undo charge:1:1")
    assert drive.instance.compensation is not None
    assert drive.instance.compensation.failure.not_undone == ["charge:1"]


# --- code that can't go on -------------------------------------------------------------------------------------------
async def stuck(ctx: WorkflowContext) -> None:
    await reserve(ctx, "a")
    await asyncio.Event().wait()


def test_a_stuck_workflow_is_undone() -> None:
    drive = Drive(stuck).done("reserve:1")
    assert drive.undo_all() == ["reserve:1"]
    assert "can never happen" in str(_said(drive.instance.outcome))


async def endless(ctx: WorkflowContext) -> None:
    await reserve(ctx, "a")
    task = asyncio.create_task(charge(ctx, 1))
    await plain(ctx)
    while True:
        await send_event(ctx, "again", "loop")
        await asyncio.sleep(0)
        task.done()


def test_an_endless_workflow_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romancy.core.budget.MAX_COMMANDS", 50)
    drive = Drive(endless).done("reserve:1", "plain:1")
    assert drive.open == ["charge:1"]
    assert not drive.last.sent
    assert drive.done("charge:1").undo_all() == ["charge:1", "reserve:1"]
    assert "endless loop" in str(_said(drive.instance.outcome))


async def endless_beside_a_block(ctx: WorkflowContext) -> None:
    call = asyncio.create_task(plain(ctx))

    async def spin() -> None:
        await asyncio.wait([call])
        while True:
            await send_event(ctx, "again", "loop")
            await asyncio.sleep(0)

    asyncio.create_task(spin())  # noqa: RUF006
    async with saga(ctx):
        await reserve(ctx, "a")
        await asyncio.gather(charge(ctx, 1), asyncio.shield(call))


def test_a_block_fails_in_the_step_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romancy.core.budget.MAX_COMMANDS", 50)
    drive = Drive(endless_beside_a_block).done("reserve:1").fail("plain:1")
    assert (drive.status, drive.open) == ("compensating", ["charge:1"])
    drive.done("charge:1")
    assert drive.undo_all() == ["charge:1", "reserve:1"]
    assert "endless loop" in str(_said(drive.instance.outcome))


async def never_ends(ctx: WorkflowContext) -> None:
    await reserve(ctx, "a")
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await wait_event(ctx, "never")


def test_a_workflow_that_swallows_cancellations_is_undone_at_the_second() -> None:
    drive = Drive(never_ends).done("reserve:1").cancel()
    assert drive.status == "waiting_for_event"
    assert drive.cancel().undo_all() == ["reserve:1"]
    assert drive.status == "cancelled"


async def stubborn_task(ctx: WorkflowContext) -> None:
    asyncio.create_task(never_ends(ctx))  # noqa: RUF006
    await plain(ctx)
    raise ValueError("no")


def test_a_task_that_swallows_cancellations_does_not_hold_up_undos() -> None:
    drive = Drive(stubborn_task).done("reserve:1", "plain:1")
    assert drive.undo_all() == ["reserve:1"]


async def slow_task(ctx: WorkflowContext) -> None:
    async def slow() -> None:
        try:
            await wait_event(ctx, "never")
        finally:
            await sleep(ctx, 5)
            await charge(ctx, 1)

    asyncio.create_task(slow())  # noqa: RUF006
    await reserve(ctx, "a")
    raise ValueError("no")


def test_tasks_are_cancelled_and_waited_for() -> None:
    drive = Drive(slow_task).done("reserve:1")
    assert (drive.status, drive.open) == ("compensating", ["sleep:1"])
    drive.feed(Kind.TIMER_FIRED, "sleep:1").done("charge:1")
    assert drive.undo_all() == ["charge:1", "reserve:1"]


# --- declaring -------------------------------------------------------------------------------------------------------
def test_an_undo_that_does_not_fit_is_refused() -> None:
    @activity
    async def book(ctx: ActivityContext, room: str, nights: int) -> int:
        return 1

    with pytest.raises(TypeError, match=r"'wrong' undoes 'book', so it takes \(ctx, room, nights\), or the result"):

        @book.compensate  # type: ignore[arg-type]
        async def wrong(ctx: ActivityContext, q: str, r: str) -> None: ...

    with pytest.raises(TypeError, match="give the result another name"):

        @book.compensate  # type: ignore[arg-type]
        async def room_alone(ctx: ActivityContext, room: str) -> None: ...

    @book.compensate
    def unbook(ctx: ActivityContext, room: str, nights: int, reason: str = "undone") -> None: ...

    assert unbook.name == "unbook"
    with pytest.raises(TypeError, match="activity 'book' has its undo already: 'unbook'"):

        @book.compensate
        async def again(ctx: ActivityContext, booking: int) -> None: ...


def test_one_undo_may_serve_several_activities() -> None:
    @activity
    async def one(ctx: ActivityContext) -> str:
        return ""

    @activity
    async def two(ctx: ActivityContext, n: int) -> str:
        return ""

    @one.compensate
    @two.compensate
    @activity(name="undo-both")
    async def undo(ctx: ActivityContext, made: str) -> None: ...

    assert undo.name == "undo-both"
    assert one._definition.undo is not None
    assert two._definition.undo is not None
    assert one._definition.undo.activity is two._definition.undo.activity


def test_an_old_history_replays_on_code_that_added_an_undo() -> None:
    @activity(name="reserve")
    async def without(ctx: ActivityContext, room: str) -> int:
        return 1

    async def before(ctx: WorkflowContext) -> None:
        await without(ctx, "a")
        await plain(ctx)
        raise ValueError("no")

    async def after(ctx: WorkflowContext) -> None:
        await reserve(ctx, "a")
        await plain(ctx)
        raise ValueError("no")

    old = Drive(before)
    old.feed(Kind.ACTIVITY_COMPLETED, "reserve:1", b"1")
    new = Drive(after)
    new.instance.evict()
    new.history, new.instance = list(old.history), new._new()
    new.instance.replay(new.history)
    new.instance.reconcile({})
    assert new.done("plain:1").undo_all() == ["reserve:1"]
