"""An event that one wait does not take goes to the next one, however its owner came to hear of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock

import pydantic
import pytest

from romancy import App, WaitTimeout, WorkflowContext, sleep, wait_event, workflow
from romancy.engine.resident import Due, EventOffered, TimedOut
from romancy.testing import Environment, environment
from tests.engine.helpers import outsider


class Payment(pydantic.BaseModel):
    amount: int


@workflow
async def strict_and_plain(ctx: WorkflowContext) -> tuple[Any, Any]:
    """The first wait takes no payment without an amount; the second takes any."""
    strict = wait_event(ctx, "paid", "void", model=Payment)
    first, second = await asyncio.gather(strict, wait_event(ctx, "paid"))
    return first.data.amount, second.data


@workflow
async def timed_and_plain(ctx: WorkflowContext) -> tuple[str, Any]:
    first, second = await asyncio.gather(
        wait_event(ctx, "paid", "void", timeout=timedelta(seconds=10)),
        wait_event(ctx, "paid"),
        return_exceptions=True,
    )
    assert not isinstance(second, BaseException)
    return type(first).__name__, second.data


@pytest.fixture
async def env(db: str) -> AsyncIterator[Environment]:
    async with environment(database=db, workflows=[strict_and_plain, timed_and_plain]) as env:
        yield env


@pytest.fixture
async def elsewhere(env: Environment, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    """Another process that stores events. The owner never reads its mail, so it hears of them only by chance."""
    monkeypatch.setattr(env.app._runtime.engine.sweep, "_read_mail", AsyncMock())
    async with outsider(env) as app:
        yield app


async def test_an_event_that_does_not_fit_the_wait_it_was_offered_to(env: Environment, elsewhere: App) -> None:
    handle = await env.start(strict_and_plain)
    await env.settle()
    await elsewhere.send_event("paid", "test", {"by": "card"})
    await env.app.send_event("void", "test", {"amount": 1})  # the first wait looks, and finds the older one
    assert await handle.result(timeout=30) == (1, {"by": "card"})


async def test_an_event_too_late_for_the_wait_it_was_offered_to(env: Environment, elsewhere: App) -> None:
    handle = await env.start(timed_and_plain)
    await env.settle()
    env.clock._now += timedelta(seconds=11) // timedelta(microseconds=1)  # not turn_to: the alarm does not ring
    await elsewhere.send_event("paid", "test", 1)
    await env.app.send_event("void", "test", 2)
    assert await handle.result(timeout=30) == (WaitTimeout.__name__, 1)


async def test_an_event_offered_to_a_wait_that_is_gone(env: Environment, elsewhere: App) -> None:
    handle = await env.start(timed_and_plain)
    await env.send_event("void", "test", 0)
    await env.settle()
    await elsewhere.send_event("paid", "test", 1)
    (paid,) = (await env.app.list_events(type="paid")).items
    env.app._runtime.engine.loader.wake(handle.instance_id, EventOffered("gone", paid.event))
    assert await handle.result(timeout=30) == ("ReceivedEvent", 1)


@workflow
async def hurried(ctx: WorkflowContext) -> tuple[int, Any]:
    """The second wait takes what the first, which has little time, may take too."""
    first, second = await asyncio.gather(
        wait_event(ctx, "paid", timeout=timedelta(seconds=10)), wait_event(ctx, "paid", "void")
    )
    return first.data, second.data


async def test_an_event_behind_one_that_another_wait_took_before_the_time_was_over(
    env: Environment, elsewhere: App
) -> None:
    """The last look of a wait whose time has come may bring an event that is taken by the time it arrives."""
    env.app.register(hurried)
    handle = await env.start(hurried)
    for n in (1, 2):
        await elsewhere.send_event("paid", "test", n)
    one = next(record.event for record in (await env.app.list_events()).items if record.event.data == b"1")
    patient, hasty = sorted(await env.waits(handle), key=lambda wait: wait.due_at is not None)
    wake = env.app._runtime.engine.loader.wake
    wake(handle.instance_id, EventOffered(patient.wait_id, one))
    await env.settle()
    wake(handle.instance_id, EventOffered(hasty.wait_id, one))
    wake(handle.instance_id, Due(hasty.wait_id, again=True))
    assert await handle.result(timeout=30) == (2, 1)


@workflow
async def two_timed(ctx: WorkflowContext) -> list[str]:
    """Both have little time, and neither is like the other."""
    waits = (
        wait_event(ctx, "paid", timeout=timedelta(seconds=10)),
        wait_event(ctx, "paid", "void", timeout=timedelta(seconds=10)),
    )
    return [type(found).__name__ for found in await asyncio.gather(*waits, return_exceptions=True)]


async def test_an_event_too_late_by_another_clock_is_not_handed_to_and_fro(env: Environment, elsewhere: App) -> None:
    """The sender's clock was ahead, or ours was set back: it is here before our time is over, and taken."""
    env.app.register(two_timed)
    handle = await env.start(two_timed)
    env.clock._now += 11_000_000
    await elsewhere.send_event("paid", "test", 1)
    env.clock._now -= 11_000_000
    (paid,) = (await env.app.list_events()).items
    waits = await env.waits(handle)
    version = (await env.app._runtime.engine.storage.catalog.instance(handle.instance_id)).version  # type: ignore[union-attr]
    env.app._runtime.engine.loader.wake(handle.instance_id, EventOffered(waits[0].wait_id, paid.event))
    await env.settle()
    row = await env.app._runtime.engine.storage.catalog.instance(handle.instance_id)
    assert row is not None
    assert row.version - version <= 1, "it went to and fro"
    await env.advance(12)
    assert await handle.result(timeout=30) == ["ReceivedEvent", WaitTimeout.__name__]


