"""How fast the engine is on SQLite with full durability: `make bench`, or `python -m bench.engine [--quick] [NAME...]`.

Every figure is measured in this run, beside the raw commit rate of the same kind of file on the same disk.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from romancy import ActivityContext, App, WorkflowContext, activity, sleep, wait_event, workflow

QUICK = "--quick" in sys.argv
clock = time.perf_counter


@activity
async def noop(ctx: ActivityContext, x: int) -> int:
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
async def waiter(ctx: WorkflowContext, key: int) -> float:
    await wait_event(ctx, f"go.{key}")
    return clock()


@workflow
async def sleeper(ctx: WorkflowContext, seconds: float, due: float) -> float:
    await sleep(ctx, seconds)
    return time.time()


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as name:
        yield Path(name)


def app_on(path: Path, **options: object) -> App:
    workflows = [one_step, many_steps, waiter, sleeper]
    return App(str(path / "bench.db"), workflows=workflows, **options)  # type: ignore[arg-type]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def raw_commits() -> dict[str, float]:
    """Single-row transactions a second on a file of its own: the physical limit of one after the other."""
    n = 500 if QUICK else 2000
    with folder() as path:
        db = sqlite3.connect(path / "raw.db", isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE t (instance TEXT, n INTEGER, payload BLOB, PRIMARY KEY (instance, n)) WITHOUT ROWID")
        begin = clock()
        for i in range(n):
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO t VALUES ('x', ?, x'7b7d')", (i,))
            db.execute("COMMIT")
        rate = n / (clock() - begin)
        db.close()
    return {"raw commits/s": rate}


async def one_activity() -> dict[str, float]:
    """Workflows of one no-op activity, started and finished, 1,000 in flight."""
    n = 1000 if QUICK else 10_000
    with folder() as path:
        async with app_on(path) as app:
            numbers = iter(range(n))

            async def some() -> None:
                for i in numbers:
                    handle = await app.start_workflow(one_step, i)
                    await handle.result()

            begin = clock()
            await asyncio.gather(*(some() for _ in range(min(n, 1000))))
            return {"one-activity workflows/s": n / (clock() - begin)}


async def activities_at_once() -> dict[str, float]:
    """100 activities one after the other, in 20 and 200 workflows at once."""
    figures: dict[str, float] = {}
    for workflows in (20,) if QUICK else (20, 200):
        with folder() as path:
            async with app_on(path) as app:
                begin = clock()
                handles = [await app.start_workflow(many_steps, 100) for _ in range(workflows)]
                await asyncio.gather(*(h.result() for h in handles))
                figures[f"activities/s, {workflows} workflows"] = workflows * 100 / (clock() - begin)
    return figures


async def sequential() -> dict[str, float]:
    """One workflow, one activity after the other; as a share of the raw commit rate measured just before."""
    n = 300 if QUICK else 2000
    shares: list[float] = []
    rates: list[float] = []
    for _ in range(1 if QUICK else 3):
        raw = (await raw_commits())["raw commits/s"]
        with folder() as path:
            async with app_on(path) as app:
                begin = clock()
                await (await app.start_workflow(many_steps, n)).result()
                rates.append(n / (clock() - begin))
                shares.append(rates[-1] / raw)
    return {
        "sequential activities/s": statistics.median(rates),
        "... share of raw commits": statistics.median(shares),
    }


async def event_latency() -> dict[str, float]:
    """`send_event` called to the waiting workflow's code running, unloaded."""
    n = 200 if QUICK else 1000
    taken: list[float] = []
    with folder() as path:
        async with app_on(path) as app:
            for i in range(n):
                handle = await app.start_workflow(waiter, i)
                while await handle.status() != "waiting_for_event":  # noqa: ASYNC110
                    await asyncio.sleep(0)
                begin = clock()
                await app.send_event(f"go.{i}", "bench")
                taken.append((await handle.result() - begin) * 1000)
    return {"event to code p50 ms": percentile(taken, 0.5), "event to code p99 ms": percentile(taken, 0.99)}


async def wake_all() -> dict[str, float]:
    """1,000 waiting workflows, an event to each, until all have finished."""
    n = 1000
    with folder() as path:
        async with app_on(path) as app:
            handles = [await app.start_workflow(waiter, i) for i in range(n)]
            while len((await app.list_waits(limit=1000)).items) < n:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            begin = clock()
            await asyncio.gather(*(app.send_event(f"go.{i}", "bench") for i in range(n)))
            await asyncio.gather(*(h.result() for h in handles))
            return {"1,000 woken and finished, s": clock() - begin}


