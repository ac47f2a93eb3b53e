"""Measures events over HTTP: `python -m bench.http [--database sqlite|postgres] [--events 5000] [--rounds 3]`.

One `romancy serve` process; every event wakes a workflow of its own, which then ends. This process sends them: first as
fast as they are answered, over 32 connections; then at a steady half of that rate, to see how long an event takes to be
accepted while there is room. Each round has a new server and a new database, at full durability. CPU time is that of
the `serve` process, and beside it of the PostgreSQL server, while the events arrive; on a busy machine, compare only
that.
"""

from __future__ import annotations

import asyncio
import statistics
from dataclasses import dataclass

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.cpu import cpu_of_tree, postmaster
from bench.plan import DATABASES
from bench.running import database
from bench.systems.common import percentile, rss_kb
from bench.systems.http_load import connected, flood, paced, serving, start_all
from tests import pg_server


@dataclass(frozen=True)
class Round:
    """What one server did: events per second, milliseconds at half of that, and microseconds of CPU for each event."""

    rate: float
    p50: float
    p99: float
    server_us: float
    database_us: float
    megabytes: float


async def measure(port: int, server: int, beside: int | None, events: int) -> Round:
    def cpu() -> tuple[float, float]:
        return cpu_of_tree(server), 0.0 if beside is None else cpu_of_tree(beside)

    warm = min(200, events)
    async with connected(port) as connections:
        await start_all(connections, 0, warm + events)
        await flood(connections, 0, warm)
        before = cpu()
        rate = await flood(connections, warm, events)
        ours, theirs = ((after - b) / events * 1e6 for after, b in zip(cpu(), before, strict=True))
        await start_all(connections, warm + events, events)
        took = await paced(connections, warm + events, events, rate / 2)
    return Round(rate, percentile(took, 0.5) * 1000, percentile(took, 0.99) * 1000, ours, theirs, rss_kb(server) / 1024)


def one_round(kind: str, events: int) -> Round:
    with database(kind, "romancy", pg_server.url()) as url:
        beside = postmaster(pg_server.url()) if kind == "postgres" else None
        with serving(url.removeprefix("sqlite:///")) as (port, server):
            return asyncio.run(measure(port, server, beside, events))


@click.command()
@click.option("--database", "kinds", multiple=True, type=click.Choice(DATABASES), help="Only this database.")
@click.option("--events", default=5000, show_default=True, help="Events of each kind of load.")
@click.option("--rounds", default=3, show_default=True)
def main(kinds: tuple[str, ...], events: int, rounds: int) -> None:
    """Measure events over HTTP, each of which finishes a workflow."""
    console = Console()
    found: dict[str, list[Round]] = {kind: [] for kind in kinds or DATABASES}
    with Progress(console=console, transient=True) as progress:
        for _ in progress.track(range(rounds), description="rounds"):
            for kind, done in found.items():
                done.append(one_round(kind, events))
    heads = ("", "events/s", "p50 at half", "p99 at half", "serve CPU", "database CPU", "serve memory")
    table = Table(*heads, title=f"{events:,} events by HTTP: medians of {rounds} round(s)")
    for kind, done in found.items():
        table.add_row(
            kind,
            _spread([r.rate for r in done], "/s"),
            _spread([r.p50 for r in done], " ms"),
            _spread([r.p99 for r in done], " ms"),
            _spread([r.server_us for r in done], " us"),
            _spread([r.database_us for r in done], " us") if kind == "postgres" else "-",
            _spread([r.megabytes for r in done], " MB"),
        )
    console.print(table)


def _spread(values: list[float], unit: str) -> str:
    shape = ",.0f" if max(values) >= 100 else ".1f"
    median = f"{statistics.median(values):{shape}}{unit}"
    return median if len(values) == 1 else f"{median} ({min(values):{shape}} to {max(values):{shape}})"


if __name__ == "__main__":
    main()
