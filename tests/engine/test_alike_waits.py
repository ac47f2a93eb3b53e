"""One instance that waits for the same many times at once: each event goes to one wait, in order, at a fair price."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pydantic
import pytest

from romancy import App, WorkflowContext, wait_event, workflow
from romancy.core.open_operations import OpenOperations
from romancy.testing import Environment, environment
from tests.engine.helpers import until

COUNT = 200


@workflow
async def collect(ctx: WorkflowContext, count: int) -> list[Any]:
    """Many approvals, whoever gives them."""
    return [event.data for event in await asyncio.gather(*(wait_event(ctx, "approval") for _ in range(count)))]


async def approve(env: Environment, first: int, last: int) -> None:
    """One after the other."""
    for n in range(first, last):
        await env.app.send_event("approval", "test", n)
    await env.settle()


async def approve_at_once(env: Environment, first: int, last: int) -> None:
    await asyncio.gather(*(env.app.send_event("approval", "test", n) for n in range(first, last)))
    await env.settle()


Approve = Callable[[Environment, int, int], Awaitable[None]]
ways = pytest.mark.parametrize("send", [approve, approve_at_once])


@ways
async def test_events_after_the_waits_are_taken_in_order_each_once(env: Environment, send: Approve) -> None:
    handle = await env.start(collect, COUNT)
    await send(env, 0, COUNT - 1)
    assert len(await env.waits(handle)) == 1
    await send(env, COUNT - 1, COUNT)
    assert await handle.result() == list(range(COUNT))


@ways
async def test_events_before_the_waits_are_taken_in_order_each_once(env: Environment, send: Approve) -> None:
    @workflow
    async def late(ctx: WorkflowContext) -> list[Any]:
        await wait_event(ctx, "begin")
        return await collect.fn(ctx, COUNT)

    handle = await env.start(late)
    await send(env, 0, COUNT)
    await env.send_event("begin", "test")
    assert await handle.result() == list(range(COUNT))


async def test_some_before_and_some_after(env: Environment) -> None:
    @workflow
    async def late(ctx: WorkflowContext) -> list[Any]:
        await wait_event(ctx, "begin")
        return await collect.fn(ctx, COUNT)

    handle = await env.start(late)
    await approve_at_once(env, 0, COUNT // 2)
    await env.app.send_event("begin", "test")  # and on they come, while it reads
    await approve_at_once(env, COUNT // 2, COUNT)
    assert await handle.result() == list(range(COUNT))


async def test_across_restarts(env: Environment) -> None:
    handle = await env.start(collect, COUNT)
    for first in range(0, COUNT, 50):
        await approve_at_once(env, first, first + 25)
        await env.restart()
        await approve(env, first + 25, first + 50)
        assert len(await env.waits(handle)) == COUNT - first - 50
        await env.restart()
    assert await handle.result() == list(range(COUNT))


async def test_a_crash_in_the_middle_of_it(env: Environment) -> None:
    handle = await env.start(collect, COUNT)
    sends = [asyncio.ensure_future(env.app.send_event("approval", "test", n, id=f"{n}")) for n in range(COUNT)]
    await until(lambda: sends[0].done())
    await env.restart()
    await asyncio.gather(*sends, return_exceptions=True)
    for n in range(COUNT):  # again, as a careful sender would
        await env.app.send_event("approval", "test", n, id=f"{n}")
    assert sorted(await handle.result()) == list(range(COUNT))


async def test_more_events_than_waits_leave_the_rest_for_later(env: Environment) -> None:
    @workflow
    async def twice(ctx: WorkflowContext) -> list[Any]:
        return await collect.fn(ctx, 10) + await collect.fn(ctx, 5)

    handle = await env.start(twice)
    await approve_at_once(env, 0, 20)
    assert await handle.result() == list(range(15))


class Number(pydantic.BaseModel):
    n: int


class Text(pydantic.BaseModel):
    text: str


async def test_waits_of_other_models_beside_them_get_what_fits_them(env: Environment) -> None:
    @workflow
    async def mixed(ctx: WorkflowContext) -> list[list[Any]]:
        numbers = [wait_event(ctx, "approval", model=Number) for _ in range(20)]
        texts = [wait_event(ctx, "approval", model=Text) for _ in range(20)]
        turns = [wait for pair in zip(numbers, texts, strict=True) for wait in pair]
        found = [event.data for event in await asyncio.gather(*turns)]
        return [[x.n for x in found if isinstance(x, Number)], [x.text for x in found if isinstance(x, Text)]]

    handle = await env.start(mixed)
    for n in range(20):
        await env.app.send_event("approval", "test", {"text": f"{n}"})
    await env.restart()
    await asyncio.gather(*(env.app.send_event("approval", "test", {"n": n}) for n in range(20)))
    await env.settle()
    assert await handle.result() == [list(range(20)), [f"{n}" for n in range(20)]]


@pytest.mark.parametrize("new_first", [False, True])
async def test_waits_from_now_on_beside_those_from_the_beginning(env: Environment, new_first: bool) -> None:
    @workflow
    async def both(ctx: WorkflowContext) -> list[list[Any]]:
        await wait_event(ctx, "begin")
        old = [wait_event(ctx, "approval") for _ in range(10)]
        new = [wait_event(ctx, "approval", since="now") for _ in range(10)]
        found = [event.data for event in await asyncio.gather(*(new + old if new_first else old + new))]
        return [found[10:], found[:10]] if new_first else [found[:10], found[10:]]

    handle = await env.start(both)
    await approve_at_once(env, 0, 10)
    await env.advance(1)
    await env.send_event("begin", "test")
    assert len(await env.waits(handle)) == 10, "the earlier ones are for those that reach back"
    await env.advance(1)
    await env.restart()
    await approve_at_once(env, 10, 20)
    reaching_back, from_now_on = await handle.result()
    assert reaching_back == list(range(10))
    assert sorted(from_now_on) == list(range(10, 20))


async def test_filters_beside_them_take_only_their_own(env: Environment) -> None:
    @workflow
    async def filtered(ctx: WorkflowContext) -> list[Any]:
        mine = [wait_event(ctx, "approval", where={"by": "ada"}) for _ in range(10)]
        any_one = [wait_event(ctx, "approval") for _ in range(10)]
        return [event.data["by"] for event in await asyncio.gather(*mine, *any_one)]

    handle = await env.start(filtered)
    await asyncio.gather(*(env.app.send_event("approval", "test", {"by": "bob", "n": n}) for n in range(10)))
    await asyncio.gather(*(env.app.send_event("approval", "test", {"by": "ada", "n": n}) for n in range(10)))
    await env.settle()
    assert await handle.result() == ["ada"] * 10 + ["bob"] * 10


@workflow
async def picky(ctx: WorkflowContext, by: str | None) -> Any:
    return (await wait_event(ctx, "approval", where=None if by is None else {"by": by})).data["n"]


async def test_events_of_one_batch_are_told_apart(env: Environment) -> None:
    """What was found for one of them is not taken for found by the next."""
    for n, by in enumerate([None, "ada", "bob"]):
        await env.start(picky.options(instance_id=f"i{n}"), by)
    sends = [env.app.send_event("approval", "test", {"by": by, "n": n}) for n, by in enumerate(["ada", "bob", "eve"])]
    receipts = await asyncio.gather(*sends)
    assert [receipt.delivered for receipt in receipts] == [2, 2, 1]
    await env.settle()
    assert [(await env.app.get_instance(f"i{n}")).output for n in range(3)] == [0, 0, 1]


# --- the price --------------------------------------------------------------------------------------------------------
async def statements(app: App, act: Callable[[], Awaitable[None]]) -> int:
    """How many statements the database ran while something happened."""
    storage: Any = app._runtime.engine.storage
    seen: list[str] = []
    await storage._writer.call(lambda c: c.set_trace_callback(seen.append))
    try:
        await act()
    finally:
        await storage._writer.call(lambda c: c.set_trace_callback(None))
    return len([s for s in seen if not s.startswith("PRAGMA")])


async def cost(send: Approve, count: int) -> int:
    async with environment(workflows=[collect]) as env:
        handle = await env.start(collect, count)

        async def act() -> None:
            await send(env, 0, count)
            assert await handle.result() == list(range(count))

        return await statements(env.app, act)


@pytest.mark.sqlite
@ways
async def test_four_times_the_waits_cost_about_four_times_as_much(send: Approve) -> None:
    few, many = await cost(send, COUNT // 4), await cost(send, COUNT)
    assert many < few * 6, f"{few} statements for {COUNT // 4} waits, {many} for {COUNT}"


async def work(send: Approve, count: int) -> int:
    """Instructions of SQLite's machine, in thousands, while so many events come for so many waits."""
    async with environment(workflows=[collect]) as env:
        handle = await env.start(collect, count)
        storage: Any = env.app._runtime.engine.storage
        done: list[None] = []
        await storage._writer.call(lambda c: c.set_progress_handler(lambda: done.append(None), 1_000))
        try:
            await send(env, 0, count)
            assert await handle.result() == list(range(count))
        finally:
            await storage._writer.call(lambda c: c.set_progress_handler(None, 0))
        return len(done)


