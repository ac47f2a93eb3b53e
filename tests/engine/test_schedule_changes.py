"""Schedules that are changed, triggered or deleted while ticks are overdue or instances are open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from romancy import App, InvalidInput, Schedule, ScheduleRecord, WorkflowContext, workflow
from romancy.core.model import to_us
from romancy.testing import Environment, environment
from romancy.testing.clock import ManualClock
from tests.engine.helpers import down, outsider
from tests.engine.test_schedules import DAY, HOUR, MINUTE, MORNING, record, report, slow, started


@pytest.fixture
async def env(db: str) -> AsyncIterator[Environment]:
    async with environment(workflows=[report, slow], database=db) as env:
        await env.turn_to(to_us(MORNING))
        yield env


async def check_started(env: Environment, expected: list[datetime]) -> None:
    """Check which ticks were started, once as many were: between two that are caught up, a worker may look idle."""
    async with asyncio.timeout(30):
        while len(await started(env)) < len(expected):
            await env.settle()
    assert await started(env) == expected


# --- times that are changed while ticks are overdue -------------------------------------------------------------------
async def test_new_times_do_not_reach_back(env: Environment) -> None:
    await env.app.set_schedule("s", Schedule("0 9 * * *", catch_up="all"), report)
    async with down(env):
        env.clock._now += 3 * DAY // timedelta(microseconds=1) + 30 * 60_000_000
        async with outsider(env) as app:
            await app.set_schedule("s", Schedule("0 * * * *", catch_up="all"), report)
    nines = [MORNING + HOUR + n * DAY for n in range(3)]
    await check_started(env, nines)
    assert (await record(env)).next_at == MORNING + 3 * DAY + HOUR
    await env.advance(2 * HOUR)
    assert await started(env) == [*nines, MORNING + 3 * DAY + HOUR, MORNING + 3 * DAY + 2 * HOUR]


async def test_times_can_change_twice_before_a_worker_comes_back(env: Environment) -> None:
    await env.app.set_schedule("s", Schedule("0 * * * *", catch_up="all"), report)
    async with down(env):
        for hours, times in ((2, "30 * * * *"), (2, "0 0 * * *")):
            env.clock._now += hours * 3_600_000_000 + 60_000_000
            async with outsider(env) as app:
                await app.set_schedule("s", Schedule(times, catch_up="all"), report)
                [listed] = await app.list_schedules()
                assert listed.next_at == MORNING + HOUR
    half = timedelta(minutes=30)
    await check_started(env, [MORNING + n * half for n in (2, 4, 5, 7)])
    assert (await record(env)).next_at == MORNING + 16 * HOUR


async def test_a_declaration_does_not_reach_back_either(db: str) -> None:
    def version(schedule: str) -> Any:
        async def daily(ctx: WorkflowContext) -> None: ...

        return workflow(schedule=Schedule(schedule, catch_up="all"))(daily)

    clock = ManualClock(to_us(MORNING))

    def process(schedule: str) -> App:
        app = App(db, workflows=[version(schedule)])
        app._runtime.clock = clock
        return app

    async with process("0 9 * * *") as app:
        await until(app, lambda found: found.next_at == MORNING + HOUR)
    clock._now += 3 * DAY // timedelta(microseconds=1)
    async with process("0 * * * *") as app:
        await until(app, lambda found: found.next_at == MORNING + 3 * DAY + HOUR)
        assert len((await app.list_instances()).items) == 3


async def until(app: App, condition: Callable[[ScheduleRecord], bool]) -> None:
    async with asyncio.timeout(30):
        while not any(map(condition, await app.list_schedules())):  # noqa: ASYNC110 - a worker does it
            await asyncio.sleep(0.01)


async def test_a_former_course_is_forgotten_when_its_ticks_are_done(env: Environment) -> None:
    await env.app.set_schedule("s", Schedule("0 9 * * *"), report)
    async with down(env):
        env.clock._now += 2 * DAY // timedelta(microseconds=1)
        async with outsider(env) as app:
            await app.set_schedule("s", Schedule("0 12 * * *"), report)
            row = await app._runtime.engine.storage.schedules.get("s")
            assert row is not None
            assert len(row.former) == 1
    table = env.app._runtime.engine.storage.schedules
    row = await table.get("s")
    assert row is not None
    assert row.former == ()
    assert await started(env) == [MORNING + HOUR + DAY]


# --- overlaps with instances that are not the last one ----------------------------------------------------------------
async def test_a_trigger_does_not_hide_an_older_instance(env: Environment) -> None:
    await env.app.set_schedule("s", Schedule(every=HOUR), slow)
    await env.advance(HOUR)
    triggered = await env.app.trigger_schedule("s")
    await env.app.cancel_workflow(triggered.instance_id)
    await env.advance(2 * HOUR)
    found = await record(env)
    assert (found.started, found.skipped) == (2, 2)  # the tick of 9:00 still runs
    await env.send_event("go", "test")
    await env.advance(HOUR)
    assert (await record(env)).started == 3


async def test_queued_ticks_wait_for_every_instance(env: Environment) -> None:
    await env.app.set_schedule("s", Schedule(every=HOUR, overlap="queue"), slow)
    await env.advance(HOUR)
    triggered = await env.app.trigger_schedule("s")
    await env.app.cancel_workflow(triggered.instance_id)
    await env.advance(2 * HOUR + 30 * MINUTE)
    assert (await record(env)).started == 2
    await env.send_event("go", "test")
    assert (await record(env)).started == 3
    await env.send_event("go", "test")
    found = await record(env)
    assert (found.started, found.skipped) == (4, 0)  # each was held, none was missed


async def test_a_tick_cancels_all_instances(env: Environment) -> None:
    await env.app.set_schedule("s", Schedule(every=HOUR, overlap="cancel"), slow)
    await env.advance(HOUR)
    for _ in range(2):
        await env.app.trigger_schedule("s")
    await env.advance(HOUR)
    found = (await env.app.list_instances()).items
    assert sorted(i.status for i in found) == ["cancelled"] * 3 + ["waiting_for_event"]


# --- declared schedules -----------------------------------------------------------------------------------------------
async def test_a_declared_schedule_is_not_deleted_by_a_call(db: str) -> None:
    @workflow(schedule="@daily")
    async def daily(ctx: WorkflowContext) -> None: ...

    async with environment(workflows=[daily], database=db) as env:
        with pytest.raises(ValueError, match=r"remove schedule= from its workflow, or stop it with pause_schedule"):
            await env.app.delete_schedule("daily")
        assert [s.name for s in await env.app.list_schedules()] == ["daily"]
    async with environment(workflows=[report], database=db) as env:  # whose code does not have the workflow
        with pytest.raises(InvalidInput, match="declared in code"):
            await env.app.delete_schedule("daily")
        await env.app._runtime.engine.timetable.delete("daily", even_declared=True)
        assert await env.app.list_schedules() == []


async def test_the_name_of_a_declared_schedule_is_not_set(db: str) -> None:
    @workflow(schedule="@daily")
    async def daily(ctx: WorkflowContext) -> None: ...

    async with App(db, workflows=[daily, report], worker=False) as app:  # nothing is stored yet
        with pytest.raises(InvalidInput, match="declared in code, at workflow 'daily'"):
            await app.set_schedule("daily", "@hourly", report)


async def test_a_schedule_that_was_set_first_is_deleted_to_make_room_for_the_declared_one(db: str) -> None:
    @workflow(schedule="@daily")
    async def daily(ctx: WorkflowContext) -> None: ...

    async with environment(workflows=[report], database=db) as env:
        await env.app.set_schedule("daily", "@hourly", report)
    async with environment(workflows=[daily], database=db) as env:
        assert [(s.cron, s.is_declared) for s in await env.app.list_schedules()] == [("@hourly", False)]
        await env.app.delete_schedule("daily")
        await env.settle()
        assert [(s.cron, s.is_declared) for s in await env.app.list_schedules()] == [("@daily", True)]


# --- many missed ticks ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("catch_up", ["one", "all", "skip"])
async def test_planning_many_ticks_does_not_stall_the_loop(env: Environment, catch_up: Any) -> None:
    schedule = Schedule("* * * * *", timezone="Europe/Berlin", catch_up=catch_up, overlap="allow")
    await env.app.set_schedule("s", schedule, report)
    await env.app._runtime.engine._scheduling.stop()
    env.clock._now += 480 * 60_000_000
    duty, longest = env.app._runtime.engine._schedules, 0.0
    row = await env.app._runtime.engine.storage.schedules.get("s")
    assert row is not None
    planning = asyncio.ensure_future(duty._plan(row, env.clock.now()))
    begun, turns = time.thread_time(), 0
    while not planning.done():
        await asyncio.sleep(0)
        longest, begun, turns = max(longest, time.thread_time() - begun), time.thread_time(), turns + 1
    plan = planning.result()
    assert plan is not None
    assert plan.skipped == {"one": 479, "all": 0, "skip": 478}[catch_up]
    assert turns > (20 if catch_up != "all" else 0)
    assert longest < 0.02
