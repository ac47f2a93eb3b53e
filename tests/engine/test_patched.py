"""`ctx.patched` on a database: old runs under new code, crashes, eviction, and questions that are deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from romancy import ActivityContext, WorkflowContext, activity, sleep, wait_event, workflow
from romancy.errors import WorkflowBlocked
from romancy.testing import Environment, environment
from tests.engine.helpers import down, intercept, kinds, until


@activity
async def charge(ctx: ActivityContext) -> str:
    return "charged"


@activity
async def check(ctx: ActivityContext) -> str:
    return "checked"


async def old(ctx: WorkflowContext) -> list[str]:
    done = [await charge(ctx)]
    await wait_event(ctx, "go")
    return done


async def new(ctx: WorkflowContext) -> list[str]:
    done = [await charge(ctx)]
    if ctx.patched("fraud-check"):
        done.append(await check(ctx))
    await wait_event(ctx, "go")
    return done


async def newest(ctx: WorkflowContext) -> list[str]:
    done = [await charge(ctx), await check(ctx)]
    await wait_event(ctx, "go")
    return done


def pay(code: Callable[[WorkflowContext], Awaitable[Any]]) -> Any:
    """The workflow with this code."""
    return workflow(name="pay")(code)  # type: ignore[arg-type]


async def test_old_runs_go_the_old_way_and_new_runs_the_new_way(db: str) -> None:
    async with environment(database=db) as env:
        await env.start(pay(old).options(instance_id="old"))
    async with environment(database=db, workflows=[pay(new)]) as env:
        await env.start(pay(new).options(instance_id="new"))
        await env.send_event("go", "test")  # the old one is loaded and replayed
        await env.restart()
        assert await env.app.handle("old").result(10) == ["charged"]
        assert await env.app.handle("new").result(10) == ["charged", "checked"]
        assert await kinds(env, "old") == ["started", "activity_completed", "event_received"]
        marked = await env.app.get_history("new")
        assert [entry.kind for entry in marked][:4] == [
            "started",
            "activity_completed",
            "patched",
            "activity_completed",
        ]
        assert (marked[2].operation, marked[2].input) == ("fraud-check", None)


async def test_the_question_is_deleted_once_no_old_run_is_left(db: str) -> None:
    async with environment(database=db) as env:
        await env.start(pay(new).options(instance_id="new"))
    async with environment(database=db, workflows=[pay(newest)]) as env:
        await env.send_event("go", "test")
        assert await env.app.handle("new").result(10) == ["charged", "checked"]


async def old_twice(ctx: WorkflowContext) -> None:
    await charge(ctx)
    await charge(ctx)
    await wait_event(ctx, "go")


async def test_a_question_deleted_too_early_blocks_the_old_run(db: str) -> None:
    async with environment(database=db) as env:
        await env.start(pay(old_twice).options(instance_id="old"))
    async with environment(database=db, workflows=[pay(newest)]) as env:
        await env.send_event("go", "test")
        with pytest.raises(WorkflowBlocked) as blocked:
            await env.app.handle("old").result(10)
        for part in ("recorded: activity_completed charge:2", "the code: waits for activity check:1", "ctx.patched("):
            assert part in str(blocked.value)


async def asks(ctx: WorkflowContext) -> bool:
    way = ctx.patched("change")
    await charge(ctx)
    await wait_event(ctx, "go")
    return way


async def asks_nothing(ctx: WorkflowContext) -> None:
    await charge(ctx)
    await wait_event(ctx, "go")


async def test_asked_before_anything_is_recorded(db: str) -> None:
    """The mark is stored before the activity starts, though nothing else would have to be."""
    async with environment(database=db) as env:
        await env.start(pay(asks_nothing).options(instance_id="old"))
    async with environment(database=db, workflows=[pay(asks)]) as env:
        await env.start(pay(asks).options(instance_id="new"))
        await env.restart()
        await env.send_event("go", "test")
        assert await env.app.handle("old").result(10) is False
        assert await env.app.handle("new").result(10) is True
        assert await kinds(env, "new") == ["started", "patched", "activity_completed", "event_received"]


async def test_waits_without_a_history_were_opened_by_older_code(db: str) -> None:
    async def waits(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "go")

    async def asks_and_waits(ctx: WorkflowContext) -> bool:
        way = ctx.patched("change")
        await wait_event(ctx, "go")
        return way

    async with environment(database=db) as env:
        await env.start(pay(waits).options(instance_id="old"))
    async with environment(database=db, workflows=[pay(asks_and_waits)]) as env:
        await env.send_event("go", "test")
        assert await env.app.handle("old").result(10) is False


async def new_at_event(ctx: WorkflowContext) -> bool:
    await wait_event(ctx, "first")
    way = ctx.patched("change")
    await wait_event(ctx, "second")
    return way


async def old_at_event(ctx: WorkflowContext) -> bool:
    await wait_event(ctx, "first")
    await wait_event(ctx, "second")
    return False


@pytest.mark.parametrize("is_stored", [False, True])
async def test_an_answer_counts_once_its_commit_is_stored(env: Environment, is_stored: bool) -> None:
    """The worker dies with the answer; older code takes over for a while, and new code keeps to what is stored."""
    code = [new_at_event]

    @workflow
    async def job(ctx: WorkflowContext) -> bool:
        return await code[0](ctx)

    await env.start(job.options(instance_id="one"))
    undo = intercept(env, lambda batch, submit: submit() if is_stored or not batch.commits else None)
    await env.app.send_event("first", "test")
    residents = env.app._runtime.engine.scheduler.residents
    await until(lambda: residents["one"].instance.patches)
    if is_stored:
        await env.settle()
    code[0] = old_at_event
    async with down(env):
        undo()
    await env.advance(60)  # its code is suspected for a while
    code[0] = new_at_event
    await env.restart()
    await env.send_event("second", "test")
    assert await env.app.handle("one").result(10) is is_stored
    assert ("patched" in await kinds(env, "one")) is is_stored


async def test_in_a_branch_across_a_restart(env: Environment) -> None:
    @workflow
    async def forks(ctx: WorkflowContext) -> list[bool]:
        async def branch(seconds: float) -> bool:
            await sleep(ctx, seconds)
            return ctx.patched("change")

        return await asyncio.gather(branch(1), branch(2))

    handle = await env.start(forks)
    await env.advance(1)
    await env.restart()
    assert await handle.result() == [True, True]
    assert (await kinds(env, handle.instance_id)).count("patched") == 1
