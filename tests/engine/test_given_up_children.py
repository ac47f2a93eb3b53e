"""Retries and forks of parents that no longer wait for a child: it is neither retried nor started again."""

import asyncio
from datetime import timedelta

import pytest

from romancy import ActivityContext, WorkflowContext, activity, sleep, wait_event, workflow
from romancy.testing import Environment, replay
from tests.engine.test_forked_families import BROKEN, fork, statuses, step

noted: list[str] = []


@pytest.fixture(autouse=True)
def _anew() -> None:
    noted.clear()
    BROKEN.clear()


@activity
async def note(ctx: ActivityContext, what: str) -> None:
    noted.append(what)


@workflow
async def untidy(ctx: WorkflowContext) -> None:
    await note(ctx, "begun")
    try:
        await wait_event(ctx, "never")
    finally:
        await note(ctx, "cleanup")
        await sleep(ctx, timedelta(minutes=10))


@workflow
async def impatient(ctx: WorkflowContext) -> str:
    try:
        async with asyncio.timeout(60):
            await untidy(ctx)
    except TimeoutError:
        await step(ctx, "a")
    await step(ctx, "b")
    await wait_event(ctx, "next")
    return "done"


@pytest.mark.parametrize("operation", ["step:1", "(timer)"])
async def test_a_fork_does_not_start_a_child_that_the_code_gave_up(env: Environment, operation: str) -> None:
    env.app.register(impatient, untidy)
    await env.start(impatient, instance_id="i")
    await env.advance(timedelta(seconds=61))
    history = await env.app.get_history("i")
    at = next(e.n for e in history if e.operation == operation or (operation == "(timer)" and e.kind == "timer_fired"))
    await fork(env, "i", at, "f")
    await env.advance(timedelta(hours=1))
    assert noted == ["begun", "cleanup"], "only those of the original"
    await env.restart()
    await env.send_event("next", "test", 1, to="f")
    assert await env.app.handle("f").result() == "done"
    assert "f/untidy:1" not in await statuses(env)
    assert replay(impatient, await env.app.get_history("f")) == "completed"


async def test_a_child_that_the_code_gave_up_is_not_retried(env: Environment) -> None:
    env.app.register(impatient, untidy)
    BROKEN.add("b")
    await env.start(impatient, instance_id="i")
    await env.advance(timedelta(seconds=61))
    await env.advance(timedelta(hours=1))
    assert await statuses(env) == {"i": "failed", "i/untidy:1": "cancelled"}
    BROKEN.clear()
    await env.app.retry_workflow("i")
    await env.settle()
    await env.restart()
    assert await statuses(env) == {"i": "waiting_for_event", "i/untidy:1": "cancelled"}
    assert noted == ["begun", "cleanup"], "nobody waits for it"
    await env.send_event("next", "test", 1)
    assert await env.app.handle("i").result() == "done"
    assert replay(impatient, await env.app.get_history("i")) == "completed"
