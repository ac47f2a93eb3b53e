"""Retrying after different ends: cancelled, out of time, the code's own error; and what is refused."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    BulkResult,
    NotRetryable,
    WorkflowCancelled,
    WorkflowContext,
    WorkflowFailed,
    activity,
    bulk,
    send_event,
    sleep,
    wait_event,
    workflow,
)
from romancy.errors import InstanceNotFound, WorkflowBlocked
from romancy.hooks import HooksBase, WorkflowRetriedInfo, WorkflowStartedInfo
from romancy.searches import to_search
from romancy.service import runtime_of
from romancy.testing import Environment, environment, replay
from tests.engine.helpers import down, intercept, kinds
from tests.engine.test_retried import do, failed, retried, sequence, world
from tests.engine.test_retried_children import has_tidy_child, tidy_child

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def _anew() -> None:
    world.__init__()


# --- cancelled ------------------------------------------------------------------------------------------------------
@workflow
async def waiter(ctx: WorkflowContext) -> str:
    a = await do(ctx, "a")
    try:
        event = await wait_event(ctx, "go")
    except asyncio.CancelledError:
        await do(ctx, "cleanup")
        raise
    return a + str(event.data) + await do(ctx, "cleanup")


async def test_a_cancelled_instance_goes_on_where_it_was(env: Environment) -> None:
    env.app.register(waiter)
    handle = await env.start(waiter, instance_id="i")
    await env.cancel(handle, "enough")
    with pytest.raises(WorkflowCancelled):
        await handle.result()
    assert world.runs == {"a": 1, "cleanup": 1}
    again = await env.app.retry_workflow("i")
    await env.settle()
    assert await again.status() == "waiting_for_event"
    await env.send_event("go", "test", 7)
    assert await again.result() == "A7CLEANUP"
    # The cleanup had completed: this is another call.
    assert world.keys["cleanup"] == ["i/do:2", "i/do:2~1"]
    assert replay(waiter, await env.app.get_history("i")) == "completed"


async def test_an_instance_that_was_cancelled_before_it_began_begins(env: Environment) -> None:
    handle = await env.app.start_workflow("waiter", instance_id="i")
    assert await handle.cancel()
    await env.app.retry_workflow("i")
    env.app.register(waiter)
    await env.settle()
    assert (await env.app.get_instance("i")).status == "waiting_for_event"


async def test_a_retried_instance_can_be_cancelled(env: Environment) -> None:
    env.app.register(waiter)
    handle = await env.start(waiter, instance_id="i")
    for _ in range(2):
        await env.cancel(handle)
        with pytest.raises(WorkflowCancelled):
            await handle.result()
        handle = await handle.retry()
        await env.settle()
    assert await handle.status() == "waiting_for_event"
    history = await env.app.get_history("i")
    assert [e.kind for e in history if not e.dropped] == ["started", "activity_completed", "retried", "retried"]


# --- times ----------------------------------------------------------------------------------------------------------
@workflow
async def impatient(ctx: WorkflowContext) -> Any:
    await do(ctx, "a")
    return (await wait_event(ctx, "go", timeout=HOUR)).data


async def test_a_wait_that_timed_out_waits_for_its_whole_length_again(env: Environment) -> None:
    env.app.register(impatient)
    handle = await env.start(impatient, instance_id="i")
    await env.advance(2 * HOUR)
    with pytest.raises(WorkflowFailed):
        await handle.result()
    handle = await env.app.retry_workflow("i")
    await env.settle()
    [wait] = (await env.app.get_instance("i")).waits
    assert wait.due_at == env.now + HOUR
    await env.restart()
    await env.advance(HOUR / 2)
    assert await handle.status() == "waiting_for_event"
    await env.send_event("go", "test", 7)
    assert await handle.result() == 7
    assert replay(impatient, await env.app.get_history("i")) == "completed"


@workflow(timeout=HOUR)
async def limited(ctx: WorkflowContext) -> Any:
    await do(ctx, "a")
    return (await wait_event(ctx, "go")).data


async def test_the_time_limit_of_a_workflow_begins_again(env: Environment) -> None:
    env.app.register(limited)
    handle = await env.start(limited, instance_id="i")
    await env.advance(2 * HOUR)
    with pytest.raises(WorkflowFailed, match="ran out of time"):
        await handle.result()
    await env.advance(24 * HOUR)
    handle = await env.app.retry_workflow("i")
    await env.advance(HOUR * 0.9)
    assert await handle.status() == "waiting_for_event"
    await env.advance(HOUR * 0.2)
    with pytest.raises(WorkflowFailed, match="ran out of time"):
        await handle.result()
    handle = await handle.retry()
    await env.send_event("go", "test", 7)
    assert await handle.result() == 7
    assert world.runs == {"a": 1}
    assert replay(limited, await env.app.get_history("i")) == "completed"


@workflow
async def with_timeout(ctx: WorkflowContext) -> Any:
    await sleep(ctx, 60)
    async with asyncio.timeout(3600):
        return (await wait_event(ctx, "go")).data


async def test_a_block_with_a_time_limit_gets_its_time_again(env: Environment) -> None:
    env.app.register(with_timeout)
    handle = await env.start(with_timeout, instance_id="i")
    await env.advance(3 * HOUR)
    with pytest.raises(WorkflowFailed, match="TimeoutError"):
        await handle.result()
    handle = await handle.retry()
    await env.settle()
    assert await handle.status() == "waiting_for_event", "it does not sleep again"
    await env.advance(HOUR * 0.9)
    await env.send_event("go", "test", 7)
    assert await handle.result() == 7
    assert replay(with_timeout, await env.app.get_history("i")) == "completed"


@workflow
async def own_timeout(ctx: WorkflowContext) -> None:
    await sleep(ctx, 60)
    raise TimeoutError("of a client")


async def test_a_timeout_that_is_none_of_asyncios_drops_nothing(env: Environment) -> None:
    env.app.register(own_timeout)
    handle = await env.start(own_timeout, instance_id="i")
    await env.advance(60)
    with pytest.raises(WorkflowFailed):
        await handle.result()
    handle = await handle.retry()
    with pytest.raises(WorkflowFailed):
        await handle.result()
    assert await kinds(env, "i") == ["started", "timer_fired", "retried"]


# --- the code's own errors ------------------------------------------------------------------------------------------
async def test_fixed_code_goes_on_after_its_own_error(db: str) -> None:
    def version(fixed: bool) -> Any:
        @workflow(name="buggy")
        async def buggy(ctx: WorkflowContext) -> str:
            a = await do(ctx, "a")
            await send_event(ctx, "begun", "test")
            if not fixed:
                raise ValueError("a bug")
            await send_event(ctx, "fixed", "test")
            return a + await do(ctx, "b")

        return buggy

    async with environment(database=db) as env:
        old = version(False)
        env.app.register(old)
        handle = await env.start(old, instance_id="i")
        with pytest.raises(WorkflowFailed):
            await handle.result()
        with pytest.raises(WorkflowFailed):
            await retried(env)
        assert replay(old, await env.app.get_history("i")) == "failed"
    async with environment(database=db) as env:
        new = version(True)
        env.app.register(new)
        assert await retried(env) == "AB"
        assert replay(new, await env.app.get_history("i")) == "completed"
        sent = [(e.event.type, e.event.id) for e in (await env.app.list_events()).items]
        assert sent == [("fixed", "i/send fixed:1"), ("begun", "i/send begun:1")]
    assert world.runs == {"a": 1, "b": 1}


@workflow
async def stuck(ctx: WorkflowContext) -> None:
    with suppress(Exception):
        await do(ctx, "b")
    await asyncio.get_running_loop().create_future()


async def test_a_failure_that_the_code_handled_is_not_blamed_for_another_end(env: Environment) -> None:
    env.app.register(stuck)
    await failed(env, stuck, "b")
    with pytest.raises(WorkflowFailed, match="WorkflowStuck"):
        await retried(env)
    assert world.runs == {"b": 1}


async def test_code_that_failed_at_once_begins_again(env: Environment) -> None:
    broken = [True]

    @workflow
    async def at_once(ctx: WorkflowContext) -> str:
        if broken:
            raise ValueError("not yet")
        return await do(ctx, "a")

    started: list[str] = []

    class Hooks(HooksBase):
        def on_workflow_started(self, info: WorkflowStartedInfo) -> None:
            started.append(info.instance_id)

    env.app._runtime.hooks = (Hooks(),)
    env.app.register(at_once)
    handle = await env.start(at_once, instance_id="i")
    with pytest.raises(WorkflowFailed):
        await handle.result()
    broken.clear()
    assert await retried(env) == "A"
    assert await kinds(env, "i") == ["started", "retried", "activity_completed"]


async def test_code_that_no_longer_fits_is_blocked_and_retried_once_it_is_resumed(db: str) -> None:
    def version(first: str) -> Any:
        @workflow(name="changing")
        async def changing(ctx: WorkflowContext) -> str:
            return await do(ctx, first) + await do(ctx, "b") + await do(ctx, "c")

        return changing

    async with environment(database=db) as env:
        await failed(env, version("a"), "c")
    async with environment(database=db) as env:
        env.app.register(version("z"))
        with pytest.raises(WorkflowBlocked):
            await retried(env)
    async with environment(database=db) as env:
        env.app.register(version("a"))
        with pytest.raises(NotRetryable, match="resume it"):
            await env.app.retry_workflow("i")
        await env.app.resume_workflow("i")
        assert await env.app.handle("i").result() == "ABC"
        assert world.runs == {"a": 1, "b": 1, "c": 2}


# --- refusals -------------------------------------------------------------------------------------------------------
@activity
async def book(ctx: ActivityContext, name: str) -> str:
    return name


@book.compensate
async def unbook(ctx: ActivityContext, name: str) -> None: ...


@workflow
async def booking(ctx: WorkflowContext) -> None:
    await book(ctx, "hotel")
    await do(ctx, "b")


async def test_what_has_undone_its_steps_is_not_retried(env: Environment) -> None:
    env.app.register(booking)
    await failed(env, booking, "b")
    with pytest.raises(NotRetryable, match="has undone its steps; fork it from its beginning") as caught:
        await env.app.retry_workflow("i")
    assert (caught.value.instance_id, caught.value.status) == ("i", "failed")
    assert (await env.app.get_instance("i")).status == "failed"


async def test_only_what_failed_or_was_cancelled_is_retried(env: Environment) -> None:
    env.app.register(sequence, waiter)
    await (await env.start(sequence, instance_id="done")).result()
    with pytest.raises(NotRetryable, match="has completed; fork it") as caught:
        await env.app.retry_workflow("done")
    assert caught.value.status == "completed"
    await env.start(waiter, instance_id="open")
    with pytest.raises(NotRetryable, match="has not ended") as caught:
        await env.app.retry_workflow("open")
    assert caught.value.status == "waiting_for_event"
    for steps in (None, ["do:1"]):
        with pytest.raises(InstanceNotFound):
            await env.app.retry_workflow("nobody", steps=steps)


@pytest.mark.parametrize("steps", [[], (), "b:1"], ids=repr)
async def test_steps_that_are_none_are_refused(env: Environment, steps: Any) -> None:
    env.app.register(sequence)
    await failed(env, sequence, "b")
    with pytest.raises(ValueError, match=r'steps must be None \(null\), "failed" or a list of operation ids'):
        await env.app.retry_workflow("i", steps=steps)
    assert (await env.app.get_instance("i")).status == "failed"


# --- at the same time -----------------------------------------------------------------------------------------------
async def test_of_several_retries_one_wins(env: Environment) -> None:
    env.app.register(sequence)
    await failed(env, sequence, "b")
    answers = await asyncio.gather(*(env.app.retry_workflow("i") for _ in range(5)), return_exceptions=True)
    refused = [a for a in answers if isinstance(a, NotRetryable)]
    assert len(refused) == 4
    assert await env.app.handle("i").result() == "ABC"
    assert world.runs == {"a": 1, "b": 2, "c": 1}
    assert (await kinds(env, "i")).count("retried") == 1


async def test_a_crash_between_reopening_and_the_first_step(env: Environment) -> None:
    env.app.register(sequence)
    await failed(env, sequence, "b")
    undo_it = intercept(env, lambda batch, submit: None)
    await env.app.retry_workflow("i")
    await asyncio.sleep(0)
    async with down(env):
        undo_it()
    assert await env.app.handle("i").result() == "ABC"
    assert world.runs == {"a": 1, "b": 2, "c": 1}
    assert (await kinds(env, "i")).count("retried") == 1


async def test_many_are_retried_at_once(env: Environment) -> None:
    env.app.register(sequence, booking)
    for n in range(3):
        await failed(env, sequence, "b", id=f"s-{n}")
    await failed(env, booking, "b", id="undone")
    await (await env.start(sequence, instance_id="done")).result()
    result = await env.app.retry_workflows(status=["failed", "completed"])
    assert (result.matched, result.changed, list(result.errors)) == (5, 3, ["undone"])
    assert "has undone its steps" in result.errors["undone"]
    for n in range(3):
        assert await env.app.handle(f"s-{n}").result() == "ABC"


async def test_those_that_are_refused_do_not_count(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Called again and again with a limit, it gets through all that can be retried."""
    monkeypatch.setattr(bulk, "PAGE", 2)
    env.app.register(sequence, booking)
    kinds_of = [sequence, booking, sequence, booking, booking, booking]
    for n, wf in enumerate(kinds_of):
        await failed(env, wf, "b", id=f"i{n}")
        await env.advance(1)
    engine = runtime_of(env.app).engine
    found = bulk.parts(engine.storage.catalog, to_search({"status": "failed"}), bulk.retrying(engine), dry_run=True)
    preview = bulk.add_up([part.result async for part in found])
    assert (preview.matched, preview.changed, list(preview.errors)) == (6, 2, ["i5", "i4", "i3", "i1"])
    result = await env.app.retry_workflows(status="failed", limit=1)
    assert (result.matched, result.changed, list(result.errors)) == (4, 1, ["i5", "i4", "i3"])
    assert await env.app.handle("i2").result() == "ABC"
    result = await env.app.retry_workflows(status="failed", limit=1)
    assert (result.matched, result.changed, list(result.errors)) == (5, 1, ["i5", "i4", "i3", "i1"])
    assert await env.app.handle("i0").result() == "ABC"
    result = await env.app.retry_workflows(status="failed", limit=1)
    assert (result.matched, result.changed) == (4, 0)


