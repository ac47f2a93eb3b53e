"""Parents whose code was changed while they waited for children: whatever comes first now, they hear of the ends."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    WorkflowCancelled,
    WorkflowContext,
    WorkflowFailed,
    activity,
    start_workflow,
    wait_event,
    workflow,
)
from romancy.testing import Environment
from tests.engine.helpers import down, until, watch

gates: list[asyncio.Event] = []


@activity
async def held(ctx: ActivityContext) -> None:
    await gates[-1].wait()


@workflow
async def child(ctx: WorkflowContext, name: str = "go") -> Any:
    data = (await wait_event(ctx, name)).data
    if data == "bad":
        raise ValueError(data)
    return data


@workflow
async def another(ctx: WorkflowContext) -> None:
    # Nothing wakes its parent before the open child ends, so it may be started after the event was sent.
    await wait_event(ctx, "first", since=datetime(2000, 1, 1, tzinfo=UTC))


async def first(ctx: WorkflowContext, what: str) -> None:
    """What changed code does before it starts its child."""
    if what == "an activity":
        await held(ctx)
    elif what == "a child":
        await another(ctx)
    elif what == "an event" or ctx.patched("wait first"):
        await wait_event(ctx, "first")


async def until_it_is(env: Environment, id: str, *statuses: str) -> None:
    async with asyncio.timeout(20):
        while not (await env.app.list_instances(text=id, status=list(statuses))).items:  # type: ignore[arg-type]  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("what", ["an activity", "an event", "a child", "a patch"])
@pytest.mark.parametrize("ends", ["meanwhile", "later"])
@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("result", ["good", "bad"])
async def test_something_was_put_before_an_open_child(
    env: Environment, what: str, ends: str, dies: bool, result: str
) -> None:
    """The end of a child that comes before the code has started it again was lost: its parent waited for ever."""
    changed = False

    @workflow
    async def parent(ctx: WorkflowContext) -> str:
        if changed:
            await first(ctx, what)
        try:
            return f"got {await child(ctx)}"
        except WorkflowFailed as error:
            return str(error)

    gates.append(asyncio.Event())
    env.app.register(parent, child, another)
    handle = await env.app.start_workflow(parent, instance_id="p")
    await until_it_is(env, "p/child:1", "waiting_for_event")
    changed = True
    await env.restart()
    if ends == "meanwhile":
        await env.app.send_event("go", "test", result, to="p/child:1")
        await until_it_is(env, "p/child:1", "completed", "failed")
    if dies:
        async with down(env):
            pass
    gates[-1].set()
    await env.app.send_event("first", "test", 1)
    if ends == "later":
        await env.app.send_event("go", "test", result, to="p/child:1")
    assert ("got good" if result == "good" else "ValueError: bad") in await handle.result(20)
    history = await env.app.get_history("p")
    assert [entry.operation for entry in history].count("child:1") == 1
    assert [entry.kind for entry in history if entry.kind == "patched"] == [], "it was past the question"
    assert len((await env.app.list_instances()).items) == (3 if what == "a child" else 2), "none was started again"


@pytest.mark.parametrize("dies", [False, True])
async def test_children_that_were_started_together_are_started_in_turn_now(env: Environment, dies: bool) -> None:
    """The second one ends while the code has not come to it."""
    changed = False

    @workflow
    async def parent(ctx: WorkflowContext) -> list[str]:
        if changed:
            return [await child(ctx, "a"), await child(ctx, "b")]
        return await asyncio.gather(child(ctx, "a"), child(ctx, "b"))

    env.app.register(parent, child)
    handle = await env.app.start_workflow(parent, instance_id="p")
    for n in (1, 2):
        await until_it_is(env, f"p/child:{n}", "waiting_for_event")
    changed = True
    await env.restart()
    await env.app.send_event("b", "test", "two")
    await until_it_is(env, "p/child:2", "completed")
    if dies:
        async with down(env):
            pass
    await env.app.send_event("a", "test", "one")
    assert await handle.result(20) == ["one", "two"]
    assert len((await env.app.list_instances()).items) == 3


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("ends", ["meanwhile", "later"])
async def test_a_free_child_is_cancelled_before_its_end_is_told(env: Environment, ends: str, dies: bool) -> None:
    """If it has ended already, there is nothing left to cancel, and its parent gets the result."""
    changed = False

    @workflow
    async def parent(ctx: WorkflowContext) -> str:
        if changed:
            await wait_event(ctx, "first")
        kid = await start_workflow(ctx, child)
        if changed:
            await kid.cancel()
        try:
            return f"got {await kid.result()}"
        except WorkflowCancelled:
            return "cancelled"

    env.app.register(parent, child)
    handle = await env.app.start_workflow(parent, instance_id="p")
    await until_it_is(env, "p/child:1", "waiting_for_event")
    changed = True
    await env.restart()
    if ends == "meanwhile":
        await env.app.send_event("go", "test", "it", to="p/child:1")
        await until_it_is(env, "p/child:1", "completed")
    if dies:
        async with down(env):
            pass
    if ends == "later":  # nothing else wakes the parent, and its new code only waits once it is awake
        await env.app.cancel_workflow("p/child:1")
        await until_it_is(env, "p/child:1", "cancelled")
    await env.app.send_event("first", "test", 1)
    assert await handle.result(20) == ("got it" if ends == "meanwhile" else "cancelled")


async def test_a_parent_that_ends_when_it_finds_its_child_asks_for_nothing(env: Environment) -> None:
    """A cancellation that comes right after the child was found ends the parent in the same step."""
    changed = False

    @workflow
    async def parent(ctx: WorkflowContext) -> None:
        if changed:
            await wait_event(ctx, "first")
        await child(ctx)

    env.app.register(parent, child)
    await env.app.start_workflow(parent, instance_id="p")
    await until_it_is(env, "p/child:1", "waiting_for_event")
    changed = True
    await env.restart()
    await env.app.send_event("go", "test", "it", to="p/child:1")
    await until_it_is(env, "p/child:1", "completed")
    storage: Any = env.app._runtime.engine.storage
    asked, gate, start = asyncio.Event(), asyncio.Event(), storage.children

    async def children(*args: Any) -> Any:
        asked.set()
        await gate.wait()
        return await start(*args)

    storage.children = children
    await env.app.send_event("first", "test", 1)
    await asyncio.wait_for(asked.wait(), 20)
    cancelling = asyncio.ensure_future(env.app.cancel_workflow("p"))
    resident = env.app._runtime.engine.residents["p"]
    await until(lambda: resident.inbox)
    cancel, resident.inbox = resident.inbox, []
    batches = watch(env)
    gate.set()
    await until(lambda: resident.inbox)
    assert [type(input).__name__ for input in resident.inbox] == ["ChildFound"]
    resident.inbox += cancel
    await cancelling
    await until_it_is(env, "p", "cancelled")
    last = [commit for batch in batches for commit in batch.commits if commit.instance == "p"][-1]
    assert (last.status, list(last.rejoins)) == ("cancelled", [])
