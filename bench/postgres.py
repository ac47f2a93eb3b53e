"""Measures several processes on one PostgreSQL server: `python -m bench.postgres [--quick]`.

Uses the server in ROMANCY_TEST_POSTGRES, or starts its own, with the default fsync and synchronous_commit (on).
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.systems.romancy_ import many_steps, one_step, waiter
from romancy import App, Database, HooksBase
from romancy.hooks import WorkflowCompletedInfo
from tests import pg_server

QUICK = "--quick" in sys.argv
ROOT = Path(__file__).parents[1]


class Tell(HooksBase):
    """Prints one line for each waiter that ended, after its commit."""

    def on_workflow_completed(self, info: WorkflowCompletedInfo) -> None:
        if info.workflow == "waiter":
            print(info.instance_id, time.time(), flush=True)


# --- processes -------------------------------------------------------------------------------------------------------
async def work(url: str, schema: str, hooks: bool) -> None:
    """Run a worker until its standard input ends."""
    async with App(
        Database(url, schema=schema), workflows=[one_step, many_steps, waiter], hooks=[Tell()] if hooks else []
    ):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


@asynccontextmanager
async def workers(count: int, schema: str, hooks: bool = False) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench.postgres",
            "work",
            pg_server.url(),
            schema,
            "hooks" if hooks else "",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        for _ in range(count)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"ready\n"
        yield processes
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()


# --- measurements ----------------------------------------------------------------------------------------------------
async def all_done(schema: str, count: int) -> None:
    import asyncpg

    spy = await asyncpg.connect(pg_server.url())
    while await spy.fetchval(f"SELECT count(*) FROM {schema}.instances WHERE status >= 10") < count:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    await spy.close()


async def alone(schema: str, count: int) -> float:
    """Measure one process that starts its own workflows, in workflows per second."""
    async with App(Database(pg_server.url(), schema=schema), workflows=[one_step]) as app:
        begin = time.perf_counter()
        handles = await asyncio.gather(*(app.start_workflow(one_step, n) for n in range(count)))
        await asyncio.gather(*(handle.result() for handle in handles))
        return count / (time.perf_counter() - begin)


async def throughput(schema: str, count: int, processes: int, steps: int) -> float:
    """Start workers on existing workflows; return activities per second until all have ended."""
    async with App(Database(pg_server.url(), schema=schema), worker=False) as client:
        name = "one_step" if steps == 1 else "many_steps"
        await asyncio.gather(*(client.start_workflow(name, steps) for _ in range(count)))
        begin = time.perf_counter()
        async with workers(processes, schema):
            begin = max(begin, time.perf_counter() - 0.05)  # from when they are ready, as far as one can tell
            await all_done(schema, count)
            return count * steps / (time.perf_counter() - begin)


async def latency(schema: str, count: int) -> list[float]:
    """Return the milliseconds from accepting an event here to the final commit of its workflow in another process."""
    late: list[float] = []
    async with (
        workers(1, schema, hooks=True) as [process],
        App(Database(pg_server.url(), schema=schema), worker=False) as client,
    ):
        for n in range(count):
            await client.start_workflow("waiter", n, instance_id=f"w{n}")
        while len((await client.list_waits(limit=1000)).items) < min(count, 1000):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
        for n in range(count):
            await client.send_event("go", "bench", {"key": n})
            accepted = time.time()
            assert process.stdout is not None
            _, at = (await process.stdout.readline()).split()
            late.append((float(at) - accepted) * 1000)
            await asyncio.sleep(0.005)
    return sorted(late)


async def main() -> None:
    rounds = 1 if QUICK else 5
    async with pg_server.schema() as schema:
        late = await latency(schema, 100 if QUICK else 500)
    p99 = late[int(len(late) * 0.99)]
    print(f"event accepted here, finished there: p50 {statistics.median(late):.1f} ms, p99 {p99:.1f} ms")
    rates: dict[str, list[float]] = {}
    for _ in range(rounds):  # alternate one and two workers: the machine's speed changes from minute to minute
        async with pg_server.schema() as schema:
            rates.setdefault("one process starts and runs, workflows", []).append(await alone(schema, 5000))
        for steps, many in ((1, 5000), (100, 50), (100, 200)):
            for processes in (1, 2):
                name = f"{processes} worker(s), {many} workflows of {steps}, activities"
                async with pg_server.schema() as schema:
                    rates.setdefault(name, []).append(await throughput(schema, many, processes, steps))
    for name, all_rounds in rates.items():
        shown = " ".join(f"{rate:,.0f}" for rate in all_rounds)
        print(f"{name}: {statistics.median(all_rounds):,.0f}/s  ({shown})")


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        asyncio.run(work(sys.argv[2], sys.argv[3], sys.argv[4] == "hooks"))
    else:
        os.environ.setdefault("ROMANCY_TEST_POSTGRES", pg_server.url())
        asyncio.run(main())
