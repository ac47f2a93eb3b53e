"""Measures several worker processes on PostgreSQL: `python -m bench.processes [--workers 1 --workers 2] [--steps 1]`.

Workflows of one activity are stored first, while no worker is there; then `romancy worker --workers N` runs them. The
first and the last tenth don't count, nor does what ends before all workers are there. Measured: workflows per second,
and microseconds of CPU for each, of the workers together and of the PostgreSQL server beside them. The numbers of
workers take turns in every round. They share the cores with the server: `busy` is how many cores were at work for them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.cpu import cpu_of_tree, postmaster
from romancy import App, Database
from tests import pg_server

GROUP, LOOK, PATIENCE = 500, 0.05, 600.0
MODULE = """
from romancy import ActivityContext, WorkflowContext, activity, workflow

@activity
async def noop(ctx: ActivityContext, x: int) -> int:
    return x

@workflow
async def job(ctx: WorkflowContext, steps: int) -> int:
    for i in range(steps):
        await noop(ctx, i)
    return steps
"""


@dataclass(frozen=True)
class Sample:
    """How many have ended, how many workers are there, and the CPU seconds so far of them and of the server."""

    at: float
    done: int
    present: int
    workers: float
    server: float


@dataclass(frozen=True)
class Round:
    rate: float
    workers_us: float
    server_us: float
    busy: float


@asynccontextmanager
async def working(count: int, schema: str) -> AsyncIterator[int]:
    """Run so many workers on a schema; yield the process that all of them descend from."""
    with tempfile.TemporaryDirectory() as folder:
        await asyncio.to_thread(Path(folder, "bench_jobs.py").write_text, MODULE)
        command = [sys.executable, "-m", "romancy", "worker", "bench_jobs", "--workers", str(count)]
        command += ["--database", pg_server.url(), "--schema", schema]
        with (Path(folder) / "log").open("w+") as log:
            process = await asyncio.create_subprocess_exec(
                *command, cwd=folder, stdout=log, stderr=log, start_new_session=True
            )
            try:
                yield process.pid
            finally:
                with suppress(ProcessLookupError):
                    process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), 30)
                except TimeoutError:
                    os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()


async def samples(schema: str, workers: int, server: int | None, count: int) -> list[Sample]:
    """Look again and again until all have ended."""
    spy: Any = await asyncpg.connect(pg_server.url())
    query = f"""SELECT (SELECT count(*) FROM "{schema}".instances WHERE status >= 10),
        (SELECT count(*) FROM "{schema}".workers)"""
    found: list[Sample] = []
    begin = time.perf_counter()
    try:
        while not found or found[-1].done < count:
            done, present = await spy.fetchrow(query)
            used = cpu_of_tree(workers), 0.0 if server is None else cpu_of_tree(server)
            found.append(Sample(time.perf_counter(), done, present, *used))
            if found[-1].at - begin > PATIENCE:
                raise SystemExit(f"only {done} of {count} ended within {PATIENCE:.0f} s")
            await asyncio.sleep(LOOK)
    finally:
        await spy.close()
    return found


def middle(found: list[Sample], workers_wanted: int, count: int) -> Round:
    """Return the figures between the first tenth, when all workers are there, and the last."""
    first = next((s for s in found if s.done >= count * 0.1 and s.present >= workers_wanted), found[-1])
    last = next(s for s in found if s.done >= count * 0.9)
    done, seconds = last.done - first.done, last.at - first.at
    if done < count * 0.3:
        raise SystemExit(
            f"{count:,} workflows ended before {workers_wanted} workers had started: give a larger --count"
        )
    workers, server = last.workers - first.workers, last.server - first.server
    return Round(done / seconds, workers / done * 1e6, server / done * 1e6, (workers + server) / seconds)


async def measure(workers: int, count: int, steps: int) -> Round:
    async with pg_server.schema() as schema:
        async with App(Database(pg_server.url(), schema=schema), worker=False) as client:
            for first in range(0, count, GROUP):
                some = range(first, min(first + GROUP, count))
                await asyncio.gather(*(client.start_workflow("job", steps) for _ in some))
        async with working(workers, schema) as process:
            found = await samples(schema, process, postmaster(pg_server.url()), count)
            return middle(found, workers, count)


@click.command()
@click.option("--workers", "numbers", multiple=True, type=int, default=(1, 2, 3), show_default=True)
@click.option("--count", default=20_000, show_default=True, help="Workflows of each run.")
@click.option("--steps", default=1, show_default=True, help="Activities of each workflow.")
@click.option("--rounds", default=3, show_default=True)
def main(numbers: tuple[int, ...], count: int, steps: int, rounds: int) -> None:
    """Measure several worker processes on one PostgreSQL server."""
    os.environ.setdefault("ROMANCY_TEST_POSTGRES", pg_server.url())
    console = Console()
    found: dict[int, list[Round]] = {number: [] for number in numbers}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=rounds * len(numbers))
        for _ in range(rounds):
            for number in numbers:
                progress.update(task, description=f"{number} worker(s)")
                found[number].append(asyncio.run(measure(number, count, steps)))
                progress.advance(task)
    title = f"{count:,} workflows of {steps} activities on {os.cpu_count()} cores: medians of {rounds} round(s)"
    heads = ("workers", "workflows/s", "all rounds", "CPU of workers", "CPU of the server", "busy")
    table = Table(*heads, title=title)
    for number, done in found.items():
        table.add_row(
            str(number),
            f"{statistics.median(r.rate for r in done):,.0f}",
            " ".join(f"{r.rate:,.0f}" for r in done),
            f"{statistics.median(r.workers_us for r in done):,.0f} us",
            f"{statistics.median(r.server_us for r in done):,.0f} us",
            f"{statistics.median(r.busy for r in done):.2f} cores",
        )
    console.print(table)


if __name__ == "__main__":
    main()
