"""Checks for slowdowns: `make bench-quick`. Takes under two minutes, and gives the same answer on a busy machine.

If valgrind is installed, instructions are counted; otherwise CPU seconds are measured, less exactly. Either way the
result is a ratio within this run: one more step of ours to one more turn of a loop written by hand (steps.py).
The expected ratios are in quick.json; `--keep` updates them after a change that is supposed to cost something.
`python -m bench.quick wake awake` measures only these kinds.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.steps import KINDS

KEPT = Path(__file__).with_name("quick.json")
SIZES = (200, 800)
ALLOWED = {"instructions": 1.15, "cpu": 1.35}
"""By how much a ratio may exceed the expected one."""


def instructions(name: str, n: int) -> float:
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    done = _run([*command, sys.executable, "-m", "bench.steps", name, str(n)])
    found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
    if found is None:
        raise SystemExit(f"valgrind gave no count for {name}: {done.stderr[-500:]}")
    return float(found[1].replace(",", ""))


def cpu(name: str, n: int) -> float:
    """Return the minimum of a few runs: disturbances only make a run longer."""
    least = float("inf")
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        _run([sys.executable, "-m", "bench.steps", name, str(n * 10)])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return least


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONHASHSEED": "0"}
    root = Path(__file__).parents[1]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr[-500:]}")
    return done


def measure(how: str, names: list[str], progress: Progress) -> dict[str, float]:
    """Return the cost of one more of each, as a multiple of the reference."""
    names = ["reference", *names]
    jobs = [(name, n) for name in names for n in SIZES]
    task = progress.add_task(f"counting {how}", total=len(jobs))
    count = instructions if how == "instructions" else cpu
    count("reference", 1)  # compile the modules first
    costs: dict[tuple[str, int], float] = {}

    def do(job: tuple[str, int]) -> None:
        costs[job] = count(*job)
        progress.advance(task)

    at_once = (os.cpu_count() or 1) if how == "instructions" else 1  # counts can run in parallel; timings can't
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(do, jobs))
    each = {name: costs[name, SIZES[1]] - costs[name, SIZES[0]] for name in names}
    return {name: cost / each["reference"] for name, cost in each.items() if name != "reference"}


def main() -> None:
    how = "instructions" if shutil.which("valgrind") else "cpu"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    console = Console()
    known = [name for name in KINDS if name != "reference"]
    wanted = [name for name in sys.argv[1:] if not name.startswith("-")]
    if unknown := set(wanted) - set(known):
        raise SystemExit(f"not a kind: {', '.join(sorted(unknown))} (there are: {', '.join(known)})")
    with Progress(console=console, transient=True) as progress:
        ratios = measure(how, wanted or known, progress)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    held: dict[str, float] = kept.get(how, {}).get(version, {})
    table = Table(title=f"cost of a step, as a multiple of a bare loop's ({how}, Python {version})")
    for head in ("", "kept", "now", "change"):
        table.add_column(head, justify="right" if head else "left")
    worse = [name for name, ratio in ratios.items() if ratio > held.get(name, ratio) * ALLOWED[how]]
    for name, ratio in ratios.items():
        old = held.get(name)
        change = "" if old is None else f"{ratio / old - 1:+.1%}"
        table.add_row(
            name, f"{old:.2f}" if old else "-", f"{ratio:.2f}", f"[red]{change}[/]" if name in worse else change
        )
    console.print(table)
    if "--keep" in sys.argv or not held:
        measured = {name: round(ratio, 3) for name, ratio in ratios.items()}
        kept.setdefault(how, {})[version] = {name: r for name in known if (r := (held | measured).get(name))}
        KEPT.write_text(json.dumps(kept, indent=2) + "\n")
        console.print(f"kept in {KEPT.name}")
    elif worse:
        raise SystemExit(f"slower than allowed ({ALLOWED[how]:.2f}x): {', '.join(worse)}")


if __name__ == "__main__":
    main()
