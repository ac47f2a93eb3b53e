"""Measures how long one instance takes to work off events that were accepted before it waits for them.

`python -m bench.backlog [COUNT ...]`, on both databases. It loops over `wait_event`. What an event costs must not grow
with how many there are: compare the tenths of a run, and runs of different sizes. CPU time is that of this process and
of the server together; on a busy machine only that can be compared.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from bench.cpu import cpu_of_tree, postmaster
from romancy import App, Database, WorkflowContext, wait_event, workflow
from tests import pg_server

GROUP = 500
"""Events accepted at a time."""
passed: list[tuple[float, float]] = []
"""Time and CPU time at every tenth."""
server: int | None = None
"""The process of the PostgreSQL server."""


@workflow
async def collect(ctx: WorkflowContext, n: int) -> int:
    await wait_event(ctx, "begin")
    total = 0
    for i in range(n):
        if i % (n // 10) == 0:
            passed.append((time.perf_counter(), cpu()))
        total += (await wait_event(ctx, "item")).data
    passed.append((time.perf_counter(), cpu()))
    return total


def cpu() -> float:
    return time.process_time() + (0.0 if server is None else cpu_of_tree(server))


async def measure(database: str, schema: str | None, n: int) -> None:
    passed.clear()
    async with App(Database(database, schema=schema, durability="normal"), workflows=[collect]) as app:
        handle = await app.start_workflow(collect, n)
        for first in range(0, n, GROUP):
            some = range(first, min(first + GROUP, n))
            await asyncio.gather(*(app.send_event("item", "bench", i) for i in some))
        await app.send_event("begin", "bench")
        assert await handle.result() == sum(range(n))
    (began, idle), (ended, busy) = passed[0], passed[-1]
    tenths = [f"{(b[1] - a[1]) * 1e7 / n:,.0f}" for a, b in pairwise(passed)]
    each = f"{(ended - began) * 1e6 / n:,.0f} us an event, CPU {(busy - idle) * 1e6 / n:,.0f} us"
    print(f"  {n:,} events: {each} (by tenths: {' '.join(tenths)})", flush=True)


async def main() -> None:
    global server
    given = [a for a in sys.argv[1:] if a.isdigit()]
    sizes = [int(a) for a in given] or [8_000, 20_000, 50_000, 100_000]
    if "postgres" not in sys.argv[1:]:
        print("sqlite", flush=True)
        for n in sizes:
            with tempfile.TemporaryDirectory() as folder:
                await measure(str(Path(folder) / "backlog.db"), None, n)
    if "sqlite" not in sys.argv[1:]:
        print("postgres", flush=True)
        server = postmaster(pg_server.url())
        for n in sizes:
            async with pg_server.schema() as schema:
                await measure(pg_server.url(), schema, n)


if __name__ == "__main__":
    asyncio.run(main())
