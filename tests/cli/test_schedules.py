"""`romancy schedules`: lists schedules, pauses, resumes, triggers and deletes them."""

# ruff: noqa: F811 - fixtures of other files
from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from romancy import App, Schedule, WorkflowContext, workflow
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
    assert records()["eu"]["is_paused"]
    assert "paused" in romancy("schedules", *at).stdout
    romancy("schedules", "resume", "eu", *at)
    assert not records()["eu"]["is_paused"]
    id = romancy("schedules", "trigger", "eu", *at).stdout.strip()
    assert id.startswith("eu/")
    assert records()["eu"]["last_instance"] == id
    assert json.loads(romancy("show", id, "--json", *at).stdout)["schedule"] == "eu"
    romancy("schedules", "delete", "eu", *at)
    assert records().keys() == {"often"}
    assert "no schedule named 'eu'" in refused("schedules", "trigger", "eu", *at, code=1)
