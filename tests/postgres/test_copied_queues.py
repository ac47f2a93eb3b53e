"""A SQLite database with queues moves to PostgreSQL: places, slots, turns and rates are the same there."""

from __future__ import annotations

import asyncio
from pathlib import Path

from romancy import App, Queue, Rate, WorkflowContext, wait_event, workflow
from romancy import Database as Where
from romancy.storage.tools.copy import copy
from tests.postgres.conftest import Place

single = Queue("single", max_concurrent=1, rate_per_key=Rate(1, 3600))


@workflow(queue=single, key="customer")
async def order(ctx: WorkflowContext, customer: str) -> str:
    await wait_event(ctx, "go", where={"customer": customer})
    return customer


async def running(app: App) -> str:
    """The instance that holds the slot, once it waits for its event."""
    async with asyncio.timeout(10):
        while not (found := (await app.list_instances(queue="single", status="waiting_for_event")).items):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    [item] = found
    return item.instance_id


async def places(app: App) -> dict[str, tuple[str, str | None, int]]:
    items = (await app.list_instances(queue="single")).items
    return {item.instance_id: (item.status, item.key, item.priority) for item in items}


async def test_everything_about_queues_arrives_and_goes_on(tmp_path: Path, place: Place) -> None:
    file = str(tmp_path / "shop.db")
    async with App(file, workflows=[order]) as app:
        await app.start_workflow(order.options(instance_id="a1"), "a")
        assert await running(app) == "a1"
        for id, priority in (("a2", 0), ("b1", 0), ("b2", 5)):
            await app.start_workflow(order.options(instance_id=id, priority=priority), id[0])
        await app.set_schedule("nightly", "@yearly", order.options(key="n", priority=3), "n")
        before = await places(app)
    copied = await copy(file, place.url, schema=place.schema)
    assert (copied["queues"], copied["queue_keys"], copied["schedules"]) == (1, 1, 1)
    async with App(Where(place.url, schema=place.schema), workflows=[order]) as app:
        assert await places(app) == before
        assert await running(app) == "a1", "it holds its slot"
        await app.send_event("go", "test", {"customer": "a"})
        assert await app.handle("a1").result(timeout=10) == "a"
        assert await running(app) == "b2", "it is b's turn, and has the higher priority"
        await app.send_event("go", "test", {"customer": "b"})
        assert await app.handle("b2").result(timeout=10) == "b"
        handle = await app.trigger_schedule("nightly")
        assert await running(app) == handle.instance_id
        found = await places(app)
        assert found[handle.instance_id] == ("waiting_for_event", "n", 3)
        assert found["a2"][0] == found["b1"][0] == "queued", "their keys have used up their rates, one of them there"
