"""The same code starts one id again: the second start is refused, also if the parent was read from the database."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    InstanceExists,
    TerminalError,
    WorkflowContext,
    activity,
    emit,
    events,
    send_event,
    start_workflow,
    wait_event,
    workflow,
)
from romancy.engine.resident import MANY_CHILDREN
from romancy.testing import Environment, environment
from tests.engine.helpers import outsider

broken = True


@activity
async def may_fail(ctx: ActivityContext) -> None:
    if broken:
        raise TerminalError("broken")


@activity
async def note(ctx: ActivityContext) -> str:
    return "noted"


@workflow
async def shelf(ctx: WorkflowContext, name: str) -> str:
    return f"{name}: {(await wait_event(ctx, 'book.returned', timeout=60)).data}"


@workflow
async def starts_twice(ctx: WorkflowContext, sends: bool, count: int = 1, fails: bool = False) -> list[str]:
    if fails:
        await may_fail(ctx)
    await wait_event(ctx, "open")
    kids = [await start_workflow(ctx, shelf, f"n{n}", instance_id=f"x{n}") for n in range(count)]
    kids.append(await start_workflow(ctx, shelf, "twin", instance_id="x0"))
    if sends:
        await send_event(ctx, "other", "test", 1)
    found: list[str] = []
    for kid in kids:
        try:
            found.append(await kid.result())
        except InstanceExists:
            found.append("refused")
    return found


async def until_it_is(env: Environment, id: str, *status: str) -> None:
    async with asyncio.timeout(30):
        while (await env.app.get_instance(id)).status not in status:
            await env.settle()


@pytest.mark.parametrize("sends", [True, False])
async def test_twins_of_a_parent_that_was_read(db: str, sends: bool) -> None:
    async with environment(database=db, workflows=[starts_twice, shelf]) as env:
        await env.app.start_workflow(starts_twice, sends, instance_id="p")
        await env.settle()
        await env.restart()
        await env.send_event("open", "test")
        await env.settle()
        await env.send_event("book.returned", "test", 1)
        await until_it_is(env, "p", "completed", "blocked")
        assert (await env.app.get_instance("p")).output == ["n0: 1", "refused"]


@pytest.mark.parametrize("sends", [True, False])
async def test_many_twins_of_a_parent_that_was_retried(db: str, sends: bool) -> None:
    global broken
    broken, count = True, MANY_CHILDREN + 5
    async with environment(database=db, workflows=[starts_twice, shelf]) as env:
        await env.start(starts_twice, sends, count, True, instance_id="p")
        await until_it_is(env, "p", "failed")
        broken = False
        await env.app.retry_workflow("p")
        await env.settle()
        await env.send_event("open", "test")
        await env.settle()
        await env.send_event("book.returned", "test", 1)
        await env.settle()
        instance = await env.app.get_instance("p")
        assert instance.status == "completed"
        assert instance.output[-1] == "refused"


@pytest.mark.parametrize("sends", [True, False])
async def test_one_instance_for_each_key_in_a_loop(db: str, sends: bool) -> None:
    @workflow
    async def desk(ctx: WorkflowContext) -> list[str]:
        found: list[str] = []
        async for event in events(ctx, "book.reserved", model=str, limit=2):
            kid = await start_workflow(ctx, shelf, event.data, instance_id=event.data)
            if sends:
                await send_event(ctx, "other", "test", 1)
            try:
                found.append(await kid.result())
            except InstanceExists:
                found.append("refused")
        return found

    async with environment(database=db, workflows=[desk, shelf]) as env:
        await env.app.start_workflow(desk, instance_id="p")
        await env.settle()
        await env.send_event("book.reserved", "test", "dune")
        await env.settle()
        await env.send_event("book.returned", "test", 1)
        await env.settle()
        await env.restart()
        await env.send_event("book.reserved", "test", "dune")
        await until_it_is(env, "p", "completed", "blocked")
        assert (await env.app.get_instance("p")).output == ["dune: 1", "refused"]


async def test_a_held_step_that_emits_is_stored_before_the_worker_stops(db: str) -> None:
    @workflow
    async def parent(ctx: WorkflowContext) -> str:
        await note(ctx)
        kid = await start_workflow(ctx, shelf, "a")
        await send_event(ctx, "other", "test", 1)
        await emit(ctx, "hello")
        return await kid.result()

    async with environment(database=db, workflows=[parent, shelf]) as env:
        storage: Any = env.app._runtime.engine.storage
        children, asked, gate = storage.children, asyncio.Event(), asyncio.Event()

        async def slow(*args: Any) -> Any:
            asked.set()
            await gate.wait()
            return await children(*args)

        storage.children = slow
        async with outsider(env) as other:
            await other.start_workflow("parent", instance_id="p")
        env.app._runtime.engine.kick()
        await asyncio.wait_for(asked.wait(), 20)
        stopping = asyncio.ensure_future(env.app.stop())
        await asyncio.wait([stopping], timeout=0.3)
        gate.set()
        await stopping
        async with outsider(env) as other:
            kinds = [entry.kind for entry in await other.get_history("p")]
        assert kinds == ["started", "activity_completed", "event_sent", "emitted"]


version = 1


@workflow
async def bee(ctx: WorkflowContext, name: str) -> str:
    return f"{name}: {(await wait_event(ctx, 'bee.called', timeout=600)).data}"


async def test_a_step_that_blocks_its_parent_stores_its_other_children(env: Environment) -> None:
    """The events of the step are stored, and are not sent again when the parent goes on with mended code."""
    global version
    version = 1

    @workflow
    async def parent(ctx: WorkflowContext) -> list[str]:
        if version == 1:
            kid = await start_workflow(ctx, shelf, "x", instance_id="old")
            await wait_event(ctx, "poke")
            return [await kid.result()]
        await wait_event(ctx, "poke")
        other = await start_workflow(ctx, bee, "b")
        kid = await start_workflow(ctx, shelf, "x", instance_id="new" if version == 2 else "old")
        await send_event(ctx, "bee.called", "test", 1)
        return [await other.result(), await kid.result()]

    env.app.register(parent, shelf, bee)
    handle = await env.start(parent, instance_id="p")
    version = 2
    await env.restart()
    await env.send_event("poke", "test")
    await until_it_is(env, "p", "blocked")
    version = 3
    await env.app.resume_workflow("p")
    await env.settle()
    await env.send_event("book.returned", "test", 7)
    assert await handle.result() == ["b: 1", "x: 7"]
