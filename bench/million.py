"""Starts, wakes and prunes a million workflows: `make bench-million`, or `python -m bench.million --help`.

On SQLite and on PostgreSQL, at full durability, with one worker as it comes. Every phase is a process of its own
(phases.py): *start* (each workflow comes to its wait), *single* (a worker starts among all that wait, and gets one
event at a time), *wake* (an event to each of the others, in no order), *prune* (all have ended, and are deleted with
their events). CPU time is that of the worker, and beside it of the PostgreSQL server; on a busy machine, compare only
that.

Then, unless `--no-slope`: the CPU time of waking one of 1,000, of 10,000 and of 100,000 that are not in memory.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from bench.cpu import cpu_of_tree, postmaster
from bench.phases import SINGLES, Figures
from bench.plan import DATABASES
from tests import pg_server

ROOT = Path(__file__).parents[1]
SHARES = {"start": 0.35, "single": 0.05, "wake": 0.45, "prune": 0.15}
"""How the time is shared out: a phase that needs more ends early."""
SLOPE = (1_000, 10_000, 100_000)
SETTLING = 180.0
"""Seconds after which a phase that should have ended is killed."""
console = Console()


# --- places ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Size:
    """Megabytes that a database takes on disk, and what of it is free or dead."""

    megabytes: float
    unused: str

    def __str__(self) -> str:
        return f"{self.megabytes:,.0f} MB ({self.unused})"


@dataclass(frozen=True)
class Place:
    """A database to work on, the process of its server, and a way to measure its size."""

    url: str
    schema: str
    server: int | None
    size: Callable[[], Any]

    def server_cpu(self) -> float:
        return 0.0 if self.server is None else cpu_of_tree(self.server)


@asynccontextmanager
async def place(kind: str) -> AsyncIterator[Place]:
    if kind == "sqlite":
        with tempfile.TemporaryDirectory(prefix="romancy-bench-", dir=os.environ.get("BENCH_DIR")) as folder:
            path = str(Path(folder) / "million.db")
            yield Place(path, "", None, lambda: asyncio.to_thread(_size_of_file, path))
        return
    async with pg_server.schema() as schema:
        yield Place(pg_server.url(), schema, postmaster(pg_server.url()), lambda: _size_on_server(schema))


def _size_of_file(path: str) -> Size:
    size = sum(file.stat().st_size for file in Path(path).parent.glob(f"{Path(path).name}*"))
    connection = sqlite3.connect(path)
    free, page = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_size"))
    connection.close()
    return Size(size / 2**20, f"{free * page / 2**20:,.0f} MB free")


async def _size_on_server(schema: str) -> Size:
    c: Any = await asyncpg.connect(pg_server.url())
    try:
        size, indexes, dead = await c.fetchrow(
            "SELECT sum(pg_total_relation_size(relid)), sum(pg_indexes_size(relid)), sum(n_dead_tup) "
            "FROM pg_stat_all_tables WHERE schemaname = $1",
            schema,
        )
    finally:
        await c.close()
    return Size(
        float(size or 0) / 2**20, f"{float(indexes or 0) / 2**20:,.0f} MB indexes, {int(dead or 0):,} dead rows"
    )


async def vacuum(where: Place) -> Size:
    """Return the size after a plain VACUUM: it cuts off the free end of a file, and leaves the rest to new rows."""
    c: Any = await asyncpg.connect(where.url)
    try:
        tables = await c.fetch("SELECT relname FROM pg_stat_all_tables WHERE schemaname = $1", where.schema)
        for (table,) in tables:
            await c.execute(f'VACUUM "{where.schema}"."{table}"', timeout=600)
    finally:
        await c.close()
    return await where.size()


# --- phases ----------------------------------------------------------------------------------------------------------
async def run(phase: str, where: Place, count: int, seconds: float, told: Callable[[int], None]) -> Figures:
    """Run a phase in a process of its own, and return its figures, with the CPU time of the server."""
    command = [sys.executable, "-m", "bench.phases", phase, where.url, where.schema, str(count), str(seconds)]
    before = where.server_cpu()
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    figures: Figures | None = None
    try:
        async with asyncio.timeout(seconds + SETTLING):
            async for line in process.stdout:
                message = json.loads(line)
                figures = message.get("figures")
                told(message.get("done", 0))
            await process.wait()
    except TimeoutError:
        raise SystemExit(f"{phase} did not end within {seconds + SETTLING:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if figures is None:
        raise SystemExit(f"{phase} failed with exit code {process.returncode}")
    done = figures.get("done") or 1
    return figures | {"server_us": (where.server_cpu() - before) / done * 1e6}


async def measure(kind: str, count: int, seconds: float) -> None:
    table = Table("", "how many", "per second", "CPU each", "server CPU each", "memory, peak", "on disk after it")
    table.title = f"{count:,} workflows on {'SQLite' if kind == 'sqlite' else 'PostgreSQL'}"
    remarks: list[str] = []
    begin = time.perf_counter()
    async with place(kind) as where:
        totals = {"start": count, "single": min(SINGLES, count // 10), "wake": 0, "prune": 0}
        with _progress() as progress:
            for phase, share in SHARES.items():
                bar = progress.add_task(f"{kind}: {phase}", total=totals[phase])
                given = totals["prune"] if phase == "prune" else count
                figures = await run(
                    phase, where, given, seconds * share, lambda done, bar=bar: progress.update(bar, completed=done)
                )
                done = int(figures["done"])
                progress.update(bar, completed=done)
                if phase == "start":
                    count = done
                    totals["wake"] = count - min(SINGLES, count // 10)
                totals["prune"] += done if phase in ("single", "wake") else 0
                table.add_row(*_row(phase, figures, totals[phase], kind), str(await where.size()))
                remarks += _remarks(figures) if phase == "single" else []
        if kind == "postgres":
            remarks.append(f"after VACUUM: {await vacuum(where)}")
    console.print(table)
    for remark in [*remarks, f"all phases together: {time.perf_counter() - begin:,.0f} s"]:
        console.print(f"  {remark}")


def _row(phase: str, figures: Figures, wanted: int, kind: str) -> list[str]:
    done = int(figures["done"])
    return [
        phase,
        f"{done:,}" if done >= wanted else f"{done:,} of {wanted:,}: its time was over",
        f"{figures['per_s']:,.0f}",
        f"{figures['cpu_us']:,.0f} us",
        f"{figures['server_us']:,.0f} us" if kind == "postgres" else "-",
        f"{figures['rss_mb']:,.0f} MB, {figures['peak_mb']:,.0f} MB",
    ]


def _remarks(figures: Figures) -> list[str]:
    return [
        f"a worker starts among them in {figures['startup_s']:.2f} s, with {figures['startup_mb']:,.0f} MB, and stops "
        f"in {figures['stop_s']:.2f} s; while it only waits, it uses {figures['idle_cpu']:.1%} of a core",
        f"a single event until its workflow has ended: p50 {figures['p50_ms']:.1f} ms, p99 {figures['p99_ms']:.1f} ms, "
        f"worst {figures['worst_ms']:.1f} ms; the first after the start {figures['first_ms']:.1f} ms",
    ]


async def measure_slope(kind: str, most: int) -> None:
    """Show what waking one costs among more and more that wait."""
    points: list[tuple[int, Figures]] = []
    with _progress() as progress:
        for count in [n for n in SLOPE if n <= most]:
            bar = progress.add_task(f"{kind}: wake some of {count:,}", total=count)
            async with place(kind) as where:
                await run("start", where, count, 600.0, lambda done, bar=bar: progress.update(bar, completed=done))
                points.append((count, await run("slope", where, count, 600.0, lambda _: None)))
            progress.update(bar, completed=count)
    table = Table("waiting", "CPU of a wake", "of the server", title=f"Waking one that is not in memory, on {kind}")
    for count, figures in points:
        table.add_row(f"{count:,}", f"{figures['cpu_us']:,.0f} us", f"{figures['server_us']:,.0f} us")
    console.print(table)
    if len(points) > 1:
        logs = [(math.log(n), math.log(f["cpu_us"] + f["server_us"])) for n, f in points]
        console.print(f"  it grows with n^{statistics.linear_regression(*zip(*logs, strict=True)).slope:.3f}")


def _progress() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, TimeRemainingColumn(), console=console, transient=True)


@click.command()
@click.option("--count", default=1_000_000, show_default=True, type=click.IntRange(min=100), help="Workflows.")
@click.option("--database", "kinds", multiple=True, type=click.Choice(DATABASES), help="Only this database.")
@click.option("--minutes", default=30.0, show_default=True, help="For the phases of all databases together.")
@click.option("--phases/--no-phases", default=True, help="Start, wake and prune.")
@click.option("--slope/--no-slope", default=True, help="The cost of a wake among 1,000, 10,000 and 100,000.")
def main(count: int, kinds: tuple[str, ...], minutes: float, phases: bool, slope: bool) -> None:
    """Start, wake and prune a million workflows, and measure it."""
    kinds = kinds or DATABASES
    if "postgres" in kinds:
        os.environ.setdefault("ROMANCY_TEST_POSTGRES", pg_server.url())
    for kind in kinds:
        if phases:
            asyncio.run(measure(kind, count, minutes * 60 / len(kinds)))
        if slope:
            asyncio.run(measure_slope(kind, count))


if __name__ == "__main__":
    main()
