"""Measures the CPU time of the PostgreSQL server per workflow: `python -m bench.server_cpu [PROCESSES...]`.

Each process starts its own workflows of one activity and finishes them, 1,000 at once. Then each does the same with
activities: 200 workflows of 100. The server's time is that of all its processes. Starts its own server, or uses the one
in ROMANCY_TEST_POSTGRES if it runs on this machine. With the default fsync and synchronous_commit (on).
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg

from bench.systems.romancy_ import many_steps, one_step
from romancy import App, Database
from tests import pg_server

ROOT = Path(__file__).parents[1]
WORKFLOWS, STEPS, AT_ONCE, MANY = 5000, 100, 1000, 200
_TICKS = os.sysconf("SC_CLK_TCK")


# --- the server's time -----------------------------------------------------------------------------------------------
def _times(pid: int | str) -> list[int]:
    """Return the ticks of a process (of its own, and of its children that have ended), and its parent."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return [int(fields[place]) for place in (11, 12, 13, 14, 1)]


def server_seconds(postmaster: int) -> float:
    """Return the CPU seconds of all processes of a server, those that have ended included."""
    total = sum(_times(postmaster)[:4]) / _TICKS
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if _times(folder.name)[4] == postmaster:
                    total += int((folder / "schedstat").read_text().split()[0]) / 1e9
            except OSError:
                continue  # it has just ended
    return total


async def postmaster_of(connection: Any) -> int:
    return _times(await connection.fetchval("SELECT pg_backend_pid()"))[4]


# --- the work --------------------------------------------------------------------------------------------------------
async def work(schema: str, kind: str) -> None:
    """Do it once to warm up and, after a line on standard input, once more. Print the CPU seconds of this process."""
    async with App(Database(pg_server.url(), schema=schema), workflows=[one_step, many_steps]) as app:
        await _run(app, kind, 10)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        begin = time.process_time()
        await _run(app, kind, 1)
        print(time.process_time() - begin, flush=True)
        await asyncio.to_thread(sys.stdin.readline)


async def _run(app: App, kind: str, part: int) -> None:
    if kind == "activities":
        handles = await asyncio.gather(*(app.start_workflow(many_steps, STEPS // part) for _ in range(MANY)))
        await asyncio.gather(*(handle.result() for handle in handles))
        return
    numbers = iter(range(WORKFLOWS // part))

    async def some() -> None:
        for n in numbers:
            await (await app.start_workflow(one_step, n)).result()

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def measure(kind: str, processes: int) -> tuple[float, float, float]:
    """Return the microseconds of the server and of the workers per workflow or activity, and how many a second."""
    count = processes * (WORKFLOWS if kind == "workflows" else MANY * STEPS)
    connection = await asyncpg.connect(pg_server.url())
    postmaster = await postmaster_of(connection)
    async with pg_server.schema() as schema, App(Database(pg_server.url(), schema=schema), worker=False):
        command = sys.executable, "-m", "bench.server_cpu", "work", schema, kind
        pipe = asyncio.subprocess.PIPE
        workers = [
            await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, cwd=ROOT) for _ in range(processes)
        ]
        for worker in workers:
            assert await _line(worker) == "ready"
        begin, before = time.perf_counter(), server_seconds(postmaster)
        for worker in workers:
            _tell(worker)
        ours = sum([float(await _line(worker)) for worker in workers])
        seconds, server = time.perf_counter() - begin, server_seconds(postmaster) - before
        for worker in workers:
            _tell(worker)
            await worker.wait()
    await connection.close()
    return server / count * 1e6, ours / count * 1e6, count / seconds


async def _line(worker: asyncio.subprocess.Process) -> str:
    assert worker.stdout is not None
    return (await worker.stdout.readline()).decode().strip()


def _tell(worker: asyncio.subprocess.Process) -> None:
    assert worker.stdin is not None
    worker.stdin.write(b"go\n")


async def main(numbers: Sequence[int]) -> None:
    for kind in ("workflows", "activities"):
        for processes in numbers:
            server, ours, rate = await measure(kind, processes)
            print(
                f"{processes} worker(s), {kind}: server {server:.0f} us, worker {ours:.0f} us each, {rate:,.0f} /s",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        asyncio.run(work(sys.argv[2], sys.argv[3]))
    else:
        os.environ.setdefault("ROMANCY_TEST_POSTGRES", pg_server.url())
        asyncio.run(main([int(word) for word in sys.argv[1:]] or [1, 2, 3]))
