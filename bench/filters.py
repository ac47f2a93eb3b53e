"""Measures events with very many waits that each filter by their own field: `python -m bench.filters [COUNT]`.

That many sets of filtered fields are not all indexed. Measured on both databases: milliseconds from `send_event` to its
receipt, and to the end of the workflow that waited for it, for events that fit one wait and for those that fit none.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from romancy import App, Database, WorkflowContext, wait_event, workflow
from tests import pg_server

TYPE, EVENTS = "sensor.read", 50


@workflow
async def watcher(ctx: WorkflowContext, n: int) -> int:
    return (await wait_event(ctx, TYPE, where={f"sensor-{n}": 1})).data["value"]


async def measure(database: str, schema: str | None, count: int) -> None:
    async with App(Database(database, schema=schema, durability="normal"), workflows=[watcher]) as app:
        begin = time.perf_counter()
        for first in range(0, count, 500):
            some = range(first, min(count, first + 500))
            await asyncio.gather(*(app.start_workflow(watcher, n, instance_id=f"w{n}") for n in some))
        while (await app.list_instances(status="running", limit=1)).items:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        print(f"  {count:,} waits: {time.perf_counter() - begin:.1f} s", flush=True)
        taken: dict[str, list[float]] = {"accepted, fits none": [], "accepted, fits one": [], "taken": []}
        for n in range(EVENTS):
            begin = time.perf_counter()
            assert not (await app.send_event(TYPE, "bench", {f"sensor-{count + n}": 1, "value": n})).delivered
            taken["accepted, fits none"].append(time.perf_counter() - begin)
            which = n * count // EVENTS
            begin = time.perf_counter()
            receipt = await app.send_event(TYPE, "bench", {f"sensor-{which}": 1, "value": n})
            taken["accepted, fits one"].append(time.perf_counter() - begin)
            assert receipt.delivered == 1
            assert await app.handle(f"w{which}", watcher).result(60) == n
            taken["taken"].append(time.perf_counter() - begin)
        for what, times in taken.items():
            print(f"  {what}: median {statistics.median(times) * 1000:.1f} ms, worst {max(times) * 1000:.1f} ms")


async def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1500
    with tempfile.TemporaryDirectory() as folder:
        print("sqlite", flush=True)
        await measure(str(Path(folder) / "filters.db"), None, count)
    print("postgres", flush=True)
    async with pg_server.schema() as schema:
        await measure(pg_server.url(), schema, count)


if __name__ == "__main__":
    asyncio.run(main())
