"""Queues: of one key and priority, instances are admitted in the order of their starts, also within one microsecond."""

import asyncio
from datetime import timedelta

import pytest

from romancy import Queue, ReceivedEvent, WorkflowContext, sleep, start_workflow, workflow
from romancy.core.queues import Arrivals
from romancy.testing import Environment, environment
from tests.engine.test_within import caller

MANY = 12
"""Enough to notice an order by id: 10 comes before 2."""
begun: list[int] = []
single = Queue("in order", max_concurrent=1)


@workflow(queue=single)
async def job(ctx: WorkflowContext, n: int) -> None:
    begun.append(n)
    await sleep(ctx, 1)


@workflow(queue=single, on_event="ordered")
async def of_event(ctx: WorkflowContext, event: ReceivedEvent[int]) -> None:
    begun.append(event.data)
    await sleep(ctx, 1)


@workflow
async def parent(ctx: WorkflowContext) -> None:
    await asyncio.gather(*(job(ctx, n) for n in range(MANY)))


@workflow
async def starter(ctx: WorkflowContext) -> None:
    for n in range(MANY):
        await start_workflow(ctx, job, n)


@pytest.fixture(autouse=True)
def nothing_begun() -> None:
    begun.clear()


async def run_all(env: Environment) -> None:
    for _ in range(MANY + 1):
        await env.advance(timedelta(seconds=1))
    assert begun == list(range(MANY))


async def test_starts_at_one_moment(env: Environment) -> None:
    env.app.register(job)
    for n in range(MANY):
        await env.app.start_workflow(job, n)
    await run_all(env)


async def test_starts_whose_ids_sort_the_other_way_round(env: Environment) -> None:
    env.app.register(job)
    for n in range(MANY):
        await env.app.start_workflow(job.options(instance_id=f"j{99 - n}"), n)
    found = {i.instance_id: i.started_at for i in (await env.app.list_instances()).items}
    assert timedelta(0) <= found["j88"] - env.now < timedelta(milliseconds=1)
    await run_all(env)


@pytest.mark.parametrize("wf", [parent, starter])
async def test_children(env: Environment, wf: object) -> None:
    env.app.register(job, wf)
    await env.app.start_workflow(wf)
    await run_all(env)


async def test_events_that_start_instances(env: Environment) -> None:
    env.app.register(of_event)
    for n in range(MANY // 2):
        await env.app.send_event("ordered", "test", n)
    await asyncio.gather(*(env.app.send_event("ordered", "test", n) for n in range(MANY // 2, MANY)))
    await run_all(env)


async def test_starts_in_a_transaction(db: str) -> None:
    async with environment(database=db, workflows=[job]) as env, caller(env.app) as me:
        await me.run("BEGIN")
        for n in range(MANY):
            await env.app.within(me.connection).start_workflow(job, n)
        await me.run("COMMIT")
        await run_all(env)


def test_every_moment_is_later_than_the_one_before() -> None:
    arrivals = Arrivals()
    assert [arrivals.next(1000), arrivals.next(1000), arrivals.next(1001), arrivals.next(5000)] == [
        1000,
        1001,
        1002,
        5000,
    ]


def test_a_clock_that_was_set_back_is_followed() -> None:
    arrivals = Arrivals()
    arrivals.next(10_000_000)
    assert arrivals.next(2_000_000) == 2_000_000
