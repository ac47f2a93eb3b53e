"""Work to measure, without a disk: `python -m bench.steps NAME N` does N of something and ends. See quick.py."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import sqlite3
import sys
from typing import Any

from bench.systems.romancy_ import WORKFLOWS, many_steps, one_step, waiter
from romancy import App, WorkflowContext, step, workflow
from romancy.storage.sqlite import threads
from romancy.testing import replay

AT_ONCE = 20
threads._QUICK = math.inf  # type: ignore[attr-defined] - otherwise the slowness of valgrind decides which thread commits


async def reference(n: int) -> None:
    """Do something like a step by hand, with the same interpreter and library: a future, JSON and a row."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute("CREATE TABLE t (instance TEXT, n INTEGER, payload BLOB, PRIMARY KEY (instance, n)) WITHOUT ROWID")
    loop = asyncio.get_running_loop()
    for i in range(n):
        future: asyncio.Future[Any] = loop.create_future()
        loop.call_soon(future.set_result, json.loads(json.dumps({"x": i})))
        value = await future
        db.execute("BEGIN")
        db.execute("INSERT INTO t VALUES ('x', ?, ?)", (i, json.dumps(value)))
        db.execute("COMMIT")
    db.close()


async def sequential(n: int) -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        await (await app.start_workflow(many_steps, n)).result()


@workflow
async def many_closures(ctx: WorkflowContext, n: int) -> int:
    for i in range(n):

        async def noop(x: int = i) -> int:
            return x

        await step(ctx, "noop", noop, input=i)
    return n


async def closures(n: int) -> None:
    """The same as `sequential`, without a decorated activity."""
    async with App(":memory:", workflows=[many_closures]) as app:
        await (await app.start_workflow(many_closures, n)).result()


async def parallel(n: int) -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        handles = [await app.start_workflow(many_steps, n // AT_ONCE) for _ in range(AT_ONCE)]
        await asyncio.gather(*(handle.result() for handle in handles))


async def finish(n: int) -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        for _ in range(n // AT_ONCE):
            handles = await asyncio.gather(*(app.start_workflow(one_step, i) for i in range(AT_ONCE)))
            await asyncio.gather(*(handle.result() for handle in handles))


async def wake(n: int) -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        handles = await asyncio.gather(*(app.start_workflow(waiter, i) for i in range(n)))
        await asyncio.gather(*(app.send_event("go", "bench", {"key": i}) for i in range(n)))
        await asyncio.gather(*(handle.result() for handle in handles))


async def replaying(n: int) -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        handle = await app.start_workflow(many_steps, 100)
        await handle.result()
        history = await app.get_history(handle.instance_id)
    for _ in range(n // 100):
        replay(many_steps, history)


KINDS = {f.__name__: f for f in (reference, sequential, closures, parallel, finish, wake, replaying)}

if __name__ == "__main__":
    logging.disable(logging.WARNING)
    asyncio.run(KINDS[sys.argv[1]](int(sys.argv[2])))
