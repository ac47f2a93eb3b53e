"""Measures workers that come and go among waiting instances: `python -m bench.restarts [COUNT] [sqlite|postgres]`.

Their rows, a million by default, are written directly, which is quick; `bench.million` starts and wakes them for real.
Every instance waits for an event of its own, every tenth with a timeout. Measured: how long a worker takes to start and
to stop, its memory, the time from an event to its commit, the CPU use of a worker that only waits, how long
a successor takes after SIGKILL, and how large the database is before and after many instances were woken.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg

from romancy import App, Database, HooksBase, WorkerOptions, WorkflowContext, wait_event, workflow
from romancy.core.filters import Filter
from romancy.hooks import EventReceivedInfo
from tests import pg_server

TYPE, OP = "order.paid", "order.paid:1"
EVENTS, CHURN, IDLE, PATIENCE = 300, 5_000, 10.0, 120.0


@workflow
async def order(ctx: WorkflowContext, n: int) -> None:
    while True:
        await wait_event(ctx, TYPE, where={"order": n}, timeout=timedelta(days=400) if n % 10 == 0 else None)


class Tell(HooksBase):
    """Prints one line for each event that was taken, after its commit."""

    def on_event_received(self, info: EventReceivedInfo) -> None:
        print("took", info.instance_id, time.time(), flush=True)


# --- the rows --------------------------------------------------------------------------------------------------------
def keys(count: int) -> Iterator[tuple[str, bytes, bytes, bytes]]:
    """Yield (instance, input, key, spec) of all but the first: that one is real, and the others are made like it."""
    for n in range(1, count):
        narrow = Filter.build(where={"order": n})
        spec = _json({"types": [TYPE], "filter": narrow.to_json()})
        yield f"order-{n:07}", _json({"n": n}), narrow.key, spec


def _json(value: object) -> bytes:
    """Return JSON as the library writes it: stored waits are compared byte by byte."""
    return json.dumps(value, separators=(",", ":")).encode()


def fill_sqlite(path: str, count: int) -> None:
    c = sqlite3.connect(path, isolation_level=None)
    c.execute("PRAGMA synchronous = OFF")
    c.execute("BEGIN IMMEDIATE")
    c.execute("CREATE TEMP TABLE new (id, input, key, spec)")
    c.executemany("INSERT INTO new VALUES (?, ?, ?, ?)", keys(count))
    names = "workflow, generation, status, owner, version, token, birth, since, input_kind, created_at, updated_at"
    copies = f"SELECT n.id, n.input, {names} FROM new n, romancy_instances"
    c.execute(f"INSERT INTO romancy_instances (id, input, {names}) {copies}")
    c.execute(
        "INSERT INTO romancy_waits "
        "SELECT n.id, w.op, CASE WHEN n.rowid % 10 = 0 THEN w.due_at END, w.since, w.model, n.spec, "
        "w.location, w.created_at FROM new n, (SELECT * FROM romancy_waits) w"
    )
    c.execute(
        "INSERT INTO romancy_wait_keys (type, shape, key, instance, op) "
        "SELECT k.type, k.shape, n.key, n.id, k.op FROM new n, (SELECT * FROM romancy_wait_keys) k"
    )
    c.execute("COMMIT")
    c.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    c.close()


async def fill_postgres(schema: str, count: int) -> None:
    c: Any = await asyncpg.connect(pg_server.url())
    await c.execute(f"SET search_path TO {schema}; SET synchronous_commit = off")
    await c.execute("CREATE TEMP TABLE new (id text, input bytea, key bytea, spec bytea)")
    await c.copy_records_to_table("new", records=keys(count))
    names = "workflow, generation, status, owner, version, token, birth, born, input_kind, created_at, updated_at"
    await c.execute(f"INSERT INTO instances (id, input, {names}) SELECT n.id, n.input, {names} FROM new n, instances")
    await c.execute(
        "INSERT INTO waits SELECT n.id, w.op, CASE WHEN right(n.id, 1) = '0' THEN w.due_at END, w.born, w.since, "
        "w.model, n.spec, w.location, w.created_at FROM new n, waits w"
    )
    await c.execute("INSERT INTO wait_keys SELECT k.type, k.shape, n.key, n.id, k.op FROM new n, wait_keys k")
    await c.execute("ANALYZE")
    await c.close()


# --- the worker ------------------------------------------------------------------------------------------------------
async def work(database: str, schema: str) -> None:
    """Run a worker until its standard input ends. Print how long it took to start and to stop, and what it used."""
    begin = time.perf_counter()
    app = App(
        Database(database, schema=schema or None),
        workflows=[order],
        hooks=[Tell()],
        worker=WorkerOptions(max_resident=10_000),
    )
    await app.start()
    print("ready", time.perf_counter() - begin, flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        print("used", _memory(), time.process_time(), flush=True)
    begin = time.perf_counter()
    await app.stop()
    print("stopped", time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, flush=True)


def _memory() -> float:
    """Return the resident memory in megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


