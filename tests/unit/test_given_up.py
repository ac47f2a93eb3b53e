"""Operations that stay open when the code gives them up: until they are answered, in every run the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from romancy import ActivityContext, WorkflowContext, activity, workflow
from romancy.core.history import Entry, Kind
from romancy.core.instance import Instance
from romancy.core.model import SECOND
from romancy.core.operations import ActivityCall
from romancy.engine.resident import Answered, CancelAsked, Resident
from romancy.engine.step import Step
from romancy.storage.batch import Accept

T0 = 1_800_000_000 * SECOND
DONE, FAILED = Kind.ACTIVITY_COMPLETED, Kind.ACTIVITY_FAILED
late: list[tuple[str, bytes | None]] = []


@dataclass(slots=True, eq=False)
class Kept(ActivityCall):
    """A call whose answer counts even if the code does not wait for it."""

    stays_open: ClassVar[bool] = True

    def settle_late(self, entry: Entry) -> None:
        late.append((self.id, entry.payload))


@activity
async def charge(ctx: ActivityContext) -> int:
    raise AssertionError("activities don't run here")


@activity
async def other(ctx: ActivityContext) -> int:
    raise AssertionError("activities don't run here")


async def kept(ctx: WorkflowContext) -> int:
    instance = ctx._instance
    return await instance.perform(
        Kept(instance.run.next_id("kept"), instance.at, charge._definition, b"{}", None, None)
    )


@pytest.fixture(autouse=True)
def nothing_late() -> None:
    late.clear()


def begin(fn: Callable[[WorkflowContext], Any]) -> tuple[Resident, Step]:
    resident = Resident(Instance(workflow(name="wf")(fn)._definition, "one", b"{}", T0), 0)
    return resident, feed(resident)


def feed(resident: Resident, *inputs: Any) -> Step:
    resident.inbox += inputs
    step = Step(resident, T0, lambda event: Accept(event, b""), tell=False)
    step.run()
    return step


async def first_wins(ctx: WorkflowContext) -> int:
    task = asyncio.create_task(kept(ctx))
    await other(ctx)
    task.cancel()
    return await other(ctx)


def test_it_stays_open_and_its_answer_is_recorded() -> None:
    resident, begun = begin(first_wins)
    step = feed(resident, Answered("other:1", DONE, b"1"))
    assert [op.id for op in step.asked.given_up] == ["kept:1"]
    assert step.asked.given_up[0].given_up
    assert list(resident.instance.ops) == ["kept:1", "other:2"]
    after = feed(resident, Answered("kept:1", DONE, b"7"))
    assert [(e.kind, e.op, e.payload) for e in after.commit.entries] == [(DONE, "kept:1", b"7")]
    assert after.asked.given_up == ()
    assert late == [("kept:1", b"7")]
    assert feed(resident, Answered("other:2", DONE, b"2")).commit.output == b"2"
    assert not begun.asked.given_up


def test_a_replay_gives_up_the_same_and_does_not_report_it() -> None:
    resident, _ = begin(first_wins)
    entries = [*feed(resident, Answered("other:1", DONE, b"1")).commit.entries]
    again = Instance(resident.instance.definition, "one", b"{}", T0)
    again.replay(entries)
    assert again.reconcile({}) == []
    asked = again.take()
    assert ([op.id for op in asked.opened], asked.given_up) == (["kept:1", "other:2"], ())
    assert asked.opened[0].given_up


async def at_once(ctx: WorkflowContext) -> int:
    task = asyncio.create_task(kept(ctx))
    await asyncio.sleep(0)
    task.cancel()
    return await other(ctx)


def test_opened_and_given_up_in_one_activation_leaves_no_trace() -> None:
    resident, step = begin(at_once)
    assert [op.id for op in step.asked.opened] == ["other:1"]
    assert not step.asked.given_up
    assert not step.commit.entries
    again = Instance(resident.instance.definition, "one", b"{}", T0)
    again.replay([])
    assert list(again.ops) == ["other:1"]


async def goes_on(ctx: WorkflowContext) -> int:
    await other(ctx)
    task = asyncio.create_task(kept(ctx))
    try:
        return await other(ctx)
    except asyncio.CancelledError:
        task.cancel()
        return await other(ctx)


def test_it_is_answered_in_the_same_commit() -> None:
    resident, _ = begin(goes_on)
    step = feed(resident, Answered("other:1", DONE, b"1"), CancelAsked(1, "enough"))
    assert [(e.kind, e.op) for e in step.commit.entries] == [
        (DONE, "other:1"),
        (Kind.CANCEL_REQUESTED, ""),
        (FAILED, "kept:1"),
    ]
    assert b"given up before it began" in (step.commit.entries[-1].payload or b"")
    assert [op.id for op in step.asked.opened] == ["other:3"]
    again = Instance(resident.instance.definition, "one", b"{}", T0)
    again.replay(step.commit.entries)
    assert list(again.ops) == ["other:3"]


def test_after_a_reload_it_is_not_known_whether_it_began() -> None:
    resident, _ = begin(goes_on)
    entries = [*feed(resident, Answered("other:1", DONE, b"1")).commit.entries]
    again = Instance(resident.instance.definition, "one", b"{}", T0)
    again.replay(entries)
    again.reconcile({})
    loaded = Resident(again, 1, begun=True)
    step = feed(loaded, CancelAsked(1, "enough"))
    assert [(e.kind, e.op) for e in step.commit.entries] == [(Kind.CANCEL_REQUESTED, "")]
    assert [op.id for op in step.asked.opened] == ["kept:1", "other:3"]
    assert step.asked.opened[0].given_up
