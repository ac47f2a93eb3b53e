"""Measures children, runs and steps: `python -m bench.workflows [sqlite|postgres] [CHILDREN...]`.

- *children*: one parent calls so many children at once, each with one activity, and waits for all.
- *runs*: an instance continues as new 500 times, against 500 commits of an instance that only calls an activity.
- *steps*: 2,000 steps from closures, against 2,000 calls of an activity.

Seconds by the clock, and in parentheses of this process's CPU. Full durability: each commit is on disk.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.alike import Watch
from romancy import ActivityContext, App, Database, Workflow, WorkflowContext, activity, step, workflow
from tests import pg_server

RUNS, STEPS = 500, 2_000


@activity
async def noop(ctx: ActivityContext, n: int) -> int:
    return n


@workflow
async def child(ctx: WorkflowContext, n: int) -> int:
    return await noop(ctx, n)


@workflow
async def parent(ctx: WorkflowContext, count: int) -> int:
    return sum(await asyncio.gather(*(child(ctx, n) for n in range(count))))


@workflow
async def runner(ctx: WorkflowContext, left: int) -> None:
    await noop(ctx, left)
    if left > 1:
        runner.continue_as_new(ctx, left - 1)


@workflow
async def caller(ctx: WorkflowContext, count: int) -> None:
    for n in range(count):
        await noop(ctx, n)


@workflow
async def closures(ctx: WorkflowContext, count: int) -> None:
    for n in range(count):

        async def same(n: int = n) -> int:
            return n

        await step(ctx, "same", same, input=n)


async def _time(app: App, wf: Workflow[[int], Any], count: int, words: str) -> None:
    watch = Watch()
    await (await app.start_workflow(wf, count)).result()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"  {count:6,} {words:<20} {watch}   at most {memory:,} MB so far", flush=True)


async def measure(database: str, schema: str | None, counts: list[int]) -> None:
    workflows = [parent, child, runner, caller, closures]
    async with App(Database(database, schema=schema), workflows=workflows) as app:
        for _ in range(2):
            await _time(app, caller, STEPS, "activity calls")
            await _time(app, closures, STEPS, "steps")
        await _time(app, caller, RUNS, "activity calls")
        await _time(app, runner, RUNS, "runs, one call each")
        for count in counts:
            await _time(app, parent, count, "children")


async def main(where: str, counts: list[int]) -> None:
    print(where)
    if where == "postgres":
        async with pg_server.schema() as schema:
            await measure(pg_server.url(), schema, counts)
    else:
        with tempfile.TemporaryDirectory() as folder:
            await measure(str(Path(folder) / "bench.db"), None, counts)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    places = [word for word in sys.argv[1:] if not word.isdigit()]
    for place in places or ["sqlite", "postgres"]:
        asyncio.run(main(place, numbers or [1_000, 10_000]))
