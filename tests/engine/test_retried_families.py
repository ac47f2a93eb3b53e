"""Retrying parents and children, events that were received and sent, and later runs."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    Retention,
    WorkflowCancelled,
    WorkflowContext,
    WorkflowFailed,
    activity,
    send_event,
    start_workflow,
    wait_event,
    workflow,
)
from romancy.testing import Environment, environment, replay
from tests.engine.helpers import kinds
from tests.engine.test_retried import do, failed, retried, world


@pytest.fixture(autouse=True)
def _anew() -> None:
    world.__init__()


# --- children -------------------------------------------------------------------------------------------------------
@workflow
async def child(ctx: WorkflowContext, name: str) -> str:
    return await do(ctx, f"{name}1") + await do(ctx, f"{name}2")


@workflow
async def parent(ctx: WorkflowContext) -> str:
    return await do(ctx, "a") + await child(ctx, "x")


async def test_a_parent_is_retried_together_with_the_child_that_failed(env: Environment) -> None:
    env.app.register(parent, child)
    await failed(env, parent, "x2")
    assert await retried(env) == "AX1X2"
    assert world.runs == {"a": 1, "x1": 1, "x2": 2}
    assert "retried" in await kinds(env, "i/child:1")
    assert replay(parent, await env.app.get_history("i")) == "completed"


@workflow
async def parents(ctx: WorkflowContext) -> str:
    return "".join(await asyncio.gather(child(ctx, "x"), child(ctx, "y")))


async def test_siblings_that_were_cancelled_go_on(env: Environment) -> None:
    env.app.register(parents, child)
    await failed(env, parents, "x1")
    assert await retried(env) == "X1X2Y1Y2"
    assert world.runs["x1"] == 2
    assert replay(parents, await env.app.get_history("i")) == "completed"


@workflow
async def free_parent(ctx: WorkflowContext) -> str:
    handle = await start_workflow(ctx, listener)
    await do(ctx, "a")
    return await handle.result()


@workflow
async def listener(ctx: WorkflowContext) -> str:
    return str((await wait_event(ctx, "go")).data)


async def test_a_child_that_ended_while_its_parent_had_failed(env: Environment) -> None:
    env.app.register(free_parent, listener)
    await failed(env, free_parent, "a")
    await env.send_event("go", "test", 7)
    assert await env.app.handle("i/listener:1").result() == "7"
    assert await retried(env) == "7"


async def test_a_child_that_was_removed_is_started_again(db: str) -> None:
    async with environment(database=db, retention=Retention(instances=timedelta(hours=1))) as env:
        env.app.register(parent, child)
        await failed(env, parent, "x1")
        storage = env.app._runtime.engine.storage
        later = env.app._runtime.clock.now() + 1
        await env.app.retry_workflow("i/child:1")
        await env.settle()
        await storage.prune(later + 10**12, 0, 100, failed_before=0)
        assert await retried(env) == "AX1X2"


async def test_a_child_that_is_retried_alone_does_not_reach_its_parent(env: Environment) -> None:
    env.app.register(parent, child)
    await failed(env, parent, "x2")
    handle = await env.app.retry_workflow("i/child:1")
    assert await handle.result() == "X1X2"
    assert (await env.app.get_instance("i")).status == "failed"
    assert await retried(env) == "AX1X2"
    assert world.runs == {"a": 1, "x1": 1, "x2": 2}


# --- events ---------------------------------------------------------------------------------------------------------
@workflow
async def receiver(ctx: WorkflowContext) -> list[Any]:
    first = await wait_event(ctx, "go", where={"n": 1})
    second = await wait_event(ctx, "come")
    await do(ctx, "a")
    return [first.data, second.data]


@pytest.mark.parametrize("removed", [False, True])
async def test_events_are_given_back(env: Environment, removed: bool) -> None:
    env.app.register(receiver)
    world.broken = {"a"}
    handle = await env.start(receiver, instance_id="i")
    await env.send_event("go", "test", {"n": 1})
    await env.send_event("come", "test", "then")
    with pytest.raises(WorkflowFailed):
        await handle.result()
    world.broken = set()
    if removed:
        storage = env.app._runtime.engine.storage
        await storage.cut(env.clock.now() + 10**9, 100)
        assert not (await env.app.list_events()).items
    handle = await env.app.retry_workflow("i", steps=["go:1", "come:1"])
    assert await handle.result() == [{"n": 1}, "then"]
    history = await env.app.get_history("i")
    assert [e.kind for e in history if not e.dropped] == [
        "started",
        "retried",
        "event_received",
        "event_received",
        "activity_completed",
    ]
    events = (await env.app.list_events()).items
    assert [e.differed_at for e in events] == [None, None]
    assert replay(receiver, history) == "completed"


async def test_what_comes_while_an_instance_has_failed_is_received(env: Environment) -> None:
    @workflow
    async def late(ctx: WorkflowContext) -> Any:
        await do(ctx, "a")
        return (await wait_event(ctx, "go")).data

    env.app.register(late)
    await failed(env, late, "a")
    await env.send_event("go", "test", 7)
    assert await retried(env) == 7


@workflow
async def teller(ctx: WorkflowContext) -> str:
    try:
        b = await do(ctx, "b")
    except Exception as error:
        await send_event(ctx, "told", "test", {"failed": str(error)[:10]})
        raise
    await send_event(ctx, "told", "test", {"worked": b})
    return b


async def sent(env: Environment) -> list[tuple[str, Any]]:
    events = reversed((await env.app.list_events()).items)
    return [(e.event.id, e.event.data) for e in events]


async def test_what_was_sent_is_not_sent_twice_and_nothing_is_lost(env: Environment) -> None:
    env.app.register(teller)
    await failed(env, teller, "b")
    world.broken = {"b"}
    with pytest.raises(WorkflowFailed):
        await retried(env)
    assert len(await sent(env)) == 1
    await env.app._runtime.engine.storage.cut(env.clock.now() + 10**9, 100)
    with pytest.raises(WorkflowFailed):
        await retried(env)
    assert await sent(env) == [], "it is not known any more, and still not sent again"
    world.broken = set()
    assert await retried(env) == "B"
    assert [id for id, _ in await sent(env)] == ["i/send told:1~3"]
    assert replay(teller, await env.app.get_history("i")) == "completed"


# --- runs -----------------------------------------------------------------------------------------------------------
@workflow(timeout=timedelta(hours=1))
async def counting(ctx: WorkflowContext, n: int) -> str:
    await do(ctx, f"n{n}")
    if n < 3:
        counting.continue_as_new(ctx, n + 1)
    await do(ctx, "last")
    return "done"


async def test_only_the_current_run_is_retried(env: Environment) -> None:
    env.app.register(counting)
    world.broken = {"last"}
    handle = await env.start(counting, 1, instance_id="i")
    with pytest.raises(WorkflowFailed):
        await handle.result()
    world.broken = set()
    await env.advance(timedelta(hours=5))
    assert await retried(env) == "done"
    assert world.runs == {"n1": 1, "n2": 1, "n3": 1, "last": 2}
    assert set(world.keys["last"]) == {"i/do:2@3"}
    assert replay(counting, await env.app.get_history("i")) == "completed"


# --- branches -------------------------------------------------------------------------------------------------------
@workflow
async def branches(ctx: WorkflowContext) -> list[str]:
    async def with_fallback(name: str) -> str:
        try:
            return await do(ctx, name)
        except Exception:
            return await do(ctx, f"{name}-instead")

    found = await asyncio.gather(with_fallback("a"), with_fallback("b"), do(ctx, "c"), return_exceptions=True)
    if any(isinstance(f, Exception) for f in found):
        raise ExceptionGroup("failed", [f for f in found if isinstance(f, Exception)])
    return [str(f) for f in found]


async def test_a_result_never_goes_to_another_call(env: Environment) -> None:
    """Branch a's fallback was do:4. If a is retried and works, do:4 is another call: b's fallback."""
    env.app.register(branches)
    await failed(env, branches, "a", "b", "c")
    assert world.runs == {"a": 1, "b": 1, "c": 1, "a-instead": 1, "b-instead": 1}
    world.broken = {"b"}
    handle = await env.app.retry_workflow("i", steps="failed")
    assert await handle.result() == ["A", "B-INSTEAD", "C"]
    assert world.runs == {"a": 2, "b": 2, "c": 2, "a-instead": 1, "b-instead": 2}
    assert replay(branches, await env.app.get_history("i")) == "completed"
    assert len({key for keys in world.keys.values() for key in keys}) == 6
    assert set(world.keys["a-instead"]) & set(world.keys["b-instead"]) == set()


@activity
async def mint(ctx: ActivityContext) -> int:
    world.runs["mint"] += 1
    world.keys.setdefault("mint", []).append(ctx.idempotency_key)
    return world.runs["mint"]


@workflow
async def minting(ctx: WorkflowContext) -> list[Any]:
    async def with_coin(name: str) -> Any:
        try:
            return await do(ctx, name)
        except Exception:
            return await mint(ctx)

    found = await asyncio.gather(with_coin("a"), with_coin("b"))
    return [*found, await do(ctx, "c")]


async def test_a_result_does_not_go_to_a_call_that_was_asked_for_elsewhere(env: Environment) -> None:
    """Both fallbacks ask for the same. After the retry, the first one to do so is another branch."""
    env.app.register(minting)
    await failed(env, minting, "a", "b", "c")
    assert world.runs["mint"] == 2
    handle = await env.app.retry_workflow("i", steps=["do:1", "do:3"])
    assert await handle.result() == ["A", 3, "C"]
    assert world.keys["mint"] == ["i/mint:1", "i/mint:2", "i/mint:1~1"]
    assert replay(minting, await env.app.get_history("i")) == "completed"


async def test_cancelled_children_of_a_cancelled_parent_go_on(env: Environment) -> None:
    @workflow
    async def waits_for_listener(ctx: WorkflowContext) -> str:
        return await listener(ctx)

    env.app.register(waits_for_listener, listener)
    handle = await env.start(waits_for_listener, instance_id="i")
    await env.cancel(handle)
    with pytest.raises(WorkflowCancelled):
        await handle.result()
    await env.app.retry_workflow("i")
    await env.settle()
    await env.send_event("go", "test", 7)
    assert await handle.result() == "7"
