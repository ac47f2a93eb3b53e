"""asyncio inside workflows: everything composes, is durable, and a crash at any point changes nothing.

Each workflow runs once without and once with a crash after every single thing that happens to it; both must agree.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from romancy import (
    NO_RETRY,
    ActivityContext,
    ActivityError,
    IOInWorkflow,
    WaitTimeout,
    Workflow,
    WorkflowContext,
    WorkflowFailed,
    activity,
    sleep,
    wait_event,
    workflow,
)
from romancy.testing import Environment, environment
from tests.engine.helpers import kinds


@activity
async def echo(ctx: ActivityContext, value: Any) -> Any:
    return value


@activity(retry=NO_RETRY)
async def fail(ctx: ActivityContext, text: str) -> None:
    raise ValueError(text)


@activity
async def undo(ctx: ActivityContext, what: str) -> str:
    return f"undid {what}"


@workflow
async def gathers(ctx: WorkflowContext) -> list[Any]:
    async def branch(n: int) -> Any:
        first = await echo(ctx, n)
        await sleep(ctx, 10 - n)
        return [first, (await wait_event(ctx, "go", where={"n": n})).data["x"]]

    return await asyncio.gather(*(branch(n) for n in range(3)), asyncio.sleep(5, "slept"))


@workflow
async def gathers_errors(ctx: WorkflowContext) -> list[str]:
    results = await asyncio.gather(fail(ctx, "a"), echo(ctx, "b"), wait_event(ctx, "go"), return_exceptions=True)
    return [type(r).__name__ for r in results]


@workflow
async def task_group(ctx: WorkflowContext) -> list[Any]:
    """One child fails; the others are cancelled and each cleans up with an activity of its own."""
    undone: list[Any] = []

    async def child(name: str) -> None:
        try:
            await wait_event(ctx, f"never.{name}")
        except asyncio.CancelledError:
            undone.append(await undo(ctx, name))
            raise

    async def breaker() -> None:
        await wait_event(ctx, "go")
        await fail(ctx, "boom")

    try:
        async with asyncio.TaskGroup() as group:
            for name in "abcdef":
                group.create_task(child(name))
            group.create_task(breaker())
    except* ActivityError as errors:
        undone.append([e.message for e in errors.exceptions if isinstance(e, ActivityError)])
    return undone


@workflow
async def nested_timeouts(ctx: WorkflowContext) -> list[str]:
    said: list[str] = []
    try:
        async with asyncio.timeout(60):
            try:
                async with asyncio.timeout(10):
                    await wait_event(ctx, "never")
            except TimeoutError:
                said.append("inner")
            await wait_event(ctx, "go")
            said.append("event")
            await sleep(ctx, 1000)
    except TimeoutError:
        said.append("outer")
    try:
        await asyncio.wait_for(wait_event(ctx, "never"), 5)
    except TimeoutError:
        said.append("wait_for")
    return said


@workflow
async def first_wins(ctx: WorkflowContext) -> list[Any]:
    names = {asyncio.create_task(wait_event(ctx, kind)): kind for kind in ("never", "go", "later")}
    names[asyncio.create_task(sleep(ctx, 1000))] = "sleep"
    done, pending = await asyncio.wait(names, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    lost = await asyncio.gather(*pending, return_exceptions=True)
    later = await wait_event(ctx, "later")
    return [[names[t] for t in done], [type(e).__name__ for e in lost], later.data]


@workflow
async def queue_and_lock(ctx: WorkflowContext) -> list[Any]:
    queue: asyncio.Queue[Any] = asyncio.Queue(maxsize=1)
    lock, order = asyncio.Lock(), list[Any]()

    async def produce() -> None:
        for n in range(3):
            await queue.put(await echo(ctx, n))
        await queue.put((await wait_event(ctx, "go")).data["x"])
        await queue.put(None)

    async def consume(name: str) -> None:
        while (item := await queue.get()) is not None:
            async with lock:
                order.append([name, await echo(ctx, item)])
        await queue.put(None)

    async with asyncio.TaskGroup() as group:
        group.create_task(produce())
        for name in ("one", "two"):
            group.create_task(consume(name))
    return order


@workflow
async def event_and_condition(ctx: WorkflowContext) -> str:
    ready, gate = asyncio.Event(), asyncio.Semaphore(1)

    async def setter() -> None:
        async with gate:
            await asyncio.sleep(3)
            await wait_event(ctx, "go")
        ready.set()

    task = asyncio.create_task(setter())
    await ready.wait()
    await task
    return "ready"


@workflow
async def shields(ctx: WorkflowContext) -> Any:
    inner = asyncio.create_task(wait_event(ctx, "go"))
    try:
        async with asyncio.timeout(10):
            await asyncio.shield(inner)
    except TimeoutError:
        return ["timed out", (await inner).data["x"]]


@workflow
async def as_completed_of_tasks(ctx: WorkflowContext) -> list[Any]:
    async def after(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return await echo(ctx, seconds)

    tasks = [asyncio.create_task(after(s)) for s in (30, 10, 20)]
    found = [await next_one for next_one in asyncio.as_completed(tasks)]
    return [*found, (await wait_event(ctx, "go")).data["x"]]


@workflow
async def generators(ctx: WorkflowContext) -> list[Any]:
    async def numbers() -> Any:
        for n in range(10):
            try:
                yield await echo(ctx, n)
            finally:
                closed.append(n)

    closed: list[int] = []
    async for n in numbers():
        if n == 2:
            break
    await wait_event(ctx, "go")
    return [n, len(closed) >= 2]


Act = Callable[[Environment], Awaitable[Any]]


def event(kind: str, **data: Any) -> Act:
    return lambda env: env.send_event(kind, "test", data)


def wait(seconds: float) -> Act:
    return lambda env: env.advance(seconds)


CASES: list[tuple[Workflow[..., Any], list[Act], Any]] = [
    (
        gathers,
        [event("go", n=1, x="y"), wait(4), wait(5), event("go", n=2, x="z"), wait(9), event("go", n=0, x="x")],
        [[0, "x"], [1, "y"], [2, "z"], "slept"],
    ),
    (gathers_errors, [event("go")], ["ActivityError", "str", "ReceivedEvent"]),
    (task_group, [wait(1), event("go")], [*(f"undid {name}" for name in "abcdef"), ["boom"]]),
    (nested_timeouts, [wait(9), wait(2), event("go"), wait(60), wait(60)], ["inner", "event", "outer", "wait_for"]),
    (first_wins, [wait(1), event("go"), wait(5), event("later", x=1)], [["go"], ["CancelledError"] * 3, {"x": 1}]),
    (
        queue_and_lock,
        [wait(1), event("go", x=3)],
        [["one", 0], ["two", 1], ["one", 2], ["two", 3]],
    ),
    (event_and_condition, [wait(1), wait(5), event("go")], "ready"),
    (shields, [wait(9), wait(2), event("go", x=1)], ["timed out", 1]),
    (as_completed_of_tasks, [wait(5), wait(10), wait(10), wait(10), event("go", x=1)], [10, 20, 30, 1]),
    (generators, [event("go")], [2, True]),
]


@pytest.mark.parametrize(("wf", "script", "expected"), CASES, ids=[wf.name for wf, _, _ in CASES])
async def test_it_ends_the_same_with_a_crash_at_every_point(
    wf: Workflow[..., Any], script: list[Act], expected: Any
) -> None:
    crash_points: list[int | None] = [None, *range(len(script) + 1)]
    for crash_at in crash_points:
        async with environment(workflows=[wf]) as env:
            handle = await env.start(wf)
            for n, act in enumerate(script):
                if crash_at == n:
                    await env.restart()
                await act(env)
            if crash_at == len(script):
                await env.restart()
            assert await handle.result() == expected, f"crash before step {crash_at}"


@pytest.mark.parametrize(("wf", "script", "expected"), CASES, ids=[wf.name for wf, _, _ in CASES])
async def test_it_ends_the_same_when_it_is_never_kept_in_memory(
    wf: Workflow[..., Any], script: list[Act], expected: Any
) -> None:
    async with environment(workflows=[wf]) as env:
        handle = await env.start(wf)
        for act in script:
            engine = env.app._runtime.engine
            for resident in list(engine.residents.values()):
                if resident.is_evictable:
                    engine.exits.drop(resident)
            await act(env)
        assert await handle.result() == expected


# --- durable time -----------------------------------------------------------------------------------------------------
async def test_asyncio_sleep_is_a_durable_timer(env: Environment) -> None:
    @workflow
    async def sleeper(ctx: WorkflowContext) -> timedelta:
        await asyncio.sleep(86400 * 30)
        return ctx.now() - ctx.started_at

    handle = await env.start(sleeper)
    assert await handle.status() == "waiting_for_timer"
    (wait,) = await env.waits(handle)
    assert (wait.kind, wait.due_at) == ("timer", env.now + timedelta(days=30))
    await env.restart()
    assert await handle.result() == timedelta(days=30)


async def test_a_timeout_that_is_not_needed_leaves_no_rows(env: Environment) -> None:
    @workflow
    async def quick(ctx: WorkflowContext) -> None:
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        await wait_event(ctx, "go")

    handle = await env.start(quick)
    assert [w.kind for w in await env.waits(handle)] == ["event"]
    await env.send_event("go", "test")
    assert await kinds(env, handle.instance_id) == ["started", "event_received"]


async def test_loop_time_is_the_recorded_one(env: Environment) -> None:
    times: list[list[float]] = []

    @workflow
    async def timed(ctx: WorkflowContext) -> None:
        mine: list[float] = []
        times.append(mine)
        for _ in range(3):
            mine.append(asyncio.get_running_loop().time())
            await wait_event(ctx, "go")

    await env.start(timed)
    await env.advance(10)
    await env.send_event("go", "test")
    await env.advance(10)
    await env.restart()
    await env.advance(10)
    await env.send_event("go", "test")
    assert times == [[0.0, 10.0], [0.0, 10.0, 30.0]]


# --- losers -----------------------------------------------------------------------------------------------------------
async def test_a_loser_never_consumes_an_event(env: Environment) -> None:
    @workflow
    async def race(ctx: WorkflowContext) -> Any:
        try:
            async with asyncio.timeout(60):
                await wait_event(ctx, "news")
        except TimeoutError:
            await sleep(ctx, 60)
        return (await wait_event(ctx, "news")).data

    handle = await env.start(race)
    await env.advance(61)
    await env.send_event("news", "test", "for the second")
    await env.restart()
    assert await handle.result() == "for the second"
    assert len((await env.app.list_events(instance_id=handle.instance_id)).items) == 1


@pytest.mark.usefixtures("impatient")
async def test_a_withdrawn_activity_is_cancelled_and_its_result_dropped(env: Environment) -> None:
    heard: list[str] = []

    @activity
    async def slow(ctx: ActivityContext) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            heard.append("cancelled")
        return "never"

    @workflow
    async def impatient(ctx: WorkflowContext) -> str:
        try:
            async with asyncio.timeout(10):
                return await slow(ctx)
        except TimeoutError:
            await wait_event(ctx, "go")
            return "gave up"

    handle = await env.start(impatient)
    await env.advance(10)
    assert heard == ["cancelled"]
    await env.restart()
    await env.send_event("go", "test")
    assert await handle.result() == "gave up"
    assert await kinds(env, handle.instance_id) == ["started", "timer_fired", "event_received"]


# --- what is refused --------------------------------------------------------------------------------------------------
async def test_as_completed_of_bare_coroutines_is_refused(env: Environment) -> None:
    @workflow
    async def bare(ctx: WorkflowContext) -> None:
        coroutines = [echo(ctx, 1), echo(ctx, 2)]
        try:
            for done in asyncio.as_completed(coroutines):
                await done
        finally:
            for coroutine in coroutines:
                coroutine.close()  # Python warns of coroutines nobody awaited

    handle = await env.start(bare)
    with pytest.raises(WorkflowFailed, match="create tasks first") as failed:
        await handle.result()
    assert failed.value.error_type == IOInWorkflow.__name__


async def test_waiting_for_what_nobody_can_bring_fails_and_says_so(env: Environment) -> None:
    @workflow
    async def stuck(ctx: WorkflowContext) -> None:
        await asyncio.Event().wait()

    with pytest.raises(WorkflowFailed, match="can never happen") as failed:
        await (await env.start(stuck)).result()
    assert failed.value.error_type == "WorkflowStuck"


async def test_the_users_except_exception_never_swallows_a_wait(env: Environment) -> None:
    @workflow
    async def greedy(ctx: WorkflowContext) -> str:
        try:
            await wait_event(ctx, "news", timeout=60)
        except WaitTimeout:
            return "timeout"
        except Exception as error:
            return f"swallowed {error!r}"
        return "event"

    handle = await env.start(greedy)
    await env.restart()
    await env.send_event("news", "test")
    assert await handle.result() == "event"
