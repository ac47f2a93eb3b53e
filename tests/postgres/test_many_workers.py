"""Several processes on one database: whoever dies, whatever is started or sent anywhere, everything ends once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from romancy import ActivityContext, App, WorkflowContext, activity, sleep, wait_event, workflow
from romancy.storage.postgres import PostgresStorage
from tests import pg_server


@activity
async def note(ctx: ActivityContext, what: str) -> str:
    return f"{what} in {os.getpid()}"


@workflow
async def order(ctx: WorkflowContext, n: int) -> int:
    await note(ctx, "begun")
    event = await wait_event(ctx, "paid", where={"order": n})
    await sleep(ctx, 0.1)
    await note(ctx, "paid")
    await wait_event(ctx, "shipped", subject=str(n))
    return event.data["amount"]


@workflow
async def other(ctx: WorkflowContext) -> str:
    return (await wait_event(ctx, "paid", since="now")).id


def app(schema: str, *workflows: Any, **options: Any) -> App:
    made = App(pg_server.url(), workflows=workflows, lease=30, **options)
    made._runtime.storage = PostgresStorage(pg_server.url(), schema=schema)
    return made


async def running(stack: AsyncExitStack, schema: str, *workflows: Any, **options: Any) -> App:
    made = app(schema, *workflows, **options)
    assert made._runtime.storage is not None
    await made._runtime.storage.open()
    stack.push_async_callback(made._runtime.storage.close)
    return await stack.enter_async_context(made)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def pay_and_ship(sender: App, orders: range) -> None:
    for n in orders:
        await sender.send_event("paid", "test", {"order": n, "amount": 10 * n}, id=f"p{n}")
        await sender.send_event("shipped", "test", subject=str(n), id=f"s{n}")


async def test_any_process_may_start_send_and_wait(stack: AsyncExitStack) -> None:
    schema = await stack.enter_async_context(pg_server.schema())
    workers = [await running(stack, schema, order) for _ in range(2)]
    client = await running(stack, schema, worker=False)
    handles = [await client.start_workflow("order", n) for n in range(30)]
    await pay_and_ship(workers[1], range(30))
    assert await asyncio.gather(*(h.result(20) for h in handles)) == [10 * n for n in range(30)]


async def test_services_leave_each_others_instances_alone(stack: AsyncExitStack) -> None:
    schema = await stack.enter_async_context(pg_server.schema())
    one, two = await running(stack, schema, order), await running(stack, schema, other)
    first = await two.start_workflow("order", 1)
    second = await one.start_workflow("other")
    async with asyncio.timeout(10):
        while (await one.get_instance(second.instance_id)).status != "waiting_for_event":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await pay_and_ship(one, range(1, 2))
    assert await first.result(10) == 10
    assert await second.result(10) == "p1"


async def test_a_killed_process_is_succeeded_at_once_and_nothing_is_lost(stack: AsyncExitStack) -> None:
    """The lease is 30 seconds: it is the session that tells."""
    schema = await stack.enter_async_context(pg_server.schema())
    survivor = await running(stack, schema, order)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.postgres.test_many_workers",
        schema,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "ROMANCY_TEST_POSTGRES": pg_server.url()},
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 20) == b"started\n"
    await pay_and_ship(survivor, range(50))
    process.send_signal(signal.SIGKILL)
    await process.wait()
    await pay_and_ship(survivor, range(50, 100))
    results = await asyncio.gather(*(survivor.handle(f"o{n}", order).result(20) for n in range(100)))
    assert results == [10 * n for n in range(100)]


async def doomed(schema: str) -> None:
    """The process that is killed."""
    async with AsyncExitStack() as stack:
        victim = await running(stack, schema, order)
        for n in range(100):
            await victim.start_workflow(order, n, instance_id=f"o{n}")
        print("started", flush=True)
        await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(doomed(sys.argv[1]))
