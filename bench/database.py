"""Measures what is stored together with one's own data: `python -m bench.database [sqlite|postgres] [NAME...]`.

- *transactions*: activities with `transactional=True`, in 50 workflows at once, each with one row of one's own. Beside
  it, as many bare loops of the driver: BEGIN, INSERT, COMMIT. On a busy machine only the ratio means something.
- *within*: from the COMMIT of a caller that started a workflow in its transaction, until that workflow runs.
- *queues*: instances that wait in a queue when a worker starts, until all of them have ended, per second. One row per
  limit: none, one instance at a time, and one at a time of the only key.
- *schedules*: from the time of a schedule until the instance that it starts runs.

Full durability: each commit is on disk.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg

from romancy import (
    App,
    Database,
    Queue,
    Schedule,
    TransactionContext,
    WorkerOptions,
    Workflow,
    WorkflowContext,
    activity,
    workflow,
)
from tests import pg_server

WORKFLOWS, CALLS, ROUNDS = 50, 30, 3
STARTS, QUEUED, TICKS = 300, 500, 15


@dataclass
class Place:
    """A database, with a table `ledger` of one's own."""

    url: str
    schema: str | None = None

    @property
    def database(self) -> Database:
        return Database(self.url, schema=self.schema)

    @property
    def table(self) -> str:
        return "ledger" if self.schema is None else f'"{self.schema}".ledger'


# --- transactions ---------------------------------------------------------------------------------------------------
@activity(transactional=True)
async def note_in_file(ctx: TransactionContext[sqlite3.Connection], table: str, n: int) -> int:
    ctx.connection.execute(f"INSERT INTO {table} VALUES (?)", (n,))
    return n


@activity(transactional=True)
async def note_on_server(ctx: TransactionContext[Any], table: str, n: int) -> int:
    await ctx.connection.execute(f"INSERT INTO {table} VALUES ($1)", n)
    return n


@workflow
async def notes(ctx: WorkflowContext, table: str, count: int) -> int:
    note = note_in_file if table == "ledger" else note_on_server
    for n in range(count):
        await note(ctx, table, n)
    return count


async def _run_workflows(app: App, place: Place, count: int) -> float:
    begin = time.perf_counter()
    handles = [await app.start_workflow(notes, place.table, count) for _ in range(WORKFLOWS)]
    for handle in handles:
        await handle.result()
    return WORKFLOWS * count / (time.perf_counter() - begin)


async def _run_bare(place: Place, count: int) -> float:
    """Return how many transactions per second the driver makes. SQLite has one writer, so there it is one loop."""
    if place.schema is None:
        return await asyncio.to_thread(_run_file, place, WORKFLOWS * count)
    connections = WorkerOptions().max_transactions
    pool = await asyncpg.create_pool(place.url, min_size=connections, max_size=connections, reset=_leave_as_is)

    async def loop() -> None:
        for n in range(count):
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute(f"INSERT INTO {place.table} VALUES ($1)", n)

    async with pool:
        begin = time.perf_counter()
        await asyncio.gather(*(loop() for _ in range(WORKFLOWS)))
        return WORKFLOWS * count / (time.perf_counter() - begin)


async def _leave_as_is(connection: Any) -> None:
    """Do nothing: a reset would be a round trip more."""


def _run_file(place: Place, count: int) -> float:
    connection = sqlite3.connect(place.url, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    begin = time.perf_counter()
    for n in range(count):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"INSERT INTO {place.table} VALUES (?)", (n,))
        connection.execute("COMMIT")
    seconds = time.perf_counter() - begin
    connection.close()
    return count / seconds


async def measure_transactions(place: Place) -> None:
    async with App(place.database, workflows=[notes]) as app:
        await _run_workflows(app, place, 3)
        for _ in range(ROUNDS):
            bare = await _run_bare(place, CALLS)
            cpu = time.process_time()
            done = await _run_workflows(app, place, CALLS)
            cpu = (time.process_time() - cpu) / (WORKFLOWS * CALLS) * 1e6
            print(
                f"  transactions    {done:7,.0f} /s   bare driver {bare:7,.0f} /s   ratio {done / bare:4.2f}"
                f"   {cpu:,.0f} us of CPU each",
                flush=True,
            )


# --- within ---------------------------------------------------------------------------------------------------------
_running: dict[int, asyncio.Future[float]] = {}


@workflow
async def quick(ctx: WorkflowContext, n: int) -> int:
    _running[n].set_result(time.perf_counter())
    return n


async def measure_within(place: Place) -> None:
    async with App(place.database, workflows=[quick]) as app:
        if place.schema is None:
            with closing(sqlite3.connect(place.url, isolation_level=None)) as connection:

                async def run(statement: str) -> None:
                    connection.execute(statement)

                await _start_within(app, connection, run)
        else:
            server = await asyncpg.connect(place.url)
            try:
                await _start_within(app, server, server.execute)
            finally:
                await server.close()


