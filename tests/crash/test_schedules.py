"""Workers that are killed just before or after they start a tick: every tick is started once, and none too early."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

import romancy
from romancy import App, Database, Schedule
from romancy.core.model import to_us
from tests.crash.schedule_worker import tick

pytestmark = pytest.mark.play

ROOT = Path(__file__).parents[2]
THOROUGH = bool(os.environ.get("ROMANCY_TEST_THOROUGH"))
SECONDS, EVERY = (60, 0.1) if THOROUGH else (10, 0.1)


class Crew:
    """Two workers. Whoever dies is replaced."""

    def __init__(self, url: str, schema: str) -> None:
        self._place, self._seeds = (url, schema), count(1)
        self._processes: list[subprocess.Popen[bytes]] = []
        self.deaths = 0

    def look_after(self) -> None:
        alive = [process for process in self._processes if process.poll() is None]
        self.deaths += len(self._processes) - len(alive)
        self._processes = alive + [self._spawn() for _ in range(2 - len(alive))]

    def _spawn(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(Path(romancy.__file__).parents[1]), str(ROOT)])
        words = [sys.executable, "-m", "tests.crash.schedule_worker", *self._place, str(next(self._seeds))]
        return subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": path})

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes = []


@pytest.mark.parametrize("catch_up", ["all", "one"])
async def test_no_tick_is_missed_or_started_twice(place: tuple[str, str], catch_up: str) -> None:
    url, schema = place
    begin = datetime.now(UTC) + timedelta(seconds=2)
    end = begin + timedelta(seconds=SECONDS)
    schedule = Schedule(every=EVERY, catch_up=catch_up, overlap="allow", starts_at=begin, ends_at=end)  # type: ignore[arg-type]
    due = {to_us(begin) + n * round(EVERY * 1e6) for n in range(int(SECONDS / EVERY) + 1)}
    crew = Crew(url, schema)
    async with App(Database(url, schema=schema or None), workflows=[tick], worker=False) as app:
        await app.set_schedule("s", schedule, tick)
        try:
            async with asyncio.timeout(SECONDS + 60):
                while (await app.list_schedules())[0].next_at is not None:
                    crew.look_after()
                    await asyncio.sleep(0.05)
                while await app.count_instances(status=["running"]):
                    crew.look_after()
                    await asyncio.sleep(0.05)
        finally:
            crew.kill()
        [record] = await app.list_schedules()
        page, found = None, []
        while page is None or page.cursor is not None:
            page = await app.list_instances(limit=1000, cursor=page and page.cursor)
            found += page.items
    ticks = [to_us(datetime.fromisoformat(instance.output)) for instance in found]
    assert len(set(ticks)) == len(ticks) == record.started
    assert set(ticks) <= due
    assert record.started + record.skipped == len(due)
    assert all(to_us(instance.started_at) >= at for instance, at in zip(found, ticks, strict=True)), "too early"
    assert crew.deaths > 0
    if catch_up == "all":
        assert set(ticks) == due
