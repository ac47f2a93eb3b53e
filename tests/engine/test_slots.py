"""Slots of a worker: instances take turns, and `max_per_worker` limits how many of one activity run at once."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest

from romancy import (
    NO_RETRY,
    ActivityContext,
    App,
    RetryPolicy,
    WorkerOptions,
    WorkflowCancelled,
    WorkflowContext,
    activity,
    wait_event,
    workflow,
)
from romancy.testing import environment
from tests.engine.helpers import down_for, until


class Log:
    """What ran: begins in order, how many run now, and the most at once, by activity."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.go = asyncio.Event()
        self.lock = threading.Lock()

    def begin(self, name: str, what: str) -> None:
        with self.lock:
            self.begun.append(what)
            self.now[name] += 1
            self.most[name] = max(self.most[name], self.now[name])

    def end(self, name: str) -> None:
        with self.lock:
            self.now[name] -= 1


log: Log


@pytest.fixture(autouse=True)
async def _log() -> None:
    global log
    log = Log()


@pytest.fixture
def threads() -> Iterator[threading.Event]:
    """Lets the activities in threads end; in any case, when the test ends."""
    global released
    released = threading.Event()
    yield released
    released.set()


released: threading.Event


@activity
async def work(ctx: ActivityContext, what: str) -> str:
    log.begin("work", what)
    try:
        await log.go.wait()
        await asyncio.sleep(0)
        return what
    finally:
        log.end("work")


@activity(max_per_worker=2, retry=RetryPolicy(max_attempts=3, initial=timedelta(seconds=10), backoff=1, jitter=0))
async def charge(ctx: ActivityContext, what: str, failures: int = 0) -> str:
    log.begin("charge", f"{what}#{ctx.attempt}" if ctx.attempt > 1 else what)
    try:
        await log.go.wait()
        await asyncio.sleep(0)
        if ctx.attempt <= failures:
            raise ConnectionError("no answer")
        return what
    finally:
        log.end("charge")


@activity(max_per_worker=2)
def thread_charge(ctx: ActivityContext, what: str) -> str:
    log.begin("thread_charge", what)
    try:
        released.wait(10)
        return what
    finally:
        log.end("thread_charge")


@workflow
async def works(ctx: WorkflowContext, name: str, n: int) -> int:
    return len(await asyncio.gather(*(work(ctx, f"{name}{i}") for i in range(n))))


@workflow
async def charges(ctx: WorkflowContext, name: str, n: int, failures: int = 0) -> int:
    return len(await asyncio.gather(*(charge(ctx, f"{name}{i}", failures) for i in range(n))))


@workflow
async def thread_charges(ctx: WorkflowContext, n: int) -> int:
    return len(await asyncio.gather(*(thread_charge(ctx, str(i)) for i in range(n))))


@workflow
async def both(ctx: WorkflowContext, n: int) -> None:
    await asyncio.gather(*(charge(ctx, f"c{i}") for i in range(n)), work(ctx, "w"))


# --- turns ------------------------------------------------------------------------------------------------------------
async def test_one_activity_is_not_delayed_by_a_thousand_of_another_instance(impatient: None) -> None:
    async with environment(max_activities=10) as env:
        large = await env.start(works, "a", 1000)
        small = await env.start(works, "b", 1)
        assert (log.now["work"], "b0" in log.begun) == (10, False)
        log.go.set()
        assert await small.result() == 1
        assert await large.result() == 1000
        assert log.begun.index("b0") <= 11, "it got one of the first slots that were free"
        assert (len(log.begun), log.most["work"]) == (1001, 10)


async def test_many_instances_get_the_same_share(impatient: None) -> None:
    async with environment(max_activities=1) as env:
        handles = [await env.start(works, name, 20) for name in "abcd"]
        log.go.set()
        for handle in handles:
            await handle.result()
        for n in range(1, 20):
            shares = Counter(what[0] for what in log.begun[: 4 * n + 1])
            assert max(shares.values()) - min(shares.values()) <= 2, f"of the first {4 * n + 1}: {shares}"


# --- max_per_worker ---------------------------------------------------------------------------------------------------
async def test_at_most_so_many_at_once_and_the_others_hold_no_slot(impatient: None) -> None:
    async with environment(max_activities=4) as env:
        first = await env.start(charges, "a", 10)
        assert log.begun == ["a0", "a1"]
        second = await env.start(works, "b", 2)
        assert log.begun == ["a0", "a1", "b0", "b1"], "two of four slots were free"
        log.go.set()
        assert (await first.result(), await second.result()) == (10, 2)
        assert log.most["charge"] == 2


