"""Runs one measurement: a system's script in its own environment, on its own database. Reads its last line."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from bench.interpreters import Interpreter
from bench.plan import Measure

ROOT = Path(__file__).parents[1]
SCRIPTS = {"romancy": "romancy_", "edda": "edda", "dbos": "dbos_", "restate": "restate_", "limit": "limit"}
READY = ".ready"
"""A file in an environment that is complete: what was installed."""
Figures = dict[str, Any]


class Absent(Exception):
    """A system or workload is not available here; the message says why."""


# --- environments ----------------------------------------------------------------------------------------------------
def python_of(system: str, interpreter: Interpreter) -> str:
    """Return the program that runs a system's script."""
    ours = system in ("romancy", "limit")
    if ours and interpreter.is_own:
        return interpreter.path
    return str(interpreter.environments / ("checkout" if ours else system) / "bin" / "python")


def prepare(system: str, interpreter: Interpreter) -> None:
    """Install a system into its own environment, unless it is already there."""
    if system in ("romancy", "limit"):
        if not interpreter.is_own:
            _install_checkout(interpreter)
        return
    wanted = constant(system, "REQUIREMENTS")
    nodes = constant(system, "NODE_REQUIREMENTS")
    if nodes and shutil.which("npm") is None:
        raise Absent("its server is installed with npm, which is not available here")
    place = interpreter.environments / system
    content = repr((interpreter.version, wanted, nodes))
    if _has(place, content):
        return
    _run([interpreter.path, "-m", "venv", "--clear", str(place)])
    _run([python_of(system, interpreter), "-m", "pip", "install", "-qq", *wanted])
    if nodes:
        _run(["npm", "install", "--silent", "--prefix", str(place / "node"), *nodes])
    (place / READY).write_text(content)


def _install_checkout(interpreter: Interpreter) -> None:
    """Install this checkout of Romancy, with the versions of uv.lock."""
    place = interpreter.environments / "checkout"
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    pins = [f"{p['name']}=={p['version']}" for p in lock["package"] if "registry" in p["source"]]
    content = repr((interpreter.version, str(ROOT), pins))
    if _has(place, content):
        return
    _run([interpreter.path, "-m", "venv", "--clear", str(place)])
    (place / "constraints.txt").write_text("\n".join(pins))
    install = ["-m", "pip", "install", "-qq", "-c", str(place / "constraints.txt"), "-e", f"{ROOT}[postgres,fast]"]
    _run([str(place / "bin" / "python"), *install])
    (place / READY).write_text(content)


def _has(place: Path, content: str) -> bool:
    return (place / READY).exists() and (place / READY).read_text() == content


def constant(system: str, name: str) -> Any:
    """Return a constant of a script that can only be imported in its own environment."""
    tree = ast.parse((ROOT / "bench" / "systems" / f"{SCRIPTS[system]}.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(t, ast.Name) and t.id == name for t in targets) and node.value is not None:
                return ast.literal_eval(node.value)
    return ()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Absent(f"{' '.join(command[:4])}: {(done.stderr or done.stdout).strip()[-300:]}")


# --- databases -------------------------------------------------------------------------------------------------------
@contextmanager
def database(kind: str, system: str, server: str) -> Iterator[str]:
    """Yield the URL of an empty database, and delete it afterwards."""
    if kind == "postgres":
        with _postgres(server) as url:
            yield url
        return
    with tempfile.TemporaryDirectory(prefix="romancy-bench-", dir=os.environ.get("BENCH_DIR")) as folder:
        yield f"restate://{folder}" if system == "restate" else f"sqlite:///{folder}/bench.db"


@contextmanager
def _postgres(server: str) -> Iterator[str]:
    name = f"bench_{os.urandom(4).hex()}"
    _sql(server, f"CREATE DATABASE {name}")
    parts = urlsplit(server)
    try:
        yield urlunsplit(parts._replace(path=f"/{name}"))
    finally:
        _sql(server, f"DROP DATABASE {name} WITH (FORCE)")


def _sql(server: str, statement: str) -> None:
    import asyncio

    import asyncpg

    async def go() -> None:
        connection: Any = await asyncpg.connect(server)
        await connection.execute(statement)
        await connection.close()

    asyncio.run(go())


# --- one run ---------------------------------------------------------------------------------------------------------
def run(
    measure: Measure, system: str, kind: str, server: str, interpreter: Interpreter, concurrency: int = 0
) -> Figures:
    """Return the figures of one run, or {"error": ...}."""
    with database(kind, system, server) as url:
        command = [
            python_of(system, interpreter),
            "-m",
            f"bench.systems.{SCRIPTS[system]}",
            measure.workload,
            "--database",
            url,
        ]
        command += ["--size", str(measure.sizes[system]), "--steps", str(measure.steps), "--limit", str(measure.limit)]
        command += ["--concurrency", str(concurrency)] if concurrency else []
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        patience = measure.limit * 3 + 60
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, stdout=pipe, stderr=pipe, text=True, cwd=ROOT, env=environment, start_new_session=True
        ) as process:
            try:
                said, complained = process.communicate(timeout=patience)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # with the processes it started
                return {"error": f"it did not end within {patience:.0f} s"}
    lines = said.strip().splitlines()
    try:
        return json.loads(lines[-1])
    except (IndexError, ValueError):
        text = (complained or said).strip().splitlines()
        if text and text[-1].startswith(f"{measure.workload}: "):
            return {"absent": text[-1].partition(": ")[2]}
        return {"error": text[-1][:300] if text else f"it ended with exit code {process.returncode} and no output"}
