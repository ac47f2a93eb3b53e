"""kill -9 around a caller's commit, and at each point of the move: nothing is lost, nothing happens twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import romancy
from romancy import App, InstanceNotFound
from romancy.service import runtime_of
from tests import pg_server
from tests.crash.guest import CALLER_POINTS, MOVER_POINTS, database, double, listener
from tests.crash.processes import ROOT

pytestmark = [pytest.mark.timeout(60), pytest.mark.play]


@pytest.fixture(params=["sqlite", "postgres"])
async def where(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    """The URL and the schema; on SQLite, the schema is empty."""
    if request.param == "sqlite":
        yield str(tmp_path / "shop.db"), ""
        return
    async with pg_server.schema() as schema:
        yield pg_server.url(), schema


async def killed(*arguments: str) -> None:
    """Run a process that kills itself."""
    path = os.pathsep.join([str(Path(romancy.__file__).parents[1]), str(ROOT)])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.crash.guest", *arguments,
        cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    async with asyncio.timeout(30):
        assert await process.wait() == -signal.SIGKILL


async def prepare(where: tuple[str, str]) -> str:
    """An instance that waits for the event, and one whose id is taken."""
    async with App(database(*where), workflows=[double, listener]) as app:
        waiting = await app.start_workflow(listener)
        await (await app.start_workflow(double, 5, instance_id="taken")).result()
        return waiting.instance_id


async def check_all_happened(where: tuple[str, str], waiting: str) -> None:
    async with App(database(*where), workflows=[double, listener]) as app:
        assert await app.handle("new", double).result(timeout=20) == 42
        assert await app.handle(waiting).result(timeout=20) == {"n": 1}
        assert await app.handle("taken", double).result(timeout=20) == 10
        await runtime_of(app).engine.take_in()
        storage: Any = runtime_of(app).engine.storage
        assert await storage.arrivals(10, 1) == []
        [refused] = await storage._ask("inbox_list", after=0, limit=10)
        assert (refused[6], "different input" in refused[8]) == ("taken", True)
        assert len((await app.list_events()).items) == 1
        assert len((await app.list_instances()).items) == 3


@pytest.mark.parametrize("point", CALLER_POINTS)
async def test_a_caller_dies(where: tuple[str, str], point: str) -> None:
    waiting = await prepare(where)
    await killed("leave", *where, point)
    if point == "after the commit":
        await check_all_happened(where, waiting)
        return
    async with App(database(*where), workflows=[double, listener]) as app:
        with pytest.raises(InstanceNotFound):
            await app.handle("new", double).result()
        assert await app.handle(waiting).status() == "waiting_for_event"
        assert not (await app.list_events()).items


@pytest.mark.parametrize("point", MOVER_POINTS)
async def test_a_mover_dies(where: tuple[str, str], point: str) -> None:
    if not where[1] and point in MOVER_POINTS[2:]:
        pytest.skip("on SQLite, a move is one transaction")
    waiting = await prepare(where)
    await killed("leave", *where, "after the commit")
    await killed("move", *where, point)
    await check_all_happened(where, waiting)
