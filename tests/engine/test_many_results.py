"""Very many results awaited at once: looked for together, and never all of them again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from romancy import App, InstanceNotFound, WorkerOptions, WorkflowContext, wait_event, workflow
from romancy.engine.endings import LOOKUPS
from romancy.storage.instances import InstanceRow

MANY = 1500


@workflow
async def patient(ctx: WorkflowContext, n: int) -> int:
    return n + (await wait_event(ctx, "go")).data


async def test_they_are_looked_for_together(db: str) -> None:
    async with App(db, workflows=[patient], worker=WorkerOptions(max_resident=50)) as app:
        handles = await asyncio.gather(*(app.start_workflow(patient, n) for n in range(MANY)))
        while not app._runtime.engine.is_idle:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        asked: list[int] = []
        finished = app._runtime.engine.storage.finished

        async def counted(instances: Collection[str]) -> list[InstanceRow]:
            asked.append(len(instances))
            return await finished(instances)

        storage: Any = app._runtime.engine.storage
        storage.finished = counted
        results = asyncio.gather(*(handle.result() for handle in handles))
        for _ in range(3):
            await asyncio.sleep(0)
        while not app._runtime.engine.is_idle or len(asked) < MANY // LOOKUPS:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert len(asked) < 20, "each looked for itself"
        assert max(asked) <= LOOKUPS
        await app.send_event("go", "test", 1)
        async with asyncio.timeout(60):
            assert await results == [n + 1 for n in range(MANY)]


async def test_one_that_ended_elsewhere_is_heard_of_among_very_many(db: str) -> None:
    """More than are looked for in one round: the next round goes on with the others."""
    async with App(db, workflows=[patient]) as app, App(db, worker=False) as client:
        starts = (app.start_workflow(patient, n, instance_id=f"p{n}") for n in range(2 * LOOKUPS + 1))
        handles = await asyncio.gather(*starts)
        waiting = [asyncio.ensure_future(client.handle(handle.instance_id).result()) for handle in handles]
        while len(client._runtime.engine.endings) < len(handles):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        async with asyncio.timeout(20):
            for n in (0, LOOKUPS, 2 * LOOKUPS):
                await app.send_event("go", "test", 1, to=f"p{n}")
                assert await waiting[n] == n + 1
        for each in waiting:
            each.cancel()


async def test_those_that_are_not_there_are_told_apart(db: str) -> None:
    async with App(db, workflows=[patient], worker=WorkerOptions(max_resident=1)) as app:
        there = [await app.start_workflow(patient, n, instance_id=f"i{n}") for n in range(3)]
        missing = [app.handle(f"none{n}") for n in range(3)]
        awaited = asyncio.gather(*(h.result(20) for h in (*there, *missing)), return_exceptions=True)
        await app.send_event("go", "test", 10)
        found = await awaited
        assert found[:3] == [10, 11, 12]
        assert [type(error) for error in found[3:]] == [InstanceNotFound] * 3
