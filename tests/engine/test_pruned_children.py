"""Children that ended, and were removed, before their parent heard of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from romancy import ActivityContext, App, WorkflowContext, activity, send_event, start_workflow, wait_event, workflow
from romancy.storage.batch import Batch
from romancy.testing import environment
from tests.engine.helpers import down, intercept, until

ran: list[str] = []
HOUR = timedelta(hours=1)


@activity
async def effect(ctx: ActivityContext) -> str:
    ran.append("x")
    return "x"


@workflow
async def quick(ctx: WorkflowContext) -> str:
    return await effect(ctx)


@workflow
async def parent(ctx: WorkflowContext) -> str:
    await wait_event(ctx, "open")
    kid = await start_workflow(ctx, quick)
    await send_event(ctx, "other", "test", 1)
    return await kid.result()


async def test_a_child_that_was_removed_is_not_started_again(db: str) -> None:
    """The workers of the parent are away for longer than retention, those of the child are not."""
    ran.clear()
    async with environment(database=db, workflows=[parent], retention=HOUR) as env:
        await env.app.start_workflow(parent, instance_id="p")
        await env.settle()
        cut: list[Batch] = []

        def drop_starts(batch: Batch, submit: Callable[[], None]) -> None:
            if cut or any(start.parent is not None for start in batch.starts):
                cut.append(batch)
            else:
                submit()

        restore = intercept(env, drop_starts)
        await env.app.send_event("open", "test")
        await until(lambda: cut)
        async with down(env):
            restore()
            other = App(env.app.database, workflows=[quick], retention=HOUR)
            other._runtime.clock = env.clock
            async with other, asyncio.timeout(30):
                while (await other.get_instance("p/quick:1")).status != "completed":
                    other._runtime.engine.kick()
                    await asyncio.sleep(0.05)
                env.clock._now += 2 * HOUR // timedelta(microseconds=1)
                while (await other.list_instances(workflow="quick")).items:
                    await other._runtime.engine.prune()
        assert await env.handle("p").result() == "x"
        env.app.register(quick)
        await env.settle()
        assert (await env.app.list_instances(workflow="quick")).items == []
        assert ran == ["x"]
