"""Several children of one id in a batch, and children that are known to others before they are stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    InstanceExists,
    MiddlewareBase,
    StartRequest,
    WorkflowContext,
    activity,
    send_event,
    sleep,
    start_workflow,
    wait_event,
    workflow,
)
from romancy.storage.batch import Batch
from romancy.testing import Environment, environment
from tests.engine.helpers import down, intercept, outsider, until

began: list[str] = []


@workflow
async def shelf(ctx: WorkflowContext, name: str) -> str:
    return f"{name}: {(await wait_event(ctx, 'book.returned', timeout=60)).data}"


@workflow
async def other_shelf(ctx: WorkflowContext, name: str) -> str:
    return f"{name}: {(await wait_event(ctx, 'book.returned', timeout=60)).data}"


class Tenants(MiddlewareBase):
    async def around_start(self, start: StartRequest, call_next: Callable[[], Awaitable[Any]]) -> Any:
        start.headers["tenant"] = "x"
        return await call_next()


async def until_it_is(env: Environment, id: str, *status: str) -> None:
    async with asyncio.timeout(30):
        while (await env.app.get_instance(id)).status not in status:
            await env.settle()


# --- twins ------------------------------------------------------------------------------------------------------------
@workflow
async def starts_twice(ctx: WorkflowContext, sends: bool) -> list[str]:
    kids = [
        await start_workflow(ctx, shelf, "one", instance_id="x"),
        await start_workflow(ctx, other_shelf, "two", instance_id="x"),
    ]
    if sends:
        await send_event(ctx, "book.returned", "test", 1)
    found: list[str] = []
    for kid in kids:
        try:
            found.append(await kid.result())
        except InstanceExists:
            found.append("refused")
    return found


@pytest.mark.parametrize("sends", [True, False])
async def test_one_parent_starts_an_id_twice(sends: bool) -> None:
    workflows = [starts_twice, shelf, other_shelf]
    async with environment(workflows=workflows, middleware=[Tenants()]) as env:
        handle = await env.start(starts_twice, sends, instance_id="p")
        if not sends:
            await env.send_event("book.returned", "test", 1)
        await until_it_is(env, "p", "completed")
        assert await handle.result() == ["one: 1", "refused"]


@workflow
async def starts_x(ctx: WorkflowContext, name: str, ends: bool = False) -> str:
    await wait_event(ctx, "open")
    kid = await start_workflow(ctx, shelf, name, instance_id="x")
    await send_event(ctx, "book.returned", "test", 1)
    if ends:
        return name
    try:
        return await kid.result()
    except InstanceExists:
        return "refused"


@pytest.mark.parametrize("restarts", [True, False])
async def test_several_parents_start_an_id_in_one_batch(db: str, restarts: bool) -> None:
    async with environment(database=db, workflows=[starts_x, shelf], middleware=[Tenants()]) as env:
        for n in range(5):
            await env.app.start_workflow(starts_x, f"n{n}", instance_id=f"p{n}")
        await env.settle()
        if restarts:
            await env.restart()
        await env.send_event("open", "test")
        for n in range(5):
            await until_it_is(env, f"p{n}", "completed")
        outputs = sorted([(await env.app.get_instance(f"p{n}")).output for n in range(5)])
        assert outputs[0].endswith(": 1")
        assert outputs[1:] == ["refused"] * 4


async def test_several_parents_that_end_start_an_id_in_one_batch() -> None:
    async with environment(workflows=[starts_x, shelf], middleware=[Tenants()]) as env:
        for n in range(3):
            await env.app.start_workflow(starts_x, f"n{n}", ends=True, instance_id=f"p{n}")
        await env.settle()
        await env.app.send_event("open", "test")
        for n in range(3):
            await until_it_is(env, f"p{n}", "completed")
        assert (await env.app.get_instance("x")).workflow == "shelf"


@workflow
async def starts_x_later(ctx: WorkflowContext) -> str:
    await sleep(ctx, 10)
    await start_workflow(ctx, shelf, "k", instance_id="x")
    await send_event(ctx, "other", "test", 1)
    return "done"


async def test_a_parent_and_a_program_start_an_id_in_one_batch() -> None:
    async with environment(workflows=[starts_x_later, shelf], middleware=[Tenants()]) as env:
        await env.app.start_workflow(starts_x_later, instance_id="p")
        await env.settle()
        held: list[Callable[[], None]] = []
        both: list[Batch] = []

        def decide(batch: Batch, submit: Callable[[], None]) -> None:
            if not held:
                held.append(submit)
                return
            if batch.starts and any(commit.children for commit in batch.commits):
                both.append(batch)
            submit()

        intercept(env, decide)
        first = asyncio.ensure_future(env.app.send_event("dummy", "test"))
        await until(lambda: held)
        env.clock.turn_to(env.clock.now() + 11_000_000)
        for _ in range(50):
            await asyncio.sleep(0)
        own = asyncio.ensure_future(env.app.start_workflow(shelf, "mine", instance_id="x"))
        for _ in range(20):
            await asyncio.sleep(0)
        held[0]()
        await until_it_is(env, "p", "completed")
        await first
        await asyncio.wait([own], timeout=10)
        assert own.exception() is None or isinstance(own.exception(), InstanceExists)
        assert both, "they were never in one batch"


@workflow(attributes={"first": "name"})
async def tagged(ctx: WorkflowContext, name: str) -> None:
    await wait_event(ctx, "book.returned")


@workflow(attributes={"second": "name"})
async def tagged_too(ctx: WorkflowContext, name: str) -> None:
    await wait_event(ctx, "book.returned")


async def test_who_is_refused_leaves_no_attributes() -> None:
    @workflow
    async def twins(ctx: WorkflowContext) -> None:
        await start_workflow(ctx, tagged, "one", instance_id="x")
        await start_workflow(ctx, tagged_too, "two", instance_id="x")
        await send_event(ctx, "other", "test", 1)
        await wait_event(ctx, "book.returned")

    async with environment(workflows=[twins, tagged, tagged_too]) as env:
        await env.start(twins)
        assert (await env.app.get_instance("x")).attributes == {"first": "one"}


async def test_the_name_of_a_child_is_checked(env: Environment) -> None:
    @workflow
    async def parent(ctx: WorkflowContext, name: str) -> None:
        await start_workflow(ctx, name)

    env.app.register(parent)
    for name in ("", "a\0b"):
        await env.start(parent, name, instance_id=f"p{len(name)}")
        await until_it_is(env, f"p{len(name)}", "failed")
        error = (await env.app.get_instance(f"p{len(name)}")).error
        assert error is not None
        assert "the name of a workflow must be a non-empty string" in error["message"]


# --- shown before it is stored ----------------------------------------------------------------------------------------
@workflow
async def shows(ctx: WorkflowContext, how: str) -> str:
    kid = await start_workflow(ctx, shelf, "a")
    if how == "view":
        ctx.set_view({"kid": kid.instance_id})
    elif how == "attributes":
        ctx.set_attributes({"kid": kid.instance_id})
    else:
        ctx.describe(kid.instance_id)
    return await kid.result()


@pytest.mark.parametrize("how", ["view", "attributes", "description"])
async def test_a_child_whose_id_is_shown_gets_events_at_once(db: str, how: str) -> None:
    cut: list[Batch] = []

    def drop_starts(batch: Batch, submit: Callable[[], None]) -> None:
        if cut or any(start.parent is not None for start in batch.starts):
            cut.append(batch)
        else:
            submit()

    async with environment(database=db, workflows=[shows, shelf]) as env:
        restore = intercept(env, drop_starts)
        await env.app.start_workflow(shows, how, instance_id="p")
        await until(lambda: cut)
        async with down(env):
            restore()
            async with outsider(env) as other:
                await other.send_event("book.returned", "test", 7)
        assert await env.handle("p").result() == "a: 7"


# --- stopping ---------------------------------------------------------------------------------------------------------
@activity
async def note(ctx: ActivityContext, name: str) -> str:
    began.append(name)
    return name


@pytest.mark.parametrize("sends", [True, False])
async def test_results_are_stored_while_children_are_looked_for_and_the_worker_stops(db: str, sends: bool) -> None:
    began.clear()

    @workflow
    async def parent(ctx: WorkflowContext) -> str:
        await wait_event(ctx, "open")
        noting = asyncio.ensure_future(note(ctx, "a"))
        await asyncio.sleep(0)
        kid = await start_workflow(ctx, shelf, "k")
        if sends:
            await send_event(ctx, "other", "test", 1)
        await noting
        return await kid.result()

    async with environment(database=db, workflows=[parent, shelf]) as env:
        await env.app.start_workflow(parent, instance_id="p")
        await env.settle()
        await env.restart()
        storage: Any = env.app._runtime.engine.storage
        children, gate, asked = storage.children, asyncio.Event(), asyncio.Event()
        calls = 0

        async def slow_children(*given: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > (1 if sends else 0):  # the first look of a step that sends is before its activities begin
                asked.set()
                await gate.wait()
            return await children(*given)

        storage.children = slow_children
        await env.app.send_event("open", "test")
        await until(lambda: began)
        await asyncio.wait_for(asked.wait(), 20)
        stopping = asyncio.ensure_future(env.app.stop())
        await asyncio.wait([stopping], timeout=0.3)
        gate.set()
        await stopping
        storage.children = children
        await env.app.start()
        await env.send_event("book.returned", "test", 1)
        assert await env.handle("p").result() == "k: 1"
        assert began == ["a"]
