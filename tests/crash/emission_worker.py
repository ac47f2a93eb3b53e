"""A worker that emits, for tests that kill it: `python -m tests.crash.emission_worker DATABASE SCHEMA LEASE`."""

from __future__ import annotations

import asyncio
import sys

from romancy import ActivityContext, App, Database, WorkerOptions, WorkflowContext, activity, emit, sleep, workflow
from romancy.signals import on_first_signal

LENGTH, ROUNDS, SPEAKERS = 60, 3, 3


@activity
async def speak(ctx: ActivityContext, name: str, length: int) -> int:
    for n in range(length):
        await emit(ctx, f"{name}{n}", topic="talk")
        await asyncio.sleep(0.003)
    return length


@workflow
async def talk(ctx: WorkflowContext) -> int:
    """Speakers side by side, and the workflow's own remarks on the same topic."""
    said = 0
    for n in range(ROUNDS):
        await emit(ctx, f"w{2 * n}", topic="talk")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(speak(ctx, f"{name}{n}.", LENGTH)) for name in "abc"[:SPEAKERS]]
            await sleep(ctx, 0.02)
            await emit(ctx, f"w{2 * n + 1}", topic="talk")
        said += sum(task.result() for task in tasks)
    return said


EXPECTED = sorted(
    [f"w{n}" for n in range(2 * ROUNDS)]
    + [f"{name}{n}.{k}" for n in range(ROUNDS) for name in "abc"[:SPEAKERS] for k in range(LENGTH)]
)


async def main(database: str, schema: str, lease: float) -> None:
    where = Database(database, schema=schema) if schema else database
    async with App(where, workflows=[talk], lease=lease, worker=WorkerOptions(grace=1)):
        print("ready", flush=True)
        stop = asyncio.Event()
        on_first_signal(stop.set)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
