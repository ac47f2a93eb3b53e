"""Retries and forks give waits their whole length again, except those that end at a time that the code named."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from romancy import WaitTimeout, WorkflowContext, WorkflowFailed, ask, events, sleep, sleep_until, wait_event, workflow
from romancy.testing import Environment

DAY = timedelta(days=1)
world: dict[str, Any] = {}


@workflow
async def asks(ctx: WorkflowContext) -> str:
    await wait_event(ctx, "begin")
    question = await ask(ctx, bool, title="Sure?", people=["ann"], expires_in=3 * DAY)
    return f"answered {(await question.answer()).data}"


@workflow
async def waits_for(ctx: WorkflowContext, what: str) -> str:
    await wait_event(ctx, "begin")
    if what == "sleep":
        await sleep(ctx, 3 * DAY)
    elif what == "sleep_until":
        await sleep_until(ctx, world["until"])
    elif what == "until":
        assert [hit async for hit in events(ctx, "hit", until=world["until"])] == []
    else:
        with pytest.raises(WaitTimeout):
            await wait_event(ctx, "hit", timeout=3 * DAY)
    return "over"


async def _due(env: Environment, instance: str) -> timedelta:
    [wait] = (await env.app.list_waits(instance_id=instance)).items
    assert wait.due_at is not None
    return wait.due_at - env.now


async def test_a_retry_does_not_wait_for_a_question_that_has_expired(env: Environment) -> None:
    """Nobody could answer it: it fails at once."""
    handle = await env.start(asks.options(instance_id="a"))
    await env.send_event("begin", "test")
    await env.advance(3 * DAY)
    with pytest.raises(WorkflowFailed, match="expired"):
        await handle.result()
    before = env.now
    again = await env.app.retry_workflow("a")
    await env.settle()
    assert await again.status() == "failed"
    assert "the question 'Sure?' expired" in str((await env.app.get_instance("a")).error)
    assert (await env.app.list_questions()).items == []
    assert env.now == before


@pytest.mark.parametrize("later", [1, 5])
async def test_a_question_of_a_fork_is_waited_for_as_long_as_it_can_be_answered(env: Environment, later: int) -> None:
    await env.start(asks.options(instance_id="a"))
    await env.send_event("begin", "test")
    await env.advance(later * DAY)
    fork = (await env.app.fork_workflow("a", at=1)).instance_id
    await env.settle()
    if later < 3:
        [question] = [q for q in (await env.app.list_questions()).items if q.instance_id == fork]
        assert question.expires_at == env.now + await _due(env, fork) == env.now + (3 - later) * DAY
        await env.app.answer_question(fork, "ann", True)
        await env.settle()
        assert (await env.app.get_instance(fork)).output == "answered True"
    else:
        assert "the question 'Sure?' expired" in str((await env.app.get_instance(fork)).error)
        assert (await env.app.list_questions()).items == []


@pytest.mark.parametrize(("what", "left"), [("sleep", 3), ("wait", 3), ("sleep_until", 2), ("until", 2)])
async def test_a_fork_waits_until_the_time_that_the_code_named(env: Environment, what: str, left: int) -> None:
    world["until"] = env.now + 3 * DAY
    await env.start(waits_for.options(instance_id="a"), what)
    await env.send_event("begin", "test")
    assert await _due(env, "a") == 3 * DAY
    await env.advance(DAY)
    fork = await env.app.fork_workflow("a", at=1)
    await env.settle()
    assert await _due(env, fork.instance_id) == left * DAY
    await env.restart()
    assert await _due(env, fork.instance_id) == left * DAY
    await env.advance(left * DAY)
    assert (await env.app.get_instance(fork.instance_id)).output == "over"
