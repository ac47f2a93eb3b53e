"""Measures the cost of an open viewer: `python -m bench.viewer [list|now [blocks [database]]]`.

One-activity workflows run all the time, as fast as possible. Meanwhile a page in another process is open for one slice
of time, closed for the next, and so on in the order open, closed, closed, open, so that drift (a growing file, a
warming machine) affects both equally. The page behaves like the viewer's: it listens to the stream, and at most once a
second it reads its rows again, except those that have ended, and asks how many newer ones there are. The front page
(`now`) does so at most every five seconds, and also reads itself again.

Results are medians with a 95 % bootstrap interval. For each block: the ratio of open to closed for the CPU time of this
process (engine and viewer together) per workflow, and for workflows per second. For every slice with the page open: the
viewer's share of the CPU time, without reads in threads of the database. On a busy machine the first two need many
blocks. The third is hardly affected, but does not include what the viewer slows down elsewhere.
"""

from __future__ import annotations

import asyncio
import functools
import random
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from romancy import ActivityContext, App, WorkflowContext, activity, workflow
from romancy.app import http_app
from romancy.http import server
from romancy.http.listener import listen

AT_ONCE = 200
PERIODS = {"list": 1.0, "now": 5.0}
"""Seconds between two refreshes of each page."""
SETTLE = 0.3
"""Unmeasured seconds after opening or closing the page."""
ORDER = (True, False, False, True)
PAGE = """
import html, httpx2, re, sys, threading, time
url, path, period = sys.argv[1], sys.argv[2], float(sys.argv[3])
ROW = re.compile(r'<tr data-key="([^"]+)" data-position="[^"]*" class="(?!completed|failed|cancelled)')

with httpx2.Client(base_url=url, timeout=60) as client:
    def watch(closing):
        text = client.get(path).text
        ids, top = ROW.findall(text), html.unescape(re.search(r'data-position="([^"]*)"', text)[1])
        with httpx2.Client(base_url=url, timeout=60) as live, live.stream("GET", "/api/stream") as stream:
            last = 0.0
            print("open", flush=True)
            for line in stream.iter_lines():
                if closing.is_set():
                    break
                if line.startswith("data: ") and time.monotonic() - last > period:
                    last = time.monotonic()
                    if ids:
                        ids = ROW.findall(client.get("/viewer/rows", params={"id": ids}).text)
                    client.get("/viewer/newer", params={"top": top})
                    if path == "/viewer/":
                        client.get(path)
        print("closed", flush=True)

    for _ in sys.stdin:  # a line opens the page, the next one closes it
        closing = threading.Event()
        watching = threading.Thread(target=watch, args=(closing,))
        watching.start()
        sys.stdin.readline()
        closing.set()
        watching.join()
"""


@activity
async def step(ctx: ActivityContext, n: int) -> int:
    return n


@workflow
async def one(ctx: WorkflowContext, n: int) -> int:
    return await step(ctx, n)


@dataclass
class Slice:
    """Microseconds of CPU per workflow, workflows per second, and the viewer's share of the CPU."""

    is_open: bool
    cpu: float
    rate: float
    share: float


