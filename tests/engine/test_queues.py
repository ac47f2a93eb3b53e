"""Queues: limits hold, keys take turns, and a slot belongs to its instance."""

from romancy import (
    App,
    Queue,
    WorkflowContext,
    wait_event,
    workflow,
)
from romancy.testing import Environment

two = Queue("two", max_concurrent=2)


@workflow(queue=two)
async def job(ctx: WorkflowContext, n: int) -> int:
    await wait_event(ctx, f"go.{n}")
    return n


async def statuses(app: App, *ids: str) -> list[str]:
    return [(await app.get_instance(id)).status for id in ids]


async def test_no_more_instances_run_than_the_limit_allows(env: Environment) -> None:
    env.app.register(job)
    handles = [await env.app.start_workflow(job.options(instance_id=f"j{n}"), n) for n in range(5)]
    await env.settle()
    ids = [h.instance_id for h in handles]
    assert await statuses(env.app, *ids) == ["waiting_for_event"] * 2 + ["queued"] * 3
    await env.app.send_event("go.1", "test")
    assert await handles[1].result() == 1
    await env.settle()
    assert await statuses(env.app, *ids) == [
        "waiting_for_event",
        "completed",
        "waiting_for_event",
        "queued",
        "queued",
    ]
