"""Worker processes as tests hold them: spawn, kill, and read what they did."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import romancy
from tests.helpers import eventually

ROOT = Path(__file__).parents[2]


def spawn(module: str, *words: str) -> subprocess.Popen[bytes]:
    """Run a module of the tests; returns at once."""
    path = os.pathsep.join([str(Path(romancy.__file__).parents[1]), str(ROOT)])
    return subprocess.Popen([sys.executable, "-m", module, *words], cwd=ROOT, env={**os.environ, "PYTHONPATH": path})


def pause(process: subprocess.Popen[Any], database: str) -> None:
    """SIGSTOP, at a moment when it does not hold the file: one who does stops everybody (and the docs say so)."""
    while True:
        process.send_signal(signal.SIGSTOP)
        connection = sqlite3.connect(database, isolation_level=None, timeout=0.2)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
            return
        except sqlite3.OperationalError:
            process.send_signal(signal.SIGCONT)
        finally:
            connection.close()


class Cluster:
    """A database file, a log file, and the worker processes on them; `module` is what they run."""

    def __init__(self, folder: Path, module: str = "tests.crash.worker") -> None:
        self.database = str(folder / "romancy.db")
        self._log = folder / "log"
        self._log.touch()
        self._lines: list[dict[str, Any]] = []
        self._read_up_to = 0
        self._module = module
        self._processes: list[subprocess.Popen[bytes]] = []

    def spawn(self, lease: float = 10.0, *more: str, database: str | None = None) -> subprocess.Popen[bytes]:
        """Start a worker; returns at once."""
        path = os.pathsep.join([str(Path(romancy.__file__).parents[1]), str(ROOT)])
        process = subprocess.Popen(
            [sys.executable, "-m", self._module, database or self.database, str(self._log), str(lease), *more],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
        )
        self._processes.append(process)
        return process

    def ready(self, *processes: subprocess.Popen[bytes], within: float = 20) -> None:
        """Wait until these workers work."""
        for process in processes:
            eventually(lambda pid=process.pid: pid in self.pids("ready"), within, f"worker {process.pid}")

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()

    def stop(self, process: subprocess.Popen[bytes]) -> int:
        """Ask it to stop, as a service manager would."""
        process.terminate()
        return process.wait(10)

    def pause(self, process: subprocess.Popen[bytes]) -> None:
        pause(process, self.database)

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                self.kill(process)

    # --- what happened -----------------------------------------------------------------------------------------------
    def lines(self, what: str) -> list[dict[str, Any]]:
        """What the workers logged, in order."""
        with self._log.open("rb") as log:
            log.seek(self._read_up_to)
            complete = log.read().rpartition(b"\n")[0]
        if complete:
            self._read_up_to += len(complete) + 1
            self._lines += map(json.loads, complete.splitlines())
        return [line for line in self._lines if line["what"] == what]

    def pids(self, what: str) -> list[int]:
        return [line["pid"] for line in self.lines(what)]

    def read(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """A query on the database, from outside."""
        connection = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=5)
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()

    def until_finished(self, count: int, within: float) -> None:
        """Wait until so many instances have ended; one that is blocked never will."""

        def finished() -> bool:
            blocked = self.read("SELECT id, error FROM romancy_instances WHERE status = 9")
            assert not blocked, f"{len(blocked)} instances are blocked, the first: {blocked[0]}"
            return self.read("SELECT count(*) FROM romancy_instances WHERE status >= 10")[0][0] >= count

        eventually(finished, within, f"the end of {count} instances", every=0.05)


@contextmanager
def cluster(folder: Path, module: str = "tests.crash.worker") -> Generator[Cluster, None, None]:
    it = Cluster(folder, module)
    try:
        yield it
    finally:
        it.end()


def now() -> float:
    return time.time()
