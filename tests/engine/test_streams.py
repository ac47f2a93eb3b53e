"""Streams: each event once, in the order of arrival; how they end; what is open when nobody waits."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    EventStream,
    WaitTimeout,
    WorkerOptions,
    WorkflowContext,
    WorkflowFailed,
    activity,
    events,
    sleep,
    wait_event,
    workflow,
)
from romancy.storage.batch import Batch
from romancy.testing import Environment, environment
from tests.engine.helpers import down, down_for, intercept, kinds


@dataclass
class Hit:
    n: int


@activity
async def work(ctx: ActivityContext, n: int) -> int:
    return n


async def send(env: Environment, *numbers: int, type: str = "hit") -> None:
    for n in numbers:
        await env.send_event(type, "test", {"n": n})


# --- the loop ---------------------------------------------------------------------------------------------------------
async def test_each_event_once_in_order_over_crashes(env: Environment) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> list[int]:
        return [await work(ctx, hit.data.n) async for hit in events(ctx, "hit", model=Hit, limit=6)]

    handle = await env.start(wf)
    await send(env, 1, 2)
    await env.restart()
    await send(env, 3)
    async with down(env):
        pass
    await send(env, 4, 5, 6)
    assert await handle.result() == [1, 2, 3, 4, 5, 6]
    assert [e.operation for e in await env.app.get_history(handle.instance_id) if e.event] == [
        f"hit:{n}" for n in range(1, 7)
    ]


async def test_types_models_filters_and_ids(env: Environment) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> list[str]:
        stream = events(ctx, "hit", "miss", model=(Hit, dict), where={"n": 7}, source="test", wait_id="shots", limit=3)
        return [f"{event.type} {event.data}" async for event in stream]

    handle = await env.start(wf)
    [wait] = await env.waits(handle)
    assert (wait.wait_id, wait.types) == ("shots", ("hit", "miss"))
    await send(env, 6, 7)
    await env.send_event("miss", "elsewhere", {"n": 7})
    [wait] = await env.waits(handle)
    assert wait.wait_id == "shots:2"
    await send(env, 7, type="miss")
    await send(env, 7)
    assert await handle.result() == ["hit Hit(n=7)", "miss {'n': 7}", "hit Hit(n=7)"]


async def test_an_event_that_does_not_fit_is_left_out(env: Environment) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> list[int]:
        return [hit.data.n async for hit in events(ctx, "hit", model=Hit, limit=2, since="now")]

    handle = await env.start(wf)
    await send(env, 1)
    await env.send_event("hit", "test", {"n": "many"})
    await send(env, 2)
    assert await handle.result() == [1, 2]


async def test_nothing_is_open_after_break_nor_after_a_cancelled_scope(env: Environment) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> list[int]:
        seen: list[int] = []
        stream = events(ctx, "hit", model=Hit)
        async for hit in stream:
            seen.append(hit.data.n)
            break
        await wait_event(ctx, "go")
        try:
            async with asyncio.timeout(10):
                async for hit in stream:
                    seen.append(hit.data.n)  # noqa: PERF401 - it is interrupted
        except TimeoutError:
            await wait_event(ctx, "go")
        seen.append((await anext(stream)).data.n)
        return seen

    handle = await env.start(wf)
    await send(env, 1, 2)  # 2 arrives after the break
    assert [wait.wait_id for wait in await env.waits(handle)] == ["go:1"]
    await env.send_event("go", "test")
    await send(env, 3)
    await env.advance(10)
    assert [wait.wait_id for wait in await env.waits(handle)] == ["go:2"]
    await send(env, 4)
    await env.restart()
    await env.send_event("go", "test")
    assert await handle.result() == [1, 2, 3, 4]


async def test_cancelling_the_workflow_leaves_nothing(env: Environment) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> None:
        async for _ in events(ctx, "hit"):
            pass

    handle = await env.start(wf)
    await send(env, 1)
    await env.cancel(handle)
    assert await handle.status() == "cancelled"
    assert await env.waits() == []


async def test_two_streams_in_gather_share_the_events(env: Environment) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> list[list[int]]:
        async def listen(type: str, count: int) -> list[int]:
            return [hit.data.n async for hit in events(ctx, type, model=Hit, limit=count)]

        return await asyncio.gather(listen("hit", 2), listen("hit", 2), listen("miss", 1))

    handle = await env.start(wf)
    await send(env, 1, 2, 3)
    await send(env, 9, type="miss")
    await env.restart()
    await send(env, 4)
    one, two, three = await handle.result()
    assert sorted(one + two) == [1, 2, 3, 4]
    assert (one, two, three) == (sorted(one), sorted(two), [9])


async def test_a_stream_belongs_to_one_task(env: Environment) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> None:
        stream = events(ctx, "hit")
        await asyncio.gather(anext(stream), anext(stream))

    with pytest.raises(WorkflowFailed, match="<EventStream hit received=0> is already awaited"):
        await (await env.start(wf)).result()


async def test_an_event_that_arrives_as_its_task_is_cancelled_is_kept(env: Environment) -> None:
    """The event has settled the wait, but before its task runs again, another one cancels that."""

    class Meddler:
        def __init__(self, instance: Any) -> None:
            self._instance, self.task = instance, asyncio.current_task()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._instance, name)

        def perform(self, wait: Any) -> Any:
            future = self._instance.perform(wait)
            if wait.id == "hit:1":
                future.add_done_callback(lambda _: self.task and self.task.cancel())
            return future

    @workflow
    async def wf(ctx: WorkflowContext) -> list[int]:
        stream = events(ctx, "hit", model=Hit, since="now")

        async def interrupted() -> None:
            stream._instance = Meddler(stream._instance)  # type: ignore[assignment]
            await anext(stream)

        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(interrupted())
        return [(await anext(stream)).data.n, (await anext(stream)).data.n]

    handle = await env.start(wf)
    await send(env, 1)
    await env.restart()
    await send(env, 2)
    assert await handle.result() == [1, 2]


# --- how it ends ------------------------------------------------------------------------------------------------------
async def test_a_timeout_is_per_event_and_leaves_the_stream_usable(env: Environment) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> list[Any]:
        seen: list[Any] = []
        stream = events(ctx, "hit", model=Hit, timeout=10, limit=3)
        while len(seen) < 4:
            try:
                async for hit in stream:
                    seen.append(hit.data.n)  # noqa: PERF401 - it is interrupted
            except WaitTimeout as late:
                seen.append(late.wait_id)
        return seen

    handle = await env.start(wf)
    for n in (1, 2):
        await env.advance(9)
        await send(env, n)
    await env.advance(10)
    await send(env, 3)
    assert await handle.result() == [1, 2, "hit:3", 3]


async def test_limit_zero_waits_for_nothing(env: Environment) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> list[Any]:
        return [event async for event in events(ctx, "hit", limit=0)]

    handle = await env.start(wf)
    assert await handle.result() == []
    assert await kinds(env, handle.instance_id) == ["started"]


async def test_until_ends_it_quietly_and_for_good(env: Environment) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> list[int]:
        stream = events(ctx, "hit", model=Hit, until=ctx.now() + timedelta(seconds=60), timeout=60)
        seen = [hit.data.n async for hit in stream]
        seen += [hit.data.n async for hit in stream]
        return [*seen, len(await stream.take(5))]

    handle = await env.start(wf)
    await send(env, 1)
    await env.advance(30)
    await send(env, 2)
    await env.advance(30)
    await send(env, 3)
    assert await handle.result() == [1, 2, 0]
    assert (await kinds(env, handle.instance_id)).count("wait_timed_out") == 1


async def test_until_counts_for_when_events_were_accepted(env: Environment) -> None:
    """However late the code gets to it: events from before that time come, later ones do not."""

    @workflow
    async def wf(ctx: WorkflowContext) -> list[int]:
        midnight = ctx.now() + timedelta(seconds=60)
        await sleep(ctx, 100)
        return [hit.data.n async for hit in events(ctx, "hit", model=Hit, until=midnight)]

    handle = await env.start(wf)
    await send(env, 1)
    await env.advance(60)
    await send(env, 2)
    await env.advance(1)
    await send(env, 3)
    await down_for(env, timedelta(seconds=100))
    assert await handle.result() == [1, 2]


async def test_until_in_the_past_ends_at_once(env: Environment) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> int:
        return len([event async for event in events(ctx, "hit", until=ctx.now() - timedelta(days=1))])

    handle = await env.start(wf)
    assert await handle.status() == "completed"
    assert await handle.result() == 0


# --- since ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("since", ["now", "past", None])
async def test_where_it_begins(env: Environment, since: str | None) -> None:
    """The clock stands still: all these events are accepted in the same microsecond."""

    @workflow
    async def wf(ctx: WorkflowContext, limit: int) -> list[int]:
        await wait_event(ctx, "go")
        begins: Any = ctx.now() - timedelta(days=1) if since == "past" else since
        seen: list[int] = []
        async for hit in events(ctx, "hit", model=Hit, limit=limit, since=begins):
            seen.append(hit.data.n)
            await wait_event(ctx, "next")
        return seen

    await send(env, 1, 2)
    limit = {"now": 4, "past": 8, None: 6}[since]
    handle = await env.start(wf, limit)
    await send(env, 3, 4)
    await env.send_event("go", "test")
    await send(env, 5, 6)  # 6 arrives while the code works on 5, or on an earlier one
    await env.restart()
    for _ in range(limit - 2):
        await env.send_event("next", "test")
    await send(env, 7)
    await env.restart()
    await send(env, 8)
    for _ in range(2):
        await env.send_event("next", "test")
    assert await handle.result() == list(range(9 - limit, 9))


async def test_since_now_goes_on_after_a_timeout(env: Environment) -> None:
    """The first wait took nothing; what arrives before the second must not be lost, and no old event may appear."""

    @workflow
    async def wf(ctx: WorkflowContext) -> list[Any]:
        seen: list[Any] = []
        stream = events(ctx, "hit", model=Hit, since="now", timeout=10, limit=3)
        for _ in range(2):
            try:
                await anext(stream)
            except WaitTimeout:
                await wait_event(ctx, "go")
        async with asyncio.timeout(3600):
            return [hit.data.n async for hit in stream] + seen

    await send(env, 1)
    handle = await env.start(wf)
    await env.advance(10)
    await env.send_event("go", "test")  # the second wait
    await env.advance(10)
    await env.restart()
    await send(env, 2)
    await env.send_event("go", "test")
    await send(env, 3)
    await env.restart()
    await send(env, 4)
    assert await handle.result() == [2, 3, 4]


async def test_two_streams_from_now_each_see_their_own_beginning(env: Environment) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> list[list[int]]:
        async def listen(type: str) -> list[int]:
            return [hit.data.n async for hit in events(ctx, type, model=Hit, since="now", limit=2)]

        first = asyncio.create_task(listen("hit"))
        await wait_event(ctx, "go")
        second = asyncio.create_task(listen("miss"))
        return [await first, await second]

    await send(env, 1, 1, type="miss")
    handle = await env.start(wf)
    await send(env, 2)
    await send(env, 2, type="miss")
    await env.send_event("go", "test")
    await send(env, 3, 4, type="miss")
    await send(env, 3)
    assert await handle.result() == [[2, 3], [3, 4]]


# --- batches ----------------------------------------------------------------------------------------------------------
async def test_take_collects_from_the_first_event_on(env: Environment) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> list[list[int]]:
        stream = events(ctx, "hit", model=Hit, limit=6)
        batches: list[list[int]] = []
        while batch := await stream.take(3, window=timedelta(seconds=30)):
            batches.append([hit.data.n for hit in batch])
        return batches

    handle = await env.start(wf)
    await env.advance(1000)  # the window has not begun
    await send(env, 1)
    await env.advance(29)
    await send(env, 2)
    await env.restart()
    await env.advance(1)  # the window ends: [1, 2]
    await send(env, 3, 4, 5)  # full: [3, 4, 5]
    await send(env, 6)  # the limit
    assert await handle.result() == [[1, 2], [3, 4, 5], [6]]
    assert await env.waits() == []


async def test_take_without_a_window_waits_for_all(env: Environment) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> list[int]:
        return [hit.data.n for hit in await events(ctx, "hit", model=Hit).take(2)]

    handle = await env.start(wf)
    await send(env, 1)
    await env.advance(10**6)
    await send(env, 2)
    assert await handle.result() == [1, 2]


async def test_an_interrupted_batch_is_kept_for_the_next(env: Environment) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> list[Any]:
        stream = events(ctx, "hit", model=Hit, timeout=10)
        seen: list[Any] = []
        try:
            await stream.take(3)
        except WaitTimeout:
            seen.append("late")
        try:
            async with asyncio.timeout(5):
                await stream.take(4)
        except TimeoutError:
            seen.append("cancelled")
        seen.append((await anext(stream)).data.n)
        return seen + [hit.data.n for hit in await stream.take(3, window=0)]

    handle = await env.start(wf)
    await send(env, 1, 2)
    await env.advance(10)
    await send(env, 3)
    await env.restart()
    assert await handle.result() == ["late", "cancelled", 1, 2, 3]


async def test_a_window_ends_by_when_events_were_accepted(env: Environment) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> list[list[int]]:
        stream = events(ctx, "hit", model=Hit)
        return [[hit.data.n for hit in await stream.take(9, window=10)] for _ in range(2)]

    handle = await env.start(wf)
    await send(env, 1)
    await env.advance(10)
    await send(env, 2)
    assert await handle.result() == [[1], [2]]


# --- at length --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("since", ["now", "past"])
async def test_a_long_stream_does_not_search_from_its_beginning_again(env: Environment, since: str) -> None:
    """Each wait begins where the one before it took its event. Without since=, marks in the database do the same."""

    @workflow
    async def wf(ctx: WorkflowContext, n: int) -> int:
        begins: Any = ctx.now() - timedelta(days=1) if since == "past" else since
        return sum([hit.data.n async for hit in events(ctx, "hit", model=Hit, limit=n, since=begins)])

    places: list[Any] = []

    def watch(batch: Batch, submit: Callable[[], None]) -> None:
        places.extend(wait.since for commit in batch.commits for wait in commit.opened)
        submit()

    intercept(env, watch)
    handle = await env.start(wf, 100)
    for _ in range(100):
        await send(env, 1)
    assert await handle.result() == 100
    assert len(places) == 100
    assert len(set(places)) > 90  # an event with an older, open transaction beside it keeps its wait where it is


async def test_it_can_be_evicted_between_two_events() -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> list[int]:
        return [hit.data.n async for hit in events(ctx, "hit", model=Hit, limit=3, since="now")]

    async with environment(worker=WorkerOptions(max_resident=1, grace=0.1)) as env:
        handles = [await env.start(wf) for _ in range(3)]
        await send(env, 1, 2, 3)
        assert [await handle.result() for handle in handles] == [[1, 2, 3]] * 3


# --- mistakes ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"limit": -1}, "limit must be a number of events, or None for no limit, got -1"),
        ({"limit": True}, "limit must be a number of events"),
        ({"until": 60}, "until must be an aware datetime, got 60; for a time per event, use timeout="),
        ({"timeout": -1}, "timeout must not be negative"),
        ({"since": "then"}, "since must be"),
        ({"subject": ""}, "subject must not be empty"),
        ({"model": (Hit, Hit, Hit)}, "give one model for all types or one per type"),
        ({"model": (Hit,)}, "one per type: 1 models, 2 types"),
        ({"model": [Hit, Hit]}, "a tuple with one for each"),
    ],
)
async def test_mistakes_are_explained_at_once(env: Environment, given: Any, message: str) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> None:
        events(ctx, "hit", "miss", **given)

    with pytest.raises(WorkflowFailed, match=message):
        await (await env.start(wf)).result()


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
async def test_take_needs_a_number(env: Environment, count: Any) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> None:
        stream: EventStream[Any] = events(ctx, "hit")
        await stream.take(count)

    with pytest.raises(WorkflowFailed, match="take needs the number of events, at least 1"):
        await (await env.start(wf)).result()


def test_only_with_the_context_of_a_workflow() -> None:
    with pytest.raises(TypeError, match="events needs the workflow's ctx as its first argument"):
        events(None, "hit")  # type: ignore[call-overload]
