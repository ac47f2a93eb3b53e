"""Two workers while the clocks of a time zone are put forward and back: exactly these ticks, each started once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from romancy import App, Database, Schedule, WorkflowContext, workflow
from romancy.core.model import to_us
from romancy.testing.clock import ManualClock
from tests import pg_server

SPAN, QUARTER = timedelta(days=2), timedelta(minutes=15)


@workflow
async def tick(ctx: WorkflowContext) -> str:
    return f"{ctx.scheduled_at:%m-%dT%H:%M}"


@pytest.fixture(params=["sqlite", "postgres"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    if request.param == "sqlite":
        yield Database(str(tmp_path / "romancy.db"))
        return
    async with pg_server.schema() as schema:
        yield Database(pg_server.url(), schema=schema)


def each(begin: datetime, step: timedelta) -> list[str]:
    return [f"{begin + n * step:%m-%dT%H:%M}" for n in range(1, SPAN // step + 1)]


HALF, HOUR = timedelta(minutes=30), timedelta(hours=1)
CASES = [
    # 02:00 becomes 03:00 at 01:00 UTC: 02:30 is skipped, and made up for at 03:00.
    ("Europe/Berlin", datetime(2027, 3, 27, 12), "30 2 * * *", ["03-28T01:00", "03-29T00:30"]),
    # 03:00 becomes 02:00 at 01:00 UTC: 02:30 comes twice, and counts at first.
    ("Europe/Berlin", datetime(2027, 10, 30, 12), "30 2 * * *", ["10-31T00:30", "11-01T01:30"]),
    # 02:00 becomes 02:30 at 15:30 UTC: 02:15 is skipped, and made up for at 02:30.
    ("Australia/Lord_Howe", datetime(2027, 10, 1, 20), "15 2 * * *", ["10-02T15:30", "10-03T15:15"]),
    # 02:00 becomes 01:30 at 15:00 UTC: 01:45 comes twice, and counts at first.
    ("Australia/Lord_Howe", datetime(2027, 4, 2, 20), "45 1 * * *", ["04-03T14:45", "04-04T15:15"]),
]


class Play:
    """Two workers with one clock."""

    def __init__(self, database: Database, begin: datetime) -> None:
        self.clock = ManualClock(to_us(begin.replace(tzinfo=UTC)))
        self._database = database
        self.apps: list[App] = []

    async def begin(self, stack: AsyncExitStack) -> None:
        for _ in range(2):
            app = App(self._database, workflows=[tick], lease=4 * SPAN)  # the clock leaps
            app._runtime.clock = self.clock
            self.apps.append(await stack.enter_async_context(app))

    async def turn(self, by: timedelta) -> None:
        """Turn the clock by a quarter of an hour at a time, and wait until whatever is due was started."""
        for _ in range(by // QUARTER):
            self.clock.turn_to(self.clock.now() + QUARTER // timedelta(microseconds=1))
            await self.catch_up()

    async def catch_up(self) -> None:
        def is_overdue(record: Any) -> bool:
            return record.next_at is not None and to_us(record.next_at) <= self.clock.now()

        async with asyncio.timeout(30):
            while any(map(is_overdue, await self.apps[0].list_schedules())):
                for app in self.apps:  # rather than wait for the round of each second
                    app._runtime.engine._scheduling.kick()
                await asyncio.sleep(0.001)

    async def ticks(self) -> dict[str, list[str]]:
        """The output of every instance by schedule, in order."""
        found: dict[str, list[str]] = {}
        async with asyncio.timeout(30):
            while await self.apps[0].count_instances(status=["running"]):  # noqa: ASYNC110 - workers do it
                await asyncio.sleep(0.01)
        for instance in (await self.apps[0].list_instances(limit=1000)).items:
            assert instance.schedule is not None
            assert instance.status == "completed", instance.error
            found.setdefault(instance.schedule, []).append(instance.output)
        return {name: sorted(outputs) for name, outputs in found.items()}


@pytest.mark.play
@pytest.mark.parametrize(("timezone", "begin", "fixed", "expected"), CASES)
async def test_ticks_over_a_change_of_the_clocks(
    database: Database, timezone: str, begin: datetime, fixed: str, expected: list[str]
) -> None:
    play = Play(database, begin)
    async with AsyncExitStack() as stack:
        await play.begin(stack)
        [first, second] = play.apps
        await first.set_schedule("fixed", Schedule(fixed, timezone=timezone, overlap="allow"), tick)
        await second.set_schedule("half", Schedule("*/30 * * * *", timezone=timezone, overlap="allow"), tick)
        await second.set_schedule("every", Schedule(every=HOUR, overlap="allow"), tick)
        await play.turn(SPAN)
        assert await play.ticks() == {"fixed": expected, "half": each(begin, HALF), "every": each(begin, HOUR)}
        assert [s.skipped for s in await first.list_schedules()] == [0, 0, 0]


@pytest.mark.play
@pytest.mark.parametrize(("timezone", "begin", "fixed", "expected"), CASES)
async def test_ticks_that_were_missed_over_a_change_of_the_clocks(
    database: Database, timezone: str, begin: datetime, fixed: str, expected: list[str]
) -> None:
    play = Play(database, begin)
    async with AsyncExitStack() as stack:
        await play.begin(stack)
        schedule = Schedule(fixed, timezone=timezone, catch_up="all", overlap="allow")
        await play.apps[0].set_schedule("fixed", schedule, tick)
    play.clock._now += SPAN // timedelta(microseconds=1)
    play.apps = []
    async with AsyncExitStack() as stack:
        await play.begin(stack)
        await play.catch_up()
        assert await play.ticks() == {"fixed": expected}
