"""What a viewer left open costs: `python -m bench.viewer [workflows]`.

Runs one-activity workflows with nobody watching, and with a page open that listens to the stream and looks at its rows
again whenever something changed, as the viewer's own page does. Both in turn, several times. What counts is the CPU
time of this process for each workflow: unlike the rate it does not depend on what else the machine does.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from romancy import ActivityContext, App, WorkflowContext, activity, workflow
from romancy.http import server

ROUNDS = 5
PAGE = """
import httpx, re, sys, time
with httpx.Client(base_url=sys.argv[1], timeout=60) as client:
    ids = re.findall(r'<tr data-key="([^"]+)"', client.get("/viewer/").text)
    with client.stream("GET", "/api/stream") as stream, httpx.Client(base_url=sys.argv[1], timeout=60) as rows:
        last = 0.0
        print("open", flush=True)
        for line in stream.iter_lines():
            if line.startswith("data: ") and time.monotonic() - last > 1:
                last = time.monotonic()
                rows.get("/viewer/rows", params={"id": ids})
                rows.get("/viewer/newer")
"""


@activity
async def step(ctx: ActivityContext, n: int) -> int:
    return n


@workflow
async def one(ctx: WorkflowContext, n: int) -> int:
    return await step(ctx, n)


async def cost(app: App, count: int) -> float:
    """Microseconds of CPU for one workflow."""
    begun = time.process_time()
    handles = await asyncio.gather(*(app.start_workflow(one, n) for n in range(count)))
    await asyncio.gather(*(handle.result() for handle in handles))
    return 1e6 * (time.process_time() - begun) / count


async def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        app = App(Path(folder) / "bench.db", workflows=[one])
        bound = server.listen("127.0.0.1", 0)
        async with app:
            face = server.Face(app)
            web = server.Server(face, app, lambda: None)
            serving = asyncio.create_task(web.serve(sockets=[bound]))
            await cost(app, count)  # warm
            alone: list[float] = []
            watched: list[float] = []
            for _ in range(ROUNDS):
                alone.append(await cost(app, count))
                page = await _open(f"http://127.0.0.1:{bound.getsockname()[1]}")
                watched.append(await cost(app, count))
                page.terminate()
                await page.wait()
            face.drain()
            web.should_exit = True
            await serving
    before, after = statistics.median(alone), statistics.median(watched)
    print(f"alone {before:.0f} us, watched {after:.0f} us: {100 * (after / before - 1):+.1f} % (medians of {ROUNDS})")


async def _open(url: str) -> asyncio.subprocess.Process:
    page = await asyncio.create_subprocess_exec(sys.executable, "-c", PAGE, url, stdout=subprocess.PIPE)
    assert page.stdout is not None
    await page.stdout.readline()
    return page


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000))
