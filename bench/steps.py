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
from romancy import App, HooksBase, WorkerOptions, WorkflowContext, step, workflow
from romancy.engine import background
from romancy.hooks import WaitStartedInfo
from romancy.storage.sqlite import threads
from romancy.testing import replay

AT_ONCE = 20
SLOWNESS = 100
"""About how much slower a program runs under valgrind."""

_rest = background.Duty._rest  # pyright: ignore[reportPrivateUsage]


async def _rest_longer(duty: background.Duty, seconds: float) -> None:
    """Let background duties rest as long as the slow program would: otherwise they do a good part of the work."""
    await _rest(duty, seconds if duty._name == "lease" else seconds * SLOWNESS)  # pyright: ignore[reportPrivateUsage]


background.Duty._rest = _rest_longer  # type: ignore[method-assign]
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


class Waits(HooksBase):
    """Lets `awake` wait for waits, once they are stored. Looking again and again would cost more on a busy machine."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(0)

    def on_wait_started(self, info: WaitStartedInfo) -> None:
        self._places.release()

    async def come(self, count: int) -> None:
        for _ in range(count):
            await self._places.acquire()


async def awake(n: int) -> None:
    """The same as `wake`, with instances that are not in memory: an event has them read and replayed."""
    waits, options = Waits(), WorkerOptions(max_resident=AT_ONCE)
    async with App(":memory:", workflows=WORKFLOWS, worker=options, hooks=[waits]) as app:
        groups = [range(first, min(first + AT_ONCE, n)) for first in range(0, n, AT_ONCE)]
        for group in groups:
            await asyncio.gather(*(app.start_workflow(waiter, i, instance_id=f"w{i}") for i in group))
            await waits.come(len(group))
        for group in groups:
            is_last = group.stop == n  # still in memory, in part
            assert is_last or not any(f"w{i}" in app._runtime.engine.residents for i in group)
            await asyncio.gather(*(app.send_event("go", "bench", {"key": i}) for i in group))
            await asyncio.gather(*(app.handle(f"w{i}", waiter).result() for i in group))


async def replaying(n: int) -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        handle = await app.start_workflow(many_steps, 100)
        await handle.result()
        history = await app.get_history(handle.instance_id)
    for _ in range(n // 100):
        replay(many_steps, history)


KINDS = {f.__name__: f for f in (reference, sequential, closures, parallel, finish, wake, awake, replaying)}

if __name__ == "__main__":
    logging.disable(logging.WARNING)
    asyncio.run(KINDS[sys.argv[1]](int(sys.argv[2])))
