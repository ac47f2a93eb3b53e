"""What went wrong in the nearest systems (section 4 of the design). None of it happens here."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from romancy import (
    NO_RETRY,
    ActivityContext,
    ActivityError,
    App,
    WaitTimeout,
    WorkflowCancelled,
    WorkflowContext,
    activity,
    send_event,
    sleep,
    sleep_until,
    wait_event,
    workflow,
)
from romancy.engine.resident import CancelAsked
from romancy.testing import Environment, environment
from tests.engine.helpers import down, down_for, intercept, kinds, until


@workflow
async def take_one(ctx: WorkflowContext) -> Any:
    return (await wait_event(ctx, "news")).data


# --- events lost or eaten ---------------------------------------------------------------------------------------------
async def test_acknowledged_before_stored_then_lost(env: Environment) -> None:
    """While the database does not answer, nobody is told that anything is accepted."""
    held: list[Callable[[], None]] = []
    intercept(env, lambda batch, submit: held.append(submit))
    sending = asyncio.ensure_future(env.app.send_event("news", "test", 1, id="e1"))
    await until(lambda: held)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not sending.done()
    assert (await env.app.list_events()).items == []
    held[0]()
    assert not (await sending).duplicate
    assert len((await env.app.list_events()).items) == 1


async def test_an_event_before_the_first_wait(env: Environment) -> None:
    @activity
    async def prepare(ctx: ActivityContext) -> None: ...

    @workflow
    async def late(ctx: WorkflowContext) -> Any:
        await prepare(ctx)
        await sleep(ctx, 60)
        return (await wait_event(ctx, "news")).data

    handle = await env.start(late)
    await env.send_event("news", "test", "early")
    await env.restart()
    assert await handle.result() == "early"


async def test_the_waiter_that_lost_to_a_timeout_swallows_nothing(env: Environment) -> None:
    @workflow
    async def patient(ctx: WorkflowContext) -> list[Any]:
        for _ in range(3):
            with pytest.raises(WaitTimeout):
                await wait_event(ctx, "news", timeout=60)
        return [(await wait_event(ctx, "news")).data]

    handle = await env.start(patient)
    await env.advance(180)
    assert len(await env.waits(handle)) == 1
    receipt = await env.send_event("news", "test", "for the fourth")
    assert receipt.delivered == 1
    assert await handle.result() == ["for the fourth"]


# --- locks and leaders ------------------------------------------------------------------------------------------------
async def test_the_same_resume_does_not_run_twice(db: str) -> None:
    """Sweeps, kicks, mail and offers all at once, in one process and in another: one resume."""
    runs: list[int] = []

    @activity
    async def after(ctx: ActivityContext) -> None:
        runs.append(1)

    @workflow
    async def resumes(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "news")
        await after(ctx)

    async with environment(database=db, workflows=[resumes]) as env, App(db, workflows=[resumes]) as other:
        await env.start(resumes.options(instance_id="one"))
        await other.send_event("news", "test")
        for _ in range(5):
            env.app._runtime.engine.kick()
            other._runtime.engine.kick()
            await asyncio.sleep(0)
        await other.handle("one").result(timeout=5)
        await env.settle()
        assert runs == [1]


@pytest.mark.sqlite
async def test_a_worker_paused_past_its_lease_writes_nothing(db: str) -> None:
    async with environment(database=db, workflows=[take_one]) as paused:
        await paused.app.start_workflow(take_one, instance_id="one")
        await paused.settle()
        async with environment(database=db, workflows=[take_one]) as other:
            other.clock.turn_to(paused.clock.now() + 11_000_000)  # past the lease of 10 s
            dead = await other.app._runtime.engine.storage.take_over(other.app._runtime.engine.worker_id or "")
            assert dead == [paused.app._runtime.engine.worker_id]
            version = (await other.app._runtime.engine.storage.catalog.instance("one")).version  # type: ignore[union-attr]
            resident = paused.app._runtime.engine.scheduler.residents["one"]
            paused.app._runtime.engine.loader.wake(
                "one", CancelAsked(0, "stale")
            )  # the paused one comes back and acts on old knowledge
            await until(lambda: resident.is_gone)
            row = await other.app._runtime.engine.storage.catalog.instance("one")
            assert row is not None
            assert row.status == "waiting_for_event"
            assert row.version >= version
            assert await kinds(other, "one") == ["started"]


async def test_every_worker_fires_the_timers_of_the_workflows_it_knows(db: str) -> None:
    """No leader: a worker that does not know a workflow never sits on its timers."""

    @workflow
    async def one(ctx: WorkflowContext) -> str:
        await sleep(ctx, 60)
        return "one"

    @workflow
    async def two(ctx: WorkflowContext) -> str:
        await sleep(ctx, 60)
        return "two"

    async with environment(database=db, workflows=[one]) as first, environment(database=db, workflows=[two]) as second:
        await first.app.start_workflow("one", instance_id="1")
        await first.app.start_workflow("two", instance_id="2")
        second.app._runtime.engine.kick()
        await second.settle()
        await second.advance(60)
        assert await second.app.handle("2").result(timeout=5) == "two"
        assert (await second.app.get_instance("1")).status == "waiting_for_timer"
        await first.advance(60)
        assert await first.app.handle("1").result(timeout=5) == "one"


# --- cancellation -----------------------------------------------------------------------------------------------------
async def test_a_cancelled_sleeper_does_not_come_back_to_life(env: Environment) -> None:
    @workflow
    async def sleeper(ctx: WorkflowContext) -> None:
        await sleep(ctx, 60)

    handle = await env.start(sleeper)
    await env.cancel(handle)
    await down_for(env, timedelta(minutes=5))
    await env.advance(60)
    assert await handle.status() == "cancelled"
    assert await kinds(env, handle.instance_id) == ["started", "cancel_requested"]


@pytest.mark.usefixtures("impatient")
async def test_cancelling_a_running_workflow_does_not_end_as_completed(env: Environment) -> None:
    go = asyncio.Event()

    @activity
    async def work(ctx: ActivityContext) -> str:
        await go.wait()
        return "done"

    @workflow
    async def busy(ctx: WorkflowContext) -> str:
        try:
            return await work(ctx)
        except asyncio.CancelledError:
            return "swallowed it"

    handle = await env.start(busy)
    await env.cancel(handle, "enough")
    go.set()
    with pytest.raises(WorkflowCancelled, match="enough"):
        await handle.result()
    assert await handle.status() == "cancelled"


# --- replay -----------------------------------------------------------------------------------------------------------
@dataclass
class Order:
    id: int
    at: datetime


async def test_int_dataclass_and_datetime_survive_replay(env: Environment) -> None:
    order = Order(2**70, datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=UTC))

    @activity
    async def number(ctx: ActivityContext) -> int:
        return 1

    @activity
    async def make(ctx: ActivityContext) -> Order:
        return order

    @workflow
    async def replayed(ctx: WorkflowContext) -> bool:
        n, made = await number(ctx), await make(ctx)
        await sleep(ctx, 1)
        return type(n) is int and made == order and type(made) is Order

    handle = await env.start(replayed)
    await env.restart()
    assert await handle.result() is True


async def test_a_recorded_failure_takes_the_same_branch_on_replay(env: Environment) -> None:
    calls: list[str] = []

    @activity(retry=NO_RETRY)
    async def flaky(ctx: ActivityContext) -> str:
        calls.append("flaky")
        if len(calls) == 1:
            raise ValueError("only the first time")
        return "worked"

    @workflow
    async def branches(ctx: WorkflowContext) -> str:
        try:
            branch = await flaky(ctx)
        except ActivityError as error:
            branch = error.error_type
        await sleep(ctx, 60)
        return branch

    handle = await env.start(branches)
    await env.restart()
    assert await handle.result() == "ValueError"
    assert calls == ["flaky"]


async def test_sends_in_the_workflow_body_are_not_repeated_on_replay(env: Environment) -> None:
    @workflow
    async def herald(ctx: WorkflowContext) -> None:
        await send_event(ctx, "news", "herald", 1)
        await sleep(ctx, 60)
        await send_event(ctx, "news", "herald", 2)
        await sleep(ctx, 60)

    handle = await env.start(herald)
    for _ in range(3):
        await env.restart()
    await env.advance(60)
    await env.restart()
    await handle.result()
    assert [record.event.data for record in (await env.app.list_events()).items] == [b"2", b"1"]


async def test_sleep_until_in_the_past_shifts_no_later_ids(env: Environment) -> None:
    @workflow
    async def sleeps(ctx: WorkflowContext, when: datetime) -> str:
        await sleep_until(ctx, when)  # ahead when first run, in the past when replayed
        await sleep_until(ctx, ctx.started_at - timedelta(days=1))  # always in the past
        await sleep(ctx, 60)
        return "done"

    handle = await env.start(sleeps, env.now + timedelta(seconds=30))
    await env.advance(30)
    assert [w.wait_id for w in await env.waits(handle)] == ["sleep:3"]
    await down_for(env, timedelta(seconds=1))
    assert [w.wait_id for w in await env.waits(handle)] == ["sleep:3"]
    assert await handle.result() == "done"


# --- time -------------------------------------------------------------------------------------------------------------
async def test_a_process_in_another_time_zone_fires_nothing_at_once(
    db: str, env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    @workflow
    async def hour(ctx: WorkflowContext) -> None:
        await sleep(ctx, 3600)

    async with environment(database=db, workflows=[hour]) as env:
        handle = await env.start(hour)
        async with down(env):
            monkeypatch.setenv("TZ", "Pacific/Kiritimati")  # 14 hours ahead
            time.tzset()
        try:
            assert await handle.status() == "waiting_for_timer"
            await env.advance(3599)
            assert await handle.status() == "waiting_for_timer"
            await env.advance(1)
            assert await handle.status() == "completed"
        finally:
            monkeypatch.undo()
            time.tzset()


async def test_timers_are_not_whole_seconds(env: Environment) -> None:
    @workflow
    async def short(ctx: WorkflowContext) -> timedelta:
        await sleep(ctx, timedelta(milliseconds=1500))
        return ctx.now() - ctx.started_at

    handle = await env.start(short)
    await env.advance(1.499999)
    assert await handle.status() == "waiting_for_timer"
    assert await handle.result() == timedelta(milliseconds=1500)


async def test_nothing_polls_for_timers_and_events(env: Environment) -> None:
    """No back-off when idle: an event reaches its workflow without any duty running in between."""

    async def never() -> float:
        raise AssertionError("a poll was needed")

    handle = await env.start(take_one)
    env.app._runtime.engine._sweep.round = never
    await env.advance(timedelta(days=30))
    await env.send_event("news", "test", 1)
    assert await handle.result() == 1


# --- odd events -------------------------------------------------------------------------------------------------------
async def test_big_integers_are_not_rounded(env: Environment) -> None:
    big = 2**53 + 1
    handle = await env.start(take_one)
    await env.send_event("news", "test", {"n": big, "deep": [10**40]})
    await env.restart()
    assert await handle.result() == {"n": big, "deep": [10**40]}


async def test_a_nul_character_in_the_data_is_just_data(env: Environment) -> None:
    handle = await env.start(take_one)
    await env.send_event("news", "test", {"text": "a\x00b", "\x00": 1})
    await env.restart()
    assert await handle.result() == {"text": "a\x00b", "\x00": 1}


async def test_an_event_without_a_time_gets_that_of_its_acceptance(env: Environment) -> None:
    @workflow
    async def when(ctx: WorkflowContext) -> datetime:
        return (await wait_event(ctx, "news")).time

    handle = await env.start(when)
    await env.advance(60)
    accepted = env.now
    await env.send_event("news", "test")
    await env.advance(60)
    assert await handle.result() == accepted
