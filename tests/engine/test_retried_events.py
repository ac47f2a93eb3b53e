"""Events that are given back to a retried instance: it took them in time, so it gets them whenever that is."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from romancy import InvalidEvent, ReceivedEvent, WorkflowContext, sleep, wait_event, workflow
from romancy.core.model import from_us
from romancy.testing import Environment, environment, replay
from tests.engine.helpers import down, outsider, until
from tests.engine.test_retried import do, world

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def _anew() -> None:
    world.__init__()
    seen.clear()


seen: list[ReceivedEvent[Any]] = []


async def send(env: Environment, data: Any, expires_in: int | None = 60) -> None:
    until = None if expires_in is None else from_us(env.clock.now() + expires_in * 1_000_000).isoformat()
    ext = {"priority": 7} if until is None else {"priority": 7, "expirytime": until}
    await env.send_event("go", "test", data, id=f"e{data}", extensions=ext)
    await env.settle()


@workflow
async def taking(ctx: WorkflowContext, pause: float = 0, timeout: float | None = None) -> list[Any]:
    await do(ctx, "a")
    if pause:
        await sleep(ctx, pause)
    first = await wait_event(ctx, "go", timeout=timeout)
    seen.append(first)
    await do(ctx, "b")
    return [first.data, (await wait_event(ctx, "go")).data]


async def failed_after_taking(env: Environment, *args: Any, expires_in: int | None = 60) -> Any:
    env.app.register(taking)
    world.broken = {"b"}
    handle = await env.start(taking, *args, instance_id="i")
    await env.settle()
    await env.advance(args[0] if args else 0)
    await send(env, 1, expires_in)
    assert await handle.status() == "failed"
    world.broken = set()
    return handle


async def ends_with(env: Environment, handle: Any, *expected: Any) -> None:
    await env.settle()
    assert await handle.status() == "waiting_for_event", "it took the first event, and only that"
    await send(env, 2, None)
    assert await handle.status() == "completed"
    assert await handle.result() == [*expected]
    assert replay(taking, await env.app.get_history("i")) == "completed"
    assert len(seen) > 1
    assert seen[0] == seen[-1], "it is the same event, not another one"


async def prune(env: Environment) -> None:
    later = env.clock.now() + 10**9
    await env.app._runtime.engine.storage.cut(later, 100)


@pytest.mark.parametrize("expires_in", [60, 7200, None], ids=["expired", "expires", "endless"])
@pytest.mark.parametrize("removed", [False, True])
async def test_it_is_received_again(env: Environment, expires_in: int | None, removed: bool) -> None:
    handle = await failed_after_taking(env, expires_in=expires_in)
    await env.advance(HOUR)
    if removed:
        await prune(env)
    await env.app.retry_workflow("i", steps=["go:1"])
    await ends_with(env, handle, 1, 2)


@pytest.mark.parametrize("removed", [False, True])
async def test_the_time_of_the_wait_is_over(env: Environment, removed: bool) -> None:
    handle = await failed_after_taking(env, 0, 600)
    await env.advance(HOUR)
    if removed:
        await prune(env)
    await env.app.retry_workflow("i", steps=["go:1"])
    await ends_with(env, handle, 1, 2)


async def test_it_expires_before_it_is_waited_for_again(env: Environment) -> None:
    handle = await failed_after_taking(env, 300.0)
    await env.app.retry_workflow("i", steps=["do:1"])
    await env.settle()
    async with down(env):
        pass
    await env.advance(HOUR)
    await ends_with(env, handle, 1, 2)


@pytest.mark.parametrize("expires_in", [60, 86400])
async def test_it_is_given_back_again_and_again(env: Environment, expires_in: int) -> None:
    handle = await failed_after_taking(env, expires_in=expires_in)
    for _ in range(2):
        await env.advance(HOUR)
        world.broken = {"b"}
        await env.app.retry_workflow("i", steps=["go:1"])
        await env.settle()
        assert await handle.status() == "failed"
        world.broken = set()
    await env.app.retry_workflow("i", steps=["go:1"])
    await ends_with(env, handle, 1, 2)
    assert all(event == seen[0] for event in seen)


async def test_nobody_else_receives_what_has_expired(env: Environment) -> None:
    handle = await failed_after_taking(env)
    await env.advance(HOUR)
    await env.app.retry_workflow("i", steps=["go:1"])
    await env.settle()
    other = await env.start(taking, instance_id="other")
    await env.settle()
    assert await other.status() == "waiting_for_event"
    await ends_with(env, handle, 1, 2)


@pytest.mark.parametrize("expires_in", [60, None], ids=["expired", "removed"])
async def test_two_instances_get_the_same_event_back(env: Environment, expires_in: int | None) -> None:
    env.app.register(taking)
    world.broken = {"b"}
    handles = [await env.start(taking, instance_id=id) for id in ("i", "j")]
    await env.settle()
    await send(env, 1, expires_in)
    assert [await handle.status() for handle in handles] == ["failed", "failed"]
    world.broken = set()
    await env.advance(HOUR)
    if expires_in is None:
        await prune(env)
    for id in ("i", "j"):
        await env.app.retry_workflow(id, steps=["go:1"])
    await env.settle()
    await send(env, 2, None)
    assert [await handle.result() for handle in handles] == [[1, 2], [1, 2]]


# --- waits since now ------------------------------------------------------------------------------------------------
@workflow
async def taking_since_now(ctx: WorkflowContext) -> Any:
    first = await wait_event(ctx, "go", since="now")
    await do(ctx, "b")
    return first.data


async def test_it_was_under_way_when_the_wait_began(db: str) -> None:
    """It was accepted before the wait, by the clock, and stored after it. So the wait goes on by place, not by time."""
    world.broken = {"b"}
    async with environment(database=db, workflows=[taking_since_now]) as env, outsider(env) as sender:
        await send(env, "too early", None)
        held: list[Any] = []
        storage: Any = sender._runtime.engine.storage
        commit, storage.append = storage.commit, lambda *_: False
        storage.commit = lambda *given: held.append(given)
        sending = asyncio.create_task(sender.send_event("go", "test", 1))
        await until(lambda: held)
        await env.advance(1)
        handle = await env.start(taking_since_now, instance_id="i")
        await env.settle()
        assert await handle.status() == "waiting_for_event"
        storage.commit = commit
        commit(*held[0])
        await sending
        async with down(env):  # its next owner looks for events
            pass
        assert await handle.status() == "failed"
        for is_broken in (True, False):
            await env.advance(60)
            world.broken = {"b"} if is_broken else set()
            await env.app.retry_workflow("i", steps=["go:1"])
            await env.settle()
            assert await handle.status() == ("failed" if is_broken else "completed")
        assert await handle.result() == 1
        assert replay(taking_since_now, await env.app.get_history("i")) == "completed"


async def test_copies_can_not_be_forged(env: Environment) -> None:
    """An event with the mark of a copy would be received although its wait is over."""
    with pytest.raises(InvalidEvent, match="'romancyeventid' marks events that Romancy gives back"):
        await env.app.send_event("go", "test", 1, to="i", extensions={"romancyeventid": "e"})


@workflow
async def taking_two(ctx: WorkflowContext) -> list[Any]:
    first = await wait_event(ctx, "go")
    second = await wait_event(ctx, "go")
    await do(ctx, "b")
    return [first.data, second.data]


@pytest.mark.parametrize("by", ["retention", "limit"])
async def test_two_instances_took_an_event_that_was_removed(env: Environment, by: str) -> None:
    """Retention does not remove what a failed instance took. If a limit does, each instance gets a copy of its own."""
    env.app.register(taking_two)
    world.broken = {"b"}
    for id in ("i", "j"):
        await env.start(taking_two, instance_id=id)
    await send(env, 1, None)
    await send(env, 2, None)
    await env.advance(HOUR)
    assert [(await env.app.get_instance(id)).status for id in ("i", "j")] == ["failed", "failed"]
    if by == "limit":
        await prune(env)
    else:
        await env.app._runtime.engine.storage.prune(0, env.clock.now() + 10**9, 100)
    assert len((await env.app.list_events()).items) == (0 if by == "limit" else 2)
    world.broken = set()
    for id in ("i", "j"):
        await env.app.retry_workflow(id, steps=["go:1"])
    await env.settle()
    assert [(await env.app.get_instance(id)).status for id in ("i", "j")] == ["completed", "completed"]
