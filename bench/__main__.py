"""Compares Romancy with its peers in one run: `make bench`, or `python -m bench --help`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import document, footprint, interpreters, report
from bench.interpreters import ENVIRONMENTS, Interpreter, NoInterpreter
from bench.plan import DATABASES, GROWTH, MEASURES, SYSTEMS, Measure
from bench.results import Results, Run, describe_machine, path_of
from bench.running import ROOT, Absent, constant, prepare, run
from tests import pg_server

console = Console()
Job = tuple[int, Measure, str, str, int, Interpreter]


@click.command()
@click.option("--system", "systems", multiple=True, type=click.Choice(SYSTEMS), help="Only these systems.")
@click.option("--database", "databases", multiple=True, type=click.Choice(DATABASES), help="Only these databases.")
@click.option("--only", multiple=True, help="Only measures whose name begins so.")
@click.option("--rounds", default=3, show_default=True, help="At most so many rounds of each measure.")
@click.option("--growth/--no-growth", default=True, help="Also at 1x, 10x and 100x the work.")
@click.option("--small", is_flag=True, help="A tenth of the work: to see whether everything runs.")
@click.option("--plots/--no-plots", default=True, help="Draw docs/performance.md's pictures.")
@click.option(
    "--python", "pythons", multiple=True, metavar="PATH", help="Measure on this Python instead; several take turns."
)
def main(
    systems: tuple[str, ...],
    databases: tuple[str, ...],
    only: tuple[str, ...],
    rounds: int,
    growth: bool,
    small: bool,
    plots: bool,
    pythons: tuple[str, ...],
) -> None:
    """Measure Romancy, Edda, DBOS and Restate on this machine, alternating, beside the database's own limit."""
    server = pg_server.url()
    whole = growth and rounds >= 3 and not (systems or databases or only or small)
    wanted = [m for m in [*MEASURES, *(GROWTH if growth else [])] if not only or m.name.startswith(only)]
    if small:
        wanted = [replace(m, sizes={s: max(10, n // 10) for s, n in m.sizes.items()}) for m in wanted]
    used = _interpreters(pythons)
    found = {interpreter: Results(describe_machine(_version(server), interpreter)) for interpreter in used}
    here = {interpreter: _installed(systems or SYSTEMS, interpreter, results) for interpreter, results in found.items()}
    jobs = list(_jobs(wanted, here, databases or DATABASES, rounds))
    with _progress() as progress:
        task = progress.add_task("", total=len(jobs))
        for number, measure, system, kind, concurrency, interpreter in jobs:
            progress.update(task, description=f"{system} on {kind}, {interpreter.label}: {measure.title}")
            figures = run(measure, system, kind, server, interpreter, concurrency)
            size = measure.sizes[system]
            found[interpreter].runs.append(Run(measure.name, system, kind, number, size, concurrency, figures))
            found[interpreter].save(path_of(interpreter, whole))
            progress.advance(task)
    for interpreter, results in found.items():
        _finish(results, interpreter, here[interpreter], path_of(interpreter, whole), wanted, not only)
    if len(found) > 1:
        report.show_pythons({interpreter.label: results for interpreter, results in found.items()}, wanted, console)
    if plots and whole:
        _draw()


def _interpreters(paths: tuple[str, ...]) -> list[Interpreter]:
    try:
        return [interpreters.named(path) for path in dict.fromkeys(paths)] or [interpreters.own()]
    except NoInterpreter as error:
        raise click.ClickException(str(error)) from None


def _finish(
    results: Results, interpreter: Interpreter, here: list[str], path: Path, wanted: list[Measure], measures_size: bool
) -> None:
    if measures_size:
        results.footprint = {s: footprint.measure(s, interpreter) for s in here if s != "limit"}
        results.save(path)
    report.show(results, wanted, here, console)
    console.print(f"Every run: {path.relative_to(ROOT)}")


def _installed(systems: tuple[str, ...], interpreter: Interpreter, results: Results) -> list[str]:
    installed: list[str] = []
    for system in ("limit", *systems):
        try:
            with console.status(f"Setting up {system} on Python {interpreter.version} ..."):
                prepare(system, interpreter)
        except Absent as absence:
            results.absent[system] = str(absence)
            console.print(f"[yellow]{system} on Python {interpreter.version} is left out: {absence}[/]")
        else:
            installed.append(system)
    return installed


def _jobs(
    wanted: list[Measure], here: dict[Interpreter, list[str]], databases: tuple[str, ...], rounds: int
) -> Iterator[Job]:
    """Yield every run: in each round, all systems take turns on all Pythons, each time in another order."""
    for number in range(rounds):
        for measure in wanted:
            if number >= measure.rounds:
                continue
            pairs = [(s, interpreter) for interpreter, systems in here.items() for s in systems]
            pairs.sort(key=lambda pair: ["limit", *SYSTEMS].index(pair[0]))  # one system's Pythons, side by side
            turn = pairs[number % len(pairs) :] + pairs[: number % len(pairs)]
            for kind in databases:
                for system, interpreter in turn:
                    if system not in measure.sizes or (system == "restate" and kind != "sqlite"):
                        continue  # Restate keeps its own log: it is measured once, beside SQLite
                    for concurrency in _settings(measure, system):
                        yield number, measure, system, kind, concurrency, interpreter


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
