"""A rolling upgrade, with real processes: workers of this release, and of that before queues, schedules and the inbox.

The older release comes from the history of this repository.
"""

from __future__ import annotations

import asyncio
import io
import os
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import romancy
from romancy import App, Database, Schedule
from tests import pg_server
from tests.crash.processes import ROOT, Cluster, cluster
from tests.crash.upgrade_worker import LIMIT, letter, ticks

OLDER = "67db31321426b784e29b6b86e0bc754313a90c2a"
"""The last commit on the way here whose newest migration is 0007."""
LEASE = 1.0
pytestmark = [pytest.mark.play, pytest.mark.timeout(120)]


@pytest.fixture(scope="session")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the older release."""
    try:
        made = subprocess.run(["git", "archive", OLDER, "src"], cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(
            f"commit {OLDER[:7]} is not in the history here (a shallow clone?): no older release to upgrade from"
        )
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")
    found = sorted(path.name[:4] for path in (folder / "src/romancy/storage/sql/migrations").glob("*.sql"))
    assert found[-1] == "0007"
    return folder / "src"


@dataclass
class Ground:
    """A database, and processes of both releases on it. What each says is in a file of its own."""

    workers: Cluster
    url: str
    schema: str | None
    folder: Path

    def __post_init__(self) -> None:
        self.gate = str(self.folder / "gate")
        self._processes: list[subprocess.Popen[bytes]] = []

    def spawn(self, source: Path) -> subprocess.Popen[bytes]:
        at = [self.url, str(self.folder / "log"), str(LEASE), self.schema or "", self.gate]
        with (self.folder / f"stderr-{len(self._processes)}").open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.upgrade_worker", *at],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])},
                stderr=stderr,
            )
        self._processes.append(process)
        return process

    def said(self, process: subprocess.Popen[bytes]) -> str:
        return (self.folder / f"stderr-{self._processes.index(process)}").read_text()

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    async def ready(self, process: subprocess.Popen[bytes], source: Path) -> None:
        await self.until(lambda: process.pid in self.workers.pids("ready"), "it is ready")
        [line] = [line for line in self.workers.lines("ready") if line["pid"] == process.pid]
        assert Path(line["source"]).is_relative_to(source), "it runs the wrong release"

    async def until(self, condition: Any, what: str) -> None:
        async with asyncio.timeout(40):
            while not condition():  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.02)

    async def contents(self) -> dict[str, Any]:
        """Every row of every table."""
        if self.schema is None:
            with closing(sqlite3.connect(self.url, timeout=5)) as connection:
                return {"file": list(connection.iterdump())}
        connection = await asyncpg.connect(self.url)
        try:
            tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", self.schema)
            query = 'SELECT t::text FROM "{}"."{}" t ORDER BY 1'
            return {name: await connection.fetch(query.format(self.schema, name)) for (name,) in tables}
        finally:
            await connection.close()

    async def leave(self, app: App, count: int) -> None:
        """Leave starts in the inbox, as a caller does."""
        file = sqlite3.connect(self.url, isolation_level=None, timeout=10) if self.schema is None else None
        connection: Any = file or await asyncpg.connect(self.url)
        for sql in ("BEGIN", "COMMIT"):
            done = connection.execute(sql)
            if file is None:
                await done
            for n in range(count if sql == "BEGIN" else 0):
                await app.within(connection).start_workflow(letter, n, instance_id=f"left-{n}")
        done = connection.close()
        if done is not None:
            await done


@asynccontextmanager
async def stage(backend: str, folder: Path) -> AsyncIterator[Ground]:
    async with pg_server.schema() as schema:
        with cluster(folder) as workers:
            is_file = backend == "sqlite"
            url = workers.database if is_file else pg_server.url()
            ground = Ground(workers, url, None if is_file else schema, folder)
            try:
                yield ground
            finally:
                ground.end()


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
async def test_older_workers_pause_and_newer_ones_do_the_work(backend: str, older: Path, tmp_path: Path) -> None:
    newer = Path(romancy.__file__).parents[1]
    async with stage(backend, tmp_path) as ground:
        old = [ground.spawn(older), ground.spawn(older)]
        for process in old:
            await ground.ready(process, older)
        await ground.until(lambda: ground.workers.lines("begin"), "an activity of the older release runs")
        async with App(Database(ground.url, schema=ground.schema), worker=False) as app:  # this migrates
            await ground.leave(app, 10)
            for n in range(10):
                await app.start_workflow(letter, 10 + n, instance_id=f"queued-{n}")
            assert await app.count_instances(status="queued") == 10
            often = Schedule(every=timedelta(milliseconds=300), overlap="allow", catch_up="all")
            await app.set_schedule("often", often, ticks)
            await app.send_event("go", "test", "went", id="go")
            before = await ground.contents()
            Path(ground.gate).touch()  # the activity that the older release runs comes to its end
            await asyncio.sleep(6)  # the leases end, the timer is due, and so is the schedule
            late = ground.spawn(older)
            assert await asyncio.to_thread(late.wait, 30) != 0
            assert "upgrade the package" in ground.said(late)
            for process in old:
                assert process.poll() is None, "it goes on, without doing anything"
                assert "this worker stops" in ground.said(process)
            assert await ground.contents() == before, "an older worker has written something"
            await check_newer_ones_do_it_all(ground, app, newer, {process.pid for process in old})
            for process in old:
                assert process.poll() is None
                assert ground.said(process).count("this worker stops") == 1


async def check_newer_ones_do_it_all(ground: Ground, app: App, newer: Path, old: set[int]) -> None:
    new = [ground.spawn(newer), ground.spawn(newer)]
    for process in new:
        await ground.ready(process, newer)
    for id, result in {"gated": "gated", "waits": "went", "sleeps": "slept"}.items():
        assert await app.handle(id).result(30) == result
    for n in range(10):
        assert await app.handle(f"left-{n}").result(30) == f"letter {n}"
        assert await app.handle(f"queued-{n}").result(30) == f"letter {10 + n}"
    async with asyncio.timeout(30):
        while (await app.list_schedules())[0].started < 20:  # noqa: ASYNC110 - most were due before
            await asyncio.sleep(0.1)
    begun = [(line["text"], line["pid"]) for line in ground.workers.lines("begin")]
    assert [text for text, pid in begun if pid in old] == ["gated"], "nothing began there after the migration"
    assert sorted(text for text, _ in begun if text != "tick") == sorted(
        ["gated", "gated", "went", "slept", *(f"letter {n}" for n in range(20))]
    ), "everything was done once, except for what was cut short"
    assert most_at_once(ground.workers) <= LIMIT
    assert await app.count_instances(status=["failed", "blocked"]) == 0


def most_at_once(workers: Cluster) -> int:
    """How many letters were written at the same time."""
    lines = [line for what in ("begin", "end") for line in workers.lines(what) if line["text"].startswith("letter")]
    most = now = 0
    for line in sorted(lines, key=lambda line: line["at"]):
        now += 1 if line["what"] == "begin" else -1
        most = max(most, now)
    return most
