"""What every system's script shares. Standard library only: each runs in an environment of its own.

A script declares its workloads, then calls `main`:

    @workload
    async def finish(task: Task) -> Figures: ...

    if __name__ == "__main__":
        main()
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

Figures = dict[str, float | None]
clock = time.perf_counter


@dataclass(frozen=True)
class Task:
    """One measurement: how much, where, how many at once, and how long it may take."""

    database: str
    size: int
    concurrency: int
    steps: int
    limit: float
    started: float

    @property
    def path(self) -> Path:
        """The file or folder of a `sqlite://` or `restate://` URL."""
        return Path(self.database.split("://", 1)[1].replace("//", "/", 1))

    @property
    def is_sqlite(self) -> bool:
        return self.database.startswith("sqlite")

    @property
    def repeats(self) -> int:
        """How often a quick system does `parallel`, so that it lasts long enough to be timed."""
        return max(1, 20_000 // (self.size * self.steps))

    @property
    def left(self) -> float:
        """Seconds until the limit."""
        return max(0.0, self.started + self.limit - clock())


Workload = Callable[[Task], Awaitable[Figures] | Figures]
_workloads: dict[str, Workload] = {}


def workload(function: Workload) -> Workload:
    _workloads[function.__name__] = function
    return function


def absent(**reasons: str) -> None:
    """Workloads this system has no counterpart for, and why."""
    _absent.update(reasons)


_absent: dict[str, str] = {}


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def spread_ms(seconds: list[float]) -> Figures:
    """p50 and p99 in milliseconds."""
    return {"p50_ms": percentile(seconds, 0.5) * 1000, "p99_ms": percentile(seconds, 0.99) * 1000}


def rss_kb(pid: int | str = "self") -> float:
    """Memory of a process that is really there, in kB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=[*_workloads, *_absent, "list"])
    parser.add_argument("--database", default="")
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument(
        "--concurrency", type=int, default=0, help="at most so many in flight; 0: what suits the system"
    )
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--limit", type=float, default=60.0)
    given = parser.parse_args()
    if given.workload == "list":
        print(json.dumps({"workloads": list(_workloads), "absent": _absent}))
        return
    if given.workload in _absent:
        sys.exit(f"{given.workload}: {_absent[given.workload]}")
    task = Task(given.database, given.size, given.concurrency, given.steps, given.limit, clock())
    figures = _workloads[given.workload](task)
    if inspect.isawaitable(figures):
        figures = asyncio.run(_awaited(figures))
    print(json.dumps(figures), flush=True)


async def _awaited(figures: Awaitable[Figures]) -> Figures:
    return await figures
