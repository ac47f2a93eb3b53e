"""Staying within limits: memory, queues, disk, the thread, and the time to stop."""

import asyncio
import gc
import logging
import threading
import tracemalloc
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest

from romancy import (
    ActivityContext,
    App,
    AppNotRunning,
    Database,
    InstanceNotFound,
    Retention,
    WorkerOptions,
    WorkflowContext,
    WorkflowFailed,
    activity,
    send_event,
    sleep,
    wait_event,
    workflow,
)
from romancy.core import loop
from romancy.engine import committer, watchdog
from romancy.testing import Environment, environment
from tests.engine.helpers import down, outsider, until


@workflow
async def waiter(ctx: WorkflowContext) -> Any:
    return (await wait_event(ctx, "go")).data


@workflow
async def quick(ctx: WorkflowContext, n: int) -> int:
    return n


# --- memory -----------------------------------------------------------------------------------------------------------
@pytest.mark.sqlite
async def test_a_waiting_workflow_takes_at_most_six_kilobytes() -> None:
    @workflow
    async def payment(ctx: WorkflowContext, order: int) -> Any:
        return (await wait_event(ctx, "paid", where={"order": order})).data

    async with App(":memory:", workflows=[payment]) as app:
        engine = app._runtime.engine

        async def use(first: int, last: int) -> int:
            """Let more instances wait, and return the memory in use."""
            await asyncio.gather(*(app.start_workflow(payment, n) for n in range(first, last)))
            await until(lambda: engine.is_idle)
            assert len(engine.residents) == last
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        tracemalloc.start()
        try:
            before = await use(0, 350)  # between this number and the next, no dict of Python's grows
            each = (await use(350, 680) - before) / 330
        finally:
            tracemalloc.stop()
    assert each < 6_000