async def test_parents_whose_children_can_not_go_on_yet_are_refused(env: Environment) -> None:
    """The preview says the same as the retry of many, which says the same as the retry of one."""
    env.app.register(has_tidy_child, tidy_child)
    await failed(env, has_tidy_child, "a", id="i0")
    await env.settle()
    engine = runtime_of(env.app).engine
    found = bulk.parts(engine.storage.catalog, to_search({"status": "failed"}), bulk.retrying(engine), dry_run=True)
    preview = bulk.add_up([part.result async for part in found])
    with pytest.raises(NotRetryable) as caught:
        await env.app.retry_workflow("i0")
    assert preview == BulkResult(1, 0, {"i0": str(caught.value)})
    assert "'i0/tidy_child:1' is still being cancelled; retry once it has ended" in str(caught.value)
    assert await env.app.retry_workflows(status="failed") == preview
    await env.advance(600)
    await env.settle()
    result = await env.app.retry_workflows(status="failed")
    assert (result.changed, result.errors) == (1, {})
    await env.send_event("go", "test", 7)
    assert await env.app.handle("i0").result() == "7A"


async def test_those_that_are_refused_in_the_meantime_do_not_count(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at a page and the retry, another call may have retried one, and it has undone its steps."""
    env.app.register(sequence, booking)
    await failed(env, sequence, "b", id="i0")
    await env.advance(1)
    await failed(env, booking, "b", id="i1")

    async def none(ids: Any) -> set[str]:
        return set()

    monkeypatch.setattr(runtime_of(env.app).engine.storage.catalog, "undone", none)
    result = await env.app.retry_workflows(status="failed", limit=1)
    assert (result.matched, result.changed, list(result.errors)) == (2, 1, ["i1"])


def test_of_the_errors_the_first_hundred_are_kept() -> None:
    def page(start: int) -> BulkResult:
        return BulkResult(60, 0, {f"i{n}": "no" for n in range(start, start + 60)})

    total = bulk.add_up([page(0), page(60)])
    assert (total.matched, list(total.errors)) == (120, [f"i{n}" for n in range(100)])


async def test_hooks_and_metrics(env: Environment) -> None:
    told: list[WorkflowRetriedInfo] = []

    class Hooks(HooksBase):
        def on_workflow_retried(self, info: WorkflowRetriedInfo) -> None:
            told.append(info)

    async with environment(hooks=Hooks()) as env:
        env.app.register(sequence)
        await failed(env, sequence, "b")
        await retried(env)
        assert [(i.instance_id, i.workflow, i.retry, i.dropped) for i in told] == [("i", "sequence", 1, (2,))]
        assert env.app._runtime.engine.metrics.workflows_retried == {"sequence": 1}
        assert [(e.kind, e.dropped) for e in await env.app.get_history("i")][2:4] == [
            ("activity_failed", True),
            ("retried", False),
        ]
        assert (await env.app.get_history("i"))[3].error["message"].endswith("b is broken")
