"""The promises of the design, one by one. Each test fails if its promise breaks."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from romancy import (
    ActivityContext,
    App,
    Database,
    ReceivedEvent,
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
from romancy.core.events import make_event
from romancy.storage.batch import Batch
from romancy.testing import Environment, environment
from tests.engine.helpers import down, down_for, intercept, kinds, outsider, until


@workflow
async def take_one(ctx: WorkflowContext, kind: str = "news") -> Any:
    return (await wait_event(ctx, kind)).data


@workflow
async def take_three(ctx: WorkflowContext) -> list[Any]:
    return [(await wait_event(ctx, "news")).data for _ in range(3)]


@workflow
async def take_after_nap(ctx: WorkflowContext) -> list[Any]:
    await sleep(ctx, 60)
    return [(await wait_event(ctx, "news")).data for _ in range(3)]


@workflow
async def race(ctx: WorkflowContext) -> str:
    try:
        return str((await wait_event(ctx, "news", timeout=60)).data)
    except WaitTimeout:
        return "timeout"


# --- 1. accepted means durable ----------------------------------------------------------------------------------------
async def test_1_an_accepted_event_is_on_disk(db: str, disk: Callable[[], str]) -> None:
    async with App(db, workflows=[take_one]) as app:
        await app.start_workflow(take_one, instance_id="one")
        await app.send_event("other", "test", 1, id="e1")
        image = disk()
    async with App(image, worker=False) as after_the_crash:
        assert [record.event.id for record in (await after_the_crash.list_events()).items] == ["e1"]
        assert (await after_the_crash.send_event("other", "test", 1, id="e1")).duplicate


async def test_1_a_started_workflow_is_on_disk_and_runs_from_there(db: str, disk: Callable[[], str]) -> None:
    async with App(db, worker=False) as app:
        await app.start_workflow("take_one", instance_id="one")
        await app.send_event("news", "test", "hello")
        image = disk()
    async with App(image, workflows=[take_one]) as after_the_crash:
        assert await after_the_crash.handle("one").result(timeout=5) == "hello"


async def test_1_a_cancellation_is_on_disk(db: str, disk: Callable[[], str]) -> None:
    async with App(db, worker=False) as app:
        await app.start_workflow("take_one", instance_id="one")
        await app.cancel_workflow("one", reason="no need")
        image = disk()
    async with App(image, workflows=[take_one]) as after_the_crash:
        with pytest.raises(WorkflowCancelled, match="no need"):
            await after_the_crash.handle("one").result(timeout=5)


async def test_1_a_result_is_handed_out_only_when_it_is_on_disk(db: str, disk: Callable[[], str]) -> None:
    @activity
    async def work(ctx: ActivityContext) -> int:
        return 42

    @workflow
    async def worker(ctx: WorkflowContext) -> int:
        return await work(ctx)

    async with App(db, workflows=[worker]) as app:
        handle = await app.start_workflow(worker, instance_id="one")
        assert await handle.result(timeout=5) == 42
        image = disk()
    async with App(image, worker=False) as after_the_crash:
        assert (await after_the_crash.get_instance("one")).output == 42


async def test_1_what_a_workflow_sends_leaves_with_its_step_or_not_at_all(env: Environment) -> None:
    @workflow
    async def herald(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "go")
        await send_event(ctx, "news", "herald", "hear!")
        await wait_event(ctx, "stop")

    handle = await env.start(herald)
    lost = asyncio.Event()

    def lose_the_step(batch: Batch, submit: Callable[[], None]) -> None:
        if batch.commits:
            lost.set()  # the process dies before this is written
        else:
            submit()

    undo = intercept(env, lose_the_step)
    await env.app.send_event("go", "test")
    await lost.wait()
    assert (await env.app.list_events(type="news")).items == []

    undo()
    await env.restart()
    assert len((await env.app.list_events(type="news")).items) == 1
    assert [w.types for w in await env.waits(handle)] == [("stop",)]


# --- 2. no lost event -------------------------------------------------------------------------------------------------
async def test_2_before_the_first_wait(env: Environment) -> None:
    handle = await env.start(take_after_nap)
    for n in range(3):
        await env.send_event("news", "test", n)
    assert await handle.result() == [0, 1, 2]


async def test_2_between_two_waits(env: Environment) -> None:
    @workflow
    async def slow_reader(ctx: WorkflowContext) -> list[Any]:
        first = await wait_event(ctx, "news")
        await sleep(ctx, 60)
        return [first.data, (await wait_event(ctx, "news")).data]

    handle = await env.start(slow_reader)
    await env.send_event("news", "test", 1)
    await env.send_event("news", "test", 2)
    assert await handle.status() == "waiting_for_timer"
    assert await handle.result() == [1, 2]


@pytest.mark.parametrize("moment", ["with it", "just after it"])
async def test_2_during_the_registration(env: Environment, moment: str) -> None:
    """The event is accepted in the very transaction that stores the wait, or in the next one."""
    sends: list[asyncio.Task[Any]] = []

    def send_meanwhile(batch: Batch, submit: Callable[[], None]) -> None:
        if any(c.opened for c in batch.commits) and not sends:
            if moment == "with it":
                event = make_event("news", "test", "meanwhile", id="e1")
                batch.accepts = [*batch.accepts, env.app._runtime.engine.delivery.prepare(event)]
            sends.append(asyncio.ensure_future(env.app.send_event("news", "test", "meanwhile", id="e1")))
        submit()

    intercept(env, send_meanwhile)
    handle = await env.start(take_one)
    assert await handle.result() == "meanwhile"
    assert (await sends[0]).duplicate == (moment == "with it")


async def test_2_at_any_moment_of_a_start(db: str) -> None:
    """Starts and sends race freely on a real file; every instance gets its event."""
    async with App(Database(db, durability="normal"), workflows=[take_one]) as app:

        async def one(n: int) -> Any:
            async def send_later() -> None:
                for _ in range(n % 20):
                    await asyncio.sleep(0)
                await app.send_event(f"news.{n}", "test", n)

            handle = await app.start_workflow(take_one, f"news.{n}", instance_id=f"i{n}")
            await send_later()
            return await handle.result(timeout=10)

        assert await asyncio.gather(*(one(n) for n in range(200))) == list(range(200))


async def test_2_while_the_process_is_down(db: str) -> None:
    async with environment(database=db, workflows=[take_three]) as env:
        await env.start(take_three.options(instance_id="one"))
        async with down(env), App(db, worker=False) as other:  # another process, that only sends
            for n in range(3):
                await other.send_event("news", "test", n)
        assert await env.app.handle("one").result(timeout=5) == [0, 1, 2]


async def test_2_in_order_of_acceptance(env: Environment) -> None:
    @workflow
    async def reader(ctx: WorkflowContext) -> list[Any]:
        await sleep(ctx, 60)
        return [(await wait_event(ctx, "a", "b")).data for _ in range(6)]

    handle = await env.start(reader)
    for n in range(6):
        await env.send_event("ab"[n % 2], "test", n)
    assert await handle.result() == [0, 1, 2, 3, 4, 5]


async def test_2_at_most_once_per_instance(env: Environment) -> None:
    """Whatever wait took it, by whatever filter: the instance does not see the event again."""

    @workflow
    async def reader(ctx: WorkflowContext) -> list[Any]:
        seen = [(await wait_event(ctx, "news", where={"n": 2})).data["n"]]
        seen += [(await wait_event(ctx, "news")).data["n"] for _ in range(2)]
        with pytest.raises(WaitTimeout):
            await wait_event(ctx, "news", timeout=0)
        with pytest.raises(WaitTimeout):
            await wait_event(ctx, "news", since=ctx.started_at - timedelta(days=1), timeout=0)
        return seen

    handle = await env.start(reader)
    for n in (1, 2, 3):
        await env.send_event("news", "test", {"n": n})
    await env.restart()
    assert await handle.result() == [2, 1, 3], "a filtered wait never skips what a later wait would take"


async def test_2_every_event_is_there_for_every_instance(env: Environment) -> None:
    handles = [await env.start(take_one) for _ in range(3)]
    receipt = await env.send_event("news", "test", "for all")
    assert receipt.delivered == 3
    assert [await h.result() for h in handles] == ["for all"] * 3


async def test_2_not_from_before_the_instance_existed(env: Environment) -> None:
    await env.send_event("news", "test", "old")
    handle = await env.start(take_one)
    await env.send_event("news", "test", "new")
    assert await handle.result() == "new"


async def test_2_since_now_opts_out_of_the_buffer(env: Environment) -> None:
    @workflow
    async def only_fresh(ctx: WorkflowContext) -> Any:
        await sleep(ctx, 60)
        return (await wait_event(ctx, "news", since="now")).data

    handle = await env.start(only_fresh)
    await env.send_event("news", "test", "early")
    await env.advance(60)
    assert await handle.status() == "waiting_for_event"
    await env.restart()
    assert await handle.status() == "waiting_for_event", "a restart does not move the beginning of the wait"
    await env.send_event("news", "test", "fresh")
    assert await handle.result() == "fresh"


async def test_2_since_now_takes_what_came_while_down(env: Environment) -> None:
    """ "now" is the moment the wait was recorded, not the moment somebody looked."""

    @workflow
    async def only_fresh(ctx: WorkflowContext) -> Any:
        return (await wait_event(ctx, "news", since="now")).data

    handle = await env.start(only_fresh)
    env.app._runtime.engine.exits.drop(env.app._runtime.engine.scheduler.residents[handle.instance_id])
    await env.app.send_event("news", "test", "meanwhile")
    await env.restart()
    assert await handle.result() == "meanwhile"


async def test_2_since_a_time_reaches_back_before_the_instance(env: Environment) -> None:
    @workflow
    async def late_reader(ctx: WorkflowContext, since: datetime) -> list[Any]:
        return [(await wait_event(ctx, "news", since=since)).data for _ in range(2)]

    await env.send_event("news", "test", "too old")
    await env.advance(60)
    since = env.now
    await env.send_event("news", "test", "at that time")
    await env.advance(60)
    await env.send_event("news", "test", "later")
    await env.advance(60)
    handle = await env.start(late_reader, since)
    assert await handle.result() == ["at that time", "later"]


# --- 3. idempotent ----------------------------------------------------------------------------------------------------
async def test_3_the_same_source_and_id_is_delivered_once(env: Environment) -> None:
    handle = await env.start(take_three)
    first = await env.send_event("news", "test", 1, id="e1")
    again = await env.send_event("news", "test", 1, id="e1")
    elsewhere = await env.send_event("news", "another", 2, id="e1")
    await env.restart()
    after = await env.send_event("news", "test", 1, id="e1")
    assert [r.duplicate for r in (first, again, elsewhere, after)] == [False, True, False, True]
    assert again.delivered == after.delivered == 0
    await env.send_event("news", "test", 3, id="e2")
    assert await handle.result() == [1, 2, 3]


async def test_3_concurrent_duplicates_are_delivered_once(env: Environment) -> None:
    handle = await env.start(take_three)
    receipts = await asyncio.gather(*(env.app.send_event("news", "test", 1, id="e1") for _ in range(20)))
    await env.settle()
    assert sum(not r.duplicate for r in receipts) == 1
    assert (await kinds(env, handle.instance_id)).count("event_received") == 1


# --- 4. one winner ----------------------------------------------------------------------------------------------------
async def test_4_a_tie_at_the_deadline_goes_to_the_event(db: str) -> None:
    """The event was accepted in time by another process, but this one notices the time first."""
    async with environment(database=db, workflows=[race]) as env:
        handle = await env.start(race)
        env.app._runtime.engine.storage.watch(lambda: None)
        async with outsider(env) as other:
            await other.send_event("news", "test", "in time")
        await env.advance(60)
        assert await handle.result() == "in time"
        assert await kinds(env, handle.instance_id) == ["started", "event_received"]


async def test_4_an_event_that_comes_just_after_the_timeout_is_not_eaten(env: Environment) -> None:
    @workflow
    async def twice(ctx: WorkflowContext) -> list[Any]:
        with pytest.raises(WaitTimeout):
            await wait_event(ctx, "news", timeout=60)
        return [(await wait_event(ctx, "news")).data]

    handle = await env.start(twice)
    await env.advance(60)
    await env.send_event("news", "test", "late")
    assert await handle.result() == ["late"]


async def test_4_event_timeout_and_cancel_at_once_have_one_winner(env: Environment) -> None:
    handle = await env.start(race)
    id = handle.instance_id
    env.clock._now += 60_000_000
    await asyncio.gather(
        env.app.send_event("news", "test", "event"),
        env.app.cancel_workflow(id),
        asyncio.to_thread(lambda: None),
    )
    env.clock.ring()
    await env.settle()
    winners = set(await kinds(env, id)) - {"started"}
    assert len(winners) == 1
    assert (await handle.status() == "cancelled") == (winners == {"cancel_requested"})
    before = await env.app.get_history(id)
    await env.restart()
    assert await env.app.get_history(id) == before


async def test_4_the_winner_is_the_same_after_a_crash(env: Environment) -> None:
    handle = await env.start(race)
    await env.advance(60)
    await env.restart()
    await env.send_event("news", "test", "late")
    assert await handle.result() == "timeout"


async def test_4_an_event_accepted_in_time_wins_though_the_process_was_down_at_the_deadline(db: str) -> None:
    async with environment(database=db, workflows=[race]) as env:
        await env.start(race.options(instance_id="one"))
        async with down(env), outsider(env) as other:
            await other.send_event("news", "test", "in time")
            env.clock._now += 3600_000_000
        assert await env.app.handle("one").result(timeout=5) == "in time"


async def test_4_an_event_accepted_after_the_deadline_does_not_win_though_the_process_was_down(db: str) -> None:
    """Whoever was down, the outcome is the one a running process would have recorded; the event stays for later."""

    @workflow
    async def twice(ctx: WorkflowContext) -> list[Any]:
        try:
            first: Any = (await wait_event(ctx, "news", timeout=60)).data
        except WaitTimeout:
            first = "timeout"
        return [first, (await wait_event(ctx, "news")).data]

    async with environment(database=db, workflows=[twice]) as env:
        await env.start(twice.options(instance_id="one"))
        async with down(env), outsider(env) as other:
            env.clock._now += 61_000_000
            await other.send_event("news", "test", "late")
        assert await env.app.handle("one").result(timeout=5) == ["timeout", "late"]


# --- 5. cancelled stays cancelled -------------------------------------------------------------------------------------
async def assert_still_cancelled(env: Environment, id: str) -> None:
    assert (await env.app.get_instance(id)).status == "cancelled"
    history = await env.app.get_history(id)
    assert [e.kind for e in history] == ["started", "cancel_requested"]
    await env.restart()
    assert (await env.app.get_instance(id)).status == "cancelled"
    assert await env.app.get_history(id) == history


async def test_5_no_late_timer(env: Environment) -> None:
    @workflow
    async def sleeper(ctx: WorkflowContext) -> None:
        await sleep(ctx, 60)

    handle = await env.start(sleeper)
    await env.cancel(handle)
    await env.advance(120)
    await assert_still_cancelled(env, handle.instance_id)
    assert await env.waits() == []


async def test_5_no_late_event(env: Environment) -> None:
    handle = await env.start(take_one)
    await env.cancel(handle)
    receipt = await env.send_event("news", "test", 1)
    assert receipt.delivered == 0
    await assert_still_cancelled(env, handle.instance_id)


@pytest.mark.usefixtures("impatient")
async def test_5_no_late_activity_result(env: Environment) -> None:
    release = asyncio.Event()

    @activity
    async def stubborn(ctx: ActivityContext) -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                release.set()  # it was cancelled and returns a result all the same
        return "late"

    @workflow
    async def worker(ctx: WorkflowContext) -> str:
        return await stubborn(ctx)

    env.app.register(worker)
    handle = await env.app.start_workflow(worker, instance_id="one")
    await env.settle()
    await env.cancel(handle)
    await release.wait()
    await env.settle()
    await assert_still_cancelled(env, "one")


async def test_5_no_late_cancellation_either(env: Environment) -> None:
    handle = await env.start(take_one)
    await env.send_event("news", "test", 1)
    await env.cancel(handle)
    assert await handle.result() == 1
    assert await handle.status() == "completed"


# --- 6. no double run -------------------------------------------------------------------------------------------------
async def test_6_two_workers_share_the_work_and_run_nothing_twice(db: str) -> None:
    runs: list[str] = []

    @activity
    async def count(ctx: ActivityContext) -> None:
        runs.append(ctx.instance_id)

    @workflow
    async def counted(ctx: WorkflowContext) -> None:
        await count(ctx)
        await wait_event(ctx, "go")
        await count(ctx)

    ids = [f"i{n}" for n in range(50)]
    one, two = (App(Database(db, durability="normal"), workflows=[counted]) for _ in range(2))
    async with one, two, App(db, worker=False) as starter:
        handles = [await starter.start_workflow("counted", instance_id=id) for id in ids]
        await starter.send_event("go", "test")
        await asyncio.gather(*(h.result(timeout=20) for h in handles))
    assert sorted(runs) == sorted(ids * 2)


async def test_6_a_worker_that_was_taken_over_cannot_write(db: str) -> None:
    """A pause (a stopped process, a laptop lid): the old worker comes back with a result nobody wants any more."""
    go, ran = asyncio.Event(), list[str]()

    @activity
    async def pay(ctx: ActivityContext) -> str:
        me = f"run {len(ran) + 1}"
        ran.append(me)
        if len(ran) == 1:
            await go.wait()
        return me

    @workflow
    async def buy(ctx: WorkflowContext) -> str:
        paid = await pay(ctx)
        await wait_event(ctx, "shipped")
        return paid

    async with environment(database=db, workflows=[buy]) as stale, environment(database=db, workflows=[buy]) as fresh:
        await stale.app.start_workflow(buy, instance_id="one")
        old = stale.app._runtime.engine.worker_id
        await until(lambda: ran)
        await fresh.app._runtime.engine.storage.take_over(fresh.app._runtime.engine.worker_id or "", [old or ""])
        fresh.app._runtime.engine.kick()
        await fresh.settle()
        assert ran == ["run 1", "run 2"]
        go.set()
        await stale.settle()
        await stale.app._runtime.engine.sweep.round()
        history = await fresh.app.get_history("one")
        assert [e.result for e in history if e.kind == "activity_completed"] == ["run 2"]
        await fresh.send_event("shipped", "test")
        assert await fresh.app.handle("one").result(timeout=5) == "run 2"


@pytest.mark.sqlite
async def test_6_a_worker_that_handed_an_instance_on_cannot_write_to_it(env: Environment) -> None:
    """Its own lease is fine, only this instance is another's now: the version of the row tells."""
    go = asyncio.Event()

    @activity
    async def pay(ctx: ActivityContext) -> str:
        await go.wait()
        return "late"

    @workflow
    async def buy(ctx: WorkflowContext) -> str:
        return await pay(ctx)

    env.app.register(buy)
    await env.app.start_workflow(buy, instance_id="one")
    resident = env.app._runtime.engine.scheduler.residents["one"]
    await until(lambda: env.app._runtime.engine.activities.running)
    storage: Any = env.app._runtime.engine.storage
    await storage._write(
        lambda c: c.execute(
            "INSERT INTO romancy_workers (id, host, until, started_at) VALUES ('other', 'there', 9e18, 0)"
        )
    )
    await storage._write(lambda c: c.execute("UPDATE romancy_instances SET owner = 'other', version = version + 1"))
    go.set()
    await until(lambda: resident.is_gone)
    await env.settle()
    assert await kinds(env, "one") == ["started"]
    assert (await env.app.get_instance("one")).status == "running"


