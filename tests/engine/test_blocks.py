"""A `saga` block is undone once everything that was begun in it has ended: an undo never runs before what it undoes."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from romancy import (
    NO_RETRY,
    ActivityContext,
    WorkflowCancelled,
    WorkflowContext,
    WorkflowFailed,
    activity,
    compensate,
    saga,
    start_workflow,
    wait_event,
    workflow,
)
from romancy.testing import Environment, replay
from tests.engine.helpers import down, kinds, until

log: list[str] = []
repaired: list[str] = []
gate = asyncio.Event()


@pytest.fixture(autouse=True)
async def clean() -> None:
    global gate
    log.clear()
    repaired.clear()
    gate = asyncio.Event()


@activity(retry=NO_RETRY)
async def hold(ctx: ActivityContext, seat: str) -> None:
    if seat == "slow":
        log.append("begin slow")
        await gate.wait()
    log.append(f"hold {seat}")


@hold.compensate
async def drop(ctx: ActivityContext, seat: str) -> None:
    log.append(f"drop {seat}")


@activity
async def release(ctx: ActivityContext, seat: str) -> None:
    log.append(f"release {seat}")


@workflow
async def reservation(ctx: WorkflowContext, seat: str) -> None:
    await hold(ctx, seat)
    if seat == "bad":
        await wait_event(ctx, "fail")
        raise ValueError("no seat")


@workflow
async def party(ctx: WorkflowContext, how: str) -> str:
    try:
        async with saga(ctx):
            for seat in ("bad", "slow"):
                compensate(ctx, release, seat)
            if how == "gather":
                await asyncio.gather(reservation(ctx, "bad"), reservation(ctx, "slow"))
            else:
                async with asyncio.TaskGroup() as group:
                    group.create_task(reservation(ctx, "bad"))
                    group.create_task(reservation(ctx, "slow"))
    except Exception:
        log.append("after the block")
        return "stayed at home"
    return "went"


AFTERWARDS = ["hold slow", "drop slow", "release slow", "release bad"]


async def fail(env: Environment, how: str) -> None:
    """One child has failed, and the other one is in the middle of an activity that it has an undo for."""
    await env.start(party, how, instance_id="p")
    await until(lambda: "begin slow" in log)
    await env.send_event("fail", "test")
    await until(lambda: "drop bad" in log)
    await env.settle()
    log.clear()


@pytest.mark.parametrize("how", ["gather", "group"])
async def test_a_block_waits_until_its_children_have_undone_what_they_did(
    env: Environment, how: str, impatient: None
) -> None:
    env.app.register(party, reservation)
    await fail(env, how)
    assert await env.app.handle("p").status() == "compensating"
    assert log == []
    gate.set()
    assert await env.app.handle("p").result() == "stayed at home"
    assert log == [*AFTERWARDS, "after the block"]
    assert (await env.app.get_instance("p/reservation:2")).status == "cancelled"
    ends = ["child_failed", "patched", "child_cancelled", "activity_completed", "activity_completed"]
    assert await kinds(env, "p") == ["started", *ends]
    assert replay(party, await env.app.get_history("p")) == "completed"


@pytest.mark.parametrize("how", ["gather", "group"])
async def test_a_worker_dies_while_a_block_waits(env: Environment, how: str, impatient: None) -> None:
    env.app.register(party, reservation)
    await fail(env, how)
    async with down(env):
        gate.set()
    assert await env.app.handle("p").result() == "stayed at home"
    assert log == ["begin slow", *AFTERWARDS, "after the block"]


async def test_cancelled_while_a_block_waits(env: Environment, impatient: None) -> None:
    env.app.register(party, reservation)
    await fail(env, "gather")
    await env.cancel(env.app.handle("p"), "enough")
    assert log == []
    gate.set()
    with pytest.raises(WorkflowCancelled, match="enough"):
        await env.app.handle("p").result()
    assert log == AFTERWARDS


async def test_a_fork_of_one_whose_block_waits(env: Environment, impatient: None) -> None:
    """The original undoes what it did. The fork waits for no child: none of its own was started."""
    env.app.register(party, reservation)
    await fail(env, "gather")
    (failed,) = [entry.n for entry in await env.app.get_history("p") if entry.kind == "child_failed"]
    fork = await env.app.fork_workflow("p", at=failed, new_id="f")
    assert await fork.result() == "stayed at home"
    assert log == ["after the block"]
    gate.set()
    assert await env.app.handle("p").result() == "stayed at home"
    assert log == ["after the block", *AFTERWARDS, "after the block"]
    assert replay(party, await env.app.get_history("f")) == "completed"


@workflow
async def independent(ctx: WorkflowContext) -> str:
    return (await wait_event(ctx, "go", model=str)).data


@workflow
async def leaves_one_alone(ctx: WorkflowContext) -> str:
    try:
        async with saga(ctx):
            compensate(ctx, release, "it")
            child = await start_workflow(ctx, independent)
            await wait_event(ctx, "fail")
            raise ValueError("no")
    except ValueError:
        return await child.result()


async def test_a_block_leaves_independent_children_alone(env: Environment) -> None:
    env.app.register(leaves_one_alone, independent)
    handle = await env.start(leaves_one_alone)
    await env.send_event("fail", "test")
    assert log == ["release it"]
    await env.send_event("go", "test", "on")
    assert await handle.result() == "on"


@workflow
async def fragile(ctx: WorkflowContext) -> str:
    async def later() -> str:
        await wait_event(ctx, "go")
        return "went"

    async with saga(ctx):
        return (await asyncio.gather(later(), repair(ctx)))[0]


@activity(retry=NO_RETRY)
async def repair(ctx: ActivityContext) -> None:
    if not repaired:
        raise ConnectionError("broken")


async def test_a_block_that_had_nothing_to_undo_is_retried(env: Environment) -> None:
    handle = await env.start(fragile)
    with pytest.raises(WorkflowFailed):
        await handle.result()
    repaired.append("it")
    await env.app.retry_workflow(handle.instance_id)
    await env.settle()
    await env.send_event("go", "test")
    assert await handle.result() == "went"
    assert replay(fragile, await env.app.get_history(handle.instance_id)) == "completed"


@workflow
async def in_a_hurry(ctx: WorkflowContext) -> str:
    try:
        async with asyncio.timeout(60), saga(ctx):
            compensate(ctx, release, "slow")
            await reservation(ctx, "slow")
    except TimeoutError:
        return "late"
    return "in time"


async def test_a_time_limit_around_a_block(env: Environment, impatient: None) -> None:
    env.app.register(in_a_hurry, reservation)
    handle = await env.start(in_a_hurry)
    await until(lambda: "begin slow" in log)
    await env.advance(timedelta(seconds=61))
    assert (await handle.status(), log) == ("compensating", ["begin slow"])
    gate.set()
    assert await handle.result() == "late"
    assert log == ["begin slow", *AFTERWARDS[:-1]]
