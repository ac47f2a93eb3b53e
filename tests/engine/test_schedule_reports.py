"""What hooks and metrics say of the ticks of schedules, and that other workers hear of a change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from romancy import HooksBase, Schedule, WorkflowContext, wait_event, workflow
from romancy.core.model import to_us
from romancy.service import runtime_of
from romancy.testing import Environment, environment

HOUR = timedelta(hours=1)
MORNING = datetime(2027, 1, 4, 8, 0, tzinfo=UTC)


class Notes(HooksBase):
    def __init__(self) -> None:
        self.infos: list[Any] = []

    def on_schedule_fired(self, info: Any) -> None:
        self.infos.append(info)

    on_schedule_skipped = on_schedule_failed = on_schedule_fired


@workflow
async def report(ctx: WorkflowContext) -> None: ...


@workflow
async def slow(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "go")


def metrics(env: Environment) -> Any:
    return runtime_of(env.app).engine.metrics


async def test_ticks_that_are_started_and_skipped(db: str) -> None:
    notes = Notes()
    async with environment(database=db, workflows=[report, slow], hooks=notes) as env:
        await env.turn_to(to_us(MORNING))
        await env.app.set_schedule("r", Schedule(every=3600), report)
        await env.app.set_schedule("s", Schedule(every=3600, overlap="skip"), slow)
        for _ in range(2):
            await env.advance(HOUR)
        told = sorted((type(info).__name__, info.schedule, info.workflow) for info in notes.infos)
        assert told == [
            ("ScheduleFiredInfo", "r", "report"),
            ("ScheduleFiredInfo", "r", "report"),
            ("ScheduleFiredInfo", "s", "slow"),
            ("ScheduleSkippedInfo", "s", "slow"),
        ]
        first = next(info for info in notes.infos if info.schedule == "r")
        assert (await env.app.get_instance(first.instance_id)).schedule == "r"
        assert first.scheduled_at == MORNING + HOUR
        [skipped] = [info for info in notes.infos if type(info).__name__ == "ScheduleSkippedInfo"]
        assert (skipped.skipped, skipped.until) == (1, MORNING + 2 * HOUR)
        m = metrics(env)
        assert m.schedule_ticks == {("report", "started"): 2, ("slow", "started"): 1, ("slow", "skipped"): 1}
        assert sum(m.schedule_lag.counts) == 3
        assert m.schedule_next == to_us(MORNING + 3 * HOUR)


async def test_a_time_zone_that_a_worker_does_not_know(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from zoneinfo import ZoneInfoNotFoundError

    notes = Notes()
    async with environment(database=db, workflows=[report], hooks=notes) as env:
        await env.turn_to(to_us(MORNING))
        await env.app.set_schedule("r", Schedule(every=3600), report)

        def unknown(*_: Any) -> Any:
            raise ZoneInfoNotFoundError("no such zone")

        monkeypatch.setattr("romancy.engine.schedules.plan", unknown)
        await env.advance(HOUR + timedelta(seconds=3))
        assert [(type(i).__name__, i.schedule) for i in notes.infos] == [("ScheduleFailedInfo", "r")]
        assert "not known to a worker" in notes.infos[0].error
        assert metrics(env).schedule_ticks == {("report", "failed"): 1}