async def test_6_one_instance_is_never_fed_twice_at_a_time(env: Environment) -> None:
    """Many things happen to one instance at once; its code sees them one after the other."""
    depth, deepest = 0, 0

    @workflow
    async def busy(ctx: WorkflowContext) -> int:
        nonlocal depth, deepest
        seen = 0
        for _ in range(50):
            await wait_event(ctx, "tick")
            depth += 1
            deepest = max(deepest, depth)
            seen += 1
            depth -= 1
        return seen

    handle = await env.start(busy)
    await asyncio.gather(*(env.app.send_event("tick", "test", n) for n in range(50)))
    assert await handle.result() == 50
    assert deepest == 1
    assert (await kinds(env, handle.instance_id)).count("event_received") == 50


# --- 7. bad input is refused, nothing is lost -------------------------------------------------------------------------
async def test_7_data_that_does_not_fit_is_named_kept_and_not_eaten(env: Environment) -> None:
    @workflow
    async def strict(ctx: WorkflowContext) -> list[Any]:
        fitting: ReceivedEvent[int] = await wait_event(ctx, "news", model=int)
        return [fitting.data, (await wait_event(ctx, "news")).data]

    handle = await env.start(strict)
    receipt = await env.send_event("news", "test", "not a number")
    assert (receipt.mismatched, receipt.delivered) == (1, 0)
    assert await handle.status() == "waiting_for_event"
    await env.restart()
    receipt = await env.send_event("news", "test", 7)
    assert (receipt.mismatched, receipt.delivered) == (0, 1)
    assert await handle.result() == [7, "not a number"]


