"""anyio inside workflows: task groups, scopes, durable timers, cancellation, and what it must not do there."""

import gc
import weakref
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_process
import anyio.to_thread
import pytest
from anyio._backends import _asyncio as backend

from romancy import ActivityContext, WorkflowContext, WorkflowFailed, activity, sleep, wait_event, workflow
from romancy.testing import Environment, replay

calls: list[str] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


@activity
async def note(ctx: ActivityContext, what: str) -> str:
    calls.append(what)
    return what


async def test_task_groups_and_sleeps_survive_a_restart(env: Environment) -> None:
    @workflow
    async def naps(ctx: WorkflowContext) -> list[str]:
        seen: list[str] = []

        async def nap(seconds: float) -> None:
            await anyio.sleep(seconds)
            seen.append(await note(ctx, f"after {seconds}"))

        async with anyio.create_task_group() as group:
            for seconds in (300.0, 100.0, 200.0):
                group.start_soon(nap, seconds)
        return seen

    handle = await env.start(naps)
    assert {wait.kind for wait in await env.waits(handle)} == {"timer"}
    await env.advance(150)
    await env.restart()
    await env.advance(150)
    assert await handle.result() == ["after 100.0", "after 200.0", "after 300.0"] == calls
    assert replay(naps, await env.app.get_history(handle.instance_id)) == "completed"


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_scope_that_runs_out_of_time_cancels_what_waits_in_it(env: Environment, restarts: bool) -> None:
    @workflow
    async def impatient(ctx: WorkflowContext) -> str:
        await anyio.sleep(0.1)  # 0.1 + 0.2 is a bit more than 0.3: the scope must not find that it rang too early
        with anyio.move_on_after(0.2) as outer:
            async with anyio.create_task_group() as group:
                group.start_soon(wait_event, ctx, "never")
                with anyio.move_on_after(1000):
                    await wait_event(ctx, "never")
        try:
            with anyio.fail_after(50):
                await wait_event(ctx, "never")
        except TimeoutError:
            return await note(ctx, f"late: {outer.cancelled_caught}")
        return "in time"

    handle = await env.start(impatient)
    await env.advance(1)
    assert [wait.kind for wait in await env.waits(handle)] == ["event", "timer"]
    if restarts:
        await env.restart()
    assert await handle.result() == "late: True"
    history = await env.app.get_history(handle.instance_id)
    assert [entry.kind for entry in history].count("timer_fired") == 3
    assert replay(impatient, history) == "completed"


async def test_cancellation_reaches_all_and_shielded_clean_up_is_done(env: Environment) -> None:
    @workflow
    async def guarded(ctx: WorkflowContext) -> None:
        async def child(n: int) -> None:
            try:
                await wait_event(ctx, "never")
            finally:
                with anyio.CancelScope(shield=True):
                    await note(ctx, f"clean up {n}")
                    await anyio.sleep(60)
                with anyio.move_on_after(10):
                    await note(ctx, "not shielded: cancelled again")

        async with anyio.create_task_group() as group:
            for n in range(9):
                group.start_soon(child, n)

    handle = await env.start(guarded)
    await env.cancel(handle)
    assert calls == [f"clean up {n}" for n in range(9)]
    await env.restart()
    await env.advance(60)
    assert await handle.status() == "cancelled"
    assert len(calls) == 9
    assert replay(guarded, await env.app.get_history(handle.instance_id)) == "cancelled"


async def test_events_locks_semaphores_and_streams(env: Environment) -> None:
    @workflow
    async def pipeline(ctx: WorkflowContext) -> list[str]:
        send, receive = anyio.create_memory_object_stream[str](1)
        lock, limit, ready, out = anyio.Lock(), anyio.Semaphore(2), anyio.Event(), list[str]()

        async def produce() -> None:
            await ready.wait()
            async with send:
                for n in range(4):
                    await send.send(await note(ctx, f"made {n}"))

        async def consume(name: str) -> None:
            async with receive.clone() as own:
                async for item in own:
                    async with limit, lock:
                        out.append(await note(ctx, f"{name} took {item}"))

        async with receive, anyio.create_task_group() as group:
            group.start_soon(produce)
            group.start_soon(consume, "a")
            group.start_soon(consume, "b")
            await sleep(ctx, 5)
            ready.set()
        return out

    handle = await env.start(pipeline)
    result = await handle.result()
    assert sorted(item[-1] for item in result) == ["0", "1", "2", "3"]
    assert replay(pipeline, await env.app.get_history(handle.instance_id)) == "completed"


