"""The database is away for longer than the leases of its workers, which all live: nobody is to blame for that."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest

from romancy import ActivityContext, App, WorkflowContext, activity, sleep, wait_event, workflow
from tests.postgres.servers import Breakable

pytestmark = pytest.mark.play

LEASE, JOBS = 0.5, 12


@activity
async def work(ctx: ActivityContext, seconds: float) -> float:
    ctx.state.add(ctx.instance_id)
    await asyncio.sleep(seconds)
    return seconds


@workflow
async def job(ctx: WorkflowContext, n: int) -> Any:
    """In the middle of a call, of a wait, of a sleep or of its code when the database goes away."""
    before = await work(ctx, 0.01)
    if n % 3 == 0:
        await work(ctx, 3.0)
    elif n % 3 == 1:
        await sleep(ctx, 1.0)
    event = await wait_event(ctx, "go", where={"n": n})
    return [before, event.data["n"], await work(ctx, 0.2)]


class Trouble:
    """Ways for a server to be away."""

    def __init__(self, server: Breakable) -> None:
        self._server = server
        self._frozen: list[int] = []

    def begin(self, kind: str) -> None:
        if kind == "frozen":
            self._frozen = self._processes()
            for pid in self._frozen:
                os.kill(pid, signal.SIGSTOP)
        else:
            (self._server.stop if kind == "stopped" else self._server.kill)()

    def end(self, kind: str) -> None:
        if kind != "frozen":
            self._server.begin()
        for pid in self._frozen:
            os.kill(pid, signal.SIGCONT)
        self._frozen = []

    def _processes(self) -> list[int]:
        main = int((Path(self._server.folder) / "postmaster.pid").read_text().split()[0])
        stats = [path.read_text() for path in Path("/proc").glob("[0-9]*/stat") if path.exists()]
        fields = [(int(stat.split()[0]), int(stat.rpartition(")")[2].split()[1])) for stat in stats]
        return [main, *(pid for pid, parent in fields if parent == main)]


@pytest.fixture
def server() -> Iterator[Breakable]:
    server = Breakable()
    yield server
    server.remove()


@pytest.mark.parametrize("kind", ["stopped", "killed", "frozen"])
async def test_no_death_is_counted_and_work_goes_on(server: Breakable, kind: str) -> None:
    begun, trouble = set[str](), Trouble(server)
    async with AsyncExitStack() as stack:
        apps = [App(server.url, workflows=[job], state=begun, lease=LEASE) for _ in range(3)]
        for app in apps:
            await stack.enter_async_context(app)
        handles = [await apps[n % 3].start_workflow(job, n, instance_id=f"i{n}") for n in range(JOBS)]
        async with asyncio.timeout(20):
            while len(begun) < JOBS:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        comes_back = hold(apps[2])
        await asyncio.to_thread(trouble.begin, kind)
        try:
            await asyncio.sleep(4 * LEASE)
        finally:
            await asyncio.to_thread(trouble.end, kind)
        await is_back(apps[:2])  # they take over from the third, which is not back yet
        comes_back.set()
        await is_back(apps)
        await check(server)
        for n in range(JOBS):
            await apps[0].send_event("go", "test", {"n": n}, id=f"e{n}")
        assert [await handle.result(60) for handle in handles] == [[0.01, n, 0.2] for n in range(JOBS)]
        await check(server)


def hold(app: App) -> asyncio.Event:
    """From now on it renews nothing and listens to nothing new, until it may come back."""
    comes_back, storage = asyncio.Event(), cast("Any", app._runtime.engine.storage)

    def late(part: Any, name: str) -> None:
        method = getattr(part, name)

        async def wait(*given: Any) -> Any:
            await comes_back.wait()
            return await method(*given)

        setattr(part, name, wait)

    late(storage._owning, "renew")
    late(storage._listener, "_connect")
    return comes_back


async def is_back(apps: list[App]) -> None:
    """Everybody has registered, and had the time to take over from others."""
    until = time.monotonic() + 4 * LEASE
    async with asyncio.timeout(30):
        while time.monotonic() < until or any(app._runtime.engine.worker_id is None for app in apps):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def check(server: Breakable) -> None:
    raw = await asyncpg.connect(server.url)
    try:
        assert await raw.fetch("SELECT * FROM romancy.deaths") == []
        assert await raw.fetch("SELECT * FROM romancy.attempts") == [], "nothing is a suspect"
        assert await raw.fetch("SELECT * FROM romancy.trials") == []
        assert await raw.fetchval("SELECT count(*) FROM romancy.instances WHERE status = 9") == 0
    finally:
        await raw.close()
