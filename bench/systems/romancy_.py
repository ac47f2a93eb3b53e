"""Romancy, as it comes: no option is set but where a workload is about one. `synchronous=FULL` on SQLite, `fsync` and
`synchronous_commit` on PostgreSQL. Garbage is collected as in `romancy worker`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.systems import http_load
from bench.systems.common import Figures, Task, clock, main, rss_kb, spread_ms, workload
from romancy import ActivityContext, App, WorkflowContext, activity, sleep_until, wait_event, workflow
from romancy.core.garbage import collect_less
from romancy.testing import replay as replay_history

CONCURRENCY = (1000,)
LOG = os.environ.setdefault("BENCH_LOG", tempfile.mkstemp(prefix="romancy-bench-")[1])
"""Where activities of `recovery` say when they ran, in whatever process."""


def _note() -> None:
    with Path(LOG).open("a") as log:
        log.write(f"{time.time()}\n")


def _noted() -> list[float]:
    return [float(line) for line in Path(LOG).read_text().split()]


# --- the workflows ---------------------------------------------------------------------------------------------------
@activity
async def noop(ctx: ActivityContext, x: int) -> int:
    return x


@activity
async def slow(ctx: ActivityContext, x: int) -> int:
    _note()
    await asyncio.sleep(float(os.environ.get("BENCH_HOLD", "0.2")))
    return x


@workflow
async def one_step(ctx: WorkflowContext, x: int) -> int:
    return await noop(ctx, x)


@workflow
async def many_steps(ctx: WorkflowContext, n: int) -> int:
    for i in range(n):
        await noop(ctx, i)
    return n


@workflow
async def steps_and_wait(ctx: WorkflowContext, n: int) -> float:
    for i in range(n):
        await noop(ctx, i)
    await wait_event(ctx, "go")
    return clock()


@workflow
async def waiter(ctx: WorkflowContext, key: int) -> float:
    await wait_event(ctx, "go", where={"key": key})
    return clock()


@workflow
async def listener(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "all")


@workflow
async def sleeper(ctx: WorkflowContext, due: float) -> float:
    await sleep_until(ctx, ctx.now() + timedelta(seconds=max(0.0, due - ctx.now().timestamp())))
    return time.time()


@workflow
async def two_steps(ctx: WorkflowContext, x: int) -> int:
    await noop(ctx, x)
    return await slow(ctx, x)


WORKFLOWS: list[Any] = [one_step, many_steps, steps_and_wait, waiter, listener, sleeper, two_steps]


def app_of(task: Task, **options: Any) -> App:
    return App(str(task.path) if task.is_sqlite else task.database, workflows=WORKFLOWS, **options)


async def all_waiting(app: App, count: int) -> None:
    """Until so many have come to their wait, with its commit."""
    while not app._runtime.engine.is_idle:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    waiting = (await app._runtime.engine.storage.catalog.counts(2_000_000)).get("waiting_for_event", 0)
    assert waiting == count, f"{waiting} of {count} wait"


async def start_all(app: App, function: Any, given: Iterable[tuple[Any, ...]]) -> list[Any]:
    given = list(given)
    handles: list[Any] = []
    for i in range(0, len(given), 1000):
        handles += await asyncio.gather(*(app.start_workflow(function, *args) for args in given[i : i + 1000]))
    return handles


# --- throughput ------------------------------------------------------------------------------------------------------
@workload
async def finish(task: Task) -> Figures:
    async with app_of(task) as app:
        numbers = iter(range(task.size))

        async def some() -> None:
            for i in numbers:
                await (await app.start_workflow(one_step, i)).result()

        begin = clock()
        await asyncio.gather(*(some() for _ in range(min(task.size, task.concurrency or CONCURRENCY[0]))))
        return {"workflows_per_s": task.size / (clock() - begin)}


@workload
async def sequential(task: Task) -> Figures:
    async with app_of(task) as app:
        begin = clock()
        await (await app.start_workflow(many_steps, task.size)).result()
        return {"activities_per_s": task.size / (clock() - begin)}


@workload
async def parallel(task: Task) -> Figures:
    async with app_of(task) as app:
        begin = clock()
        for _ in range(task.repeats):
            handles = await start_all(app, many_steps, ((task.steps,) for _ in range(task.size)))
            await asyncio.gather(*(handle.result() for handle in handles))
        return {"activities_per_s": task.repeats * task.size * task.steps / (clock() - begin)}


# --- events and timers -----------------------------------------------------------------------------------------------
@workload
async def wake(task: Task) -> Figures:
    async with app_of(task) as app:
        handles = await start_all(app, waiter, ((i,) for i in range(task.size)))
        await all_waiting(app, task.size)
        begin = clock()
        for first in range(0, task.size, 1000):
            some = range(first, min(first + 1000, task.size))
            await asyncio.gather(*(app.send_event("go", "bench", {"key": i}) for i in some))
        await asyncio.gather(*(handle.result() for handle in handles))
        took = clock() - begin
    return {"wall_s": took, "events_per_s": task.size / took}


@workload
async def latency(task: Task) -> Figures:
    taken: list[float] = []
    async with app_of(task) as app:
        for i in range(task.size):
            handle = await app.start_workflow(waiter, i)
            await all_waiting(app, 1)
            begin = clock()
            await app.send_event("go", "bench", {"key": i})
            taken.append(await handle.result() - begin)
    return spread_ms(taken)


@workload
async def latency_among(task: Task) -> Figures:
    """Single events to one of many that wait, most of them not in memory."""
    taken: list[float] = []
    async with app_of(task) as app:
        handles = await start_all(app, waiter, ((i,) for i in range(task.size)))
        await all_waiting(app, task.size)
        for i in range(0, task.size, task.size // 100):
            begin = clock()
            await app.send_event("go", "bench", {"key": i})
            taken.append(await handles[i].result() - begin)
        resident = len(app._runtime.engine.scheduler.residents)
    return {**spread_ms(taken), "resident": float(resident)}


@workload
async def broadcast(task: Task) -> Figures:
    async with app_of(task) as app:
        handles = await start_all(app, listener, (() for _ in range(task.size)))
        await all_waiting(app, task.size)
        begin = clock()
        await app.send_event("all", "bench")
        await asyncio.gather(*(handle.result() for handle in handles))
        return {"wall_s": clock() - begin}


@workload
async def sleepers(task: Task) -> Figures:
    async with app_of(task) as app:
        due = time.time() + 1.0 + task.size / 1500
        handles = await start_all(app, sleeper, ((due,) for _ in range(task.size)))
        woken = await asyncio.gather(*(handle.result() for handle in handles))
    late = [at - due for at in woken]
    assert min(late) >= 0, "woken too early"
    return spread_ms(late)


# --- coming back -----------------------------------------------------------------------------------------------------
@workload
async def resume(task: Task) -> Figures:
    figures: Figures = {}
    async with app_of(task) as app:
        handles = [await app.start_workflow(steps_and_wait, task.size, instance_id=f"r{i}") for i in range(2)]
        await all_waiting(app, 2)
        begin = clock()
        await app.send_event("go", "bench", to="r0")
        figures["resident_s"] = await handles[0].result() - begin
    async with app_of(task) as app:  # in memory again only when its event comes
        begin = clock()
        await app.send_event("go", "bench", to="r1")
        figures["seconds"] = await app.handle("r1", steps_and_wait).result() - begin
    return figures


@workload
async def replay(task: Task) -> Figures:
    async with app_of(task) as app:
        handle = await app.start_workflow(many_steps, task.size)
        await handle.result()
        history = await app.get_history(handle.instance_id)
    begin = clock()
    replay_history(many_steps, history)
    return {"entries_per_s": task.size / (clock() - begin)}


@workload
async def memory(task: Task) -> Figures:
    async with app_of(task) as app:
        await start_all(app, waiter, ((-i - 1,) for i in range(100)))
        await all_waiting(app, 100)
        before = rss_kb()
        await start_all(app, waiter, ((i,) for i in range(task.size)))
        await all_waiting(app, task.size + 100)
        return {"kb_per_workflow": (rss_kb() - before) / task.size}


@workload
async def recovery(task: Task) -> Figures:
    """All are held in their second activity until the kill."""
    async with _worker(task, BENCH_HOLD="3600") as process, app_of(task, worker=False) as app:
        handles = await start_all(app, "two_steps", ((i,) for i in range(task.size)))
        while len(_noted()) < task.size:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        begin = time.time()
        took: float | None = None
        async with _worker(task):
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*(h.result() for h in handles)), task.left)
                took = time.time() - begin
    again = [at for at in _noted() if at > begin]
    return {"first_s": again[0] - begin if again else None, "all_s": took}


@asynccontextmanager
async def _worker(task: Task, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    command = [sys.executable, "-m", "bench.systems.romancy_", "worker", "--database", task.database]
    process = await asyncio.create_subprocess_exec(*command, start_new_session=True, env=os.environ | environment)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@workload
async def worker(task: Task) -> Figures:
    """A process of `recovery`."""
    async with app_of(task, max_activities=1000):
        await asyncio.Event().wait()
    return {}


# --- events by HTTP --------------------------------------------------------------------------------------------------
@workload
def http(task: Task) -> Figures:
    return http_load.measure(str(task.path) if task.is_sqlite else task.database, task.size)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    collect_less()
    try:
        main()
    finally:
        Path(LOG).unlink(missing_ok=True)
