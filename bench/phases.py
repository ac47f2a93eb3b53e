"""The phases of `bench.million`, each in a process of its own, so that its memory and CPU time are its own.

`python -m bench.phases NAME DATABASE SCHEMA COUNT SECONDS` prints lines of JSON: how many are done, and at the end the
figures. A phase that takes longer than SECONDS ends early, and says how far it came.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from itertools import islice
from typing import Any

from bench.systems.common import percentile, rss_kb
from romancy import App, Database, HooksBase, Retention, WorkerOptions, WorkflowContext, wait_event, workflow
from romancy.core.garbage import collect_less
from romancy.hooks import WorkflowCompletedInfo

TYPE = "order.paid"
GROUP, WINDOW, SINGLES, IDLE = 1000, 2000, 300, 5.0
TELL_EVERY = 0.2
Figures = dict[str, float]
clock = time.perf_counter


@workflow
async def order(ctx: WorkflowContext, n: int) -> int:
    timeout = timedelta(days=400) if n % 10 == 0 else None
    return (await wait_event(ctx, TYPE, where={"order": n}, timeout=timeout)).data["order"]


def id_of(n: int) -> str:
    return f"order-{n:07}"


def shuffled(count: int) -> Iterator[int]:
    """Yield all numbers below `count` in an order that has nothing to do with when they were started."""
    step = next(s for s in range(int(count * 0.618) | 1, 2 * count + 2) if math.gcd(s, count) == 1)
    return (i * step % count for i in range(count))


class Watch:
    """The time and CPU time since a phase began, and its limit."""

    def __init__(self, seconds: float) -> None:
        self._begin, self._cpu, self._told = clock(), time.process_time(), 0.0
        self._end = self._begin + seconds

    @property
    def is_over(self) -> bool:
        return clock() > self._end

    def tell(self, done: int) -> None:
        if clock() - self._told > TELL_EVERY:
            self._told = clock()
            print(json.dumps({"done": done}), flush=True)

    def figures(self, done: int) -> Figures:
        seconds, cpu = clock() - self._begin, time.process_time() - self._cpu
        each = {"per_s": done / seconds, "cpu_us": cpu / done * 1e6} if done else {}
        return {"done": done, "seconds": seconds, **each, "rss_mb": rss_kb() / 1024, "peak_mb": peak_mb()}


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Ends(HooksBase):
    """Counts the workflows that have ended, after their commit, and lets a sender wait for them."""

    def __init__(self) -> None:
        self.count, self._wanted, self._reached = 0, 0, asyncio.Event()

    def on_workflow_completed(self, info: WorkflowCompletedInfo) -> None:
        self.count += 1
        if self.count >= self._wanted:
            self._reached.set()

    async def reach(self, wanted: int) -> None:
        self._wanted = wanted
        self._reached.clear()
        if self.count < wanted:
            await self._reached.wait()


def app_on(database: str, schema: str, **options: Any) -> App:
    return App(Database(database, schema=schema or None), workflows=[order], **options)


async def waiting(app: App, count: int) -> int:
    return (await app._runtime.engine.storage.catalog.counts(2 * count)).get("waiting_for_event", 0)


# --- phases ----------------------------------------------------------------------------------------------------------
async def start(database: str, schema: str, count: int, seconds: float) -> Figures:
    """Start them all, until each has come to its wait, with its commit."""
    async with app_on(database, schema) as app:
        watch, started = Watch(seconds), 0
        while started < count and not watch.is_over:
            some = range(started, min(started + GROUP, count))
            await asyncio.gather(*(app.start_workflow(order, n, instance_id=id_of(n)) for n in some))
            started = some.stop
            watch.tell(started)
        while True:
            while not app._runtime.engine.is_idle:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            if await waiting(app, count) >= started:
                return watch.figures(started)
            await asyncio.sleep(0.5)  # counting a million takes a while


async def single(database: str, schema: str, count: int, seconds: float) -> Figures:
    """Start a worker among all that wait, and send single events, each to one of the last ones of `shuffled`."""
    begin = clock()
    app = app_on(database, schema)
    await app.start()
    figures: Figures = {"startup_s": clock() - begin, "startup_mb": rss_kb() / 1024}
    watch, took = Watch(seconds), list[float]()
    for n in singles(count):
        begin = clock()
        await app.send_event(TYPE, "bench", {"order": n})
        await app.handle(id_of(n), order).result()
        took.append((clock() - begin) * 1000)
        watch.tell(len(took))
        if watch.is_over:
            break
    figures |= {"first_ms": took[0], "p50_ms": percentile(took, 0.5), "p99_ms": percentile(took, 0.99)}
    figures |= {"worst_ms": max(took)} | watch.figures(len(took))
    cpu = time.process_time()
    await asyncio.sleep(IDLE)
    figures["idle_cpu"] = (time.process_time() - cpu) / IDLE
    begin = clock()
    await app.stop()
    return figures | {"stop_s": clock() - begin}


def singles(count: int) -> list[int]:
    """The instances that `single` wakes: `wake` leaves them out."""
    number = min(SINGLES, count // 10)
    return [n for i, n in enumerate(shuffled(count)) if i >= count - number]


async def wake(database: str, schema: str, count: int, seconds: float) -> Figures:
    """Send an event to each that still waits, with at most `WINDOW` events ahead of the workflows they end."""
    ends, gone = Ends(), set(singles(count))
    async with app_on(database, schema, hooks=[ends]) as app:
        watch, sent = Watch(seconds), 0
        numbers = (n for n in shuffled(count) if n not in gone)
        while (some := list(islice(numbers, GROUP))) and not watch.is_over:
            await asyncio.gather(*(app.send_event(TYPE, "bench", {"order": n}) for n in some))
            sent += len(some)
            await ends.reach(sent - WINDOW)
            watch.tell(ends.count)
        await ends.reach(sent)
        return watch.figures(sent)


async def prune(database: str, schema: str, count: int, seconds: float) -> Figures:
    """Delete all that have ended, and their events, as fast as a worker does."""
    soon = timedelta(microseconds=1)
    async with app_on(database, schema, retention=Retention(instances=soon, failed=soon)) as app:
        watch = Watch(seconds)
        while (left := await _ended(app, count)) and not watch.is_over:
            watch.tell(count - left)
            await asyncio.sleep(2.0)  # counting costs something, too
        while (await app.list_events(limit=1)).items and not watch.is_over:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        return watch.figures(count - left)


async def _ended(app: App, count: int) -> int:
    counts = await app._runtime.engine.storage.catalog.counts(2 * count)
    return counts.get("completed", 0)


async def slope(database: str, schema: str, count: int, seconds: float) -> Figures:
    """Wake a few hundred of so many that wait, none of them in memory, whatever their number."""
    ends, wakes = Ends(), 500
    async with app_on(database, schema, hooks=[ends], worker=WorkerOptions(max_resident=200)) as app:
        numbers = list(islice(shuffled(count), wakes))
        await _wake_some(app, ends, numbers[:100])  # warm
        watch = Watch(seconds)
        await _wake_some(app, ends, numbers[100:])
        return watch.figures(len(numbers) - 100)


async def _wake_some(app: App, ends: Ends, numbers: list[int]) -> None:
    for first in range(0, len(numbers), 100):
        some = numbers[first : first + 100]
        wanted = ends.count + len(some)
        await asyncio.gather(*(app.send_event(TYPE, "bench", {"order": n}) for n in some))
        await ends.reach(wanted)


Phase = Callable[[str, str, int, float], Awaitable[Figures]]
PHASES: dict[str, Phase] = {p.__name__: p for p in (start, single, wake, prune, slope)}

if __name__ == "__main__":
    logging.disable(logging.WARNING)
    collect_less()  # as in `romancy worker`
    name, where, schema_name, how_many, at_most = sys.argv[1:]
    found = asyncio.run(PHASES[name](where, schema_name, int(how_many), float(at_most)))  # type: ignore[arg-type]
    print(json.dumps({"figures": found}), flush=True)
