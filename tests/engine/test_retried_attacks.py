"""Retries in unusual places: waits since now, time limits, shared exceptions, children that clean up."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from romancy import (
    InvalidInput,
    WorkflowContext,
    WorkflowFailed,
    events,
    wait_event,
    workflow,
)
from romancy.testing import Environment, environment, replay
from tests.engine.helpers import down
from tests.engine.test_retried import do, failed, retried, world


@pytest.fixture(autouse=True)
def _anew() -> None:
    world.__init__()


# --- waits since now ------------------------------------------------------------------------------------------------
@workflow
async def from_now(ctx: WorkflowContext) -> Any:
    got = await wait_event(ctx, "go", since="now")
    await do(ctx, "a")
    return got.data


async def test_a_wait_since_now_gets_its_event_back(env: Environment) -> None:
    env.app.register(from_now)
    world.broken = {"a"}
    handle = await env.start(from_now, instance_id="i")
    await env.settle()
    await env.send_event("go", "test", 1)
    await env.settle()
    assert await handle.status() == "failed"
    world.broken = set()
    await env.advance(60)
    await env.app.retry_workflow("i", steps=["go:1"])
    await env.settle()
    assert await handle.status() == "completed"
    assert await handle.result() == 1
    assert replay(from_now, await env.app.get_history("i")) == "completed"


@workflow
async def beside_now(ctx: WorkflowContext) -> Any:
    got, _ = await asyncio.gather(wait_event(ctx, "go", since="now"), do(ctx, "a"))
    return got.data


async def test_a_wait_since_now_gets_what_came_while_the_instance_had_failed(env: Environment) -> None:
    env.app.register(beside_now)
    await env.send_event("go", "test", "too early")
    await env.advance(60)
    handle = await failed(env, beside_now, "a")
    await env.advance(60)
    await env.send_event("go", "test", 1)
    await env.advance(60)
    await env.app.retry_workflow("i")
    await env.settle()
    assert await handle.status() == "completed"
    assert await handle.result() == 1


@workflow
async def stream_now(ctx: WorkflowContext) -> list[Any]:
    found: list[Any] = []
    async for event in events(ctx, "hit", limit=4, since="now"):
        found.append(event.data)
        await do(ctx, f"w{event.data}")
    return found


async def test_a_stream_since_now_gets_its_events_back(env: Environment) -> None:
    env.app.register(stream_now)
    await env.send_event("hit", "test", "too early")
    await env.advance(60)
    world.broken = {"w1"}
    handle = await env.start(stream_now, instance_id="i")
    await env.settle()
    for n in range(4):
        await env.send_event("hit", "test", n)
    await env.settle()
    world.broken = set()
    await env.advance(60)
    ops = sorted({e.operation for e in await env.app.get_history("i") if e.kind == "event_received"})
    await env.app.retry_workflow("i", steps=ops)
    await env.settle()
    assert await handle.status() == "completed"
    assert await handle.result() == [0, 1, 2, 3]


async def test_a_stream_since_now_goes_on(env: Environment) -> None:
    env.app.register(stream_now)
    await env.send_event("hit", "test", "too early")
    await env.advance(60)
    world.broken = {"w1"}
    await env.start(stream_now, instance_id="i")
    for n in range(3):
        await env.send_event("hit", "test", n)
    await env.settle()
    world.broken = set()
    await env.send_event("hit", "test", 3)
    assert await retried(env) == [0, 1, 2, 3]
    assert replay(stream_now, await env.app.get_history("i")) == "completed"


# --- time limits ----------------------------------------------------------------------------------------------------
@workflow(timeout=timedelta(hours=1))
async def limited(ctx: WorkflowContext) -> str:
    await wait_event(ctx, "go")
    return "done"


async def test_the_time_limit_does_not_grow_with_each_retry(env: Environment) -> None:
    env.app.register(limited)
    handle = await env.start(limited, instance_id="i")
    for _ in range(3):
        await env.advance(timedelta(hours=2))
        assert await handle.status() == "failed"
        await env.app.retry_workflow("i")
        await env.advance(timedelta(minutes=59))
        assert await handle.status() == "waiting_for_event"
        await env.advance(timedelta(minutes=2))
        assert await handle.status() == "failed"


async def test_the_time_limit_of_a_fork_does_not_grow(env: Environment) -> None:
    env.app.register(limited)
    await env.start(limited, instance_id="i")
    await env.advance(timedelta(hours=3))
    await env.app.retry_workflow("i")
    await env.settle()
    fork = await env.app.fork_workflow("i", at=0, new_id="f")
    await env.advance(timedelta(hours=2))
    assert await fork.status() == "failed"


async def test_the_time_limit_of_a_child_does_not_grow(env: Environment) -> None:
    @workflow
    async def parent(ctx: WorkflowContext) -> str:
        return await limited(ctx)

    env.app.register(limited, parent)
    handle = await env.start(parent, instance_id="i")
    for _ in range(3):
        await env.advance(timedelta(hours=2))
        assert await handle.status() == "failed"
        await env.app.retry_workflow("i")
        await env.advance(timedelta(minutes=59))
        assert await handle.status() == "waiting_for_child"
    await env.send_event("go", "test")
    assert await handle.result() == "done"


async def test_the_time_limit_of_one_that_was_started_by_name_elsewhere(db: str) -> None:
    async with environment(database=db, worker=False) as env:
        await env.app.start_workflow("limited", instance_id="i")
    async with environment(database=db, workflows=[limited]) as env:
        await env.settle()
        handle = env.app.handle("i")
        for _ in range(2):
            await env.advance(timedelta(hours=2))
            assert await handle.status() == "failed"
            await env.app.retry_workflow("i")
            await env.advance(timedelta(minutes=59))
            assert await handle.status() == "waiting_for_event"


# --- culprits -------------------------------------------------------------------------------------------------------
CONSTANT = ValueError("always the same object")


@workflow
async def tainted(ctx: WorkflowContext, *names: str) -> str:
    for name in names:
        try:
            await do(ctx, name)
        except Exception:
            raise CONSTANT  # noqa: B904 - its context is what this is about
    raise CONSTANT


@pytest.mark.parametrize("names", [["good"], ["good", "bad"]])
async def test_an_exception_object_that_is_used_twice_blames_no_stranger(env: Environment, names: list[str]) -> None:
    env.app.register(tainted)
    world.broken = {"bad"}
    for id, given in (("x", ["bad"]), ("i", names)):
        handle = await env.start(tainted, *given, instance_id=id)
        with pytest.raises(WorkflowFailed):
            await handle.result()
    world.broken = set()
    with pytest.raises(WorkflowFailed):
        await retried(env)
    assert world.runs["good"] == 1, "a call that completed ran twice"
    assert world.runs["bad"] == 1 + 2 * (len(names) - 1)


@workflow
async def cleans_up(ctx: WorkflowContext) -> str:
    try:
        async with asyncio.timeout(60):
            return str((await wait_event(ctx, "go")).data)
    except TimeoutError:
        await asyncio.sleep(5)
        raise


async def test_a_time_limit_is_blamed_and_not_a_later_sleep(env: Environment) -> None:
    env.app.register(cleans_up)
    handle = await env.start(cleans_up, instance_id="i")
    await env.advance(timedelta(hours=1))
    assert await handle.status() == "failed"
    await env.app.retry_workflow("i")
    await env.advance(59)
    await env.send_event("go", "test", 7)
    await env.settle()
    assert await handle.status() == "completed"


@workflow
async def enclosed(ctx: WorkflowContext) -> str:
    async with asyncio.timeout(3600):
        await do(ctx, "a")
        await do(ctx, "b")
        return str((await wait_event(ctx, "go")).data)


async def test_an_enclosing_time_limit_begins_again(env: Environment) -> None:
    env.app.register(enclosed)
    handle = await failed(env, enclosed, "b")
    await env.advance(timedelta(days=1))
    await env.app.retry_workflow("i")
    await env.settle()
    assert await handle.status() == "waiting_for_event"
    await env.advance(timedelta(minutes=59))
    assert await handle.status() == "waiting_for_event"
    async with down(env):
        pass
    await env.advance(timedelta(minutes=2))
    assert await handle.status() == "failed"
    await env.app.retry_workflow("i")
    await env.settle()
    await env.send_event("go", "test", 7)
    assert await handle.result() == "7"
    assert world.runs == {"a": 1, "b": 2}
    assert replay(enclosed, await env.app.get_history("i")) == "completed"


# --- what an instance shows -----------------------------------------------------------------------------------------
@workflow
async def showing(ctx: WorkflowContext, is_shown: bool) -> str:
    if is_shown:
        ctx.set_view("begun")
        ctx.set_attributes({"stage": "begun"})
    try:
        await do(ctx, "a")
    except Exception:
        ctx.set_view("broken")
        ctx.set_attributes({"stage": "broken", "bad": True})
        raise
    await wait_event(ctx, "go")
    return "done"


@pytest.mark.parametrize("is_shown", [True, False])
async def test_a_retried_instance_shows_what_it_showed_before(env: Environment, is_shown: bool) -> None:
    env.app.register(showing)
    world.broken = {"a"}
    await env.start(showing, is_shown, instance_id="i")
    await env.settle()
    found = await env.app.get_instance("i")
    assert (found.view, found.attributes) == ("broken", {"stage": "broken", "bad": True})
    world.broken = set()
    await env.app.retry_workflow("i")
    await env.settle()
    found = await env.app.get_instance("i")
    assert found.status == "waiting_for_event"
    assert (found.view, found.attributes) == (("begun", {"stage": "begun"}) if is_shown else (None, {}))


# --- steps that are named -------------------------------------------------------------------------------------------
@workflow
async def two(ctx: WorkflowContext) -> str:
    return await do(ctx, "a") + await do(ctx, "b")


@pytest.mark.parametrize("steps", [5, {"do:2": 1}, [5], [None], b"failed", [""], "do:2"])
async def test_steps_that_are_no_ids_are_refused(env: Environment, steps: Any) -> None:
    env.app.register(two)
    await failed(env, two, "b")
    with pytest.raises(InvalidInput, match="step"):
        await retried(env, steps=steps)


@pytest.mark.parametrize("times", [1, 2])
async def test_steps_can_come_from_a_generator(env: Environment, times: int) -> None:
    env.app.register(two)
    await failed(env, two, "b")
    assert await retried(env, steps=("do:2" for _ in range(times))) == "AB"
    assert world.runs == {"a": 1, "b": 2}