async def _start_within(app: App, connection: Any, run: Callable[[str], Awaitable[Any]]) -> None:
    lags: list[float] = []
    for n in range(STARTS):
        _running[n] = asyncio.get_running_loop().create_future()
        await run("BEGIN")
        pending = await app.within(connection).start_workflow(quick, n)
        await run("COMMIT")
        committed = time.perf_counter()
        lags.append((await _running[n] - committed) * 1000)
        await pending.handle().result()
    print(f"  within          {_spread(lags)}", flush=True)


def _spread(lags: list[float]) -> str:
    lags = sorted(lags)
    return f"p50 {statistics.median(lags):6.1f} ms   p99 {lags[len(lags) * 99 // 100]:6.1f} ms"


# --- queues ---------------------------------------------------------------------------------------------------------
@workflow(queue=Queue("free"))
async def unlimited(ctx: WorkflowContext, n: int) -> int:
    return n


@workflow(queue=Queue("single", max_concurrent=1))
async def one_by_one(ctx: WorkflowContext, n: int) -> int:
    return n


@workflow(queue=Queue("keyed", max_concurrent_per_key=1))
async def one_per_key(ctx: WorkflowContext, n: int) -> int:
    return n


async def measure_queues(place: Place) -> None:
    print(f"  queues          {await _run_alone(place, QUEUED):7,.0f} /s   bare driver, one transaction at a time")
    await _run_queue(place, unlimited, 4 * QUEUED, "no limit")
    await _run_queue(place, one_by_one, QUEUED, "one at a time")
    await _run_queue(place, one_per_key, QUEUED, "one of a key")


async def _run_alone(place: Place, count: int) -> float:
    """Return how many transactions per second one connection makes: each instance needs one after the other."""
    if place.schema is None:
        return await asyncio.to_thread(_run_file, place, count)
    connection = await asyncpg.connect(place.url)
    begin = time.perf_counter()
    for n in range(count):
        await connection.execute(f"INSERT INTO {place.table} VALUES ($1)", n)
    seconds = time.perf_counter() - begin
    await connection.close()
    return count / seconds


async def _run_queue(place: Place, job: Workflow[[int], int], count: int, words: str) -> None:
    last = ""
    async with App(place.database, worker=False) as app:
        for n in range(0, count, 100):
            wanted = job.options(key="one")
            handles = await asyncio.gather(*(app.start_workflow(wanted, k) for k in range(n, n + 100)))
            last = handles[-1].instance_id
    begin, cpu = time.perf_counter(), time.process_time()
    async with App(place.database, workflows=[job]) as app:
        await app.handle(last, job).result()
        while await app.count_instances(workflow=job.name, status="completed") < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    print(
        f"  queues          {count / seconds:7,.0f} /s   {words}   {cpu / count * 1e6:,.0f} us of CPU each",
        flush=True,
    )


# --- schedules ------------------------------------------------------------------------------------------------------
_lags: list[float] = []


@workflow
async def scheduled(ctx: WorkflowContext) -> None:
    assert ctx.scheduled_at is not None
    _lags.append((datetime.now(UTC) - ctx.scheduled_at).total_seconds() * 1000)


async def measure_schedules(place: Place) -> None:
    _lags.clear()
    async with App(place.database, workflows=[scheduled]) as app:
        await app.set_schedule("each second", Schedule("* * * * * *", overlap="allow"), scheduled)
        while len(_lags) < TICKS:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    print(f"  schedules       {_spread(_lags)}", flush=True)


MEASURES: dict[str, Callable[[Place], Awaitable[None]]] = {
    "transactions": measure_transactions,
    "within": measure_within,
    "queues": measure_queues,
    "schedules": measure_schedules,
}


@asynccontextmanager
async def _place(where: str) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        if where == "postgres":
            place = Place(pg_server.url(), await stack.enter_async_context(pg_server.schema()))
        else:
            place = Place(str(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "bench.db"))
        async with App(place.database, worker=False):
            pass  # creates Romancy's own tables
        if where == "postgres":
            connection = await asyncpg.connect(place.url)
            await connection.execute(f"CREATE TABLE {place.table} (n bigint)")
            await connection.close()
        else:
            with closing(sqlite3.connect(place.url)) as file:
                file.execute(f"CREATE TABLE {place.table} (n)")
        yield place


async def main(where: str, names: list[str]) -> None:
    print(f"{where}, load {os.getloadavg()[0]:.1f}", flush=True)
    for name in names:
        async with _place(where) as place:
            await MEASURES[name](place)


if __name__ == "__main__":
    asked = [word for word in sys.argv[1:] if word in MEASURES]
    for place in [word for word in sys.argv[1:] if word not in MEASURES] or ["sqlite", "postgres"]:
        asyncio.run(main(place, asked or list(MEASURES)))
