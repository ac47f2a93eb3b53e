"""Being told: hooks after the commit and never for replayed steps, and a logger that knows its instance."""

import asyncio
import logging
from typing import Any

import pytest

import romancy
from romancy import (
    NO_RETRY,
    ActivityContext,
    ActivityError,
    EventReceivedInfo,
    HooksBase,
    RetryPolicy,
    WaitTimeout,
    WorkflowContext,
    activity,
    send_event,
    sleep,
    wait_event,
    workflow,
)
from romancy.testing import environment
from tests.engine.helpers import intercept

NAMES = (
    "on_workflow_started on_workflow_completed on_workflow_failed on_workflow_cancelled on_workflow_blocked "
    "on_activity_started on_activity_completed on_activity_failed on_activity_retrying on_event_received on_event_sent "
    "on_wait_started on_wait_completed on_wait_timed_out on_timer_started on_timer_fired on_replay_started "
    "on_replay_completed"
).split()


class Recorder(HooksBase):
    """Keeps everything it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.told]

    def of(self, name: str) -> list[Any]:
        return [info for told, info in self.told if told == name]


def _keep(name: str) -> Any:
    return lambda self, info: self.told.append((name, info))


for _name in NAMES:
    setattr(Recorder, _name, _keep(_name))


@activity(retry=RetryPolicy(max_attempts=2, initial=1, jitter=0))
async def flaky(ctx: ActivityContext) -> str:
    if ctx.attempt == 1:
        raise ValueError("once")
    await send_event(ctx, "told", "flaky")
    return "ok"


@activity(retry=NO_RETRY)
async def hopeless(ctx: ActivityContext) -> None:
    raise KeyError("never")


@workflow
async def everything(ctx: WorkflowContext) -> Any:
    await flaky(ctx)
    with pytest.raises(ActivityError):
        await hopeless(ctx)
    await send_event(ctx, "sent", "everything")
    await sleep(ctx, 60)
    with pytest.raises(WaitTimeout):
        await wait_event(ctx, "never", timeout=60)
    return (await wait_event(ctx, "news", "other")).data


ORDER = [
    "on_workflow_started",
    "on_activity_started",
    "on_activity_retrying",
    "on_activity_started",
    "on_activity_completed",
    "on_event_sent",
    "on_activity_started",
    "on_activity_failed",
    "on_timer_started",
    "on_event_sent",
    "on_timer_fired",
    "on_wait_started",
    "on_wait_timed_out",
    "on_wait_started",
    "on_event_received",
    "on_wait_completed",
    "on_workflow_completed",
]


async def run_everything(hooks: Any, *, restarts: bool = False) -> str:
    async with environment(workflows=[everything], hooks=hooks) as env:
        handle = await env.start(everything.options(instance_id="one"))
        for seconds in (0.5, 0.5, 30, 30, 30, 30):
            await env.advance(seconds)
            if restarts:
                await env.restart()
        await env.send_event("news", "test", {"x": 1}, id="e1")
        assert await handle.result() == {"x": 1}
        return handle.instance_id


async def test_each_hook_is_told_in_order() -> None:
    recorder = Recorder()
    await run_everything(recorder)
    assert recorder.names == ORDER


async def test_replayed_steps_are_never_told_again() -> None:
    recorder = Recorder()
    await run_everything(recorder, restarts=True)
    told = [name for name in recorder.names if "replay" not in name]
    assert told == ORDER
    assert recorder.of("on_replay_started"), "but that a replay happened is"
    assert len(recorder.of("on_replay_started")) == len(recorder.of("on_replay_completed"))


async def test_infos_say_what_happened() -> None:
    recorder = Recorder()
    await run_everything([recorder])
    for name, info in recorder.told:
        assert (info.instance_id, info.workflow) == ("one", "everything"), name
        assert info.at.utcoffset().total_seconds() == 0
        assert type(info).__name__ == "".join(w.title() for w in name.split("_")[1:]) + "Info"
        assert type(info) is getattr(romancy, type(info).__name__), "exported"
        with pytest.raises(AttributeError):
            info.instance_id = "frozen"
    (received,) = recorder.of("on_event_received")
    assert isinstance(received, EventReceivedInfo)
    assert (received.event_type, received.event_data, received.event.id) == ("news", {"x": 1}, "e1")
    assert received.wait_id == "news:1"
    (retrying,) = recorder.of("on_activity_retrying")
    assert (retrying.activity, retrying.activity_id, retrying.attempt) == ("flaky", "flaky:1", 1)
    assert (retrying.error_type, retrying.message) == ("ValueError", "once")
    assert [info.attempt for info in recorder.of("on_activity_started")] == [1, 2, 1]
    (completed,) = recorder.of("on_activity_completed")
    assert (completed.activity_id, completed.attempt) == ("flaky:1", 2)
    (failed,) = recorder.of("on_activity_failed")
    assert (failed.activity_id, failed.error_type) == ("hopeless:1", "KeyError")
    assert [info.event_type for info in recorder.of("on_event_sent")] == ["told", "sent"]
    assert [info.types for info in recorder.of("on_wait_started")] == [("never",), ("news", "other")]
    (fired,) = recorder.of("on_timer_fired")
    assert (fired.timer_id, fired.due_at) == ("sleep:1", fired.at)


async def test_failing_cancelling_and_blocking_are_told() -> None:
    @workflow
    async def breaks(ctx: WorkflowContext) -> None:
        raise ValueError("broken")

    @workflow
    async def waits(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "never")

    recorder, orders = Recorder(), ["a", "b"]

    @workflow
    async def shifty(ctx: WorkflowContext) -> None:
        await wait_event(ctx, orders[0])  # not the same on replay
        await wait_event(ctx, "never")

    async with environment(workflows=[breaks, waits, shifty], hooks=recorder) as env:
        await env.start(breaks)
        (failed,) = recorder.of("on_workflow_failed")
        assert "broken" in str(failed.error)
        handle = await env.start(waits)
        await env.cancel(handle, "enough")
        (cancelled,) = recorder.of("on_workflow_cancelled")
        assert cancelled.instance_id == handle.instance_id
        blocked = await env.start(shifty)
        await env.send_event("a", "test")
        orders.reverse()
        await env.restart()
        await env.send_event("never", "test")
        (told,) = recorder.of("on_workflow_blocked")
        assert told.instance_id == blocked.instance_id
        assert "recorded" in str(told.error)


async def test_nothing_is_told_before_it_is_stored() -> None:
    recorder, held = Recorder(), list[Any]()

    @workflow
    async def waits(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "go")

    async with environment(workflows=[waits], hooks=recorder) as env:
        undo = intercept(env, lambda batch, submit: held.append(submit) if batch.commits else submit())
        await env.app.start_workflow(waits)
        for _ in range(100):
            await asyncio.sleep(0)
        assert (len(held), recorder.told) == (1, [])
        undo()
        held[0]()
        await env.settle()
        assert recorder.names == ["on_workflow_started", "on_wait_started"]


async def test_a_method_can_be_put_on_a_hook_object() -> None:
    """What is not overridden is not called. That must not leave out what is there by other means than a class."""
    told: list[object] = []
    hooks = HooksBase()
    hooks.on_event_received = told.append  # type: ignore[method-assign]
    await run_everything([hooks])
    assert told
    assert all(isinstance(info, EventReceivedInfo) for info in told)


async def test_a_hook_that_raises_is_logged_and_hurts_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(HooksBase): ...

    def breaks(self: Any, info: Any) -> None:
        raise RuntimeError(f"hook of {info.instance_id}")

    for name in NAMES:
        setattr(Broken, name, breaks)
    recorder = Recorder()
    with caplog.at_level(logging.ERROR, "romancy"):
        await run_everything([Broken(), recorder])
    assert recorder.names == ORDER, "the others are told all the same"
    assert any("Broken.on_event_received" in r.getMessage() for r in caplog.records)


async def test_async_hooks_are_awaited_and_may_raise(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    class Slow(HooksBase):
        async def on_workflow_started(self, info: Any) -> None:
            await asyncio.sleep(0)
            heard.append("started")

        async def on_workflow_completed(self, info: Any) -> None:
            await asyncio.sleep(0)
            heard.append("completed")
            raise RuntimeError("too late to matter")

    with caplog.at_level(logging.ERROR, "romancy"):
        await run_everything(Slow())
    assert heard == ["started", "completed"]
    assert any("Slow.on_workflow_completed" in r.getMessage() for r in caplog.records)


# --- logs -------------------------------------------------------------------------------------------------------------
@activity
async def logs(ctx: ActivityContext) -> None:
    ctx.logger.info("in the activity")


@workflow
async def talks(ctx: WorkflowContext) -> None:
    for n in range(3):
        ctx.logger.info("step %d", n, extra={"mine": n})
        await logs(ctx)
        await sleep(ctx, 60)


async def test_the_logger_is_silent_while_replaying_and_knows_its_instance(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "romancy"):
        async with environment(workflows=[talks]) as env:
            handle = await env.start(talks.options(instance_id="one"))
            for _ in range(3):
                await env.restart()
                await env.advance(60)
            await handle.result()
    lines = [r for r in caplog.records if r.getMessage().startswith(("step", "in the"))]
    assert [r.getMessage() for r in lines] == [line for n in range(3) for line in (f"step {n}", "in the activity")]
    assert {(r.instance_id, r.workflow) for r in lines} == {("one", "talks")}  # type: ignore[attr-defined]
    assert [r.mine for r in lines if hasattr(r, "mine")] == [0, 1, 2]
    assert {r.name for r in lines} == {"romancy"}


async def test_one_line_at_start_and_none_per_step(caplog: pytest.LogCaptureFixture) -> None:
    @workflow
    async def quiet(ctx: WorkflowContext) -> None:
        await sleep(ctx, 60)
        await wait_event(ctx, "go")

    with caplog.at_level(logging.INFO, "romancy"):
        async with environment(workflows=[quiet]) as env:
            handle = await env.start(quiet)
            await env.advance(60)
            await env.send_event("go", "test")
            await handle.result()
    assert len([r for r in caplog.records if r.name.startswith("romancy")]) == 1
