"""Compares sequential steps with raw commits on PostgreSQL: `python -m bench.sequential [PAIRS]`.

A step of one workflow is one commit, so it can't be faster than the server commits. Each pair runs 2,000 rows with the
bare driver, one INSERT and one COMMIT each, then a workflow of 2,000 activities. The time of a step is divided into the
CPU time of the worker, the CPU time of the server, and the rest: waiting for the disk, and for the other process to be
scheduled.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import asyncpg

from bench.server_cpu import postmaster_of, server_seconds
from bench.systems.romancy_ import many_steps
from romancy import App, Database
from tests import pg_server

COUNT = 2000


@dataclass(frozen=True)
class Cost:
    """Microseconds of one commit."""

    wall: float
    worker: float
    server: float

    def __str__(self) -> str:
        rest = self.wall - self.worker - self.server
        return f"{self.wall:5.0f} us = worker {self.worker:4.0f} + server {self.server:4.0f} + rest {rest:4.0f}"


async def _cost(postmaster: int, work: Callable[[], Awaitable[object]]) -> Cost:
    wall, worker, server = time.perf_counter(), time.process_time(), server_seconds(postmaster)
    await work()
    ends = time.perf_counter(), time.process_time(), server_seconds(postmaster)
    return Cost(*((end - begin) / COUNT * 1e6 for begin, end in zip((wall, worker, server), ends, strict=True)))


async def measure(schema: str) -> tuple[Cost, Cost]:
    """Return the cost of a raw commit and of a step."""
    raw = await asyncpg.connect(pg_server.url())
    postmaster = await postmaster_of(raw)
    await raw.execute(f"CREATE TABLE {schema}.t (instance text, n bigint, payload text, PRIMARY KEY (instance, n))")

    async def commits() -> None:
        for n in range(COUNT):
            await raw.execute(f"INSERT INTO {schema}.t VALUES ($1, $2, $3)", "x", n, '{"x": 1}')

    async with App(Database(pg_server.url(), schema=schema), workflows=[many_steps]) as app:
        await (await app.start_workflow(many_steps, 100)).result()
        bare = await _cost(postmaster, commits)
        handle = await app.start_workflow(many_steps, COUNT)
        step = await _cost(postmaster, handle.result)
    await raw.close()
    return bare, step


async def main(pairs: int) -> None:
    shares: list[float] = []
    for _ in range(pairs):
        async with pg_server.schema() as schema:
            async with App(Database(pg_server.url(), schema=schema), worker=False):
                pass  # creates the tables
            bare, step = await measure(schema)
        shares.append(bare.wall / step.wall)
        print(f"raw commit {bare}   step {step}   {shares[-1]:.0%}", flush=True)
    print(f"median {statistics.median(shares):.0%} of the raw commit rate, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    os.environ.setdefault("ROMANCY_TEST_POSTGRES", pg_server.url())
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 6))
