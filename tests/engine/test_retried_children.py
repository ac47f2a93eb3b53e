"""Retrying parents of children that can't go on, or that are there when they are to be started."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    NotRetryable,
    WorkflowContext,
    WorkflowFailed,
    activity,
    send_event,
    sleep,
    start_workflow,
    wait_event,
    workflow,
)
from romancy.engine.resident import MANY_CHILDREN, CancelAsked
from romancy.testing import Environment, replay
from tests.engine.helpers import down, intercept
from tests.engine.test_retried import ONCE, do, failed, retried, world


@pytest.fixture(autouse=True)
def _anew() -> None:
    world.__init__()


@activity(retry=ONCE)
async def forth(ctx: ActivityContext, name: str) -> str:
    return name


@forth.compensate
async def back(ctx: ActivityContext, result: str) -> None:
    world.runs["back"] += 1


@workflow
async def undoing(ctx: WorkflowContext) -> str:
    await forth(ctx, "f")
    return await do(ctx, "b")


@workflow
async def above(ctx: WorkflowContext, is_handled: bool = False) -> str:
    try:
        return await undoing(ctx)
    except Exception:
        if not is_handled:
            raise
        return await do(ctx, "c")


async def test_a_child_whose_failure_was_handled_is_no_obstacle(env: Environment) -> None:
    env.app.register(above, undoing)
    world.broken = {"b", "c"}
    handle = await env.start(above, True, instance_id="i")
    with pytest.raises(WorkflowFailed):
        await handle.result()
    world.broken = set()
    assert await retried(env) == "C"


@workflow
async def tidy_child(ctx: WorkflowContext) -> str:
    try:
        return str((await wait_event(ctx, "go")).data)
    except asyncio.CancelledError:
        await sleep(ctx, 600)
        raise


@workflow
async def has_tidy_child(ctx: WorkflowContext) -> str:
    return "".join(await asyncio.gather(tidy_child(ctx), do(ctx, "a")))


async def test_a_parent_is_retried_once_its_child_has_cleaned_up(env: Environment) -> None:
    env.app.register(has_tidy_child, tidy_child)
    handle = await failed(env, has_tidy_child, "a")
    await env.settle()
    with pytest.raises(NotRetryable, match=r"'i/tidy_child:1' is still being cancelled"):
        await retried(env)
    await env.advance(timedelta(hours=1))
    await env.app.retry_workflow("i")
    await env.settle()
    assert await handle.status() == "waiting_for_child"
    await env.send_event("go", "test", 7)
    assert await handle.result() == "7A"


# --- another child takes its place ----------------------------------------------------------------------------------
async def statuses(env: Environment) -> dict[str, str]:
    return {row.instance_id: row.status for row in (await env.app.list_instances()).items}


async def test_another_child_takes_the_place_of_one_that_undid_itself(env: Environment) -> None:
    env.app.register(above, undoing)
    await failed(env, above, "b")
    assert world.runs["back"] == 1
    world.broken = {"b"}
    with pytest.raises(WorkflowFailed):
        await retried(env)
    world.broken = set()
    assert await retried(env) == "B"
    assert await statuses(env) == {
        "i": "completed",
        "i/undoing:1": "failed",
        "i/undoing:1~1": "failed",
        "i/undoing:1~2": "completed",
    }
    assert world.runs == {"b": 3, "back": 2}
    history = await env.app.get_history("i")
    assert [e.input for e in history if e.kind == "retried" and not e.input["dropped"]] == [
        {"dropped": [], "replaced": "undoing:1"}
    ] * 2
    assert replay(above, history) == "completed"


@workflow
async def own_ids(ctx: WorkflowContext) -> list[str]:
    free = await start_workflow(ctx, undoing, instance_id="x" * 254)
    first = await undoing.options(instance_id="mine")(ctx)
    return [first, await free.result()]


async def test_another_child_takes_the_place_of_one_with_an_id_of_its_own(env: Environment) -> None:
    env.app.register(own_ids, undoing)
    await failed(env, own_ids, "b")
    with pytest.raises(WorkflowFailed):
        await retried(env)  # the free child failed, too, which is new to its parent
    assert await retried(env) == ["B", "B"]
    found = await statuses(env)
    assert [found[id] for id in ("mine", "mine~1", "x" * 254)] == ["failed", "completed", "failed"]
    assert [len(id) for id in found if id.startswith("x") and id != "x" * 254] == [254]
    assert replay(own_ids, await env.app.get_history("i")) == "completed"


async def test_many_parents_of_children_that_undid_themselves_are_retried(env: Environment) -> None:
    env.app.register(above, undoing)
    for n in range(3):
        await failed(env, above, "b", id=f"i{n}")
    result = await env.app.retry_workflows(workflow="above")
    assert (result.matched, result.changed, result.errors) == (3, 3, {})
    for n in range(3):
        assert await env.app.handle(f"i{n}").result() == "B"


@workflow
async def undoing_later(ctx: WorkflowContext) -> str:
    await forth(ctx, "f")
    await wait_event(ctx, "go")
    return await do(ctx, "b")


@workflow
async def above_later(ctx: WorkflowContext) -> str:
    try:
        return await undoing_later(ctx)
    except asyncio.CancelledError:
        await sleep(ctx, 600)
        raise


async def failed_later(env: Environment) -> Any:
    env.app.register(above_later, undoing_later)
    world.broken = {"b"}
    handle = await env.start(above_later, instance_id="i")
    await env.send_event("go", "test")
    with pytest.raises(WorkflowFailed):
        await handle.result()
    world.broken = set()
    return handle


async def test_its_worker_stops_while_the_other_child_waits(env: Environment) -> None:
    handle = await failed_later(env)
    await env.app.retry_workflow("i")
    await env.settle()
    assert (await statuses(env))["i/undoing_later:1~1"] == "waiting_for_event"
    async with down(env):
        pass
    await env.settle()
    await env.send_event("go", "test")
    assert await handle.result() == "B"
    assert replay(above_later, await env.app.get_history("i")) == "completed"


@pytest.mark.parametrize("lost", range(4))
async def test_its_worker_dies_before_the_other_child_is_started(env: Environment, lost: int) -> None:
    handle = await failed_later(env)
    stored = [0]

    def decide(batch: Any, submit: Any) -> None:
        if stored[0] < lost:
            stored[0] += 1
            submit()

    undo_it = intercept(env, decide)
    await env.app.retry_workflow("i")
    for _ in range(50):
        await asyncio.sleep(0)
    async with down(env):
        undo_it()
    await env.settle()
    assert await handle.status() == "waiting_for_child"
    await env.send_event("go", "test")
    await env.settle()
    assert await handle.result() == "B"
    assert replay(above_later, await env.app.get_history("i")) == "completed"
    assert list(await statuses(env)).count("i/undoing_later:1~1") == 1


async def test_it_is_cancelled_at_once(env: Environment) -> None:
    handle = await failed_later(env)
    await env.app.retry_workflow("i")
    await env.app.cancel_workflow("i")
    await env.settle()
    assert await handle.status() == "waiting_for_timer"
    async with down(env):
        pass
    await env.advance(600)
    assert await handle.status() == "cancelled"
    assert await statuses(env) == {"i": "cancelled", "i/undoing_later:1": "failed"}, "no other child was started"
    assert replay(above_later, await env.app.get_history("i")) == "cancelled"


# --- children that are there, though they are to be started ---------------------------------------------------------
@workflow
async def kid(ctx: WorkflowContext, name: str) -> str:
    return await do(ctx, name)


@workflow
async def then_kid(ctx: WorkflowContext) -> str:
    return await do(ctx, "a") + await kid(ctx, "x")


async def test_a_child_that_failed_after_a_step_that_is_repeated(env: Environment) -> None:
    env.app.register(then_kid, kid)
    handle = await failed(env, then_kid, "x")
    await env.app.retry_workflow("i", steps=["do:1"])
    await env.settle()
    assert await handle.status() == "completed"
    assert await handle.result() == "AX"
    assert await statuses(env) == {"i": "completed", "i/kid:1": "failed", "i/kid:1~1": "completed"}
    assert replay(then_kid, await env.app.get_history("i")) == "completed"


@workflow
async def then_kids(ctx: WorkflowContext) -> str:
    a = await do(ctx, "a")
    return a + "".join(await asyncio.gather(tidy_child(ctx), do(ctx, "x")))


async def test_a_child_that_was_given_up_after_a_step_that_is_repeated(env: Environment) -> None:
    env.app.register(then_kids, tidy_child)
    handle = await failed(env, then_kids, "x")
    await env.advance(timedelta(hours=1))
    await env.app.retry_workflow("i", steps=["do:1"])
    await env.settle()
    assert await handle.status() == "waiting_for_child"
    async with down(env):
        pass
    await env.send_event("go", "test", 7)
    await env.settle()
    assert await handle.status() == "completed"
    assert await handle.result() == "A7X"
    assert (await statuses(env))["i/tidy_child:1"] == "cancelled"
    assert replay(then_kids, await env.app.get_history("i")) == "completed"


async def test_an_old_child_is_found_while_an_activity_runs(env: Environment) -> None:
    opened = asyncio.Event()

    @activity
    async def long(ctx: ActivityContext) -> str:
        if world.runs["a"] > 1:
            await opened.wait()
        return "L"

    @workflow
    async def beside(ctx: WorkflowContext) -> str:
        a = await do(ctx, "a")
        return a + "".join(await asyncio.gather(kid(ctx, "x"), long(ctx)))

    env.app.register(beside, kid)
    handle = await failed(env, beside, "x")
    await env.app.retry_workflow("i", steps=["do:1"])
    await env.settle()
    opened.set()
    assert await handle.result(timeout=10) == "AXL"


@pytest.mark.parametrize("when", ["before", "after"])
async def test_it_is_cancelled_while_a_child_is_found(env: Environment, when: str) -> None:
    @workflow
    async def then_forth(ctx: WorkflowContext) -> str:
        await do(ctx, "a")
        if world.runs["a"] > 1:
            await forth(ctx, "f")
        return await kid(ctx, "x")

    env.app.register(then_forth, kid)
    await failed(env, then_forth, "x")
    engine: Any = env.app._runtime.engine
    asked: list[str] = []

    def decide(batch: Any, submit: Any) -> None:
        is_first = any(start.parent == "i" for start in batch.starts) and not asked
        if is_first:
            asked.append(when)
        if is_first and when == "before":
            engine.loader.wake("i", CancelAsked(10**9, "enough"))
        submit()
        if is_first and when == "after":
            engine.loader.wake("i", CancelAsked(10**9, "enough"))

    undo = intercept(env, decide)
    await env.app.retry_workflow("i", steps=["do:1"])
    await env.settle()
    undo()
    assert asked == [when]
    assert (await env.app.get_instance("i")).status == "cancelled"
    assert world.runs["back"] == 1, "it does not wait for the end of a child that has ended before"


async def test_many_children_after_a_step_that_is_repeated(env: Environment) -> None:
    count = MANY_CHILDREN + 1

    @workflow
    async def then_many(ctx: WorkflowContext) -> int:
        await do(ctx, "a")
        return sum(await asyncio.gather(*(picky(ctx, n) for n in range(count))))

    @workflow
    async def picky(ctx: WorkflowContext, n: int) -> int:
        if n == 0:
            await do(ctx, "x")
        return n

    env.app.register(then_many, picky)
    await failed(env, then_many, "x")
    await env.app.retry_workflow("i", steps=["do:1"])
    await env.settle()
    assert (await env.app.get_instance("i")).status == "completed"
    assert replay(then_many, await env.app.get_history("i")) == "completed"


# --- children that completed ----------------------------------------------------------------------------------------
@workflow
async def with_kid(ctx: WorkflowContext) -> str:
    return await kid.options(instance_id="own")(ctx, "x") + await kid(ctx, "y") + await do(ctx, "b")


async def test_children_that_completed_run_again_if_they_are_named(env: Environment) -> None:
    env.app.register(with_kid, kid)
    await failed(env, with_kid, "b")
    world.broken = {"b"}
    with pytest.raises(WorkflowFailed):
        await retried(env, steps=["kid:2"])
    assert world.runs == {"x": 1, "y": 2, "b": 2}
    world.broken = set()
    assert await retried(env, steps=["kid:1", "do:1"]) == "XYB"
    assert world.runs == {"x": 2, "y": 3, "b": 3}
    children = [id for id, status in (await statuses(env)).items() if status == "completed"]
    assert sorted(children) == ["i", "i/kid:2", "i/kid:2~1", "i/kid:2~2", "own", "own~2"]
    assert replay(with_kid, await env.app.get_history("i")) == "completed"


@pytest.mark.parametrize("is_sent", [False, True])
async def test_the_code_has_passed_on_the_id_of_a_child_that_runs_again(env: Environment, is_sent: bool) -> None:
    @workflow
    async def naming(ctx: WorkflowContext) -> str:
        child = await start_workflow(ctx, kid, "x")
        if is_sent:
            await send_event(ctx, "started", "naming", child.instance_id)
        first = await do(ctx, "a")
        named = await do(ctx, child.instance_id)
        return first + await child.result() + await do(ctx, "b") + named

    env.app.register(naming, kid)
    await failed(env, naming, "b")
    await env.app.retry_workflow("i", steps=["kid:1"])
    await env.settle()
    assert (await env.app.get_instance("i")).status == "completed"
    assert await env.app.handle("i").result() == "AXBI/KID:1~1"
    assert world.runs["a"] == (2 if is_sent else 1), "it was asked for with the event"
    await env.restart()
    assert replay(naming, await env.app.get_history("i")) == "completed"
    sent = [record.event.data for record in (await env.app.list_events()).items]
    assert sorted(sent) == ([b'"i/kid:1"', b'"i/kid:1~1"'] if is_sent else [])


async def test_its_worker_dies_while_a_child_that_completed_runs_again(env: Environment) -> None:
    @workflow
    async def with_listener(ctx: WorkflowContext) -> str:
        return await listener(ctx) + await do(ctx, "b")

    @workflow
    async def listener(ctx: WorkflowContext) -> str:
        return str((await wait_event(ctx, "go")).data)

    env.app.register(with_listener, listener)
    world.broken = {"b"}
    handle = await env.start(with_listener, instance_id="i")
    await env.send_event("go", "test", 1)
    assert await handle.status() == "failed"
    world.broken = set()
    await env.app.retry_workflow("i", steps=["listener:1"])
    await env.settle()
    async with down(env):
        pass
    assert await handle.status() == "waiting_for_child"
    await env.send_event("go", "test", 2)
    assert await handle.result() == "2B"
    assert replay(with_listener, await env.app.get_history("i")) == "completed"


# --- one in whose place another was started is retried by somebody ---------------------------------------------------
@activity
async def count(ctx: ActivityContext) -> int:
    world.runs["count"] += 1
    return world.runs["count"]


@workflow
async def numbered(ctx: WorkflowContext, n: int) -> int:
    await do(ctx, "b")
    await wait_event(ctx, "go", where={"n": n})
    return n


@workflow
async def counts(ctx: WorkflowContext) -> int:
    return await numbered(ctx, await count(ctx))


@pytest.mark.parametrize("is_early", [False, True], ids=["late", "before the other one is started"])
async def test_the_old_child_is_retried_and_its_parent_waits_for_the_other_one(
    env: Environment, is_early: bool
) -> None:
    env.app.register(counts, numbered)
    handle = await failed(env, counts, "b")
    held: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def decide(batch: Any, submit: Any) -> None:
        if any(commit.replaced for commit in batch.commits):
            held.set_result(submit)
        else:
            submit()

    undo_it = intercept(env, decide)
    await env.app.retry_workflow("i", steps=["count:1"])
    submit = await held
    if not is_early:
        submit()
        await env.settle()
    await env.app.retry_workflow("i/numbered:1")
    if is_early:
        submit()
    undo_it()
    await env.settle()
    await env.send_event("go", "test", {"n": 1})
    await env.settle()
    assert await statuses(env) == {
        "i": "waiting_for_child",
        "i/numbered:1": "completed",
        "i/numbered:1~1": "waiting_for_event",
    }
    await env.send_event("go", "test", {"n": 2})
    assert await handle.result() == 2
    assert replay(counts, await env.app.get_history("i")) == "completed"
