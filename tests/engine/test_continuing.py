"""`continue_as_new`: a run ends, the instance goes on, and no event is lost or taken twice."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    App,
    HooksBase,
    WorkerOptions,
    WorkflowCancelled,
    WorkflowContext,
    WorkflowFailed,
    activity,
    send_event,
    sleep,
    wait_event,
    workflow,
)
from romancy.hooks import WorkflowContinuedInfo, WorkflowStartedInfo
from romancy.testing import Environment, dump, environment, replay
from tests.engine.helpers import down, kinds, until

KEYS: list[str] = []


@pytest.fixture(autouse=True)
def no_keys() -> None:
    KEYS.clear()


@activity
async def note(ctx: ActivityContext, value: Any) -> Any:
    KEYS.append(ctx.idempotency_key)
    return value


@workflow
async def counter(ctx: WorkflowContext, total: int = 0) -> int:
    """Adds up events, three a run, until one of them is 0."""
    for _ in range(3):
        hit = (await wait_event(ctx, "hit", model=int)).data
        if hit == 0:
            return total
        total += hit
    counter.continue_as_new(ctx, total)


async def test_a_run_follows_a_run_and_the_result_is_that_of_the_last(env: Environment) -> None:
    env.app.register(counter)
    handle = await env.app.start_workflow(counter, instance_id="c")
    for hit in range(1, 8):
        await env.send_event("hit", "test", hit)
    instance = await env.app.get_instance("c")
    assert (instance.status, instance.run_number, instance.input) == ("waiting_for_event", 3, {"total": 21})
    assert [entry.operation for entry in await env.app.get_history("c")] == ["counter", "hit:1@3"]
    await env.send_event("hit", "test", 0)
    assert await handle.result() == 28


async def test_events_that_are_there_already_are_taken_once_each_and_in_order(env: Environment) -> None:
    handle = await env.app.start_workflow("counter", instance_id="c")
    for hit in [*range(1, 100), 0]:
        await env.send_event("hit", "test", hit)
    env.app.register(counter)
    assert await handle.result() == sum(range(100))
    assert (await env.app.get_instance("c")).run_number == 34
    events = await env.app.list_events(instance_id="c", limit=200)
    assert len(events.items) == 100
    assert all(len(e.received_by) == 1 for e in events.items)


@workflow
async def once_a_run(ctx: WorkflowContext, runs: int) -> list[str]:
    key = await note(ctx, str(ctx.uuid4()))
    await send_event(ctx, "noted", "test", key)
    await send_event(ctx, "named", "test", key, id=f"name-{ctx.run_number}")
    await sleep(ctx, 10, timer_id="pause")
    if ctx.run_number < runs:
        once_a_run.continue_as_new(ctx, runs)
    return [str(ctx.run_number), key]


async def test_keys_ids_and_randomness_differ_in_every_run(env: Environment) -> None:
    env.app.register(once_a_run)
    handle = await env.app.start_workflow(once_a_run, 3, instance_id="o")
    started = (await env.app.get_instance("o")).started_at
    await env.advance(10)
    await env.advance(9)
    assert await handle.status() == "waiting_for_timer", "the sleep of a run begins with the run"
    await env.advance(1)
    await env.advance(10)
    number, last = await handle.result()
    assert number == "3"
    assert KEYS == ["o/note:1", "o/note:1@2", "o/note:1@3"]
    sent = [r.event for r in (await env.app.list_events(type="noted")).items]
    assert len({e.id for e in sent}) == len({e.data for e in sent}) == 3
    assert last.encode() in (sent[0].data or b"")
    instance = await env.app.get_instance("o")
    assert instance.started_at == started
    assert instance.run_started_at == started + timedelta(seconds=20)


@workflow
async def old_and_new(ctx: WorkflowContext) -> Any:
    if ctx.run_number == 1:
        await wait_event(ctx, "go")
        old_and_new.continue_as_new(ctx)
    return (await wait_event(ctx, "news", since="now")).data


async def test_a_wait_from_now_in_a_new_run_takes_no_older_event(env: Environment) -> None:
    env.app.register(old_and_new)
    handle = await env.app.start_workflow(old_and_new)
    await env.send_event("news", "test", "old")
    await env.send_event("go", "test")
    assert await handle.status() == "waiting_for_event"
    await env.send_event("news", "test", "new")
    assert await handle.result() == "new"


@workflow
async def first(ctx: WorkflowContext, name: str) -> str:
    await wait_event(ctx, "go")
    second.continue_as_new(ctx, name, times=2)


@workflow
async def second(ctx: WorkflowContext, name: str, times: int) -> str:
    return name * times


async def test_another_workflow_can_follow(env: Environment) -> None:
    env.app.register(first, second)
    handle = await env.app.start_workflow(first, "ab")
    await env.send_event("go", "test")
    assert await handle.result() == "abab"
    assert (await env.app.get_instance(handle.instance_id)).workflow == "second"


async def test_a_worker_without_the_next_workflow_leaves_it_to_others(db: str) -> None:
    async with App(db, workflows=[first]) as one:
        handle = await one.start_workflow(first, "ab", instance_id="x")
        await one.send_event("go", "test")
        while (await one.get_instance("x")).run_number == 1:  # noqa: ASYNC110 - another worker's commit
            await asyncio.sleep(0.01)
        assert (await one.get_instance("x")).status == "running"
        async with App(db, workflows=[second]) as two:
            assert await two.handle("x").result(timeout=30) == "abab"
        assert await handle.result(timeout=30) == "abab"


@pytest.mark.parametrize("wrong", [{"name": "x"}, {"name": object()}])
async def test_wrong_arguments_fail_where_they_are_given(env: Environment, wrong: dict[str, Any]) -> None:
    @workflow
    async def careless(ctx: WorkflowContext) -> str:
        second.continue_as_new(ctx, **wrong)  # type: ignore[call-arg]

    env.app.register(careless, second)
    handle = await env.app.start_workflow(careless)
    with pytest.raises(WorkflowFailed, match="second"):
        await handle.result()


@workflow
async def tidy(ctx: WorkflowContext, seen: list[str]) -> list[str]:
    if ctx.run_number > 1:
        return seen
    try:
        await wait_event(ctx, "go")
        tidy.continue_as_new(ctx, [*seen, "asked"])
    except Exception:
        seen.append("caught")
    finally:
        await note(ctx, "cleaned up")
    return seen


async def test_except_does_not_catch_it_and_finally_runs(env: Environment) -> None:
    env.app.register(tidy)
    handle = await env.app.start_workflow(tidy, [], instance_id="t")
    await env.send_event("go", "test")
    assert await handle.result() == ["asked"]
    assert KEYS == ["t/note:1"]


@workflow
async def in_a_group(ctx: WorkflowContext, n: int) -> int:
    if n == 0:
        return ctx.run_number

    async def branch() -> None:
        await wait_event(ctx, "go")
        in_a_group.continue_as_new(ctx, n - 1)

    async with asyncio.TaskGroup() as group:
        group.create_task(branch())
        group.create_task(sleep(ctx, 1000))
    return -1


async def test_it_leaves_a_task_group(env: Environment) -> None:
    env.app.register(in_a_group)
    handle = await env.app.start_workflow(in_a_group, 1)
    await env.send_event("go", "test")
    assert await handle.result() == 2
    assert (await env.app.list_waits()).items == []


# --- cancelling and time limits ---------------------------------------------------------------------------------------
@workflow
async def stubborn(ctx: WorkflowContext, n: int = 0) -> int:
    try:
        await wait_event(ctx, "go")
    except asyncio.CancelledError:
        stubborn.continue_as_new(ctx, n + 1)
    return n


async def test_a_cancelled_run_does_not_go_on(env: Environment) -> None:
    env.app.register(stubborn)
    handle = await env.app.start_workflow(stubborn)
    await handle.cancel("enough")
    with pytest.raises(WorkflowCancelled, match="enough"):
        await handle.result()


@workflow(timeout=100)
async def limited(ctx: WorkflowContext, n: int = 0) -> int:
    await sleep(ctx, 30)
    limited.continue_as_new(ctx, n + 1)


async def test_the_deadline_stands(env: Environment) -> None:
    env.app.register(limited)
    handle = await env.app.start_workflow(limited)
    for _ in range(3):
        await env.advance(30)
    assert (await env.app.get_instance(handle.instance_id)).run_number == 4
    await env.advance(9)
    assert await handle.status() == "waiting_for_timer"
    await env.advance(1)
    with pytest.raises(WorkflowFailed, match="ran out of time"):
        await handle.result()


@workflow(timeout=100)
async def extended(ctx: WorkflowContext, n: int = 0) -> int:
    await sleep(ctx, 60)
    if n == 2:
        return n
    extended.options(timeout=100).continue_as_new(ctx, n + 1)


async def test_a_new_deadline_can_be_set(env: Environment) -> None:
    env.app.register(extended)
    handle = await env.app.start_workflow(extended)
    for _ in range(3):
        await env.advance(60)
    assert await handle.result() == 2


async def test_a_cancel_that_comes_while_a_run_ends_reaches_the_next(env: Environment) -> None:
    env.app.register(old_and_new)
    handle = await env.app.start_workflow(old_and_new)
    engine: Any = env.app._runtime.engine
    storage, held = engine.storage, []
    commit = storage.commit
    storage.append = lambda *_: False
    storage.commit = lambda batch, *answered: held.append((batch, answered))
    sending = asyncio.create_task(env.app.send_event("go", "test"))
    await until(lambda: held)
    commit(held[0][0], *held.pop(0)[1])
    await until(lambda: any(c.continuation for b, _ in held for c in b.commits))
    cancelling = asyncio.create_task(handle.cancel())
    for _ in range(20):
        await asyncio.sleep(0)
    storage.commit = commit
    for batch, answered in held:
        commit(batch, *answered)
    await asyncio.gather(sending, cancelling)
    await env.settle()
    with pytest.raises(WorkflowCancelled):
        await handle.result()


# --- crashes and memory -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("before", [2, 3, 4])
async def test_a_crash_around_the_end_of_a_run(env: Environment, before: int) -> None:
    env.app.register(counter)
    handle = await env.app.start_workflow(counter, instance_id="c")
    for hit in range(1, 5):
        await env.send_event("hit", "test", hit)
        if hit == before:
            async with down(env):
                pass
    assert (await env.app.get_instance("c")).run_number == 2
    await env.send_event("hit", "test", 0)
    assert await handle.result() == 10


async def test_instances_that_are_not_in_memory_continue_too() -> None:
    async with environment(worker=WorkerOptions(max_resident=1)) as env:
        env.app.register(counter)
        handles = [await env.app.start_workflow(counter) for _ in range(5)]
        for hit in (1, 2, 3, 4, 0):
            await env.send_event("hit", "test", hit)
        assert [await h.result() for h in handles] == [10] * 5


@workflow
async def spinner(ctx: WorkflowContext, left: int) -> int:
    await note(ctx, left)
    if left == 0:
        return ctx.run_number
    spinner.continue_as_new(ctx, left - 1)


async def test_many_runs_leave_little_behind(env: Environment) -> None:
    env.app.register(spinner)
    handle = await env.app.start_workflow(spinner, 500, instance_id="s")
    assert await handle.result() == 501
    stored = await env.app._runtime.engine.storage.catalog.entries("s", 0, 100)
    assert len(stored) == 2, "only the last two runs are kept"
    assert await kinds(env, "s") == ["started", "activity_completed"]


@workflow
async def slow_start(ctx: WorkflowContext) -> str:
    if ctx.run_number == 1:
        hang = asyncio.create_task(forever(ctx))
        await wait_event(ctx, "go")
        del hang
        slow_start.continue_as_new(ctx)
    return await note(ctx, "second run")


@activity
async def forever(ctx: ActivityContext) -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        KEYS.append(f"stopped {ctx.activity_id}")
        raise
    return "too late"


async def test_an_activity_of_the_old_run_is_given_up(env: Environment, impatient: None) -> None:
    env.app.register(slow_start)
    handle = await env.app.start_workflow(slow_start, instance_id="s")
    await env.send_event("go", "test")
    assert await handle.result() == "second run"
    assert sorted(KEYS) == ["s/note:1@2", "stopped forever:1"]


# --- faces ------------------------------------------------------------------------------------------------------------
class Told(HooksBase):
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_workflow_started(self, info: WorkflowStartedInfo) -> None:
        self.heard.append("started")

    def on_workflow_continued(self, info: WorkflowContinuedInfo) -> None:
        self.heard.append(info.run_number)


async def test_hooks_hear_of_it(db: str) -> None:
    told = Told()
    async with App(db, workflows=[spinner], hooks=told) as app:
        await (await app.start_workflow(spinner, 2)).result()
    assert told.heard == ["started", 2, 3]


@workflow
async def measured(ctx: WorkflowContext) -> list[Any]:
    seen = [(ctx.history_length, ctx.is_history_long)]
    for _ in range(3):
        await note(ctx, "x")
        await send_event(ctx, "noted", "test")
        seen.append((ctx.history_length, ctx.is_history_long))
    await wait_event(ctx, "go")
    if ctx.run_number == 1:
        measured.continue_as_new(ctx)
    return seen


async def test_the_length_of_the_history_is_the_same_on_replay(env: Environment) -> None:
    env.app.register(measured)
    handle = await env.app.start_workflow(measured, instance_id="m")
    await env.send_event("go", "test")
    async with down(env):
        pass
    history = dump(await env.app.get_history("m"))
    assert replay(measured, history) == "waiting_for_event"
    await env.send_event("go", "test")
    assert await handle.result() == [[0, False], [1, False], [3, False], [5, False]]


async def test_a_history_with_large_results_is_long(env: Environment) -> None:
    @workflow
    async def heavy(ctx: WorkflowContext) -> list[int]:
        lengths: list[int] = []
        while not ctx.is_history_long:
            await note(ctx, "x" * 1_000_000)
            lengths.append(ctx.history_length)
        return lengths

    env.app.register(heavy)
    assert await (await env.app.start_workflow(heavy)).result() == [1, 2, 3, 4, 5]


def test_a_given_id_must_not_look_like_one_of_another_run() -> None:
    from romancy.core.run import Run

    run = Run(2, 10, 0)
    assert [run.next_id("a", None), run.next_id("a", "x"), run.next_id("a", "x")] == ["a:1@2", "x@2", "x:2@2"]
    for given in ("x@2", "x:1", "x:1@2", ""):
        with pytest.raises(ValueError, match="must not be empty or end in"):
            run.next_id("a", given)