async def test_a_timeout_that_cannot_be_confirmed_yet_is_not_read_again_and_again(
    db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is full and the database takes nothing: a wait whose time has come stays until it was looked for."""
    forever = asyncio.Event()

    @activity
    async def busy(ctx: ActivityContext) -> None:
        await forever.wait()

    @workflow
    async def working(ctx: WorkflowContext) -> None:
        await busy(ctx)

    @workflow
    async def waiting(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "go", timeout=1.0)

    async with App(db, workflows=[working, waiting], worker=WorkerOptions(max_resident=1)) as app:
        storage, residents = app._runtime.engine.storage, app._runtime.engine.scheduler.residents
        handle = await app.start_workflow(waiting.options(instance_id="waiting"))
        await until(lambda: "waiting" in residents and residents["waiting"].is_evictable)
        await app.start_workflow(working)
        await until(lambda: "waiting" not in residents)
        held: list[Any] = []
        loads: list[str] = []
        commit, load = storage.commit, storage.load_many
        monkeypatch.setattr(storage, "commit", lambda *batch: held.append(batch))
        monkeypatch.setattr(storage, "load_many", lambda instances: loads.extend(instances) or load(instances))
        await until(lambda: held and not residents.loading)
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert loads == ["waiting"]
        monkeypatch.undo()
        for batch in held:
            commit(*batch)
        forever.set()
        with pytest.raises(WorkflowFailed, match="WaitTimeout"):
            await handle.result(timeout=10)


async def test_with_room_for_two_everything_still_works() -> None:
    @activity
    async def echo(ctx: ActivityContext, n: int) -> int:
        return n

    @workflow
    async def mixed(ctx: WorkflowContext, n: int) -> list[Any]:
        a = await echo(ctx, n)
        event = await wait_event(ctx, f"go.{n}", timeout=1000)
        await sleep(ctx, 60)
        return [a, event.data, await echo(ctx, n + 1)]

    async with environment(workflows=[mixed], worker=WorkerOptions(max_resident=2, grace=0.1)) as env:
        handles = [await env.start(mixed, n) for n in range(12)]
        residents = env.app._runtime.engine.scheduler.residents
        assert len(residents) <= 2
        for n in reversed(range(12)):
            await env.send_event(f"go.{n}", "test", "x" * n)
            assert len(residents) <= 2
        assert [await h.result() for h in handles] == [[n, "x" * n, n + 1] for n in range(12)]
        assert len(residents) == 0


async def test_evicting_runs_no_cleanup_of_the_user(caplog: pytest.LogCaptureFixture) -> None:
    cleaned: list[str] = []

    @activity
    async def refund(ctx: ActivityContext) -> None:
        cleaned.append(ctx.instance_id)

    @workflow
    async def careful(ctx: WorkflowContext) -> str:
        try:
            await wait_event(ctx, "go")
        except BaseException:
            ctx.logger.warning("cleaning up")
            raise
        finally:
            await refund(ctx)
        return "done"

    async with environment(workflows=[careful], worker=WorkerOptions(max_resident=1, grace=0.1)) as env:
        handles = [await env.start(careful.options(instance_id=f"i{n}")) for n in range(4)]
        assert cleaned == []
        assert "cleaning up" not in caplog.text
        await env.send_event("go", "test")
        assert [await h.result() for h in handles] == ["done"] * 4
        assert sorted(cleaned) == ["i0", "i1", "i2", "i3"]


async def test_an_evicted_sleeper_is_woken_by_its_timer() -> None:
    @workflow
    async def sleeper(ctx: WorkflowContext, seconds: int) -> int:
        await sleep(ctx, seconds)
        return seconds

    async with environment(workflows=[sleeper], worker=WorkerOptions(max_resident=2, grace=0.1)) as env:
        handles = [await env.start(sleeper, n) for n in range(10, 0, -1)]
        await env.advance(10)
        assert [await h.status() for h in handles] == ["completed"] * 10


# --- back-pressure ----------------------------------------------------------------------------------------------------
async def test_more_starts_at_once_than_the_queue_takes_and_none_is_lost(db: str) -> None:
    count = committer.MAX_WAITING + 2_000
    async with App(Database(db, durability="normal"), workflows=[quick]) as app:
        most = 0

        async def one(n: int) -> int:
            nonlocal most
            handle = await app.start_workflow(quick, n, instance_id=f"i{n}")
            most = max(most, len(app._runtime.engine.committer._queue))
            return await handle.result()

        assert await asyncio.gather(*(one(n) for n in range(count))) == list(range(count))
        assert most <= committer.MAX_WAITING * 2, "callers wait their turn; the queue does not grow with them"


async def test_more_events_at_once_than_the_queue_takes_and_none_is_lost(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "MAX_WAITING", 10)

    @workflow
    async def counts(ctx: WorkflowContext) -> int:
        return sum([(await wait_event(ctx, "n")).data for _ in range(200)])

    handle = await env.start(counts)
    await asyncio.gather(*(env.app.send_event("n", "test", n) for n in range(200)))
    assert await handle.result() == sum(range(200))


async def test_a_caller_that_gives_up_waiting_leaves_no_hole(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "MAX_WAITING", 1)
    tasks = [asyncio.ensure_future(env.app.send_event("n", "test", n)) for n in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(r).__name__ for r in done[1::2]] == ["Receipt"] * 10
    assert not (await env.send_event("n", "test")).duplicate


# --- stopping ---------------------------------------------------------------------------------------------------------
async def test_a_graceful_stop_lets_activities_finish_and_stores_their_results(db: str) -> None:
    go, runs = asyncio.Event(), list[str]()

    @activity
    async def work(ctx: ActivityContext) -> str:
        runs.append("run")
        await go.wait()
        return "done"

    @workflow
    async def job(ctx: WorkflowContext) -> str:
        result = await work(ctx)
        await wait_event(ctx, "go")
        return result

    app = App(db, workflows=[job])
    await app.start()
    await app.start_workflow(job, instance_id="one")
    await until(lambda: runs)
    stopping = asyncio.ensure_future(app.stop())
    await asyncio.sleep(0)
    go.set()
    await stopping
    async with App(db, workflows=[job]) as next_one:
        history = await next_one.get_history("one")
        assert [e.kind for e in history] == ["started", "activity_completed"]
        await next_one.send_event("go", "test")
        assert await next_one.handle("one").result(timeout=5) == "done"
    assert runs == ["run"]


async def test_what_does_not_finish_in_time_is_handed_back_and_repeated(db: str) -> None:
    runs: list[int] = []

    @activity
    async def work(ctx: ActivityContext) -> str:
        runs.append(ctx.attempt)
        if len(runs) == 1:
            await asyncio.Event().wait()
        return "done"

    @workflow
    async def job(ctx: WorkflowContext) -> str:
        return await work(ctx)

    async with App(db, workflows=[job], worker=WorkerOptions(grace=0.05)) as app:
        await app.start_workflow(job, instance_id="one")
        await until(lambda: runs)
    async with App(db, workflows=[job]) as next_one:
        assert await next_one.handle("one").result(timeout=5) == "done"
    assert runs == [1, 1], "an attempt that was handed back does not count as failed"


async def test_a_worker_that_stops_takes_nothing_on(db: str) -> None:
    """It starts no activities any more, so another worker continues what its last events wake."""
    gates = {name: asyncio.Event() for name in ("last", "long")}
    begun: list[str] = []

    @activity
    async def work(ctx: ActivityContext, name: str) -> None:
        begun.append(name)
        await gates[name].wait()

    @workflow
    async def job(ctx: WorkflowContext, name: str) -> None:
        await work(ctx, name)
        await send_event(ctx, "go", "test", name)

    async with App(db, workflows=[waiter]) as app:
        await app.start_workflow(waiter, instance_id="free")
    app = App(db, workflows=[waiter, job])
    await app.start()
    engine = app._runtime.engine
    for name in gates:
        await app.start_workflow(job, name, instance_id=name)
    await until(lambda: len(begun) == 2)
    stopping = asyncio.ensure_future(app.stop())
    await until(lambda: engine.activities._stopping)
    gates["last"].set()
    await until(lambda: "last" not in engine.residents)
    row = await engine.storage.catalog.instance("free")
    assert row is not None
    assert row.owner != engine.worker_id
    async with App(db, workflows=[waiter]) as next_one:
        assert await next_one.handle("free").result(timeout=5) == "last"
        assert not stopping.done()
    gates["long"].set()
    await stopping


async def test_a_clean_stop_leaves_nothing_for_a_lease_to_end(db: str) -> None:
    async with App(db, workflows=[waiter], lease=3600) as app:
        await app.start_workflow(waiter, instance_id="one")
    async with App(db, workflows=[waiter]) as next_one:
        await next_one.send_event("go", "test", 1)
        assert await next_one.handle("one").result(timeout=5) == 1


async def test_who_waits_for_a_result_is_told_that_the_app_stopped(db: str) -> None:
    app = App(db, workflows=[waiter])
    await app.start()
    handle = await app.start_workflow(waiter, instance_id="one")
    waiting = asyncio.ensure_future(handle.result())
    await asyncio.sleep(0.01)
    await app.stop()
    with pytest.raises(AppNotRunning, match="continues"):
        await waiting
    with pytest.raises(AppNotRunning, match="async with app"):
        await app.send_event("go", "test")


async def test_an_app_can_be_started_again(db: str) -> None:
    app = App(db, workflows=[waiter])
    async with app:
        await app.start_workflow(waiter, instance_id="one")
    async with app:
        await app.send_event("go", "test", 1)
        assert await app.handle("one").result(timeout=5) == 1


# --- retention --------------------------------------------------------------------------------------------------------
async def prune(env: Environment) -> None:
    await env.app._runtime.engine._pruning.round()


async def test_finished_instances_and_old_events_are_forgotten(env: Environment) -> None:
    @workflow(expects="go")
    async def expecting(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "go")

    done = await env.start(quick, 1)
    waiting = await env.start(expecting.options(instance_id="waits"))
    await env.send_event("old", "test", id="old")
    await env.advance(timedelta(days=7))
    await env.send_event("young", "test", id="young")
    await prune(env)
    assert await done.status() == "completed", "not before the retention has passed"
    await env.advance(1)
    await prune(env)
    with pytest.raises(InstanceNotFound):
        await done.status()
    assert [r.event.id for r in (await env.app.list_events()).items] == ["young"]
    assert await waiting.status() == "waiting_for_event", "what has not ended stays, however old"


async def test_retention_is_a_setting_and_runs_by_itself(db: str) -> None:
    async with environment(database=db, workflows=[quick], retention=timedelta(hours=1)) as env:
        handle = await env.start(quick, 1)
        async with down(env):
            env.clock._now += 2 * 3600_000_000
        for _ in range(100):  # the first round of the new process is its own doing
            if not (await env.app.list_instances()).items:
                break
            await asyncio.sleep(0.01)
        with pytest.raises(InstanceNotFound):
            await handle.status()


async def test_everything_may_be_kept_for_a_time_of_its_own(db: str) -> None:
    @workflow
    async def fails(ctx: WorkflowContext) -> None:
        raise ValueError("no")

    kept = Retention(instances=timedelta(days=1), failed=timedelta(days=3), events=timedelta(days=2))
    async with environment(database=db, workflows=[quick, fails], retention=kept) as env:
        await env.start(quick.options(instance_id="done"), 1)
        await env.start(fails.options(instance_id="failed"))
        await env.send_event("news", "test", id="news")

        async def left() -> set[str]:
            await env.advance(timedelta(days=1, seconds=1))
            await prune(env)
            instances, events = await env.app.list_instances(), await env.app.list_events()
            return {i.instance_id for i in instances.items} | {r.event.id for r in events.items}

        assert await left() == {"failed", "news"}
        assert await left() == {"failed"}
        assert await left() == set()


async def test_nothing_is_forgotten_that_is_kept_for_ever(db: str) -> None:
    async with environment(database=db, workflows=[quick], retention=Retention(None, None, None)) as env:
        done = await env.start(quick, 1)
        await env.send_event("news", "test")
        await env.advance(timedelta(days=36500))
        await prune(env)
        assert await done.status() == "completed"
        assert len((await env.app.list_events()).items) == 1


async def test_an_event_waiting_to_be_taken_is_not_forgotten(db: str) -> None:
    """A worker that is down for eight days loses nothing that was accepted."""
    async with environment(database=db, workflows=[waiter]) as env:
        await env.start(waiter.options(instance_id="one"))
        async with down(env), outsider(env) as other:
            await other.send_event("go", "test", "still here")
            env.clock._now += 8 * 86400_000_000
            await other._runtime.engine._pruning.round()
        assert await env.app.handle("one").result(timeout=5) == "still here"


async def test_an_expired_event_is_not_delivered_but_still_a_duplicate(env: Environment) -> None:
    @workflow
    async def late(ctx: WorkflowContext) -> Any:
        await sleep(ctx, 120)
        return (await wait_event(ctx, "news")).data

    handle = await env.start(late)
    until_then = (env.now + timedelta(seconds=60)).isoformat()
    await env.send_event("news", "test", "stale", id="e1", extensions={"expirytime": until_then})
    await env.advance(120)
    assert await handle.status() == "waiting_for_event"
    await prune(env)
    (record,) = (await env.app.list_events()).items
    assert record.event.data is None, "what has expired is forgotten, but for its id"
    assert (await env.send_event("news", "test", "again", id="e1")).duplicate
    await env.send_event("news", "test", "fresh")
    assert await handle.result() == "fresh"


async def test_an_event_that_lives_longer_than_the_retention(env: Environment) -> None:
    forever = (env.now + timedelta(days=30)).isoformat()
    await env.send_event("news", "test", "long", id="e1", extensions={"expirytime": forever})
    await env.advance(timedelta(days=20))
    await prune(env)
    (record,) = (await env.app.list_events()).items
    assert record.event.data == b'"long"'
    await env.advance(timedelta(days=11))
    await prune(env)
    (record,) = (await env.app.list_events()).items
    assert record.event.data is None, "it has expired, but its id is known for a while"
    await env.advance(timedelta(days=7))
    await prune(env)
    assert (await env.app.list_events()).items == []


async def test_a_forgotten_id_can_be_used_again(env: Environment) -> None:
    await env.start(quick.options(instance_id="one"), 1)
    await env.advance(timedelta(days=8))
    await prune(env)
    again = await env.start(quick.options(instance_id="one"), 2)
    assert (again.created, await again.result()) == (True, 2)


# --- the thread -------------------------------------------------------------------------------------------------------
async def test_a_workflow_that_hogs_the_thread_is_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "LIMIT", 0.02)
    monkeypatch.setattr(watchdog, "_LOOK_EVERY", 0.005)
    told = threading.Event()

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "blocked the event loop" in record.getMessage():
                told.set()

    @workflow
    async def hog(ctx: WorkflowContext) -> None:
        for _ in range(2_000_000_000):
            if told.is_set():
                return
        raise AssertionError("nobody noticed")

    handler = Told()
    logging.getLogger("romancy").addHandler(handler)
    try:
        async with environment(workflows=[hog]) as env:
            handle = await env.start(hog.options(instance_id="one"))
            await handle.result()
    finally:
        logging.getLogger("romancy").removeHandler(handler)
    (record,) = [r for r in caplog.records if "blocked the event loop" in r.getMessage()]
    for part in ("hog", "'one'", "activity", "test_capacity.py"):
        assert part in record.getMessage()
    assert record.instance_id == "one"  # type: ignore[attr-defined]


async def test_an_endless_loop_without_waiting_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MAX_CALLBACKS", 1000)

    @workflow
    async def spins(ctx: WorkflowContext) -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async with environment(workflows=[spins]) as env:
        handle = await env.start(spins)
        instance = await env.app.get_instance(handle.instance_id)
        assert (instance.status, instance.error["type"]) == ("failed", "WorkflowStuck")


async def test_a_backlog_is_taken_up_at_once_however_many_workflows_there_are() -> None:
    """What found no room when it was started is claimed as fast as there is room, not one share a second."""
    names = [f"other_{n}" for n in range(9)]

    def waiting(name: str) -> Any:
        @workflow(name=name)
        async def waits(ctx: WorkflowContext) -> None:
            await wait_event(ctx, "go")

        return waits

    workflows = [waiting(name) for name in names]
    async with environment(workflows=workflows, worker=WorkerOptions(max_resident=20, grace=0.1)) as small:
        starts = (small.app.start_workflow(workflows[0], instance_id=f"w{n}") for n in range(400))
        await asyncio.gather(*starts)
        await small.settle()
        assert not (await small.app.list_instances(status="running", limit=1)).items
        assert len(small.app._runtime.engine.scheduler.residents) <= 20


# --- no room at all ---------------------------------------------------------------------------------------------------
@activity
async def busy(ctx: ActivityContext) -> None:
    await asyncio.Event().wait()


@workflow
async def stays(ctx: WorkflowContext) -> None:
    """While its activity runs it stays in memory."""
    await busy(ctx)


@workflow
async def leaves(ctx: WorkflowContext) -> Any:
    return (await wait_event(ctx, "go")).data


async def test_a_look_for_one_that_had_to_leave_leads_to_no_other(db: str) -> None:
    """It is brought to memory, finds no room and leaves before its look is answered: that must be the end of it."""
    async with App(db, workflows=[stays, leaves], worker=WorkerOptions(max_resident=1, grace=0.01)) as app:
        waiting = await app.start_workflow(leaves, instance_id="waiting")
        await app.start_workflow(stays, instance_id="pinned")
        await until(
            lambda: (
                app._runtime.engine.is_idle_but_for_activities and "pinned" in app._runtime.engine.scheduler.residents
            )
        )
        looks: list[Any] = []
        look = app._runtime.engine.committer.look
        app._runtime.engine.committer.look = lambda *asked: (looks.append(asked), look(*asked))[1]  # type: ignore[method-assign,assignment]
        app._runtime.engine.loader.load("waiting")
        await until(lambda: app._runtime.engine.is_idle_but_for_activities or len(looks) > 20)
        assert len(looks) <= 2, "it looks again and again"
        await app.send_event("go", "test", 1)
        async with asyncio.timeout(10):
            assert await waiting.result() == 1


@workflow
async def both(ctx: WorkflowContext) -> Any:
    return [event.data for event in await asyncio.gather(wait_event(ctx, "x"), wait_event(ctx, "y"))]


async def test_what_an_event_ends_is_not_looked_for(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Very many may be woken at once, most of them out of memory: each costs a read and a commit, no look besides.

    What goes on is looked for: another process may have left something for it.
    """
    async with (
        App(db, workflows=[stays, leaves, both], worker=WorkerOptions(max_resident=1, grace=0.01)) as app,
        App(db, worker=False) as outside,
    ):
        ended, goes_on = [await app.start_workflow(wf, instance_id=wf.name) for wf in (leaves, both)]
        async with asyncio.timeout(10):
            while [await h.status() for h in (ended, goes_on)] != ["waiting_for_event"] * 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await app.start_workflow(stays, instance_id="pinned")  # now neither is in memory
        await until(lambda: list(app._runtime.engine.scheduler.residents) == ["pinned"])
        looks: list[str] = []
        look = app._runtime.engine.committer.look
        monkeypatch.setattr(app._runtime.engine.sweep, "_read_mail", AsyncMock())  # the sweep would find them, too
        monkeypatch.setattr(
            app._runtime.engine.committer, "look", lambda id, *more: (looks.append(id), look(id, *more))[1]
        )
        await app.send_event("go", "test", 1, to="leaves")
        assert await ended.result(10) == 1
        assert "leaves" not in looks
        await outside.send_event("y", "test", 2)
        await app.send_event("x", "test", 1)
        assert await goes_on.result(10) == [1, 2]
