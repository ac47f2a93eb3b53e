"""The runs of a benchmark, stored as they are and summarized for people."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.interpreters import Interpreter
from bench.plan import GROWTH, Measure

LATEST = Path(__file__).parent / "results" / "latest.json"


def path_of(interpreter: Interpreter, is_whole: bool) -> Path:
    """Return where results are kept. Those of a partial run are kept beside the published ones."""
    name = "latest" if is_whole else "partial"
    return LATEST.with_name(f"{name}.json" if interpreter.is_own else f"{name}-{interpreter.label}.json")


@dataclass(frozen=True)
class Run:
    """One run of one workload."""

    measure: str
    system: str
    database: str
    round: int
    size: int
    concurrency: int
    figures: dict[str, Any]

    def value(self, figure: str) -> float | None:
        found = self.figures.get(figure)
        return float(found) if isinstance(found, int | float) else None


@dataclass
class Results:
    """All runs, and the machine."""

    machine: dict[str, str]
    runs: list[Run] = field(default_factory=list[Run])
    absent: dict[str, str] = field(default_factory=dict[str, str])
    footprint: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])

    def of(self, measure: str, system: str, database: str) -> list[Run]:
        found = [r for r in self.runs if (r.measure, r.system, r.database) == (measure, system, database)]
        return _at_its_best(found)

    def median(self, measure: Measure, system: str, database: str, figure: str | None = None) -> float | None:
        values = self.values(measure, system, database, figure)
        return statistics.median(values) if values else None

    def values(self, measure: Measure, system: str, database: str, figure: str | None = None) -> list[float]:
        found = (run.value(figure or measure.figure) for run in self.of(measure.name, system, database))
        return [value for value in found if value is not None]

    def troubles(self, measure: str, system: str, database: str) -> list[str]:
        """Return remarks on these runs: errors, failed or unfinished work."""
        words: list[str] = []
        for run in self.of(measure, system, database):
            words += [f"{k} {v}" for k, v in run.figures.items() if k in ("failed", "unfinished") and v]
            words += [str(run.figures["error"])] if "error" in run.figures else []
        return list(dict.fromkeys(words))

    def slope(self, curve: str, system: str, database: str) -> float | None:
        """Return the exponent with which the total time grows with the work; 1 is proportional."""
        points: list[tuple[float, float]] = []
        for measure in (m for m in GROWTH if m.growth == curve):
            value = self.median(measure, system, database)
            if value and not self.troubles(measure.name, system, database):
                size = measure.sizes[system]
                points.append((math.log(size), math.log(size / value if measure.more else value)))
        return statistics.linear_regression(*zip(*points, strict=True)).slope if len(points) > 1 else None

    def save(self, path: Path = LATEST) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1))


def load(path: Path = LATEST) -> Results:
    raw = json.loads(path.read_text())
    return Results(raw["machine"], [Run(**run) for run in raw["runs"]], raw["absent"], raw["footprint"])


def load_pythons() -> dict[str, Results]:
    """Return the published results of every Python, the oldest first. Of one version, its latest run counts."""
    by_label: dict[str, Results] = {}
    for path in (LATEST, *sorted(LATEST.parent.glob("latest-*.json"))):
        results = load(path)
        version, _, rest = results.machine["python"].partition(" ")
        label = ".".join(version.split(".")[:2]) + (f" {rest}" if rest else "")
        by_label[label] = results
    return dict(sorted(by_label.items(), key=lambda item: [int(n) for n in item[0].split()[0].split(".")]))


def _at_its_best(runs: Iterable[Run]) -> list[Run]:
    """Return the runs of the setting with the best median."""
    by_setting: dict[int, list[Run]] = {}
    for run in runs:
        by_setting.setdefault(run.concurrency, []).append(run)
    if len(by_setting) < 2:
        return [run for tried in by_setting.values() for run in tried]
    return max(by_setting.values(), key=lambda tried: statistics.median(r.value("workflows_per_s") or 0 for r in tried))


def describe_machine(postgres: str, interpreter: Interpreter) -> dict[str, str]:
    """Return the properties of the machine that the figures depend on."""
    cpu = _first_line("lscpu | sed -n 's/^Model name: *//p'") or platform.processor() or platform.machine()
    place = os.environ.get("BENCH_DIR", tempfile.gettempdir())
    disk = _first_line(f"df --output=fstype {place} | tail -1")
    return {
        "cpu": f"{cpu} ({platform.machine()}), {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}, {disk} file system",
        "disk": f"fdatasync of 4 kB in {_sync_us(place):.0f} microseconds (median)",
        "python": interpreter.version,
        "sqlite": interpreter.sqlite,
        "postgres": postgres,
    }


def _sync_us(place: str) -> float:
    taken: list[float] = []
    with tempfile.TemporaryFile(dir=place, buffering=0) as file:
        for _ in range(300):
            file.write(b"x" * 4096)
            begin = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - begin)
    return statistics.median(taken) * 1e6


def _first_line(command: str) -> str:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    return done.stdout.strip().splitlines()[0].strip() if done.stdout.strip() else ""
