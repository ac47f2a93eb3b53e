"""A worker process of the soak: `python -m tests.soak.worker DATABASE LOG LEASE [SCHEMA]`."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
import time

from romancy import ActivityContext, App, Database, WorkerOptions
from tests.crash.worker import log
from tests.property.programs import program, reaction

PAUSES = (0.0, 0.0, 0.01, 0.1, 0.4)


class Attempts:
    """The `state` of the app: says how long attempts take, and writes them down."""

    def __init__(self, file: int) -> None:
        self.file = file

    def begins(self, ctx: ActivityContext) -> float:
        log(self.file, what="attempt", instance=ctx.instance_id, op=ctx.activity_id, attempt=ctx.attempt)
        return random.choice(PAUSES)

    def begins_in_thread(self, ctx: ActivityContext) -> None:
        time.sleep(self.begins(ctx))


async def main(database: str, log_file: str, lease: float, schema: str | None) -> None:
    logging.getLogger("romancy").setLevel(logging.CRITICAL)
    file = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    app = App(
        Database(database, schema=schema),
        workflows=[program, reaction],
        state=Attempts(file),
        lease=lease,
        worker=WorkerOptions(grace=1, max_resident=random.choice((2, 1000))),
    )
    async with app:
        log(file, what="ready")
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), *(sys.argv[4:] or [None])))
