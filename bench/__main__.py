"""Compares Romancy with its peers in one run: `make bench`, or `python -m bench --help`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import document, footprint, report
from bench.plan import DATABASES, GROWTH, MEASURES, SYSTEMS, Measure
from bench.results import LATEST, Results, Run, describe_machine
from bench.running import ENVIRONMENTS, ROOT, Absent, constant, prepare, run
from tests import pg_server

console = Console()
Job = tuple[int, Measure, str, str, int]


@click.command()
@click.option("--system", "systems", multiple=True, type=click.Choice(SYSTEMS), help="Only these systems.")
@click.option("--database", "databases", multiple=True, type=click.Choice(DATABASES), help="Only these databases.")
@click.option("--only", multiple=True, help="Only measures whose name begins so.")
@click.option("--rounds", default=3, show_default=True, help="At most so many rounds of each measure.")
@click.option("--growth/--no-growth", default=True, help="Also at 1x, 10x and 100x the work.")
@click.option("--small", is_flag=True, help="A tenth of the work: to see whether everything runs.")
@click.option("--plots/--no-plots", default=True, help="Draw docs/performance.md's pictures.")
def main(
    systems: tuple[str, ...],
    databases: tuple[str, ...],
    only: tuple[str, ...],
    rounds: int,
    growth: bool,
    small: bool,
    plots: bool,
) -> None:
    """Measure Romancy, Edda, DBOS and Restate on this machine, alternating, beside the database's own limit."""
    server = pg_server.url()
    results = Results(describe_machine(_version(server)))
    whole = growth and rounds >= 3 and not (systems or databases or only or small)
    path = LATEST if whole else LATEST.with_name("partial.json")  # keep the published results in a partial run
    wanted = [m for m in [*MEASURES, *(GROWTH if growth else [])] if not only or m.name.startswith(only)]
    if small:
        wanted = [replace(m, sizes={s: max(10, n // 10) for s, n in m.sizes.items()}) for m in wanted]
    here = ["limit", *_installed(systems or SYSTEMS, results)]
    jobs = list(_jobs(wanted, here, databases or DATABASES, rounds))
    with _progress() as progress:
        task = progress.add_task("", total=len(jobs))
        for number, measure, system, kind, concurrency in jobs:
            progress.update(task, description=f"{system} on {kind}: {measure.title}")
            figures = run(measure, system, kind, server, concurrency)
            size = measure.sizes[system]
            results.runs.append(Run(measure.name, system, kind, number, size, concurrency, figures))
            results.save(path)
            progress.advance(task)
    if not only:
        results.footprint = {s: footprint.measure(s) for s in here if s != "limit"}
        results.save(path)
    report.show(results, wanted, here, console)
    console.print(f"Every run: {path.relative_to(ROOT)}")
    if plots and whole:
        _draw()


def _installed(systems: tuple[str, ...], results: Results) -> Iterator[str]:
    for system in systems:
        try:
            with console.status(f"Setting up {system} ..."):
                prepare(system)
        except Absent as absence:
            results.absent[system] = str(absence)
            console.print(f"[yellow]{system} is left out: {absence}[/]")
        else:
            yield system


def _jobs(wanted: list[Measure], systems: list[str], databases: tuple[str, ...], rounds: int) -> Iterator[Job]:
    """Yield every run: in each round, all systems take turns, each time in another order."""
    for number in range(rounds):
        for measure in wanted:
            if number >= measure.rounds:
                continue
            turn = systems[number % len(systems) :] + systems[: number % len(systems)]
            for kind in databases:
                for system in turn:
                    if system not in measure.sizes or (system == "restate" and kind != "sqlite"):
                        continue  # Restate keeps its own log: it is measured once, beside SQLite
                    for concurrency in _settings(measure, system):
                        yield number, measure, system, kind, concurrency


def _settings(measure: Measure, system: str) -> tuple[int, ...]:
    tried: tuple[int, ...] = constant(system, "CONCURRENCY") if measure.name == "finish" else ()
    return tried or (0,)


def _progress() -> Progress:
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    return Progress(*columns, console=console, transient=True)


def _version(server: str) -> str:
    import asyncio

    import asyncpg

    async def ask() -> str:
        connection = await asyncpg.connect(server)
        settings = [await connection.fetchval(f"SHOW {name}") for name in ("fsync", "synchronous_commit")]
        version = await connection.fetchval("SHOW server_version")
        await connection.close()
        return f"{version}, fsync {settings[0]}, synchronous_commit {settings[1]}"

    return asyncio.run(ask())


def _draw() -> None:
    """Draw the plots with matplotlib in a separate environment, because nothing else needs it."""
    place = ENVIRONMENTS / "plots"
    python = str(place / "bin" / "python")
    if not (place / "bin" / "python").exists():
        import sys

        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        subprocess.run([python, "-m", "pip", "install", "-qq", "matplotlib==3.10.*"], check=True)
    subprocess.run([python, "-m", "bench.plots"], check=True, cwd=ROOT)
    document.main()


if __name__ == "__main__":
    main()
