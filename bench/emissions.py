"""How long it takes from `emit` to a reader, here and in another process: `python -m bench.emissions`.

100 instances emit 100 values a second each, for five seconds. Readers follow all of them.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time

from bench.plan import DATABASES
from bench.running import database
from romancy import ActivityContext, App, WorkflowContext, activity, emit, workflow
from tests import pg_server

INSTANCES, RATE, SECONDS = 100, 100, 5


@activity
async def speak(ctx: ActivityContext) -> int:
    begun = time.monotonic()
    for n in range(RATE * SECONDS):
        await emit(ctx, time.time_ns(), topic="times")
        await asyncio.sleep(max(0.0, begun + (n + 1) / RATE - time.monotonic()))
    return RATE * SECONDS


@workflow
async def talk(ctx: WorkflowContext) -> int:
    return await speak(ctx)


async def follow(app: App, instance: str) -> list[float]:
    """Milliseconds from `emit` to the reader."""
    return [(time.time_ns() - e.value) / 1e6 async for e in app.handle(instance).emitted("times", model=int)]


async def follow_all(url: str) -> None:
    """The other process: prints the latencies."""
    async with App(url, worker=False) as app:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        found = await asyncio.gather(*(follow(app, f"talk-{n}") for n in range(INSTANCES)))
        print(json.dumps([ms for each in found for ms in each]), flush=True)


async def measure(url: str, where: str) -> str:
    other = None
    async with App(url, workflows=[talk], max_activities=INSTANCES) as app:
        if where == "another process":
            words = [sys.executable, "-m", "bench.emissions", "--follow", url]
            other = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
            assert other.stdin is not None
            assert other.stdout is not None
            await asyncio.to_thread(other.stdout.readline)
        begun, cpu = time.monotonic(), time.process_time()
        handles = [await app.start_workflow(talk.options(instance_id=f"talk-{n}")) for n in range(INSTANCES)]
        found: list[float] = []
        if where == "this process":
            found = [ms for each in await asyncio.gather(*(follow(app, h.instance_id) for h in handles)) for ms in each]
        if other is not None and other.stdin is not None:
            other.stdin.write("\n")
            other.stdin.flush()
        for handle in handles:
            await handle.result()
        took, cpu = time.monotonic() - begun, time.process_time() - cpu
        if other is not None and other.stdout is not None:
            found = json.loads(await asyncio.to_thread(other.stdout.readline))
            other.wait()
    count = INSTANCES * RATE * SECONDS
    latency = "-" if not found else f"{statistics.median(found):.0f} / {statistics.quantiles(found, n=100)[98]:.0f} ms"
    return f"| {where} | {count:,} in {took:.1f} s | {latency} | {cpu / count * 1e6:.0f} us |"


def main() -> None:
    print("| database, readers in | stored | `emit` to reader, median / 99 % | CPU of the worker for one |")
    print("|---|---|---|---|", flush=True)
    for kind in DATABASES:
        for where in ("nobody reads", "this process", "another process"):
            with database(kind, "romancy", pg_server.url() if kind == "postgres" else "") as url:
                print(asyncio.run(measure(url, where)).replace("| ", f"| {kind}, ", 1), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--follow"]:
        asyncio.run(follow_all(sys.argv[2]))
    else:
        main()
