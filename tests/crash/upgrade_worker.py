"""A worker for upgrades, which runs with this release and with an older one, whose sources are elsewhere.

`python -m tests.crash.upgrade_worker DATABASE LOG LEASE SCHEMA GATE`. It imports nothing that the older release lacks,
and starts the instances `gated`, `waits` and `sleeps` if they are not there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import romancy
from romancy import (
    ActivityContext,
    App,
    Database,
    WorkerOptions,
    WorkflowContext,
    activity,
    sleep,
    wait_event,
    workflow,
)
from tests.crash.worker import log

LIMIT = 2
QUEUED: dict[str, Any] = {}
if hasattr(romancy, "Queue"):
    QUEUED = {"queue": romancy.Queue("mail", max_concurrent=LIMIT)}


@activity
async def note(ctx: ActivityContext, text: str, gate: str = "") -> str:
    """Runs until the gate is there, if there is one."""
    log(ctx.state, what="begin", text=text)
    while gate and not os.path.exists(gate):  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.02)
    log(ctx.state, what="end", text=text)
    return text


@workflow
async def gated(ctx: WorkflowContext, gate: str) -> str:
    return await note(ctx, "gated", gate)


@workflow
async def waits(ctx: WorkflowContext, text: str) -> str:
    return await note(ctx, (await wait_event(ctx, "go")).data)


@workflow
async def sleeps(ctx: WorkflowContext, seconds: float) -> str:
    await sleep(ctx, seconds)
    return await note(ctx, "slept")


@workflow
async def ticks(ctx: WorkflowContext) -> str:
    return await note(ctx, "tick")


@workflow(**QUEUED)
async def letter(ctx: WorkflowContext, n: int) -> str:
    return await note(ctx, f"letter {n}")


async def main(url: str, log_file: str, lease: float, schema: str | None, gate: str) -> None:
    state = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    known = [gated, waits, sleeps, ticks, letter]
    app = App(Database(url, schema=schema), workflows=known, state=state, lease=lease, worker=WorkerOptions(grace=1))
    async with app:
        await app.start_workflow(gated, gate, instance_id="gated")
        await app.start_workflow(waits, "x", instance_id="waits")
        await app.start_workflow(sleeps, 4.0, instance_id="sleeps")
        log(state, what="ready", source=romancy.__file__)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4] or None, sys.argv[5]))