class Worker:
    """A worker process, as seen from this process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.taken: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
        self.answers: asyncio.Queue[list[float]] = asyncio.Queue()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            what, *values = line.decode().split()
            if what == "took":
                self.taken.put_nowait((values[0], float(values[1])))
            else:
                self.answers.put_nowait([float(value) for value in values])

    async def used(self) -> list[float]:
        """Return the memory in megabytes and the CPU seconds so far."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        return await self.answers.get()

    async def stop(self) -> list[float]:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self.answers.get()

    async def end(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._reading


@asynccontextmanager
async def worker(database: str, schema: str) -> AsyncIterator[Worker]:
    command = [sys.executable, "-m", "bench.restarts", "work", database, schema]
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    found = Worker(process)
    try:
        yield found
    finally:
        await found.end()


# --- measurements ----------------------------------------------------------------------------------------------------
async def send(client: App, n: int) -> float:
    await client.send_event(TYPE, "bench", {"order": n})
    return time.time()


async def latency(client: App, worker: Worker, numbers: list[int]) -> list[float]:
    """Return the milliseconds from accepting each event here to its commit there, one event after another."""
    late: list[float] = []
    for n in numbers:
        accepted = await send(client, n)
        instance, at = await asyncio.wait_for(worker.taken.get(), PATIENCE)
        assert instance == f"order-{n:07}", instance
        late.append((at - accepted) * 1000)
    return sorted(late)


async def churn(client: App, worker: Worker, numbers: list[int]) -> float:
    """Return events per second, with many at a time."""
    begin = time.perf_counter()
    for first in range(0, len(numbers), 500):
        await asyncio.gather(*(send(client, n) for n in numbers[first : first + 500]))
        for _ in numbers[first : first + 500]:
            await asyncio.wait_for(worker.taken.get(), PATIENCE)
    return len(numbers) / (time.perf_counter() - begin)


def say(what: str, value: str) -> None:
    print(f"{what:<55} {value}", flush=True)


def spread(late: list[float]) -> str:
    return f"p50 {statistics.median(late):.1f} ms, p99 {late[int(len(late) * 0.99)]:.1f} ms, worst {late[-1]:.1f} ms"


Size = Callable[[], Awaitable[float]]


async def measure(database: str, schema: str, count: int, size: Size) -> None:
    pick = random.Random(7)

    def some(k: int) -> list[int]:
        return pick.sample(range(1, count), min(k, count - 1))

    say("size of the database", f"{await size():,.0f} MB")
    async with App(Database(database, schema=schema or None), worker=False) as client:
        async with worker(database, schema) as first:
            say("start of a worker", f"{(await first.answers.get())[0]:.2f} s")
            say("its first event", spread(await latency(client, first, some(1))))
            say(f"{EVENTS} events, one by one", spread(await latency(client, first, some(EVENTS))))
            _, before = await first.used()
            await asyncio.sleep(IDLE)
            memory, after = await first.used()
            say("memory", f"{memory:,.0f} MB")
            say("CPU while only waiting", f"{(after - before) / IDLE:.1%}")
            rate = await churn(client, first, some(CHURN))
            say(f"{CHURN:,} events, 500 at a time", f"{rate:,.0f}/s; now {await size():,.0f} MB")
            first.process.send_signal(signal.SIGKILL)
            killed = time.time()
            await first.process.wait()
            async with worker(database, schema) as second:
                say("start of a worker after SIGKILL", f"{(await second.answers.get())[0]:.2f} s")
                [late] = await latency(client, second, some(1))
                say("first event after SIGKILL", f"{late:.1f} ms; {time.time() - killed:.2f} s after it")
                say(f"{EVENTS} events, one by one", spread(await latency(client, second, some(EVENTS))))
                async with worker(database, schema) as third:
                    await third.answers.get()
                    _, before = await second.used()
                    await asyncio.sleep(IDLE)
                    _, after = await second.used()
                    say("CPU while a second worker joins", f"{(after - before) / IDLE:.1%}")
                    say("stop of the second worker", "{:.2f} s, at most {:,.0f} MB".format(*await third.stop()))
                say("stop of the worker", "{:.2f} s, at most {:,.0f} MB".format(*await second.stop()))
        async with worker(database, schema) as fresh:
            say("start of a worker after a clean stop", f"{(await fresh.answers.get())[0]:.2f} s")
            say("its first event", spread(await latency(client, fresh, some(1))))
    say("size of the database", f"{await size():,.0f} MB")


async def first_one(database: str, schema: str) -> None:
    """Create the real instance that the others are copied from, without an owner."""
    async with App(Database(database, schema=schema or None), workflows=[order]) as app:
        await app.start_workflow(order, 0, instance_id="order-0000000")
        while not (await app.list_waits(limit=1)).items:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def on_sqlite(count: int, folder: str) -> None:
    path = str(Path(folder) / "million.db")
    await first_one(path, "")
    await asyncio.to_thread(fill_sqlite, path, count)

    async def size() -> float:
        return await asyncio.to_thread(_size_of, path)

    await measure(path, "", count, size)


def _size_of(path: str) -> float:
    return sum(file.stat().st_size for file in Path(path).parent.glob(f"{Path(path).name}*") if file.is_file()) / 2**20


async def on_postgres(count: int) -> None:
    async with pg_server.schema() as schema:
        await first_one(pg_server.url(), schema)
        await fill_postgres(schema, count)
        spy: Any = await asyncpg.connect(pg_server.url())
        query = (
            "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
            "WHERE nspname = $1 AND relkind = 'r'"
        )

        async def size() -> float:
            return float(await spy.fetchval(query, schema)) / 2**20

        await measure(pg_server.url(), schema, count, size)
        await spy.close()


async def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    for database in sys.argv[2:] or ("sqlite", "postgres"):
        print(f"{database}: {count:,} waiting instances", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            await (on_sqlite(count, folder) if database == "sqlite" else on_postgres(count))


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        asyncio.run(work(sys.argv[2], sys.argv[3]))
    else:
        os.environ.setdefault("ROMANCY_TEST_POSTGRES", pg_server.url())
        asyncio.run(main())
