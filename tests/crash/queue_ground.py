"""A queue, workers that are killed, and an observer that counts what holds a slot on a connection of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import Any

import asyncpg

from romancy import App, Database
from tests import pg_schemas, pg_server
from tests.crash.processes import Cluster, cluster
from tests.crash.queue_worker import LIMIT, PER_KEY

HOLDING = """SELECT queue_key, count(*) FROM {instances} WHERE queue = 'mail' AND status <> 8 AND status < 10
  GROUP BY queue_key"""
LEASE = 2.0
Look = Callable[[str], Awaitable[list[Any]]]


@dataclass
class Ground:
    """`seen`: what the observer counted, and how many workers were killed."""

    client: App
    workers: Cluster
    url: str
    schema: str | None
    seen: Counter[str] = field(default_factory=Counter[str])

    def spawn(self, death: str = "") -> Popen[bytes]:
        """Start a worker, which may kill itself at a point."""
        return self.workers.spawn(LEASE, self.schema or "", death, database=self.url)

    async def until_completed(self, count: int) -> None:
        while await self.client.count_instances(status="completed") < count:
            assert not await self.client.count_instances(status=["failed", "blocked"])
            await asyncio.sleep(0.1)

    def check_limits(self) -> None:
        assert self.seen["most"] == LIMIT, "exceeded, or the queue was never busy"
        assert self.seen["most of a key"] == PER_KEY


@asynccontextmanager
async def ground(backend: str, folder: Path) -> AsyncIterator[Ground]:
    """A database of its own that is observed all the time, and a client."""
    async with pg_schemas.schemas() as another:
        schema = another() if backend == "postgres" else None
        with cluster(folder, "tests.crash.queue_worker") as workers:
            url = workers.database if schema is None else pg_server.url()
            async with App(Database(url, schema=schema), worker=False) as client:
                made = Ground(client, workers, url, schema)
                async with observer(workers, schema) as look:
                    watching = asyncio.create_task(watch(look, made.seen))
                    try:
                        yield made
                        assert not watching.done(), watching.exception()
                    finally:
                        watching.cancel()
                        await asyncio.wait([watching])
            print(dict(made.seen))  # for long runs, with -s


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
