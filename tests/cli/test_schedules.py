"""`romancy schedules`: lists schedules, pauses, resumes, triggers and deletes them."""

# ruff: noqa: F811 - fixtures of other files
from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from romancy import App, Schedule, WorkflowContext, workflow
from romancy.core.model import to_us
from romancy.testing.clock import ManualClock
from tests.cli.test_bulk import at  # noqa: F401 - a fixture
from tests.cli.test_remote import served  # noqa: F401 - a fixture


@workflow
async def report(ctx: WorkflowContext) -> None: ...


@pytest.fixture
def scheduled(database: Any) -> None:
    async def put() -> None:
        async with App(str(database), workflows=[report], worker=False) as app:
            begin = datetime(2040, 1, 1, tzinfo=UTC)
            await app.set_schedule("eu", Schedule("0 9 * * MON-FRI", timezone="Europe/Berlin"), report)
            await app.set_schedule("often", Schedule(every=5400, starts_at=begin), report)

    asyncio.run(put())


@pytest.mark.usefixtures("scheduled")
def test_the_commands(romancy: Any, refused: Any, at: list[str]) -> None:
    shown = romancy("schedules", *at).stdout
    assert "At 09:00 on Monday through Friday (Europe/Berlin)" in shown
    assert "every 1 h 30 min" in shown

    def records() -> dict[str, Any]:
        return {item["name"]: item for item in json.loads(romancy("schedules", "--json", *at).stdout)["items"]}

    assert records().keys() == {"eu", "often"}
    assert "paused" in romancy("schedules", "pause", "eu", *at).stdout
    assert (records()["eu"]["is_paused"], records()["eu"]["next_at"]) == (True, None)
    assert "paused" in romancy("schedules", *at).stdout
    romancy("schedules", "resume", "eu", *at)
    assert not records()["eu"]["is_paused"]
    assert records()["eu"]["next_at"]
    id = romancy("schedules", "trigger", "eu", *at).stdout.strip()
    assert id.startswith("eu/")
    assert records()["eu"]["last_instance"] == id
    assert json.loads(romancy("show", id, "--json", *at).stdout)["schedule"] == "eu"
    romancy("schedules", "delete", "eu", *at)
    assert records().keys() == {"often"}
    assert "no schedule named 'eu'; `romancy schedules` shows all schedules" in refused(
        "schedules", "trigger", "eu", *at, code=1
    )


def declare(database: Any) -> None:
    @workflow(schedule="@daily")
    async def daily(ctx: WorkflowContext) -> None: ...

    async def work() -> None:
        async with App(str(database), workflows=[daily]) as app:
            await app.list_schedules()

    asyncio.run(work())


def test_a_declared_schedule_is_deleted_in_the_code(romancy: Any, refused: Any, database: Any) -> None:
    declare(database)
    here = ("--database", str(database))
    text = refused("schedules", "delete", "daily", *here, code=1)
    assert "declared in code" in text
    assert "`romancy schedules pause daily`" in text
    assert "`romancy schedules delete daily --declared`" in text
    assert "pause_schedule(" not in text
    assert "daily" in romancy("schedules", *here).stdout
    assert "is deleted" in romancy("schedules", "delete", "daily", "--declared", *here).stdout
    assert "daily" not in romancy("schedules", *here).stdout
    assert "no schedule named 'daily'" in refused("schedules", "delete", "daily", "--declared", *here, code=1)


@pytest.mark.usefixtures("scheduled")
def test_a_server_does_not_delete_declared_schedules(refused: Any, served: Any) -> None:
    assert "needs the database" in refused("schedules", "delete", "eu", "--declared", "--url", served(worker=False).url)


def test_a_server_is_not_said_to_delete_declared_schedules(refused: Any, database: Any, served: Any) -> None:
    declare(database)
    text = refused("schedules", "delete", "daily", "--url", served(worker=False).url, code=1)
    assert "`romancy schedules pause daily`" in text
    assert "--declared" not in text


def test_a_tick_that_no_worker_started_is_overdue(romancy: Any, database: Any) -> None:
    async def put() -> None:
        app = App(str(database), workflows=[report], worker=False)
        app._runtime.clock = ManualClock(to_us(datetime(2020, 1, 1, tzinfo=UTC)))
        async with app:
            await app.set_schedule("late", Schedule(every=3600), report)

    asyncio.run(put())
    shown = romancy("schedules", "--database", str(database)).stdout
    assert "(overdue)" in shown
    assert " ago" not in shown


def test_options_and_a_start_that_is_spread(romancy: Any, database: Any) -> None:
    """The time of a tick has passed, but it is started later: it is not overdue."""

    async def put() -> None:
        app = App(str(database), workflows=[report], worker=False)
        app._runtime.clock = ManualClock(to_us(datetime.now(UTC) - timedelta(seconds=61)))
        async with app:
            options = Schedule(every=60, spread=timedelta(days=1000), overlap="queue", catch_up="all")
            await app.set_schedule("spread", options, report)

    asyncio.run(put())
    shown = romancy("schedules", "--database", str(database)).stdout
    assert "overdue" not in shown
    [item] = json.loads(romancy("schedules", "--json", "--database", str(database)).stdout)["items"]
    assert (item["overlap"], item["catch_up"], item["spread"]) == ("queue", "all", 86_400_000)
    wide = romancy("schedules", "--database", str(database), env={"COLUMNS": "300"}).stdout
    assert "overlap: queue, catch_up: all, spread: " in wide
    assert "(starts in " in wide