async def test_other_activities_of_the_same_instance_pass(impatient: None) -> None:
    async with environment(max_activities=3) as env:
        handle = await env.start(both, 10)
        assert log.begun == ["c0", "c1", "w"]
        log.go.set()
        await handle.result()
        assert log.most["charge"] == 2


async def test_instances_take_turns_for_a_limited_activity(impatient: None) -> None:
    async with environment() as env:
        first, second = await env.start(charges, "a", 100), await env.start(charges, "b", 1)
        log.go.set()
        await second.result()
        await first.result()
        assert log.begun.index("b0") <= 4


async def test_threads_keep_their_place_until_they_end(impatient: None, threads: threading.Event) -> None:
    async with environment() as env:
        handle = await env.start(thread_charges, 6)
        await until(lambda: log.now["thread_charge"] == 2)
        await env.cancel(handle)
        again = await env.start(thread_charges, 3)
        assert log.begun == ["0", "1"], "they still run, although nobody needs them"
        threads.set()
        assert await again.result() == 3
        assert (len(log.begun), log.most["thread_charge"]) == (5, 2)


async def test_it_holds_for_retries(impatient: None) -> None:
    log.go.set()
    async with environment() as env:
        handle = await env.start(charges, "a", 6, 2)
        assert (len(log.begun), log.now["charge"]) == (6, 0), "an attempt that failed gives its place to the next"
        assert await handle.result() == 6
        assert (len(log.begun), log.most["charge"]) == (18, 2)


async def test_retries_that_fall_due_wait_for_a_place(impatient: None) -> None:
    log.go.set()
    async with environment() as env:
        handle = await env.start(charges, "a", 6, 1)
        log.go.clear()
        await env.advance(10)
        assert log.begun[6:] == ["a0#2", "a1#2"]
        waits = (await env.app.get_instance(handle.instance_id)).waits
        log.go.set()
        assert await handle.result() == 6
    assert [wait.kind for wait in waits] == ["retry"] * 6
    assert [wait.slot is not None for wait in waits] == [False] * 2 + [True] * 4


async def test_one_that_is_cancelled_while_it_waits_never_runs(impatient: None) -> None:
    async with environment() as env:
        first, second = await env.start(charges, "a", 2), await env.start(charges, "b", 3)
        third = await env.start(charges, "c", 1)
        await env.cancel(second)
        with pytest.raises(WorkflowCancelled):
            await second.result()
        assert env.app._runtime.engine.activities.running == 3, "nothing of it is kept"
        log.go.set()
        assert (await first.result(), await third.result()) == (2, 1)
        assert log.begun == ["a0", "a1", "c0"]


async def test_one_that_is_cancelled_while_it_runs_makes_room(impatient: None) -> None:
    async with environment() as env:
        first, second = await env.start(charges, "a", 2), await env.start(charges, "b", 2)
        await env.cancel(first)
        assert log.begun == ["a0", "a1", "b0", "b1"]
        log.go.set()
        assert await second.result() == 2


async def test_one_that_is_given_up_while_it_waits_never_runs(impatient: None) -> None:
    """With an undo, its outcome is recorded even if the code does not wait for it any more."""
    undone: list[str] = []

    @activity(max_per_worker=1, retry=NO_RETRY)
    async def reserve(ctx: ActivityContext, what: str) -> None:
        log.begin("reserve", what)
        await log.go.wait()

    @reserve.compensate
    async def release(ctx: ActivityContext, what: str) -> None:
        undone.append(what)

    @workflow
    async def gives_up(ctx: WorkflowContext) -> None:
        tasks = [asyncio.create_task(reserve(ctx, what)) for what in "xyz"]
        await wait_event(ctx, "stop")
        for task in tasks[1:]:
            task.cancel()
        await tasks[0]

    async with environment() as env:
        handle = await env.start(gives_up)
        await env.send_event("stop", "test")
        log.go.set()
        await handle.result()
        assert (log.begun, undone) == (["x"], [])
        failed = [e for e in await env.app.get_history(handle.instance_id) if e.kind == "activity_failed"]
        assert len(failed) == 2
        assert all("given up before it began" in str(entry.error) for entry in failed)


