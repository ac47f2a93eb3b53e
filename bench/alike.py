"""Measures many waits in one instance: `python -m bench.alike [sqlite|postgres] [alike|filtered|timed] [COUNT...]`.

One instance opens so many waits at once, is read again by a worker that starts, and is then answered by as many events,
each sent after the one before was acknowledged. *alike*: all waits are the same; *filtered*: each has a filter of its
own; *timed*: all are the same, with a timeout. Seconds by the clock, and in parentheses of this process's CPU.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from romancy import App, Database, WorkflowContext, wait_event, workflow
from tests import pg_server

TYPE, COUNTS = "approval", (500, 1_000, 2_000, 4_000, 10_000)


def _wait(ctx: WorkflowContext, kind: str, n: int) -> Any:
    if kind == "filtered":
        return wait_event(ctx, TYPE, where={"n": n})
    return wait_event(ctx, TYPE, timeout=timedelta(days=1) if kind == "timed" else None)


@workflow
async def collect(ctx: WorkflowContext, kind: str, count: int) -> int:
    events = await asyncio.gather(*(_wait(ctx, kind, n) for n in range(count)))
    assert [event.data["n"] for event in events] == list(range(count))
    return count


class Watch:
    """A stopwatch for wall-clock and CPU time."""

    def __init__(self) -> None:
        self._begin = time.perf_counter(), time.process_time()

    def __str__(self) -> str:
        wall, cpu = time.perf_counter() - self._begin[0], time.process_time() - self._begin[1]
        return f"{wall:6.2f} s ({cpu:5.2f})"


@asynccontextmanager
async def opened(database: str, schema: str | None) -> AsyncIterator[App]:
    async with App(Database(database, schema=schema, durability="normal"), workflows=[collect]) as app:
        yield app


async def measure(database: str, schema: str | None, kind: str, count: int) -> None:
    async with opened(database, schema) as app:
        watch = Watch()
        handle = await app.start_workflow(collect, kind, count, instance_id=f"{kind}-{count}")
        while await handle.status() != "waiting_for_event":  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        print(f"  {count:6,} waits: open {watch}", end="", flush=True)
    async with opened(database, schema) as app:
        handle = app.handle(f"{kind}-{count}", collect)
        watch = Watch()
        await app.send_event(TYPE, "bench", {"n": 0})
        while not await app.get_history(handle.instance_id):  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        print(f"   first answer after a restart {watch}", end="", flush=True)
        watch = Watch()
        for n in range(1, count):
            await app.send_event(TYPE, "bench", {"n": n})
        assert await handle.result(600) == count
        print(f"   answer all {watch}", flush=True)


async def main() -> None:
    asked = sys.argv[1:]
    counts = [int(a) for a in asked if a.isdigit()] or COUNTS
    for database in [a for a in asked if a in ("sqlite", "postgres")] or ("sqlite", "postgres"):
        for kind in [a for a in asked if a in ("alike", "filtered", "timed")] or ("alike", "filtered", "timed"):
            print(f"{database}, {kind}", flush=True)
            for count in counts:
                if database == "sqlite":
                    with tempfile.TemporaryDirectory() as folder:
                        await measure(str(Path(folder) / "alike.db"), None, kind, count)
                else:
                    async with pg_server.schema() as schema:
                        await measure(pg_server.url(), schema, kind, count)


if __name__ == "__main__":
    asyncio.run(main())
