"""Who did it: the verbs record the name they are called in, and nothing else does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from romancy import (
    Act,
    ActivityContext,
    App,
    HooksBase,
    Queue,
    RetryPolicy,
    WorkflowContext,
    WorkflowStartedInfo,
    activity,
    wait_event,
    workflow,
)
from romancy.core.actor import acting_as, begin, current_actor
from romancy.service import runtime_of
from romancy.testing import Environment, environment

line = Queue("line", max_concurrent=1)
apps: list[App] = []


@workflow
async def waiter(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "go")


@workflow(queue=line)
async def queued(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "go")


@workflow
async def fails(ctx: WorkflowContext) -> None:
    raise RuntimeError("no way")


@activity
async def start_another(ctx: ActivityContext) -> str:
    handle = await apps[-1].start_workflow(waiter.options(instance_id="other"))
    return handle.instance_id


@workflow
async def starts_another(ctx: WorkflowContext) -> str:
    return await start_another(ctx)


async def acts(env: Environment, id: str) -> list[tuple[str, str]]:
    return [(act.verb, act.who) for act in (await env.app.get_instance(id)).acts]


async def test_every_verb(env: Environment) -> None:
    app = env.app
    app.register(waiter, fails, queued)
    with acting_as("alice"):
        for id in ("a", "b", "c", "d"):
            await app.start_workflow(waiter.options(instance_id=id))
        await app.start_workflow(queued.options(instance_id="q"))
    with acting_as("bob"):
        await app.start_workflow(waiter.options(instance_id="a"))  # it is there
        assert await app.cancel_workflow("a", reason="why not")
        assert (await app.cancel_workflows(workflow="waiter")).changed >= 3
        await app.retry_workflow("a")
        assert (await app.retry_workflows(workflow="waiter", status="cancelled")).changed == 3
        await app.fork_workflow("a", new_id="copy")
    assert await acts(env, "a") == [("start", "alice"), ("cancel", "bob"), ("retry", "bob")]
    assert await acts(env, "d") == [("start", "alice"), ("cancel", "bob"), ("retry", "bob")]
    assert await acts(env, "q") == [("start", "alice")]
    assert await acts(env, "copy") == [("fork", "bob")]
    [first] = (await app.get_instance("q")).acts
    assert first == Act("start", "alice", (await app.get_instance("q")).started_at)
    assert all(item.acts == () for item in (await app.list_instances()).items), "not in lists"
    assert await app.cancel_workflow("copy")
    assert await acts(env, "copy") == [("fork", "bob")], "nobody did it by name"


async def test_a_schedule_that_is_triggered(env: Environment) -> None:
    env.app.register(waiter)
    await env.app.set_schedule("nightly", "@daily", waiter)
    with acting_as("alice"):
        handle = await env.app.trigger_schedule("nightly")
    assert await acts(env, handle.instance_id) == [("start", "alice")]


@activity(retry=RetryPolicy(initial=600))
async def flaky(ctx: ActivityContext) -> None:
    if ctx.attempt == 1:
        raise ConnectionError("away")


@workflow
async def tries(ctx: WorkflowContext) -> None:
    await flaky(ctx)


async def test_an_attempt_that_is_hastened(env: Environment) -> None:
    handle = await env.start(tries.options(instance_id="t"))
    with acting_as("alice"):
        assert await env.app.retry_now("t")
        await handle.result()
    assert await acts(env, "t") == [("retry now", "alice")]


async def test_what_an_instance_does_is_not_done_by_name() -> None:
    seen: list[str | None] = []

    class Hooks(HooksBase):
        async def on_workflow_started(self, info: WorkflowStartedInfo) -> None:
            seen.append(current_actor())

    async with environment(hooks=[Hooks()]) as env:
        env.app.register(waiter, starts_another)
        apps.append(env.app)
        with acting_as("alice"):
            handle = await env.app.start_workflow(starts_another.options(instance_id="first"))
            assert await handle.result() == "other"
        assert await acts(env, "first") == [("start", "alice")]
        assert await acts(env, "other") == []
    assert set(seen) == {None}


async def test_whose_task_it_is() -> None:
    async def name() -> str | None:
        return current_actor()

    with acting_as("alice"):
        assert await asyncio.create_task(name()) is None
        assert await asyncio.to_thread(current_actor) is None
        assert await begin(name()) == current_actor() == "alice"
        with acting_as("bob"):
            assert await begin(name()) == "bob"
        assert current_actor() == "alice"
    assert current_actor() is None
    assert await begin(name()) is None


@pytest.mark.sqlite
async def test_without_a_name_nothing_more_is_written(env: Environment) -> None:
    """Not a single statement about acts."""
    storage: Any = runtime_of(env.app).engine.storage
    said: list[str] = []
    await storage._write(lambda c: c.set_trace_callback(said.append))
    env.app.register(waiter)
    await env.app.start_workflow(waiter.options(instance_id="a"))
    await env.app.cancel_workflow("a")
    assert any("romancy_instances" in text for text in said)
    assert not any("romancy_acts" in text for text in said)
