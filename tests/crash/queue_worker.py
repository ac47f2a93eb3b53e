"""A worker with a queue, for tests that kill it: `python -m tests.crash.queue_worker DATABASE LOG LEASE SCHEMA DEATH`.

DEATH is empty, or a point and a number: it kills itself when it gets to this point so many times. At the point
`stop-pass-on`, it stops instead, until it is told to go on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

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
from romancy.engine.loader import Loader
from romancy.storage.postgres import PostgresStorage
from romancy.storage.queues import Queues
from romancy.storage.sqlite import SQLiteStorage
from tests.crash.worker import end_here, log

LIMIT, PER_KEY = 7, 2
POINTS = ("before-glance", "after-glance", "before-admit", "after-admit", "before-load", "pass-on")
"""Before and after it reads how full the queue is, before and after it writes, before it runs what it has admitted; and
before it stores the end of an instance together with the admission of the next one."""
mail = Queue("mail", max_concurrent=LIMIT, max_concurrent_per_key=PER_KEY)


@activity
async def send(ctx: ActivityContext, seconds: float) -> None:
    await asyncio.sleep(seconds)


@workflow(queue=mail, key="customer")
async def letter(ctx: WorkflowContext, customer: str, seconds: float) -> None:
    await send(ctx, seconds)
    await send(ctx, seconds)


class Doom:
    """Kills this process at the n-th time that it gets to a point."""

    def __init__(self, death: str) -> None:
        self._point, _, n = death.partition(" ")
        self._left = int(n)

    def reach(self, point: str) -> None:
        if point == self._point.removeprefix("stop-"):
            self._left -= 1
            if self._left == 0:
                end_here(signal.SIGKILL if point == self._point else signal.SIGSTOP)

    def watch(self, queues: Any) -> None:
        for name in ("glance", "admit"):
            setattr(queues, name, self._watched(name, getattr(queues, name)))

    def _watched(self, name: str, method: Any) -> Any:
        async def call(*args: Any) -> Any:
            self.reach(f"before-{name}")
            result = await method(*args)
            self.reach(f"after-{name}")
            return result

        return call


def doom(death: str) -> None:
    """Let every `Queues` of this process be watched from the beginning."""
    fate, made, load = Doom(death), Queues.__init__, Loader.load

    def __init__(self: Queues, *args: Any) -> None:
        made(self, *args)
        fate.watch(self)

    def loading(self: Loader, *args: Any, **more: Any) -> Any:
        fate.reach("before-load")
        return load(self, *args, **more)

    def passing_on(kind: Any) -> None:
        commit = kind.commit

        def committing(self: Any, batch: Any, answered: Any) -> None:
            if any(one.admits is not None for one in batch.commits):
                fate.reach("pass-on")
            commit(self, batch, answered)

        kind.commit = committing

    passing_on(SQLiteStorage)
    passing_on(PostgresStorage)
    Queues.__init__ = __init__  # type: ignore[method-assign]
    Loader.load = loading  # type: ignore[method-assign]


async def main(database: str, log_file: str, lease: float, schema: str | None) -> None:
    state = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    app = App(Database(database, schema=schema), workflows=letter, lease=lease, worker=WorkerOptions(grace=1))
    async with app:
        log(state, what="ready")
        await stop.wait()


if __name__ == "__main__":
    if sys.argv[5]:
        doom(sys.argv[5])
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4] or None))
