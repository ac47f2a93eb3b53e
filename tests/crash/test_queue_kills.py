"""Workers with a queue are killed at any moment: no limit is exceeded, no slot is lost, everything runs in the end."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from romancy import App, Database
from tests import pg_schemas, pg_server
from tests.crash.processes import Cluster, cluster
from tests.crash.queue_worker import LIMIT, PER_KEY, letter

COUNT = int(os.environ.get("ROMANCY_QUEUED", "200"))
"""How many instances are queued; `ROMANCY_QUEUED=10000` for a long run."""
HOLDING = """SELECT queue_key, count(*) FROM {instances} WHERE queue = 'mail' AND status <> 8 AND status < 10
  GROUP BY queue_key"""

Look = Callable[[str], Awaitable[list[Any]]]


@asynccontextmanager
async def observer(workers: Cluster, schema: str | None) -> AsyncIterator[Look]:
    """Reads the tables on a connection of its own."""
    if schema is None:

        async def look(query: str) -> list[Any]:
            return workers.read(query.format(instances="romancy_instances"))

        yield look
        return
    connection = await asyncpg.connect(pg_server.url())
    try:

        async def look(query: str) -> list[Any]:
            return [tuple(row) for row in await connection.fetch(query.format(instances=f'"{schema}".instances'))]

        yield look
    finally:
        await connection.close()


async def watch(look: Look, seen: Counter[str]) -> None:
    """Count what holds a slot, all the time."""
    while True:
        held = dict(await look(HOLDING))
        seen["looks"] += 1
        seen["most"] = max(seen["most"], sum(held.values()))
        seen["most of a key"] = max(seen["most of a key"], *held.values(), 0)
        await asyncio.sleep(0.005)


async def kill_now_and_then(workers: Cluster, more: tuple[str, ...], database: str, seen: Counter[str]) -> None:
    choose = random.Random(7)
    crew = [workers.spawn(2.0, *more, database=database) for _ in range(3)]
    while True:
        await asyncio.sleep(choose.uniform(1.5, 3.0))
        victim = choose.randrange(len(crew))
        workers.kill(crew[victim])
        seen["kills"] += 1
        crew[victim] = workers.spawn(2.0, *more, database=database)


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
@pytest.mark.timeout(600)
async def test_limits_hold_whoever_dies(backend: str, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    async with pg_schemas.schemas() as another:
        schema = another() if backend == "postgres" else None
        more = () if schema is None else (schema,)
        with cluster(tmp_path, "tests.crash.queue_worker") as workers:
            database = workers.database if schema is None else pg_server.url()
            async with App(Database(database, schema=schema), worker=False) as client:
                for n in range(COUNT):
                    await client.start_workflow(letter.options(instance_id=f"l{n}"), f"c{n % 5}", 0.02)
                async with observer(workers, schema) as look, asyncio.TaskGroup() as tasks:
                    chores = [
                        tasks.create_task(watch(look, seen)),
                        tasks.create_task(kill_now_and_then(workers, more, database, seen)),
                    ]
                    while await client.count_instances(status="completed") < COUNT:
                        assert not await client.count_instances(status=["failed", "blocked"])
                        await asyncio.sleep(0.1)
                    for chore in chores:
                        chore.cancel()
                assert (await client.list_queues())[0].running == 0
    print(dict(seen))  # for long runs, with -s
    assert seen["kills"] >= 1
    assert seen["most"] == LIMIT, "exceeded, or the queue was never busy"
    assert seen["most of a key"] == PER_KEY