# --- 8. time is right -------------------------------------------------------------------------------------------------
@workflow
async def nap(ctx: WorkflowContext, seconds: float) -> datetime:
    await sleep(ctx, seconds)
    return ctx.now()


@pytest.mark.parametrize("seconds", [0.000001, 0.3, 1, 1.0000001, 86400 * 365])
async def test_8_never_early(env: Environment, seconds: float) -> None:
    start = env.clock.now()
    handle = await env.start(nap, seconds)
    (wait,) = await env.waits(handle)
    due = wait.due_at
    assert due is not None
    assert (due - env.now).total_seconds() >= seconds - 1e-9
    just_before = start + (due - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) - start - 1
    await env.turn_to(just_before)
    assert await handle.status() == "waiting_for_timer"
    await env.turn_to(just_before + 1)
    assert await handle.result() == due


async def test_8_a_sleep_keeps_its_deadline_over_restarts(env: Environment) -> None:
    due = env.now + timedelta(hours=1)
    handle = await env.start(nap, 3600)
    for _ in range(3):
        await down_for(env, timedelta(minutes=15))
        assert [w.due_at for w in await env.waits(handle)] == [due]
    await env.advance(timedelta(minutes=15) - timedelta(microseconds=1))
    assert await handle.status() == "waiting_for_timer"
    await env.advance(timedelta(microseconds=1))
    assert await handle.status() == "completed"


