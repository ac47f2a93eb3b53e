"""A worker that may die just before or just after it starts a tick: `database schema seed`."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from typing import Any

from romancy import App, Database, WorkflowContext, workflow
from romancy.storage.schedules import Schedules


@workflow
async def tick(ctx: WorkflowContext) -> str:
    return ctx.scheduled_at.isoformat()


def die_soon(luck: random.Random) -> None:
    """Die at one of the next ticks, whether another worker was first or not."""
    fire, left, is_before = Schedules.fire, luck.randrange(2, 12), luck.random() < 0.5

    async def deadly(self: Schedules, *given: Any) -> bool | None:
        nonlocal left
        left -= 1
        if left == 0 and is_before:
            os.kill(os.getpid(), signal.SIGKILL)
        fired = await fire(self, *given)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return fired

    Schedules.fire = deadly  # type: ignore[method-assign]


async def main(url: str, schema: str, seed: str) -> None:
    if seed:
        die_soon(random.Random(int(seed)))
    async with App(Database(url, schema=schema or None), workflows=[tick], lease=1.0):
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
