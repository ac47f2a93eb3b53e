"""Schedules: every tick is started once, whatever happens to workers, clocks and the schedule itself."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from romancy import (
    App,
    InvalidInput,
    RomancyError,
    Schedule,
    ScheduleNotFound,
    WorkflowContext,
    sleep,
    wait_event,
    workflow,
)
from romancy.core.model import to_us
from romancy.storage.errors import TransientError
from romancy.testing import Environment, environment
from tests.engine.helpers import down_for

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
MORNING = datetime(2027, 1, 4, 8, 0, tzinfo=UTC)  # a Monday


@workflow
async def report(ctx: WorkflowContext, region: str = "all") -> str:
    return f"{region} {ctx.scheduled_at:%d %H:%M:%S}"


@workflow
async def slow(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "go")


@pytest.fixture
async def env(env: Environment) -> Environment:
    env.app.register(report, slow)
    await env.turn_to(to_us(MORNING))
    return env


async def started(env: Environment) -> list[datetime]:
    """The ticks that were started, in order."""
    page = await env.app.list_instances(limit=1000)
    return sorted(datetime.fromisoformat(i.instance_id.rpartition("/")[2]) for i in page.items if i.schedule)


async def outputs(env: Environment) -> list[Any]:
    return sorted(i.output for i in (await env.app.list_instances(limit=1000)).items)


async def record(env: Environment, name: str = "s") -> Any:
    [found] = [r for r in await env.app.list_schedules() if r.name == name]
    return found


# --- the thin path ----------------------------------------------------------------------------------------------------
async def test_a_schedule_starts_its_workflow_at_its_times(env: Environment) -> None:
    await env.app.set_schedule("eu", Schedule("0 9 * * MON-FRI", timezone="Europe/Berlin"), report, "eu")
    await env.advance(DAY)
    assert await outputs(env) == ["eu 05 08:00:00"]
    await env.advance(timedelta(days=6))
    [*_, last] = await started(env)
    assert last == datetime(2027, 1, 11, 8, 0, tzinfo=UTC)
    assert len(await started(env)) == 5
    found = await record(env, "eu")
    assert (found.started, found.skipped, found.last_at) == (5, 0, last)
    assert found.next_at == datetime(2027, 1, 12, 8, 0, tzinfo=UTC)
    assert found.last_instance == "eu/2027-01-11T08:00:00Z"
    assert (await env.app.get_instance(found.last_instance)).schedule == "eu"


async def test_a_declared_schedule_needs_no_call(env: Environment) -> None:
    @workflow(schedule=Schedule(every=HOUR), timeout=60)
    async def hourly(ctx: WorkflowContext) -> str:
        return str(ctx.scheduled_at)

    env.app.register(hourly)
    found = await record(env, "hourly")
    assert (found.is_declared, found.every, found.next_at) == (True, 3600.0, MORNING + HOUR)
    await env.advance(3 * HOUR)
    assert await outputs(env) == [str(MORNING + n * HOUR) for n in (1, 2, 3)]


async def test_scheduled_at_is_the_tick_even_if_it_starts_later(env: Environment) -> None:
    @workflow
    async def twice(ctx: WorkflowContext) -> list[str]:
        first = str(ctx.scheduled_at)
        await sleep(ctx, 60)
        return [first, str(ctx.scheduled_at)]

    env.app.register(twice)
    await env.app.set_schedule("s", Schedule("@hourly", spread=300), twice)
    await env.advance(HOUR + 5 * MINUTE)
    [instance] = (await env.app.list_instances()).items
    assert MORNING + HOUR < instance.started_at <= MORNING + HOUR + 5 * MINUTE
    await env.restart()
    await env.advance(MINUTE)
    tick = str(MORNING + HOUR)
    assert (await env.app.get_instance(instance.instance_id)).output == [tick, tick]
    fork = await env.app.fork_workflow(instance.instance_id, at=1)
    await env.advance(MINUTE)
    assert await fork.result() == [tick, tick]


async def test_without_a_schedule_it_is_the_start(env: Environment) -> None:
    handle = await env.start(report, "x")
    assert await handle.result() == "x 04 08:00:00"
    assert (await env.app.get_instance(handle.instance_id)).schedule is None


async def test_schedules_do_not_keep_a_test_waiting_forever(env: Environment) -> None:
    await env.app.set_schedule("s", Schedule("@hourly"), report)
    handle = await env.start(slow)
    with pytest.raises(RomancyError, match="can't end: it waits for event go"):
        await handle.result()
    with pytest.raises(TimeoutError):
        await handle.result(HOUR)


# --- changes ----------------------------------------------------------------------------------------------------------
async def test_the_same_schedule_again_changes_nothing(env: Environment) -> None:
    for _ in range(3):
        await env.app.set_schedule("s", Schedule(every=HOUR), report)
        await env.advance(20 * MINUTE)
    assert await started(env) == [MORNING + HOUR]


async def test_a_change_neither_repeats_nor_skips_a_tick(env: Environment) -> None:
    await env.app.set_schedule("s", Schedule("0 * * * *"), report)
    await env.advance(HOUR)  # the tick of 9:00 was started in this very moment
    await env.app.set_schedule("s", Schedule("0,30 * * * *"), report)
    await env.advance(HOUR)
    assert await started(env) == [MORNING + n * timedelta(minutes=30) for n in (2, 3, 4)]


async def test_a_tick_that_is_due_survives_a_change(env: Environment) -> None:
    await env.app.set_schedule("s", Schedule("0 9 * * *"), report)
    rows = env.app._runtime.engine.storage.schedules
    row = await rows.get("s")
    assert row is not None
    await env.app._runtime.engine._scheduling.stop()  # nobody starts it in time
    env.clock._now = to_us(MORNING + HOUR + MINUTE)
    await env.app.set_schedule("s", Schedule("0 12 * * *"), report)
    env.app._runtime.engine._scheduling.start()
    await env.advance(4 * HOUR)
    assert await started(env) == [MORNING + HOUR, MORNING + 4 * HOUR]


async def test_arguments_change_with_the_next_tick(env: Environment) -> None:
    await env.app.set_schedule("s", Schedule(every=HOUR), report, "eu")
    await env.advance(HOUR)
    await env.app.set_schedule("s", Schedule(every=HOUR), report, "us")
    await env.advance(HOUR)
    assert await outputs(env) == ["eu 04 09:00:00", "us 04 10:00:00"]


async def test_paused_schedules_start_nothing_and_make_up_for_nothing(env: Environment) -> None:
    await env.app.set_schedule("s", Schedule(every=HOUR, catch_up="all"), report)
    await env.app.pause_schedule("s")
    await env.app.pause_schedule("s")
    await env.advance(3 * HOUR + 10 * MINUTE)
    assert (await record(env)).is_paused
    assert await started(env) == []
    await env.app.set_schedule("s", Schedule(every=HOUR, catch_up="all"), report, "eu")
    await env.app.resume_schedule("s")
    await env.advance(HOUR)
    assert await started(env) == [MORNING + 4 * HOUR]
    assert not (await record(env)).is_paused


async def test_a_trigger_starts_one_now(env: Environment) -> None:
    await env.app.set_schedule("s", Schedule("@hourly"), report, "eu")
    await env.advance(HOUR)
    handle = await env.app.trigger_schedule("s")  # at the very time of a tick
    assert await handle.result() == "eu 04 09:00:00"
    await env.app.pause_schedule("s")
    again = await env.app.trigger_schedule("s")
    assert await again.result() == "eu 04 09:00:00"
    found = await record(env)
    assert (found.started, found.last_instance) == (3, again.instance_id)
    assert found.next_at is None, "it is paused"
    await env.app.resume_schedule("s")
    assert (await record(env)).next_at == MORNING + 2 * HOUR
    assert (await env.app.get_instance(handle.instance_id)).schedule == "s"


async def test_deleted_schedules_start_nothing(env: Environment) -> None:
    await env.app.set_schedule("s", Schedule("@hourly"), report)
    await env.app.delete_schedule("s")
    await env.advance(2 * HOUR)
    assert await started(env) == []
    assert await env.app.list_schedules() == []


@pytest.mark.parametrize("name", ["nothing", "", "a\0b", "x" * 300])
async def test_unknown_names(env: Environment, name: str) -> None:
    for verb in ("pause_schedule", "resume_schedule", "trigger_schedule", "delete_schedule"):
        with pytest.raises(ScheduleNotFound) as raised:
            await getattr(env.app, verb)(name)
        assert raised.value.name == name


async def test_what_is_refused(env: Environment) -> None:
    with pytest.raises(ValueError, match="printable"):
        await env.app.set_schedule("a\0b", "@daily", report)
    with pytest.raises(ValueError, match="instance_id"):
        await env.app.set_schedule("s", "@daily", report.options(instance_id="x"))
    with pytest.raises(InvalidInput, match="too many positional"):
        await env.app.set_schedule("s", "@daily", report, "a", "b")  # pyright: ignore
    assert await env.app.list_schedules() == []


async def test_a_declared_schedule_is_changed_in_code(db: str) -> None:
    def version(schedule: str | None) -> Any:
        async def daily(ctx: WorkflowContext) -> None: ...

        return workflow(schedule=schedule)(daily) if schedule else workflow(daily)

    async with environment(workflows=[version("0 9 * * *")], database=db) as env:
        with pytest.raises(ValueError, match="declared in code"):
            await env.app.set_schedule("daily", "@hourly", env.app.workflows["daily"])
        await env.app.pause_schedule("daily")
    async with environment(workflows=[version("0 10 * * *")], database=db) as env:
        found = await record(env, "daily")
        assert (found.cron, found.is_paused) == ("0 10 * * *", True)
    async with environment(workflows=[report], database=db) as env:
        assert len(await env.app.list_schedules()) == 1  # not ours
    async with environment(workflows=[version(None)], database=db) as env:
        assert await env.app.list_schedules() == []


# --- ticks that are missed --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("catch_up", "starts", "skipped"), [("one", [5], 4), ("all", [1, 2, 3, 4, 5], 0), ("skip", [], 5)]
)
async def test_missed_ticks(env: Environment, catch_up: Any, starts: list[int], skipped: int) -> None:
    await env.app.set_schedule("s", Schedule("@hourly", catch_up=catch_up, overlap="allow"), report)
    await down_for(env, 5 * HOUR + 2 * MINUTE)
    assert await started(env) == [MORNING + n * HOUR for n in starts]
    assert (await record(env)).skipped == skipped
    await env.advance(HOUR)
    assert (await started(env))[-1] == MORNING + 6 * HOUR


async def test_missed_ticks_run_one_after_the_other_if_they_must_not_overlap(env: Environment) -> None:
    await env.app.set_schedule("s", Schedule("@hourly", catch_up="all"), slow)
    await down_for(env, 3 * HOUR + 2 * MINUTE)
    for n in (1, 2, 3):
        assert len(await started(env)) == n
        await env.send_event("go", "test")
    assert (await record(env)).skipped == 0


# --- overlaps ---------------------------------------------------------------------------------------------------------
async def test_a_tick_is_skipped_while_the_one_before_runs(env: Environment) -> None:
    await env.app.set_schedule("s", Schedule(every=HOUR), slow)
    await env.advance(3 * HOUR)
    assert await started(env) == [MORNING + HOUR]
    assert (await record(env)).skipped == 2
    await env.send_event("go", "test")
    await env.advance(HOUR)
    assert await started(env) == [MORNING + HOUR, MORNING + 4 * HOUR]


async def test_ticks_can_overlap(env: Environment) -> None:
    await env.app.set_schedule("s", Schedule(every=HOUR, overlap="allow"), slow)
    await env.advance(3 * HOUR)
    assert len((await env.app.list_instances(status="waiting_for_event")).items) == 3


async def test_ticks_can_wait_for_each_other(env: Environment) -> None:
    await env.app.set_schedule("s", Schedule(every=HOUR, overlap="queue"), slow)
    await env.advance(3 * HOUR + 30 * MINUTE)
    for n in (1, 2, 3):
        assert await started(env) == [MORNING + m * HOUR for m in range(1, n + 1)]
        await env.send_event("go", "test")
    assert (await record(env)).skipped == 0
    await env.advance(HOUR)
    assert len(await started(env)) == 4


async def test_a_tick_can_cancel_the_one_before(env: Environment) -> None:
    await env.app.set_schedule("s", Schedule(every=HOUR, overlap="cancel"), slow)
    await env.advance(3 * HOUR)
    found = (await env.app.list_instances()).items
    assert [i.status for i in found] == ["waiting_for_event", "cancelled", "cancelled"]
    assert len(await started(env)) == 3


async def test_a_schedule_ends(env: Environment) -> None:
    await env.app.set_schedule("s", Schedule(every=HOUR, ends_at=MORNING + 2 * HOUR), report)
    await env.advance(5 * HOUR)
    assert len(await started(env)) == 2
    assert (await record(env)).next_at is None


async def test_attributes_and_time_limits_of_its_instances() -> None:
    @workflow(attributes={"region": "region"}, timeout=60)
    async def regional(ctx: WorkflowContext, region: str) -> None:
        await wait_event(ctx, "never")

    async with environment(workflows=[regional]) as env:
        await env.app.set_schedule("s", Schedule(every=HOUR), regional, "eu")
        await env.advance(HOUR)
        [found] = (await env.app.list_instances(where={"region": "eu"})).items
        await env.advance(MINUTE)
        assert (await env.app.get_instance(found.instance_id)).status == "failed"


# --- several workers, and real time -----------------------------------------------------------------------------------
async def test_schedules_fire_in_real_time(db: str) -> None:
    lags: list[float] = []

    @workflow
    async def quick(ctx: WorkflowContext) -> None:
        lags.append((datetime.now(UTC) - ctx.scheduled_at).total_seconds())

    async with App(db, workflows=[quick]) as app:
        began = time.monotonic()
        await app.set_schedule("s", Schedule(every=0.2, overlap="allow"), quick)
        async with asyncio.timeout(60):
            while len(lags) < 5:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        [found] = await app.list_schedules()
    assert len(lags) <= (time.monotonic() - began) / 0.2 + 1, "never too early"
    assert found.skipped + found.started >= len(lags)
    assert min(lags) >= 0


async def test_a_start_whose_answer_is_lost_still_runs(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """The instance belongs to this worker then, and no other one would run it."""
    await env.app.set_schedule("s", Schedule(every=HOUR), report)
    table = env.app._runtime.engine.storage.schedules
    fire, lost = table.fire, [True]

    async def lossy(*given: Any) -> bool | None:
        fired = await fire(*given)
        if lost:
            lost.clear()
            raise TransientError("the connection broke after the commit")
        return fired

    monkeypatch.setattr(table, "fire", lossy)
    await env.advance(HOUR)
    async with asyncio.timeout(30):
        await env.app.handle("s/2027-01-04T09:00:00Z").result()
    assert (await record(env)).started == 1


async def test_a_start_that_is_set_while_a_schedule_is_paused_holds(env: Environment) -> None:
    await env.app.set_schedule("s", Schedule(every=HOUR), report)
    await env.app.pause_schedule("s")
    await env.advance(3 * HOUR)
    start = MORNING + DAY + MINUTE
    await env.app.set_schedule("s", Schedule(every=HOUR, starts_at=start), report)
    await env.app.resume_schedule("s")
    await env.advance(DAY)
    assert await started(env) == [start, start + HOUR, start + 2 * HOUR]
