"""A fleet under random kills, with and without poison pills: no innocent instance may end blocked, every pill must.

    python -m tests.crash.kills --database postgres --kills 1000 --seed 7 --pills 5

Real worker processes on a real database, SIGKILLed at random; a supervisor starts each again at once. Clients keep
instances running whose activities take 10 ms to 3 s; pills are instances that kill the worker that runs them, in an
activity, in their code, when a timer fires or when an event arrives. Prints one line of figures, seed included; exits
with 1 if an innocent was blocked or a pill was not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from romancy import (
    ActivityContext,
    App,
    Database,
    WorkerOptions,
    WorkflowBlocked,
    WorkflowContext,
    activity,
    sleep,
    wait_event,
    workflow,
)

CLIENTS = 30
CONVICTED_WITHIN = 600.0


# --- what runs --------------------------------------------------------------------------------------------------------
@activity
async def work(ctx: ActivityContext, seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


@activity
def work_in_thread(ctx: ActivityContext, seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@workflow
async def innocent(ctx: WorkflowContext, steps: list[float], together: bool) -> float:
    if together:
        return sum(await asyncio.gather(*(work(ctx, seconds) for seconds in steps)))
    total = 0.0
    for n, seconds in enumerate(steps):
        total += await (work_in_thread if n % 2 else work)(ctx, seconds)
        await sleep(ctx, 0.01)
    return total


def die() -> None:
    os.kill(os.getpid(), random.choice([signal.SIGKILL, signal.SIGSEGV]))
    time.sleep(60)  # until it arrives


@activity
async def shoot(ctx: ActivityContext) -> None:
    die()


@workflow
async def kills_in_activity(ctx: WorkflowContext) -> None:
    await shoot(ctx)


@workflow
async def kills_in_code(ctx: WorkflowContext) -> None:
    die()


@workflow
async def kills_on_timer(ctx: WorkflowContext) -> None:
    await sleep(ctx, 0.3)
    die()


@workflow
async def kills_on_event(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "go", subject=ctx.instance_id)
    die()


PILLS = [kills_in_activity, kills_in_code, kills_on_timer, kills_on_event]
WORKFLOWS = [innocent, *PILLS]


# --- processes: forked, so that they are up at once -------------------------------------------------------------------
@dataclass(frozen=True)
class Play:
    """What is played, and where."""

    database: str
    schema: str | None
    seed: int
    kills: int
    workers: int = 3
    every: float = 0.6
    pills: int = 0
    pills_every: float = 5.0
    only: str | None = None
    folder: str = field(default_factory=lambda: tempfile.mkdtemp(prefix="romancy-kills-"))

    def app(self, **options: Any) -> App:
        return App(Database(self.database, self.schema), **options)

    @property
    def over(self) -> str:
        return os.path.join(self.folder, "over")

    @property
    def log(self) -> str:
        return os.path.join(self.folder, "log")


async def run_worker(play: Play) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with play.app(workflows=WORKFLOWS, worker=WorkerOptions(grace=1)):
        await stop.wait()


async def run_clients(play: Play) -> None:
    """Start innocents, each after the end of another, and pills; write down how each ended."""
    luck = random.Random(play.seed)
    log = os.open(play.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(**line: Any) -> None:
        os.write(log, (json.dumps(line) + "\n").encode())

    async def end(kind: str, handle: Any, limit: float) -> None:
        begin = time.monotonic()
        try:
            await handle.result(timeout=limit)
            how, said = "completed", ""
        except WorkflowBlocked as error:
            how, said = "blocked", str(error)
        except TimeoutError:
            how, said = "unfinished", handle.instance_id
        note(kind=kind, how=how, seconds=round(time.monotonic() - begin, 2), said=said)

    async with play.app(worker=False) as app:

        async def innocents(n: int) -> None:
            await asyncio.sleep(luck.random())
            while not os.path.exists(play.over):
                steps = [10 ** luck.uniform(-2, 0.477) for _ in range(luck.randrange(1, 4))]
                handle = await app.start_workflow("innocent", steps, luck.random() < 0.3)
                await end("innocent", handle, CONVICTED_WITHIN)

        async def pills() -> None:
            tasks: list[asyncio.Task[None]] = []
            for n in range(play.pills):
                await asyncio.sleep(luck.expovariate(1 / play.pills_every))
                name = play.only or PILLS[n % len(PILLS)].name
                handle = await app.start_workflow(name, instance_id=f"pill-{n}")
                await app.send_event("go", "kills", subject=f"pill-{n}")
                tasks.append(asyncio.create_task(end(name, handle, CONVICTED_WITHIN)))
            await asyncio.gather(*tasks)

        await asyncio.gather(pills(), *(innocents(n) for n in range(CLIENTS)))


def fork(main: Any, play: Play) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stderr = open(os.path.join(play.folder, "errors"), "a")  # noqa: SIM115 - until the process ends
        asyncio.run(main(play))
        code = 0
    finally:
        os._exit(code)


class Supervisor:
    """Starts workers again whenever they die, and kills them at random."""

    def __init__(self, play: Play) -> None:
        self._play, self._luck = play, random.Random(play.seed + 1)
        self._workers: set[int] = set()
        self.kills = self.deaths = 0

    def run(self) -> float:
        """Play until the clients are through; returns for how long."""
        begin = time.monotonic()
        clients = fork(run_clients, self._play)
        next_kill = begin + 2.0
        try:
            while not self._has_ended(clients):
                self._refill()
                if self.kills < self._play.kills and time.monotonic() > next_kill:
                    next_kill = time.monotonic() + self._luck.expovariate(1 / self._play.every)
                    self._kill()
                    if self.kills == self._play.kills:
                        open(self._play.over, "w").close()
                if not self._play.kills and time.monotonic() > begin + 5:
                    open(self._play.over, "w").close()
                time.sleep(0.01)
        finally:
            for pid in self._workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        return time.monotonic() - begin

    def _has_ended(self, clients: int) -> bool:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == clients:
                assert status == 0, "the clients failed; see the errors in the folder"
                return True
            if pid == 0:
                return False
            self._workers.discard(pid)
            self.deaths += 1

    def _refill(self) -> None:
        while len(self._workers) < self._play.workers:
            self._workers.add(fork(run_worker, self._play))

    def _kill(self) -> None:
        os.kill(self._luck.choice(sorted(self._workers)), signal.SIGKILL)
        self.kills += 1


def figures(play: Play, supervisor: Supervisor, seconds: float) -> dict[str, Any]:
    with open(play.log) as log:
        lines = [json.loads(line) for line in log]
    innocents = [line for line in lines if line["kind"] == "innocent"]
    pills = [line for line in lines if line["kind"] != "innocent"]
    wrong = [line for line in innocents if line["how"] != "completed"]
    found = [line["seconds"] for line in pills if line["how"] == "blocked"]
    return {
        "seed": play.seed,
        "database": "sqlite" if play.schema is None else "postgres",
        "kills": supervisor.kills,
        "deaths": supervisor.deaths,
        "innocents": len(innocents),
        "innocents_blocked": sum(line["how"] == "blocked" for line in innocents),
        "innocents_unfinished": sum(line["how"] == "unfinished" for line in innocents),
        "slowest_innocent": max((line["seconds"] for line in innocents), default=0),
        "pills": len(pills),
        "pills_blocked": len(found),
        "seconds_to_block": [min(found, default=0), max(found, default=0)],
        "seconds": round(seconds, 1),
        "wrong": wrong[:3] + [line for line in pills if line["how"] != "blocked"][:3],
    }


@contextmanager
def place(kind: str) -> Iterator[tuple[str, str | None]]:
    if kind == "sqlite":
        with tempfile.TemporaryDirectory(prefix="romancy-kills-") as folder:
            yield os.path.join(folder, "kills.db"), None
        return
    from tests import pg_server

    given = os.environ.get("ROMANCY_TEST_POSTGRES")
    server = None if given else pg_server.Server()
    try:
        yield given or server.url, f"kills_{os.urandom(4).hex()}"  # type: ignore[union-attr]
    finally:
        if server is not None:
            server.remove()


def play_once(kind: str, **options: Any) -> dict[str, Any]:
    """Play on a database of its own; returns the figures."""
    with place(kind) as (database, schema):
        play = Play(database, schema, **options)
        supervisor = Supervisor(play)
        seconds = supervisor.run()
        return figures(play, supervisor, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--every", type=float, default=0.6, help="seconds between kills")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--pills", type=int, default=0)
    parser.add_argument("--pills-every", type=float, default=5.0, help="seconds between pills")
    parser.add_argument("--only", help="pills of this workflow only")
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    options = vars(parser.parse_args())
    chosen = options.pop("database")
    failed = False
    for kind in ["sqlite", "postgres"] if chosen == "both" else [chosen]:
        found = play_once(kind, **options)
        print(json.dumps(found), flush=True)
        failed |= bool(found["wrong"])
    sys.exit(failed)


if __name__ == "__main__":
    main()
