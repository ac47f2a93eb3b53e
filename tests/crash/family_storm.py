"""Sagas, families, streams, retries and forks on workers that are killed and paused at random.

    python -m tests.crash.family_storm --database postgres --workers 3 --minutes 5 --seed 7

Real worker processes on a real database. Each is killed (SIGKILL), or paused (SIGSTOP) for longer than its lease, at
random moments; a supervisor starts the dead again. Meanwhile a crowd starts, cancels, retries, forks and resumes
instances (`storm_crowd.py`), whose activities report every effect to an observer (`storm_cast.py`). When the storm is
over, everything must end within a bound, and then a judge compares (`storm_judge.py`). Prints one line of figures, seed
included; exits with 1 if there is a fault. The folder with the observer's file is kept then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from romancy import App, Database, WorkerOptions
from tests.crash.kills import place
from tests.crash.storm_cast import WORKFLOWS, Observer
from tests.crash.storm_crowd import Crowd
from tests.crash.storm_judge import Judge


@dataclass(frozen=True)
class Storm:
    """What is played, and where."""

    database: str
    schema: str | None
    seed: int
    minutes: float
    workers: int = 3
    every: float = 1.0
    lease: float = 2.0
    crowd: int = 150
    calm: float = 120.0
    folder: str = field(default_factory=lambda: tempfile.mkdtemp(prefix="romancy-storm-"))

    def app(self, **options: Any) -> App:
        return App(Database(self.database, self.schema), **options)

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)


# --- processes: forked, so that they are up at once -------------------------------------------------------------------
async def run_worker(storm: Storm) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(process)d %(asctime)s %(levelname)s %(name)s %(message)s")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    options = {"lease": storm.lease, "worker": WorkerOptions(max_resident=60, grace=1)}
    async with storm.app(workflows=list(WORKFLOWS.values()), state=Observer(storm.folder), **options):
        await stop.wait()


async def run_crowd(storm: Storm) -> None:
    async with storm.app(worker=False, workflows=list(WORKFLOWS.values())) as app:
        crowd = Crowd(app, Observer(storm.folder), storm.seed, storm.path("over"), crowd=storm.crowd, calm=storm.calm)
        await crowd.run()


def fork(main: Callable[[Storm], Coroutine[Any, Any, None]], storm: Storm) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stderr = open(storm.path(main.__name__), "a", buffering=1)  # noqa: SIM115 - until the process ends
        asyncio.run(main(storm))
        code = 0
    except BaseException:
        logging.exception("%s failed", main.__name__)
    finally:
        os._exit(code)


class Supervisor:
    """Kills and pauses workers at random while the storm lasts, and starts the dead again."""

    def __init__(self, storm: Storm) -> None:
        self._storm, self._luck = storm, random.Random(storm.seed + 1)
        self._workers: set[int] = set()
        self._paused: dict[int, float] = {}
        self._killed: set[int] = set()
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []

    def run(self) -> None:
        begin = time.monotonic()
        crowd = fork(run_crowd, self._storm)
        is_over, next_blow = False, begin + 1.0
        try:
            while not self._has_ended(crowd):
                now = time.monotonic()
                while len(self._workers) < self._storm.workers:
                    self._workers.add(fork(run_worker, self._storm))
                self._wake(now, all_of_them=is_over)
                if not is_over and now > next_blow:
                    next_blow = now + self._luck.expovariate(1 / self._storm.every)
                    self._strike(now)
                if not is_over and now > begin + self._storm.minutes * 60:
                    is_over = True
                    open(self._storm.path("over"), "w").close()
                time.sleep(0.01)
        finally:
            for pid in self._workers:
                self._send(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def _strike(self, now: float) -> None:
        pid = self._luck.choice(sorted(self._workers))
        if self._luck.random() < 0.6:
            self.counts["kills"] += 1
            self._killed.add(pid)
            self._send(pid, signal.SIGKILL)
        elif pid not in self._paused:
            self.counts["pauses"] += 1
            self._paused[pid] = now + self._storm.lease * self._luck.uniform(0.3, 2.5)
            self._send(pid, signal.SIGSTOP)

    def _wake(self, now: float, *, all_of_them: bool) -> None:
        for pid, until in list(self._paused.items()):
            if now > until or all_of_them:
                del self._paused[pid]
                self._send(pid, signal.SIGCONT)

    def _send(self, pid: int, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    def _has_ended(self, crowd: int) -> bool:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return False
            if pid == crowd:
                if status != 0:
                    self.faults.append(f"the crowd failed: see {self._storm.path('run_crowd')}")
                return True
            self._workers.discard(pid)
            self._paused.pop(pid, None)
            if pid not in self._killed:
                self.faults.append(f"worker {pid} died by itself ({status}): see {self._storm.path('run_worker')}")


# --- the end ----------------------------------------------------------------------------------------------------------
async def judge(storm: Storm) -> tuple[Judge, list[str]]:
    found = Judge(Observer(storm.folder).lines(), storm.lease)
    async with storm.app(worker=False, workflows=list(WORKFLOWS.values())) as app:
        await found.read(app)
    with open(storm.path("cases"), "w") as cases:
        for case in found.cases.values():
            history = [f"{e.n} {e.kind} {e.operation} {e.at:%M:%S.%f}{' dropped' * e.dropped}" for e in case.history]
            about = {"case": str(case), "input": case.instance.input, "output": case.instance.output}
            cases.write(json.dumps({**about, "history": history}) + "\n")
    return found, found.judge()


def play_once(kind: str, **options: Any) -> dict[str, Any]:
    """Play on a database of its own; returns the figures."""
    with place(kind) as (database, schema):
        storm = Storm(database, schema, **options)
        supervisor = Supervisor(storm)
        supervisor.run()
        judged, faults = asyncio.run(judge(storm))
    lines = Observer(storm.folder).lines()
    faults = [*supervisor.faults, *faults]
    statuses = Counter(f"{case.instance.workflow} {case.instance.status}" for case in judged.cases.values())
    figures = {
        "seed": storm.seed,
        "database": kind,
        **supervisor.counts,
        "instances": len(judged.cases),
        **dict(sorted(statuses.items())),
        "lines": dict(Counter(line["what"] for line in lines)),
        "seconds_to_end": next((line["seconds"] for line in lines if line["what"] == "calm"), None),
        "faults": len(faults),
        "wrong": faults[:20],
        "folder": storm.folder if faults else None,
    }
    if not faults:
        shutil.rmtree(storm.folder, ignore_errors=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="postgres")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between kills and pauses")
    parser.add_argument("--lease", type=float, default=2.0, help="seconds")
    parser.add_argument("--crowd", type=int, default=150, help="instances that live at the same time")
    parser.add_argument("--calm", type=float, default=120.0, help="seconds for everything to end after the storm")
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    options = vars(parser.parse_args())
    found = play_once(options.pop("database"), **options)
    print(json.dumps(found), flush=True)
    sys.exit(bool(found["faults"]))


if __name__ == "__main__":
    main()
