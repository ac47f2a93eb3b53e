"""Many waiting workflows cost nothing: memory is bounded by the resident limit, and one event wakes one."""

import asyncio
from typing import Any

import pytest

from romancy import App, Database, WorkerOptions, WorkflowContext, wait_event, workflow
from tests.engine.helpers import until

pytestmark = pytest.mark.play

COUNT, ROOM, AT_ONCE = 5_000, 200, 500


@workflow
async def waiter(ctx: WorkflowContext, n: int) -> str:
    event = await wait_event(ctx, "order.paid", where={"order": n})
    return f"{n}: {event.data['amount']}"


async def statements(app: App, act: Any) -> int:
    """How many statements the database ran while something happened."""
    storage: Any = app._runtime.engine.storage
    seen: list[str] = []
    for thread in (storage._writer, storage._reader):
        await thread.call(lambda c: c.set_trace_callback(seen.append))
    try:
        await act()
    finally:
        for thread in (storage._writer, storage._reader):
            await thread.call(lambda c: c.set_trace_callback(None))
    return len([s for s in seen if not s.startswith("PRAGMA")])


@pytest.mark.sqlite
async def test_thousands_wait_and_one_is_woken(db: str) -> None:
    async with App(
        Database(db, durability="normal"), workflows=[waiter], worker=WorkerOptions(max_resident=ROOM)
    ) as app:
        residents = app._runtime.engine.scheduler.residents
        most = 0
        for first in range(0, COUNT, AT_ONCE):
            starts = (app.start_workflow(waiter, n, instance_id=f"w{n}") for n in range(first, first + AT_ONCE))
            await asyncio.gather(*starts)
            most = max(most, len(residents))
        await until_waiting(app)
        assert len(residents) <= ROOM
        assert most <= ROOM + 2 * AT_ONCE, "what was just started may be under way"

        async def wake(n: int) -> None:
            receipt = await app.send_event("order.paid", "bank", {"order": n, "amount": 5})
            assert receipt.delivered == 1
            assert await app.handle(f"w{n}", waiter).result(timeout=10) == f"{n}: 5"

        evicted = next(n for n in range(COUNT) if f"w{n}" not in residents)
        resident = next(n for n in reversed(range(COUNT)) if f"w{n}" in residents)
        assert await statements(app, lambda: wake(evicted)) < 120
        assert await statements(app, lambda: wake(resident)) < 120
        assert len(residents) <= ROOM

        page = await app.list_waits(type="order.paid", limit=10)
        assert (len(page.items), page.cursor is not None) == (10, True)
        assert len((await app.list_instances(status="completed")).items) == 2


async def until_waiting(app: App) -> None:
    """Until everything that was started has come to its wait."""
    async with asyncio.timeout(60):
        while (await app.list_instances(status="running", limit=1)).items:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await until(lambda: app._runtime.engine.committer.is_idle)


async def work_of(app: App, act: Any) -> int:
    """How much the database did meanwhile, in thousands of its virtual machine's instructions."""
    storage: Any = app._runtime.engine.storage
    ticks = 0

    def tick() -> int:
        nonlocal ticks
        ticks += 1
        return 0

    await storage._writer.call(lambda c: c.set_progress_handler(tick, 1000))
    await act()
    await storage._writer.call(lambda c: c.set_progress_handler(None, 0))
    return ticks


@pytest.mark.sqlite
async def test_one_instance_that_takes_thousands_of_events_does_so_in_linear_time(db: str) -> None:
    @workflow
    async def reader(ctx: WorkflowContext, count: int) -> int:
        await wait_event(ctx, "begin")
        return sum([(await wait_event(ctx, "news", where={"kind": "n"})).data["n"] for _ in range(count)])

    async with App(Database(db, durability="normal"), workflows=[reader]) as app:
        costs: list[int] = []
        for count in (500, 2_000):
            handle = await app.start_workflow(reader, count, instance_id=f"reads {count}")
            sends = (app.send_event("news", "test", {"kind": "n", "n": n}) for n in range(count))
            await asyncio.gather(*sends)

            async def read(handle: Any = handle, count: int = count) -> None:
                await app.send_event("begin", "test", to=handle.instance_id)
                assert await handle.result(timeout=30) == sum(range(count))

            costs.append(await work_of(app, read))
        assert costs[1] < costs[0] * 6, "four times the events, about four times the work"
