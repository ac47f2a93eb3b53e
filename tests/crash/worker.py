"""A worker process for tests that kill it: `python -m tests.crash.worker DATABASE LOG [LEASE]`.

Everything its activities do is one line of JSON in LOG, written at once, so that no death of the process loses it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from typing import Any

from romancy import (
    ActivityContext,
    App,
    WorkerOptions,
    WorkflowContext,
    activity,
    send_event,
    sleep,
    wait_event,
    workflow,
)


def log(state: Any, **line: Any) -> None:
    os.write(state, (json.dumps({"pid": os.getpid(), "at": time.time(), **line}) + "\n").encode())


@activity
async def step(ctx: ActivityContext, seconds: float, value: int) -> int:
    begin = time.time()
    await asyncio.sleep(seconds)
    log(ctx.state, what="step", instance=ctx.instance_id, op=ctx.activity_id, begin=begin)
    return value * 10


@activity
def thread_step(ctx: ActivityContext, seconds: float, value: int) -> int:
    begin = time.time()
    time.sleep(seconds)
    log(ctx.state, what="step", instance=ctx.instance_id, op=ctx.activity_id, begin=begin)
    return value + 1


@workflow
async def order(ctx: WorkflowContext, n: int) -> list[int]:
    """Three activities, an event of its own, a sleep, and an event to the collector."""
    first = await step(ctx, 0.005, n)
    paid = await wait_event(ctx, "paid", where={"n": n})
    second = await thread_step(ctx, 0.005, paid.data["n"])
    await sleep(ctx, 0.01)
    await send_event(ctx, "done", "order", {"n": n})
    return [first, second, await step(ctx, 0.002, second)]


@workflow
async def collector(ctx: WorkflowContext, n: int) -> list[int]:
    return [(await wait_event(ctx, "done")).data["n"] for _ in range(n)]


@activity
async def heard(ctx: ActivityContext, event: str, sent_at: float) -> None:
    log(ctx.state, what="heard", instance=ctx.instance_id, event=event, late=time.time() - sent_at)


@workflow
async def listener(ctx: WorkflowContext, n: int) -> int:
    for _ in range(n):
        event = await wait_event(ctx, "ping", subject=ctx.instance_id)
        await heard(ctx, event.id, event.data["sent_at"])
    return n


@activity
async def gated(ctx: ActivityContext, gate: str) -> int:
    """Runs until the file is there; returns who ran it."""
    log(ctx.state, what="gated", instance=ctx.instance_id, op=ctx.activity_id, attempt=ctx.attempt)
    while not os.path.exists(gate):  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.01)
    log(ctx.state, what="through", instance=ctx.instance_id, op=ctx.activity_id)
    return os.getpid()


@workflow
async def gatekeeper(ctx: WorkflowContext, gate: str) -> int:
    return await gated(ctx, gate)


@activity
async def walk(ctx: ActivityContext) -> None:
    await asyncio.sleep(0.01)


@workflow
async def stroll(ctx: WorkflowContext) -> None:
    await walk(ctx)


def end_here(how: signal.Signals) -> None:
    """Kill or stop this process before this thread does anything more.

    Sent to the process, a SIGSTOP may reach another thread first, and this one goes on until that one has run.
    """
    signal.pthread_kill(threading.get_ident(), how)


@activity
async def shoot(ctx: ActivityContext) -> None:
    await asyncio.sleep(0.005)
    os.kill(os.getpid(), signal.SIGKILL)


@workflow
async def killer(ctx: WorkflowContext) -> None:
    await shoot(ctx)


async def main(database: str, log_file: str, lease: float) -> None:
    state = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    app = App(database, workflows=[sys.modules[__name__]], state=state, lease=lease, worker=WorkerOptions(grace=2))
    async with app:
        log(state, what="ready")
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