async def test_start_waits_for_a_task_that_reports(env: Environment) -> None:
    @workflow
    async def served(ctx: WorkflowContext) -> str:
        async def server(*, task_status: Any) -> None:
            task_status.started(await note(ctx, "up"))
            await wait_event(ctx, "never")

        async with anyio.create_task_group() as group:
            found = await group.start(server)
            group.cancel_scope.cancel()
        return found

    handle = await env.start(served)
    assert await handle.result() == "up"


@pytest.mark.parametrize(
    "act",
    [
        lambda: anyio.to_thread.run_sync(print, "no"),
        lambda: anyio.Path("/").exists(),
        lambda: anyio.to_process.run_sync(print, "no"),
        lambda: anyio.run_process(["true"]),
        lambda: anyio.connect_tcp("localhost", 1),
    ],
)
async def test_what_acts_outside_is_refused(env: Environment, act: Any, capfd: pytest.CaptureFixture[str]) -> None:
    @workflow
    async def acting(ctx: WorkflowContext) -> None:
        await act()

    handle = await env.start(acting)
    with pytest.raises(WorkflowFailed, match=r"IOInWorkflow.*activity"):
        await handle.result()
    assert "no" not in capfd.readouterr().out
    assert await anyio.to_thread.run_sync(lambda: "outside it works") == "outside it works"


async def test_evicted_instances_leave_nothing_behind(env: Environment) -> None:
    """anyio keeps a state for each task, which refers to the task; and its scopes retry until a task has ended."""
    alive: list[weakref.ref[Any]] = []

    class Marker: ...

    @workflow
    async def resting(ctx: WorkflowContext) -> str:
        marker = Marker()
        alive.append(weakref.ref(marker))

        async def child() -> None:
            with anyio.CancelScope(), anyio.CancelScope():
                await wait_event(ctx, "never", subject=str(marker))

        with anyio.move_on_after(1000):
            async with anyio.create_task_group() as group:
                group.start_soon(child)
                group.start_soon(child)
                await sleep(ctx, 10_000)
        return "rested"

    gc.collect()
    before = len(backend._task_states)
    handle = await env.start(resting)
    assert len(backend._task_states) > before
    await env.restart()
    gc.collect()
    assert alive[0]() is None
    assert await handle.result() == "rested"
    await env.restart()
    gc.collect()
    assert [ref() for ref in alive] == [None] * len(alive)
    assert len(backend._task_states) <= before


async def test_an_exception_group_says_what_is_in_it(env: Environment, recwarn: pytest.WarningsRecorder) -> None:
    @workflow
    async def failing(ctx: WorkflowContext) -> None:
        async def child(error: Exception) -> None:
            raise error

        async with anyio.create_task_group() as group:
            group.start_soon(child, NotImplementedError())
            group.start_soon(child, ValueError("no such order"))

    handle = await env.start(failing)
    with pytest.raises(WorkflowFailed) as caught:
        await handle.result()
    assert "NotImplementedError" in str(caught.value)
    assert "ValueError: no such order" in str(caught.value)
    gc.collect()
    assert not [w for w in recwarn if "never awaited" in str(w.message)]


async def test_an_error_without_words_says_where_it_was_raised(env: Environment) -> None:
    @workflow
    async def unfinished(ctx: WorkflowContext) -> None:
        raise NotImplementedError

    with pytest.raises(WorkflowFailed, match=r"NotImplementedError.*raised in unfinished, test_anyio\.py line"):
        await (await env.start(unfinished)).result()
