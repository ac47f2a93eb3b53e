"""Worker processes on one schema, and the log that their activities write: a line when an attempt begins and ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from romancy import ActivityContext, App, Database, WorkerOptions, WorkflowContext, activity, wait_event, workflow

ROOT = Path(__file__).parents[2]


@activity
async def work(ctx: ActivityContext, seconds: float) -> int:
    """A line before and a line after, each written at once: no death of the process loses one."""
    _note(ctx, "begin")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        _note(ctx, "end")
        raise
    _note(ctx, "end")
    return os.getpid()


def _note(ctx: ActivityContext, what: str) -> None:
    line = {"what": what, "pid": os.getpid(), "at": time.time(), "instance": ctx.instance_id, "op": ctx.activity_id}
    os.write(ctx.state, (json.dumps(line) + "\n").encode())


@workflow
async def job(ctx: WorkflowContext, n: int) -> int:
    """Works, waits for an event of its own, works, waits for another."""
    await work(ctx, 0.03)
    first = await wait_event(ctx, "first", where={"n": n})
    await work(ctx, 0.03)
    second = await wait_event(ctx, "second", subject=str(n))
    await work(ctx, 0.01)
    return first.data["plus"] + second.data["plus"]


@activity
async def book(ctx: ActivityContext, seconds: float) -> int:
    _note(ctx, "begin")
    await asyncio.sleep(seconds)
    _note(ctx, "end")
    return os.getpid()


@book.compensate
async def unbook(ctx: ActivityContext, booking: int, seconds: float) -> None:
    _note(ctx, "begin")
    await asyncio.sleep(seconds)
    _note(ctx, "undone")


@workflow
async def trip(ctx: WorkflowContext, n: int) -> None:
    """Books three things at once, and two more, then fails."""
    await asyncio.gather(book(ctx, 0.03), book(ctx, 0.01), book(ctx, 0.02))
    await book(ctx, 0.01)
    await book(ctx, 0.01)
    raise ValueError(f"trip {n} is off")


class Crew:
    """Processes that work on a schema."""

    def __init__(self, url: str, schema: str, log: Path) -> None:
        self.url, self.schema, self._log = url, schema, log
        self._log.touch()
        self._processes: list[subprocess.Popen[bytes]] = []

    def spawn(self, lease: float) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.postgres.crew", self.url, self.schema, str(self._log), str(lease)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        )
        self._processes.append(process)
        return process

    async def ready(self, *processes: subprocess.Popen[bytes]) -> None:
        wanted = {process.pid for process in processes}
        async with asyncio.timeout(20):
            while not wanted <= {line["pid"] for line in self.lines("ready")}:  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.02)

    def lines(self, *what: str) -> list[dict[str, Any]]:
        complete = self._log.read_text().rpartition("\n")[0]
        return [line for line in map(json.loads, complete.splitlines()) if line["what"] in what]

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()

    def check_no_overlap(self, excused: dict[int, list[tuple[float, float]]]) -> None:
        """No two processes were busy with one instance at a time.

        A process that is paused or killed in the middle of an attempt can't help it that others go on: from the pause
        on (`excused`: when each process was not its own master) its attempts count no more.
        """
        spans: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
        begun: dict[tuple[int, str, str], float] = {}
        for line in self.lines("begin", "end"):
            key = line["pid"], line["instance"], line["op"]
            if line["what"] == "begin":
                begun[key] = line["at"]
            else:
                spans[line["instance"]].append((begun.pop(key), line["at"], line["pid"]))
        for (pid, instance, _), begin in begun.items():  # it died over them
            spans[instance].append((begin, min((a for a, _ in excused[pid]), default=begin), pid))
        for instance, times in spans.items():
            cuts = ((begin, _until(begin, end, excused[pid]), pid) for begin, end, pid in times)
            cut = sorted(span for span in cuts if span[0] <= span[1])  # others began in a pause: they woke up too late
            for (_, end, one), (begin, _, other) in pairwise(cut):
                assert one == other or end <= begin, f"{instance} ran in {one} and {other} at the same time: {cut}"


def _until(begin: float, end: float, pauses: list[tuple[float, float]]) -> float:
    return min([end, *(at for at, over in pauses if begin <= at <= end or at <= begin <= over)])


async def main(url: str, schema: str, log: str, lease: float) -> None:
    state = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with App(
        Database(url, schema=schema), workflows=[job, trip], state=state, lease=lease, worker=WorkerOptions(grace=2)
    ):
        os.write(state, (json.dumps({"what": "ready", "pid": os.getpid()}) + "\n").encode())
        await stop.wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])))
