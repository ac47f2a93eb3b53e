"""Instances whose activities wait for their next attempt make room for others, and come back in time."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from romancy import ActivityContext, App, RetryPolicy, WorkerOptions, WorkflowContext, activity, wait_event, workflow
from romancy.testing import environment
from tests.engine.helpers import until

DOWN = {"is": True}
runs: dict[str, int] = {}


@activity(retry=RetryPolicy(max_attempts=10, initial=timedelta(minutes=10), maximum=timedelta(hours=1), jitter=0))
async def call(ctx: ActivityContext) -> str:
    runs[ctx.instance_id] = runs.get(ctx.instance_id, 0) + 1
    if DOWN["is"]:
        raise ConnectionError("not now")
    return "answered"


@workflow
async def calls(ctx: WorkflowContext) -> str:
    return await call(ctx)


@workflow
async def both(ctx: WorkflowContext) -> list[Any]:
    answer, event = await asyncio.gather(call(ctx), wait_event(ctx, "go"))
    return [answer, event.data]


@workflow
async def quick(ctx: WorkflowContext) -> str:
    return "done"


@pytest.fixture(autouse=True)
def down() -> None:
    DOWN["is"] = True
    runs.clear()


async def test_thirty_in_back_off_do_not_stop_a_worker_with_room_for_twenty(db: str) -> None:
    async with App(db, workflows=[calls, quick], worker=WorkerOptions(max_resident=20)) as app:
        for n in range(30):
            await app.start_workflow(calls, instance_id=f"c{n}")
        await until(lambda: len(runs) == 30)
        handles = [await app.start_workflow(quick) for _ in range(30)]
        assert [await h.result(timeout=10) for h in handles] == ["done"] * 30
        assert len(app._runtime.engine.scheduler.residents) <= 20


@pytest.mark.parametrize("restart", [False, True])
async def test_each_is_tried_again_in_time_once(restart: bool) -> None:
    async with environment(workflows=[calls], worker=WorkerOptions(max_resident=5, grace=0.1)) as env:
        handles = [await env.start(calls.options(instance_id=f"c{n}")) for n in range(12)]
        assert len(env.app._runtime.engine.scheduler.residents) <= 5
        if restart:
            await env.restart()
            assert len(env.app._runtime.engine.scheduler.residents) <= 5
        await env.advance(timedelta(minutes=9))
        assert set(runs.values()) == {1}, "not early"
        DOWN["is"] = False
        await env.advance(timedelta(minutes=1))
        assert set(runs.values()) == {2}
        assert [await h.status() for h in handles] == ["completed"] * 12


async def test_events_reach_one_that_left(db: str) -> None:
    async with environment(workflows=[both, quick], worker=WorkerOptions(max_resident=1, grace=0.1)) as env:
        handle = await env.start(both.options(instance_id="one"))
        for _ in range(3):
            await env.start(quick)
        await env.start(both.options(instance_id="two"))
        assert "one" not in env.app._runtime.engine.scheduler.residents
        await env.send_event("go", "test", 7, to="one")
        assert set(runs.values()) == {1}, "bringing it to memory does not try it early"
        DOWN["is"] = False
        await env.advance(timedelta(minutes=10))
        assert await handle.status() == "completed"


async def test_those_that_left_are_not_taken_for_lost(db: str) -> None:
    async with environment(workflows=[calls], worker=WorkerOptions(max_resident=2, grace=0.1)) as env:
        for n in range(6):
            await env.start(calls.options(instance_id=f"c{n}"))
        engine = env.app._runtime.engine
        assert await engine.storage.unloaded(engine.worker_id or "") == []
        due = await engine.storage.due(engine.worker_id or "", engine.clock.now() + 3600 * 1_000_000, 100)
        assert sorted(each.instance for each in due) == [f"c{n}" for n in range(6)], "their time is found instead"