async def test_8_what_fell_due_while_down_fires_at_once_and_in_order(env: Environment) -> None:
    order: list[str] = []

    @activity
    async def note(ctx: ActivityContext) -> None:
        order.append(ctx.instance_id)

    @workflow
    async def alarm(ctx: WorkflowContext, seconds: float) -> None:
        await sleep(ctx, seconds)
        await note(ctx)

    for seconds in (30, 10, 20):
        await env.start(alarm.options(instance_id=f"after {seconds}"), seconds)
    await down_for(env, timedelta(hours=1))
    assert order == ["after 10", "after 20", "after 30"]


async def test_8_a_clock_set_back_makes_nothing_early(env: Environment) -> None:
    handle = await env.start(nap, 60)
    env.clock.turn_to(env.clock.now() - 3600_000_000)
    await env.advance(3600 + 59)
    assert await handle.status() == "waiting_for_timer"
    await env.advance(1)
    assert await handle.status() == "completed"


async def test_8_sleep_until_knows_time_zones(env: Environment) -> None:
    @workflow
    async def wake_up(ctx: WorkflowContext, when: datetime) -> datetime:
        await sleep_until(ctx, when)
        return ctx.now()

    there = ZoneInfo("America/New_York")
    when = (env.now + timedelta(days=200)).astimezone(there)
    handle = await env.start(wake_up, when)
    assert [w.due_at for w in await env.waits(handle)] == [when]
    assert await handle.result() == when


async def test_8_a_far_timer_is_found_when_its_time_comes(db: str) -> None:
    """Timers beyond the look-ahead window are only in the database until the window reaches them."""
    async with environment(database=db, workflows=[nap]) as env:
        await env.app._runtime.crash()
        env.app._runtime.timer_window = 60_000_000
        await env.app.start()
        handle = await env.start(nap, 3600)
        assert "armed=0" in repr(env.app._runtime.engine.timers)
        await env.advance(3599)
        assert await handle.status() == "waiting_for_timer"
        await env.advance(1)
        assert await handle.status() == "completed"
