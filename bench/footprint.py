"""Measures the footprint of a system: import time, size on disk, number of packages."""

from __future__ import annotations

import statistics
import subprocess
import time
from pathlib import Path

from bench.interpreters import Interpreter
from bench.running import ROOT, python_of

IMPORTS = {"romancy": "romancy", "edda": "edda", "dbos": "dbos", "restate": "restate"}
_COUNT = "import importlib.metadata as m; print(len({d.name for d in m.distributions()} - {'pip', 'setuptools'}))"


def measure(system: str, interpreter: Interpreter) -> dict[str, float]:
    python = _installed(system, interpreter)
    return {
        "import_ms": (_seconds(python, f"import {IMPORTS[system]}") - _seconds(python, "pass")) * 1000,
        "install_mb": _megabytes(python),
        "packages": float(_output(python, _COUNT)),
    }


def _installed(system: str, interpreter: Interpreter) -> str:
    if system != "romancy":
        return python_of(system, interpreter)
    place = interpreter.environments / "romancy"
    subprocess.run([interpreter.path, "-m", "venv", str(place)], check=True)
    subprocess.run([str(place / "bin" / "python"), "-m", "pip", "install", "-qq", f"{ROOT}[postgres]"], check=True)
    return str(place / "bin" / "python")


def _seconds(python: str, code: str) -> float:
    """Measure several runs without the first one, which compiles the modules."""
    taken: list[float] = []
    for _ in range(6):
        begin = time.perf_counter()
        subprocess.run([python, "-c", code], check=True, cwd="/", env={"PATH": ""})
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken[1:])


def _megabytes(python: str) -> float:
    """Return the size in MB without pip and without compiled files."""
    place = Path(_output(python, "import sysconfig; print(sysconfig.get_paths()['purelib'])"))
    files = (f for f in place.rglob("*") if f.is_file() and "__pycache__" not in f.parts)
    return sum(f.stat().st_size for f in files if f.relative_to(place).parts[0].split("-")[0] != "pip") / 1e6


def _output(python: str, code: str) -> str:
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, cwd="/").stdout.strip()
