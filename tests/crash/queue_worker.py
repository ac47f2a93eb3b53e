"""A worker with a queue, for tests that kill it: `python -m tests.crash.queue_worker DATABASE LOG LEASE [SCHEMA]`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from romancy import (
    ActivityContext,
    App,
    Database,
    Queue,
    WorkerOptions,
    WorkflowContext,
    activity,
    workflow,
)
from tests.crash.worker import log

LIMIT, PER_KEY = 7, 2
mail = Queue("mail", max_concurrent=LIMIT, max_concurrent_per_key=PER_KEY)


@activity
async def send(ctx: ActivityContext, seconds: float) -> None:
    await asyncio.sleep(seconds)


@workflow(queue=mail, key="customer")
async def letter(ctx: WorkflowContext, customer: str, seconds: float) -> None:
    await send(ctx, seconds)
    await send(ctx, seconds)


async def main(database: str, log_file: str, lease: float, schema: str | None) -> None:
    state = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    app = App(Database(database, schema=schema), workflows=letter, lease=lease, worker=WorkerOptions(grace=1))
    async with app:
        log(state, what="ready")
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else None))