async def test_a_timer_never_rings_before_its_time_by_the_history(env: Environment) -> None:
    """Between its alarm and its step the clock may be set back."""

    @workflow
    async def sleeper(ctx: WorkflowContext) -> None:
        await sleep(ctx, 10)

    env.app.register(sleeper)
    handle = await env.start(sleeper)
    (timer,) = await env.waits(handle)
    env.clock._now += 11_000_000
    env.app._runtime.engine.loader.fire(handle.instance_id, timer.wait_id)
    env.clock._now -= 11_000_000
    await handle.result(timeout=30)
    fired = (await env.app.get_history(handle.instance_id))[1]
    assert fired.kind == "timer_fired"
    assert fired.at == timer.due_at


async def test_a_wait_never_times_out_before_its_time_by_the_history(env: Environment) -> None:
    """Between its last look and its step the clock may be set back."""

    @workflow
    async def waiter(ctx: WorkflowContext) -> None:
        with suppress(WaitTimeout):
            await wait_event(ctx, "paid", timeout=timedelta(seconds=10))

    env.app.register(waiter)
    handle = await env.start(waiter)
    (wait,) = await env.waits(handle)
    env.app._runtime.engine.loader.wake(handle.instance_id, TimedOut(wait.wait_id))
    await handle.result(timeout=30)
    timed_out = (await env.app.get_history(handle.instance_id))[1]
    assert timed_out.kind == "wait_timed_out"
    assert timed_out.at == wait.due_at


@workflow
async def timed(ctx: WorkflowContext) -> Any:
    return (await wait_event(ctx, "paid", timeout=timedelta(seconds=10))).data


async def test_an_event_behind_one_that_is_too_late_only_by_another_clock(env: Environment, elsewhere: App) -> None:
    """Both are here before our time is over."""
    env.app.register(timed)
    handle = await env.start(timed)
    env.clock._now += 11_000_000
    await elsewhere.send_event("paid", "test", 1)
    env.clock._now -= 11_000_000
    await env.send_event("paid", "test", 2)
    await env.advance(12)
    assert await handle.result(timeout=30) == 1


async def test_an_event_that_came_before_the_clock_was_set_back(env: Environment) -> None:
    """By its stamp it is later than the end of a wait that begins only now."""

    @workflow
    async def patient(ctx: WorkflowContext) -> Any:
        await wait_event(ctx, "go")
        return (await wait_event(ctx, "paid", timeout=timedelta(seconds=10))).data

    env.app.register(patient)
    handle = await env.start(patient)
    await env.advance(3600)
    await env.send_event("paid", "test", 1)
    env.clock._now -= 3600_000_000
    await env.send_event("go", "test")
    await env.advance(12)
    assert await handle.result(timeout=30) == 1