@pytest.mark.sqlite
@ways
async def test_waits_that_are_alike_are_not_looked_through_for_every_event(send: Approve) -> None:
    few, many = await work(send, COUNT), await work(send, 4 * COUNT)
    assert many < few * 6, f"{few} thousand instructions for {COUNT} waits, {many} for {4 * COUNT}"


class Watched(OpenOperations):
    """Counts how often somebody goes through all of it."""

    walks = 0

    def values(self) -> Any:
        self.walks += 1
        return super().values()


async def test_the_status_is_known_without_going_through_what_is_open(env: Environment) -> None:
    handle = await env.start(collect, COUNT)
    instance = env.app._runtime.engine.scheduler.residents[handle.instance_id].instance
    watched = Watched()
    for operation in instance.ops.values():
        watched.open(operation)
    watched.opened.clear()
    instance.ops = watched
    await approve_at_once(env, 0, COUNT - 1)
    assert await handle.status() == "waiting_for_event"
    assert len(watched) == 1
    assert watched.walks < 5, "not once per event"


@workflow
async def impatient(ctx: WorkflowContext, count: int) -> int:
    waits = (wait_event(ctx, "approval", timeout=60) for _ in range(count))
    return len(await asyncio.gather(*waits, return_exceptions=True))


async def calls(count: int) -> int:
    """Calls of Python functions while the time of so many waits runs out."""
    async with environment(workflows=[impatient]) as env:
        handle = await env.start(impatient, count)
        made = 0

        def call(frame: object, event: str, argument: object) -> None:
            nonlocal made
            made += event == "call"

        sys.setprofile(call)
        try:
            await env.advance(61)
            assert await handle.result() == count
        finally:
            sys.setprofile(None)
        return made


@pytest.mark.sqlite
async def test_ten_times_the_timeouts_at_once_cost_about_ten_times_as_much() -> None:
    few, many = await calls(COUNT), await calls(10 * COUNT)
    assert many < few * 15, f"{few} calls for {COUNT} waits, {many} for {10 * COUNT}"
