"""Workers, two at a time, are killed before each statement of retention: what is wanted stays, and others finish it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import romancy
from romancy import App, Database
from romancy.service import runtime_of
from romancy.storage.sql import prefixed
from tests import pg_server
from tests.crash.processes import ROOT, Cluster
from tests.crash.pruning import DAY, KEPT, WORKFLOWS, keeper, live, taker
from tests.helpers import unqualified

THOROUGH = bool(os.environ.get("ROMANCY_TEST_THOROUGH"))
POINTS = {
    "postgres": {"prune": range(1, 41), "cut": range(1, 8)},
    "sqlite": {"prune": range(1, 160, 1 if THOROUGH else 4), "cut": range(1, 26)},
}
"""The statements before which the first one dies. SQLite has one for each row: two rounds and more in both cases."""
COUNT = {"postgres": 300, "sqlite": 400 if THOROUGH else 200}
LOST = [
    f"SELECT count(*) FROM romancy.{table} x WHERE x.instance NOT IN (SELECT id FROM romancy.instances)"
    for table in ("history", "consumed", "marks", "waits", "wait_keys")
] + [
    f"SELECT count(*) FROM romancy.{table} x WHERE x.{column} NOT IN (SELECT seq FROM romancy.events)"
    for table, column in (("event_keys", "seq"), ("consumed", "event"))
]
"""What belongs to something that is gone."""
pytestmark = [pytest.mark.play, pytest.mark.timeout(900)]


class Ground:
    """A database, what is in it, and a process that forks workers."""

    def __init__(self, url: str, schema: str, folder: Path, process: Process) -> None:
        self.url, self.schema, self._process = url, schema, process
        self._cluster = Cluster(folder)
        self.kills = 0

    async def kill(self, part: str, *points: int) -> bool:
        """Let workers die at these points; return whether any did, and had not run out of work before."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{part} {' '.join(map(str, points))}\n".encode())
        async with asyncio.timeout(60):
            ends = [int(end) for end in (await stdout.readline()).split()]
        assert set(ends) <= {-signal.SIGKILL, 0}, ends
        assert len(ends) == len(points)
        self.kills += ends.count(-signal.SIGKILL)
        return -signal.SIGKILL in ends

    async def read(self, query: str) -> list[tuple[Any, ...]]:
        if not self.schema:
            return self._cluster.read(prefixed(query))
        connection = await asyncpg.connect(self.url, server_settings={"search_path": self.schema})
        try:
            return [tuple(row) for row in await connection.fetch(unqualified(query))]
        finally:
            await connection.close()

    async def ids(self, table: str, like: str = "%") -> set[str]:
        return {id for (id,) in await self.read(f"SELECT id FROM romancy.{table} WHERE id LIKE '{like}'")}


@asynccontextmanager
async def ground(backend: str, folder: Path) -> AsyncIterator[Ground]:
    path = os.pathsep.join([str(Path(romancy.__file__).parents[1]), str(ROOT)])
    async with pg_server.schema() as name:
        url, schema = (str(folder / "romancy.db"), "") if backend == "sqlite" else (pg_server.url(), name)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.crash.pruning", url, schema,
            cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdin=PIPE, stdout=PIPE,
        )  # fmt: skip
        try:
            yield Ground(url, schema, folder, process)
        finally:
            process.kill()
            await process.wait()


async def check_nothing_wanted_is_lost(stage: Ground, news: dict[str, int]) -> None:
    """Whoever died where. `news`: when they were accepted."""
    for query in LOST:
        assert await stage.read(query) == [(0,)], query
    assert {"keeper", "failure", "young"} <= await stage.ids("instances")
    events = await stage.ids("events")
    wanted = {f"wanted-{n}" for n in range(20)}
    assert wanted | {f"short-{n}" for n in range(10)} | {"young", "bad"} <= events
    cut = dict(await stage.read("SELECT type, upto FROM romancy.cuts"))
    assert all(news[id] < cut.get("news", 0) for id in news.keys() - events), "removed, and nobody says so"
    assert cut.keys() <= {"news"}, "nobody wants anything else that is so old"
    assert all(news[id] >= cut.get("news", 0) for id in wanted)


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
async def test_nothing_wanted_is_lost_and_the_next_one_goes_on(backend: str, tmp_path: Path) -> None:
    count = COUNT[backend]
    async with ground(backend, tmp_path) as stage:
        await live(stage.url, stage.schema, count)
        news = dict(await stage.read("SELECT id, accepted_at FROM romancy.events WHERE type = 'news'"))
        assert len(news) == count + 20
        for part, points in POINTS[backend].items():
            for n in points:
                other = points[len(points) - 1 - points.index(n)]
                for together in ([n], [n, other]) if part == "cut" else ([n, other],):
                    assert await stage.kill(part, *together), f"nothing is left to {part} at {n}"
                    await check_nothing_wanted_is_lost(stage, news)
        assert news.keys() - await stage.ids("events"), "some were cut"
        await check_the_next_one(stage, count)
        print({"kills": stage.kills})


async def check_the_next_one(stage: Ground, count: int) -> None:
    """Another worker removes the rest. Then everything is as if nobody had died."""
    async with App(Database(stage.url, schema=stage.schema or None), workflows=WORKFLOWS, retention=KEPT) as app:
        await runtime_of(app).engine.prune()
        assert await stage.ids("instances") == {"keeper", "failure", "young"}
        kept = {f"wanted-{n}" for n in range(20)} | {f"short-{n}" for n in range(10)} | {"young", "bad"}
        assert await stage.ids("events") == kept
        assert await stage.read("SELECT count(*) FROM romancy.events WHERE id LIKE 'short-%' AND data IS NOT NULL") == [
            (0,)
        ]
        [(_, upto)] = await stage.read("SELECT type, upto FROM romancy.cuts")
        [(now,)] = await stage.read("SELECT max(accepted_at) FROM romancy.events")
        assert 98 * DAY < now + DAY - upto < 102 * DAY, "the last of those that were cut"
        for id in ("wanted-3", "short-4", "young", "bad"):
            type = {"w": "news", "s": "noise", "b": "bad"}.get(id[0], "taken")
            assert (await app.send_event(type, "test", id=id)).duplicate, id
        again: Any = await app.start_workflow(taker, -2, instance_id="young")
        assert not again.created
        await app.send_event("wake", "test", 20)
        assert await app.handle("keeper", keeper).result(60) == [f"wanted-{n}" for n in range(20)]
