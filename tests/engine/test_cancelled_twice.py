"""Cancelling again ends what swallowed its first cancellation and only waits; a clean-up under way goes on."""

import asyncio
from contextlib import suppress

import pytest

from romancy import ActivityContext, WorkflowContext, activity, sleep, wait_event, workflow
from romancy.testing import Environment
from tests.engine.helpers import kinds


@activity
async def refund(ctx: ActivityContext) -> None: ...


@workflow(timeout=86_400)
async def stubborn(ctx: WorkflowContext, times: int) -> str:
    for _ in range(times):
        with suppress(asyncio.CancelledError):
            await wait_event(ctx, "go")
    return "gave in"


@pytest.mark.parametrize("restart", [False, True])
async def test_what_swallows_its_cancellation_is_ended_by_the_second(env: Environment, restart: bool) -> None:
    await env.start(stubborn.options(instance_id="one"), 1_000)
    await env.app.cancel_workflow("one", reason="first")
    await env.settle()
    assert (await env.app.get_instance("one")).status == "waiting_for_event", "the first one is its code's to see to"
    if restart:
        await env.restart()
    await env.app.cancel_workflow("one", reason="second")
    await env.settle()
    instance = await env.app.get_instance("one")
    assert (instance.status, instance.error["message"]) == ("cancelled", "second")
    assert await kinds(env, "one") == ["started", "cancel_requested", "cancel_requested"]
    assert not instance.waits


async def test_one_cancellation_counts_once_however_often_it_is_heard_of(env: Environment) -> None:
    """It is in the mail, it is read with an instance that is not in memory, and its sender says it."""
    await env.start(stubborn.options(instance_id="one"), 1_000)
    engine = env.app._runtime.engine
    engine.exits.drop(engine.scheduler.residents["one"])
    asked = asyncio.create_task(env.app.cancel_workflow("one"))
    while not asked.done():
        await engine.sweep.round()
    await env.settle()
    assert (await env.app.get_instance("one")).status == "waiting_for_event"
    assert await kinds(env, "one") == ["started", "cancel_requested"]


async def test_the_second_reaches_the_code_first(env: Environment) -> None:
    await env.start(stubborn.options(instance_id="one"), 2)
    for _ in range(2):
        await env.app.cancel_workflow("one")
        await env.settle()
    instance = await env.app.get_instance("one")
    assert (instance.status, instance.output) == ("cancelled", "gave in")


@workflow
async def tidy(ctx: WorkflowContext, how: str) -> None:
    try:
        await wait_event(ctx, "go")
    finally:
        if how == "sleeps":
            await sleep(ctx, 60)
        elif how == "waits a while":
            with suppress(TimeoutError):
                await wait_event(ctx, "approval", timeout=60)
        await refund(ctx)


@pytest.mark.parametrize("how", ["sleeps", "waits a while"])
async def test_a_clean_up_that_goes_on_by_itself_is_left_alone(env: Environment, how: str) -> None:
    await env.start(tidy.options(instance_id="one"), how)
    for _ in range(3):
        await env.app.cancel_workflow("one")
        await env.settle()
    await env.advance(60)
    assert (await env.app.get_instance("one")).status == "cancelled"
    assert "activity_completed" in await kinds(env, "one"), "it was refunded"