class Meter:
    """Count the CPU seconds of the viewer on the event loop: its requests and stream, and the feed of changes."""

    def __init__(self, app: App) -> None:
        self.seconds = 0.0
        asyncio.get_running_loop().set_task_factory(self._make_task)
        feed: Any = app._runtime.engine.committer.changes
        feed.stored, feed.touched = self._timed(feed.stored), self._timed(feed.touched)

    def _timed(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def timed(*args: Any, **kwargs: Any) -> Any:
            begun = time.thread_time()
            try:
                return fn(*args, **kwargs)
            finally:
                self.seconds += time.thread_time() - begun

        return timed

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        if coro.__qualname__.endswith(("run_asgi", "Hub._run")):
            coro = self._watched(coro)
        made: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
        return made

    @types.coroutine
    def _watched(self, coro: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        go, value = self._timed(coro.send), None
        while True:
            try:
                awaited = go(value)
            except StopIteration as end:
                return end.value
            try:
                value, go = (yield awaited), self._timed(coro.send)
            except BaseException as error:
                value, go = error, self._timed(coro.throw)


@dataclass
class Load:
    """Run workflows, `AT_ONCE` at a time."""

    app: App
    meter: Meter
    done: int = 0
    is_over: bool = False

    async def run(self) -> None:
        await asyncio.gather(*(self._place() for _ in range(AT_ONCE)))

    async def _place(self) -> None:
        while not self.is_over:
            await (await self.app.start_workflow(one, self.done)).result()
            self.done += 1

    async def measured(self, is_open: bool, seconds: float) -> Slice:
        done, cpu, viewer, begun = self.done, time.process_time(), self.meter.seconds, time.perf_counter()
        await asyncio.sleep(seconds)
        n, cpu = self.done - done, time.process_time() - cpu
        return Slice(is_open, 1e6 * cpu / n, n / (time.perf_counter() - begun), (self.meter.seconds - viewer) / cpu)


class Visitor:
    """A process with a page that can be opened and closed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process, self.is_open = process, False

    async def want(self, is_open: bool) -> None:
        if is_open != self.is_open:
            self.is_open = is_open
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(b"\n")
            said = (await self._process.stdout.readline()).strip()
            assert said == (b"open" if is_open else b"closed"), f"unexpected answer from the page: {said!r}"

    async def leave(self) -> None:
        await self.want(False)
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


async def visitor(url: str, kind: str) -> Visitor:
    pipe, path = subprocess.PIPE, "/viewer/" if kind == "now" else "/viewer/instances"
    command = sys.executable, "-c", PAGE, url, path, str(PERIODS[kind])
    return Visitor(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe))


Block = list[Slice]


async def measure(app: App, kind: str, blocks: int) -> list[Block]:
    load = Load(app, Meter(app))
    bound = listen("127.0.0.1", 0)
    face = http_app(app)
    web = server.Server(face, app, lambda: None)
    serving = asyncio.create_task(web.serve(sockets=[bound]))
    running = asyncio.create_task(load.run())
    page = await visitor(f"http://127.0.0.1:{bound.getsockname()[1]}", kind)
    await asyncio.sleep(3)  # warm
    found: list[Block] = []
    for n in range(blocks):
        block: Block = []
        for is_open in ORDER if n % 2 == 0 else [not is_open for is_open in ORDER]:
            await page.want(is_open)
            await asyncio.sleep(SETTLE)
            block.append(await load.measured(is_open, PERIODS[kind] * 1.05))  # about one refresh
        found.append(block)
    await page.leave()
    load.is_over = True
    await running
    face.drain()
    web.should_exit = True
    await serving
    return found


def interval(values: list[float]) -> str:
    """Return the median with its 95 % interval."""
    pick = random.Random(1)
    medians = sorted(statistics.median(pick.choices(values, k=len(values))) for _ in range(10_000))
    return f"{statistics.median(values):+.1%} (95 %: {medians[250]:+.1%} to {medians[9749]:+.1%}; {len(values)} values)"


def compare(name: str, unit: str, blocks: list[Block], of: Callable[[Slice], float]) -> None:
    def mean(block: Block, is_open: bool) -> float:
        return statistics.fmean(of(slice) for slice in block if slice.is_open is is_open)

    closed, is_open = (statistics.median(mean(block, side) for block in blocks) for side in (False, True))
    ratios = [mean(block, True) / mean(block, False) - 1 for block in blocks]
    print(f"{name}: closed {closed:,.0f} {unit}, open {is_open:,.0f} {unit}: {interval(ratios)}")


async def main(kind: str, blocks: int, database: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with App(database or Path(folder) / "bench.db", workflows=[one]) as app:
            found = await measure(app, kind, blocks)
    compare("CPU for each workflow", "us", found, lambda slice: slice.cpu)
    compare("workflows a second", "/s", found, lambda slice: slice.rate)
    print("the viewer's share of the CPU:", interval([s.share for block in found for s in block if s.is_open]))


if __name__ == "__main__":
    _, kind, blocks, database, *_ = [*sys.argv, *["list", "60", ""][len(sys.argv) - 1 :], ""]
    asyncio.run(main(kind, int(blocks), database or None))
