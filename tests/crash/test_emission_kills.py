"""Workers that emit are killed and paused: no reader sees a gap, nothing shown is taken back, nothing is lost."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from romancy import App, Database, Emission
from tests import pg_server
from tests.crash.emission_worker import EXPECTED
from tests.crash.processes import pause as pause_worker
from tests.helpers import eventually


class Crew:
    """Worker processes on one database."""

    def __init__(self, database: str, schema: str) -> None:
        self.database, self.schema = database, schema
        self.running: list[subprocess.Popen[str]] = []
        self.followers: list[Follower] = []

    @property
    def app(self) -> App:
        where = Database(self.database, schema=self.schema) if self.schema else self.database
        return App(where, worker=False)

    async def spawn(self, lease: float) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "tests.crash.emission_worker", self.database, self.schema, str(lease)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.running.append(process)
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == "ready\n"
        return process

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture(params=["sqlite", "postgres"])
async def crew(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Crew]:
    if request.param == "sqlite":
        made = Crew(str(tmp_path / "emissions.db"), "")
        yield made
        made.close()
        return
    async with pg_server.schema() as schema:
        made = Crew(pg_server.url(), schema)
        yield made
        made.close()


class Follower:
    """Reads one instance, and comes back again and again at random numbers that it has already read."""

    def __init__(self, seed: int) -> None:
        self._luck = random.Random(seed)
        self.seen: dict[int, Emission[Any]] = {}
        self.came_back = 0

    async def follow(self, app: App, instance: str) -> None:
        after = 0
        while True:
            most, last, count = self._luck.randrange(1, 120), after, 0
            async for emission in app.handle(instance).emitted("talk", after=after):
                assert emission.n == last + 1, "a gap"
                known = self.seen.setdefault(emission.n, emission)
                assert known == emission, "what was shown is not there any more"
                last, count = emission.n, count + 1
                if count == most:
                    break
            else:
                return
            self.came_back += 1
            after = self._luck.randrange(max(0, last - 20), last + 1)

    @property
    def has_heard_an_activity(self) -> bool:
        return any(emission.activity_id is not None for emission in self.seen.values())

    def check(self) -> int:
        """Fold what was read. Return how many restarts there were."""
        emissions = [self.seen[n] for n in range(1, len(self.seen) + 1)]
        kept: list[Emission[Any]] = []
        restarts = 0
        for emission in emissions:
            if emission.kind == "restart":
                restarts += 1
                kept = [one for one in kept if one.activity_id != emission.activity_id]
            else:
                kept.append(emission)
        assert sorted(one.value for one in kept) == EXPECTED
        by_activity: dict[str | None, list[int]] = {}
        for one in kept:
            by_activity.setdefault(one.activity_id, []).append(int(one.value.rpartition(".")[2].lstrip("w")))
        assert all(numbers == sorted(numbers) for numbers in by_activity.values())
        own = [one.value for one in emissions if one.activity_id is None]
        assert own == [value for n, value in enumerate(own) if value == f"w{n}"]  # once each, in order
        return restarts


async def play(crew: Crew, instances: int, disturb: Any) -> None:
    async with crew.app as app:
        crew.followers = followers = [Follower(n) for n in range(instances)]
        ids = [f"talk-{n}" for n in range(instances)]
        for id in ids:
            await app.start_workflow("talk", instance_id=id)
        async with asyncio.timeout(100), asyncio.TaskGroup() as group:
            for id, follower in zip(ids, followers, strict=True):
                group.create_task(follower.follow(app, id))
            group.create_task(disturb())
        restarts = sum(follower.check() for follower in followers)
        assert restarts
        assert sum(follower.came_back for follower in followers) > instances
        late = Follower(99)
        await late.follow(app, ids[0])
        assert late.seen == followers[0].seen


@pytest.mark.parametrize("kills", [2, pytest.param(6, marks=pytest.mark.play)])
async def test_killed_while_they_emit(crew: Crew, kills: int) -> None:
    async with crew.app:
        pass  # creates the database
    first = await crew.spawn(3600)

    async def kill() -> None:
        process = first
        for n in range(kills):
            await asyncio.sleep(0.15 + 0.07 * n)
            process.kill()
            process.wait()
            process = await crew.spawn(3600)

    await play(crew, 4, kill)


@pytest.mark.play
async def test_paused_longer_than_the_lease(crew: Crew) -> None:
    """Another one takes over. What the paused one still wants to store is refused, and it begins again."""
    async with crew.app:
        pass
    paused = await crew.spawn(1.0)

    async def pause() -> None:
        while not any(follower.has_heard_an_activity for follower in crew.followers):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        if crew.schema:
            paused.send_signal(signal.SIGSTOP)
        else:
            pause_worker(paused, crew.database)
        await crew.spawn(1.0)
        await asyncio.sleep(2.2)
        paused.send_signal(signal.SIGCONT)

    await play(crew, 4, pause)
    for worker in crew.running:
        assert worker.poll() is None
        worker.terminate()
        eventually(lambda worker=worker: worker.poll() is not None, 20)
