"""Workers with a queue are killed at any moment: no limit is exceeded, no slot is lost, everything runs in the end."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from romancy import Schedule
from tests.crash.queue_ground import Ground, ground
from tests.crash.queue_worker import POINTS, letter

COUNT = int(os.environ.get("ROMANCY_QUEUED", "200"))
"""How many instances are queued; `make kills-queue` queues 10,000."""
SECONDS = 0.02 if COUNT > 1000 else 0.1
"""How long each of their two activities takes."""
both = pytest.mark.parametrize("backend", ["sqlite", "postgres"])


@asynccontextmanager
async def killing(stage: Ground) -> AsyncIterator[None]:
    """Three workers, of which one is killed and replaced now and then."""
    choose = random.Random(7)

    async def kill_now_and_then() -> None:
        crew = [stage.spawn() for _ in range(3)]
        while True:
            victim = choose.randrange(len(crew))
            while crew[victim].pid not in stage.workers.pids("ready"):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
            await asyncio.sleep(choose.uniform(0.5, 2.0))
            stage.workers.kill(crew[victim])
            stage.seen["kills"] += 1
            crew[victim] = stage.spawn()

    task = asyncio.create_task(kill_now_and_then())
    try:
        yield
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def no_slot_is_lost(stage: Ground) -> None:
    [queue] = await stage.client.list_queues()
    assert (queue.running, queue.waiting) == (0, 0)


@both
@pytest.mark.play
@pytest.mark.timeout(600 + COUNT)
async def test_limits_hold_whoever_dies(backend: str, tmp_path: Path) -> None:
    async with ground(backend, tmp_path) as stage:
        for n in range(COUNT):
            await stage.client.start_workflow(letter.options(instance_id=f"l{n}"), f"c{n % 5}", SECONDS)
        async with killing(stage):
            await stage.until_completed(COUNT)
        await no_slot_is_lost(stage)
        assert stage.seen["kills"] >= 1
        stage.check_limits()


# --- every point of the protocol ------------------------------------------------------------------------------------
@both
@pytest.mark.play
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", POINTS)
async def test_three_that_admit_die_at_the_same_point(backend: str, point: str, tmp_path: Path) -> None:
    """Each at another of their admissions, and then one comes that lives."""
    async with ground(backend, tmp_path) as stage:
        for n in range(60):
            await stage.client.start_workflow(letter.options(instance_id=f"l{n}"), f"c{n % 5}", 0.05)
        doomed = [stage.spawn(f"{point} {n}") for n in (1, 2, 3)]
        for process in doomed:
            assert await asyncio.to_thread(process.wait, 60) == -signal.SIGKILL
        assert await stage.client.count_instances(status="completed") < 60
        stage.spawn()
        await stage.until_completed(60)
        await no_slot_is_lost(stage)
        assert stage.seen["most"] <= 7
        assert stage.seen["most of a key"] <= 2


# --- starts from everywhere -----------------------------------------------------------------------------------------
async def start_within(stage: Ground, n: int) -> None:
    """Leave a start in a transaction of a caller."""
    if stage.schema is None:
        connection: Any = sqlite3.connect(stage.url, isolation_level=None, timeout=10)
        connection.execute("BEGIN IMMEDIATE")
        await stage.client.within(connection).start_workflow(letter, f"w{n % 3}", 0.02, instance_id=f"w{n}")
        connection.execute("COMMIT")
        connection.close()
        return
    connection = await asyncpg.connect(stage.url)
    async with connection.transaction():
        await stage.client.within(connection).start_workflow(letter, f"w{n % 3}", 0.02, instance_id=f"w{n}")
    await connection.close()


@both
@pytest.mark.play
@pytest.mark.timeout(300)
async def test_starts_of_callers_and_schedules_hold_the_limits(backend: str, tmp_path: Path) -> None:
    """Those who take them in, who fire and who admit are killed."""
    async with ground(backend, tmp_path) as stage:
        every = Schedule(every=timedelta(milliseconds=250), overlap="allow", catch_up="all")
        await stage.client.set_schedule("often", every, letter.options(key="s"), "s", 0.02)
        count = 0
        async with killing(stage):
            while stage.seen["kills"] < 6 or (await stage.client.list_schedules())[0].started < 20:
                await start_within(stage, count)
                count += 1
                await asyncio.sleep(0.05)
            await stage.client.pause_schedule("often")
            [record] = await stage.client.list_schedules()
            await stage.until_completed(count + record.started)
        assert await stage.client.count_instances() == count + record.started
        assert count >= 20
        await no_slot_is_lost(stage)
        assert stage.seen["most"] <= 7
        assert stage.seen["most of a key"] <= 2