async def sleepers() -> dict[str, float]:
    """Sleepers that are due together: how late they run."""
    figures: dict[str, float] = {}
    for n in (200,) if QUICK else (200, 10_000):
        with folder() as path:
            async with app_on(path) as app:
                lead = 1.0 if n < 1000 else 6.0
                due = time.time() + lead
                handles = await asyncio.gather(
                    *(app.start_workflow(sleeper, max(0.0, due - time.time()), due) for _ in range(n))
                )
                woken = await asyncio.gather(*(h.result() for h in handles))
                late = [(w - due) * 1000 for w in woken]
                figures[f"{n:,} sleepers p50 ms late"] = percentile(late, 0.5)
                figures[f"{n:,} sleepers p99 ms late"] = percentile(late, 0.99)
    return figures


async def replaying() -> dict[str, float]:
    """Bringing an evicted instance back: recorded entries a second."""
    from romancy.testing import replay

    n = 1000 if QUICK else 10_000
    with folder() as path:
        async with app_on(path) as app:
            handle = await app.start_workflow(many_steps, n)
            await handle.result()
            history = await app.get_history(handle.instance_id)
            rates: list[float] = []
            for _ in range(3):
                begin = clock()
                replay(many_steps, history)
                rates.append(n / (clock() - begin))
            begin = clock()
            await app.engine.storage.load(handle.instance_id)
            return {
                "replay entries/s": statistics.median(rates),
                "... read and replayed/s": n / (clock() - begin + n / rates[-1]),
            }


async def memory() -> dict[str, float]:
    """Memory of a waiting workflow that is resident, by what Python has allocated."""
    n = 500 if QUICK else 5000
    with folder() as path:
        async with app_on(path) as app:
            await app.start_workflow(waiter, -1)
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            for i in range(0, n, 500):
                await asyncio.gather(*(app.start_workflow(waiter, i + k) for k in range(500)))
            while len(app.engine.scheduler.residents) < n or not app.engine.is_idle:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            used = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
            return {"kB per waiting resident": used / n / 1024}


async def many_waiting() -> dict[str, float]:
    """100,000 waiting workflows, few of them in memory: an event to one of them, and what the process takes."""
    n = 2_000 if QUICK else 100_000
    with folder() as path:
        async with app_on(path, durability="normal", max_resident=1000) as app:
            for i in range(0, n, 1000):
                await asyncio.gather(
                    *(app.start_workflow(waiter, i + k, instance_id=f"w-{i + k}") for k in range(1000))
                )
            while not app.engine.is_idle:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            taken: list[float] = []
            for i in range(0, n, n // 100):
                begin = clock()
                await app.send_event(f"go.{i}", "bench")
                handle = app.handle(f"w-{i}", waiter)
                taken.append((await handle.result() - begin) * 1000)
            resident = len(app.engine.scheduler.residents)
    return {f"event among {n:,} waiting p50 ms": percentile(taken, 0.5), "... residents": float(resident)}


WORKLOADS: list[Callable[[], Awaitable[dict[str, float]]]] = [
    raw_commits,
    one_activity,
    activities_at_once,
    sequential,
    event_latency,
    wake_all,
    sleepers,
    replaying,
    memory,
    many_waiting,
]


def main() -> None:
    logging.disable(logging.WARNING)
    wanted = [a for a in sys.argv[1:] if not a.startswith("-")]
    chosen = [w for w in WORKLOADS if not wanted or w.__name__ in wanted]
    rounds = 1 if QUICK or wanted else 3
    figures: dict[str, list[float]] = {}
    console = Console()
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=len(chosen) * rounds)
        for _ in range(rounds):
            for workload in chosen:
                progress.update(task, description=workload.__name__)
                for name, value in asyncio.run(workload()).items():
                    figures.setdefault(name, []).append(value)
                progress.advance(task)
    machine = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores"
    table = Table(title=f"Romancy on SQLite, synchronous=FULL; median of {rounds}; {machine}")
    table.add_column("figure")
    table.add_column("median", justify="right")
    table.add_column("all rounds", justify="right")
    for name, values in figures.items():
        table.add_row(name, f"{statistics.median(values):,.2f}", " ".join(f"{v:,.2f}" for v in values))
    console.print(table)
    out = Path(__file__).parent / "results" / "latest.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"machine": machine, "figures": figures}, indent=2))


if __name__ == "__main__":
    main()
