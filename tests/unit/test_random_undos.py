"""Random workflows with undos, answered in random order: what completed is undone once, and every replay agrees."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from romancy import WorkflowContext, saga
from romancy.core.history import Kind
from romancy.core.operations import ActivityCall, Hold, Operation, Timer, UndoCall
from romancy.core.scope import current_scope
from tests.unit.test_compensation import Drive, reserve

LEAF = st.sampled_from([["call"], ["call"], ["fail"]])
PROGRAM = st.recursive(
    LEAF,
    lambda node: st.one_of(
        st.tuples(st.sampled_from(["seq", "gather", "group", "race"]), st.lists(node, min_size=1, max_size=3)),
        st.tuples(st.sampled_from(["block", "limit", "catch"]), node),
    ),
    max_leaves=8,
)

open_now: list[Operation] = []
"""What was begun in blocks that failed, and was still open when their exceptions went on."""


async def run(ctx: WorkflowContext, node: Any) -> None:
    kind = node[0]
    if kind == "call":
        await reserve(ctx, "room")
    elif kind == "fail":
        raise ValueError("no luck")
    elif kind == "seq":
        for part in node[1]:
            await run(ctx, part)
    elif kind == "gather":
        await asyncio.gather(*(run(ctx, part) for part in node[1]))
    elif kind == "group":
        async with asyncio.TaskGroup() as group:
            for part in node[1]:
                group.create_task(run(ctx, part))
    elif kind == "race":
        tasks = [asyncio.create_task(run(ctx, part)) for part in node[1]]
        done, losers = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in losers:
            task.cancel()
        for task in done:
            task.result()
    elif kind == "block":
        scope: Any = None
        try:
            async with saga(ctx):
                scope = current_scope.get()
                await run(ctx, node[1])
        except (Exception, asyncio.CancelledError):
            open_now.extend(op for op in ctx._instance.ops.values() if op.scope is not None and op.scope.is_in(scope))
            raise
    elif kind == "limit":
        async with asyncio.timeout(5):
            await run(ctx, node[1])
    else:
        with contextlib.suppress(Exception):
            await run(ctx, node[1])


class Chance:
    """Plays the engine, as the data says."""

    def __init__(self, drive: Drive, data: st.DataObject) -> None:
        self.drive, self.data = drive, data
        self.completed: set[str] = set()
        self.late: set[str] = set()
        self.undone: list[str] = []
        self.cancelled = False

    def play(self) -> None:
        while self.drive.instance.outcome is None:
            self.step()

    def step(self) -> None:
        drive, compensation = self.drive, self.drive.instance.compensation
        can_cancel = not self.cancelled and not (compensation is not None and compensation.is_unwinding)
        if can_cancel and self.data.draw(st.integers(0, 15)) == 15:
            self.cancelled = True
            drive.cancel()
            return
        op = drive.instance.ops[self.data.draw(st.sampled_from(drive.open))]
        if isinstance(op, Hold):
            drive.feed(Kind.RESUMED, op.id)
        elif isinstance(op, Timer):
            drive.feed(Kind.TIMER_FIRED, op.id)
        elif isinstance(op, ActivityCall):
            if self.data.draw(st.integers(0, 4)) == 4:
                drive.fail(op.id)
                return
            if isinstance(op, UndoCall):
                self.undone.append(op.undo.of)
            else:
                self.completed.add(op.id)
                self.late |= {op.id} if op.given_up else set()
            drive.done(op.id)


@settings(max_examples=300, deadline=None)
@given(PROGRAM, st.data())
def test_what_completed_is_undone_once(program: Any, data: st.DataObject) -> None:
    async def code(ctx: WorkflowContext) -> None:
        await run(ctx, program)

    open_now.clear()
    chance = Chance(Drive(code), data)
    chance.play()
    assert not open_now
    assert chance.drive.instance.outcome is not None
    assert len(chance.undone) == len(set(chance.undone))
    assert set(chance.undone) <= chance.completed
    if chance.drive.instance.outcome.status == "completed":
        assert chance.late <= set(chance.undone)
    else:
        assert set(chance.undone) == chance.completed