async def test_undos_and_fakes_are_limited_too(impatient: None) -> None:
    @activity
    async def reserve(ctx: ActivityContext, what: str) -> None: ...

    @reserve.compensate
    @activity(max_per_worker=1)
    async def release(ctx: ActivityContext, what: str) -> None:
        log.begin("release", what)
        await log.go.wait()
        log.end("release")

    @workflow
    async def fails(ctx: WorkflowContext) -> None:
        await reserve(ctx, "x")
        raise ValueError("no luck")

    async def fake(what: str, failures: int = 0) -> str:
        log.begin("fake", what)
        await log.go.wait()
        log.end("fake")
        return what

    async with environment() as env:
        handles = [await env.start(fails) for _ in range(3)]
        assert log.now["release"] == 1
        env.replace(charge, fake)
        faked = await env.start(charges, "a", 5)
        assert log.now["fake"] == 2
        log.go.set()
        assert await faked.result() == 5
        await env.settle()
        assert {await handle.status() for handle in handles} == {"failed"}
        assert (log.most["release"], log.most["fake"]) == (1, 2)


async def test_the_timeout_of_an_attempt_counts_from_its_begin(impatient: None) -> None:
    @activity(max_per_worker=1, timeout=10, retry=NO_RETRY)
    async def quick(ctx: ActivityContext, what: str) -> str:
        log.begin("quick", what)
        await log.go.wait()
        return what

    @workflow
    async def two(ctx: WorkflowContext) -> list[str]:
        found = await asyncio.gather(*(quick(ctx, what) for what in "xy"), return_exceptions=True)
        return [type(one).__name__ for one in found]

    async with environment() as env:
        handle = await env.start(two)
        await env.advance(9)
        assert log.begun == ["x"]
        await env.advance(2)
        assert log.begun == ["x", "y"]
        log.go.set()
        assert await handle.result() == ["ActivityTimeout", "str"]


# --- the end of a worker ----------------------------------------------------------------------------------------------
async def test_a_stop_waits_for_those_that_run_and_starts_no_others(db: str) -> None:
    app = App(db, workflows=[charges], worker=WorkerOptions(grace=60))
    await app.start()
    await app.start_workflow(charges.options(instance_id="one"), "a", 5)
    await until(lambda: log.now["charge"] == 2)
    activities = app._runtime.engine.activities
    stopping = asyncio.ensure_future(app.stop())
    await until(lambda: activities._stopping)
    log.go.set()
    await stopping
    assert log.begun == ["a0", "a1"]
    async with App(db, workflows=[charges]) as next_one:
        assert await next_one.handle("one").result(timeout=10) == 5
        assert sorted(log.begun) == [f"a{i}" for i in range(5)], "each ran once"


async def test_those_that_wait_run_after_a_crash(impatient: None) -> None:
    async with environment() as env:
        first, second = await env.start(charges, "a", 2), await env.start(charges, "b", 4)
        await down_for(env, timedelta(seconds=1))
        log.go.set()
        log.now.clear()
        assert (await first.result(), await second.result()) == (2, 4)
        assert set(log.begun) == {"a0", "a1", "b0", "b1", "b2", "b3"}
        assert log.most["charge"] == 2


# --- what is said -----------------------------------------------------------------------------------------------------
async def test_an_instance_tells_that_it_waits_for_a_slot(impatient: None) -> None:
    async with environment(max_activities=3) as env:
        handle, other = await env.start(charges, "a", 3), await env.start(works, "b", 2)
        waits = (await env.app.get_instance(handle.instance_id)).waits
        assert [wait.slot for wait in waits] == [None, None, "waits for a free slot (2 of 2 of `charge` run here)"]
        waits = (await env.app.get_instance(other.instance_id)).waits
        assert [wait.slot for wait in waits] == [None, "waits for a free slot (3 of 3 activities run here)"]
        log.go.set()
        await handle.result()


async def test_a_bad_limit_is_refused() -> None:
    for bad in (0, -1, True, 1.5, "5"):
        with pytest.raises(ValueError, match=r"max_per_worker of activity 'job' must be a positive integer, not"):

            @activity(name="job", max_per_worker=bad)  # type: ignore[arg-type]
            async def job(ctx: ActivityContext) -> None: ...
