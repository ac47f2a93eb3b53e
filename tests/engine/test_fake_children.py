"""The test kit and children: a parent is tested without its child, and its children have handles."""

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import pytest

from romancy import (
    ActivityContext,
    ReceivedEvent,
    WorkflowContext,
    WorkflowFailed,
    activity,
    start_workflow,
    step,
    wait_event,
    workflow,
)
from romancy.testing import environment


@workflow
async def pay(ctx: WorkflowContext, amount: int, *, note: str = "") -> dict[str, int]:
    await wait_event(ctx, "never")
    return {"paid": amount}


@workflow
async def order(ctx: WorkflowContext, *amounts: int) -> list[Any]:
    return await asyncio.gather(*(pay(ctx, amount, note="x") for amount in amounts))


@workflow
async def patient(ctx: WorkflowContext) -> str:
    child = await start_workflow(ctx, pay, 1)
    await wait_event(ctx, "go")
    return f"{(await child.result())['paid']}"


@workflow(on_event="placed")
async def placed(ctx: WorkflowContext, event: ReceivedEvent[Any]) -> Any:
    raise AssertionError("the real one")


@activity
async def charge(ctx: ActivityContext, amount: int) -> int:
    raise AssertionError("the real one")


@workflow
async def charging(ctx: WorkflowContext) -> list[int]:
    return [await charge(ctx, 1), await step(ctx, "check", lambda: 2, result=int)]


async def test_replacing_needs_no_event_loop() -> None:
    """A fixture of pytest that replaces something may be a plain function."""
    async with environment(workflows=[charging]) as env:

        def prepare() -> None:
            env.replace(pay, lambda amount, note="": {"paid": 0})
            env.replace(charge, lambda amount: 7)
            env.replace_step("check", lambda: 8)

        await asyncio.to_thread(prepare)
        assert await (await env.start(charging)).result() == [7, 8]


async def test_a_fake_takes_the_place_of_a_child() -> None:
    calls: list[tuple[int, str]] = []

    def fake(amount: int, *, note: str = "") -> dict[str, int]:
        calls.append((amount, note))
        return {"paid": -amount}

    async with environment(workflows=[order]) as env:
        env.replace(pay, fake)
        handle = await env.start(order, 1, 2)
        assert await handle.result() == [{"paid": -1}, {"paid": -2}]
        children = await env.children(handle)
        assert [await child.result() for child in children] == [{"paid": -1}, {"paid": -2}]
    assert calls == [(1, "x"), (2, "x")]
    async with environment(workflows=[order]) as env:
        handle = await env.start(order, 1)
        assert await handle.status() == "waiting_for_child", "other environments have the real one"


async def test_an_async_fake_a_mock_and_one_that_fails() -> None:
    async def fake(amount: int, *, note: str) -> dict[str, int]:
        await asyncio.sleep(3600)
        return {"paid": 0}

    async def failing(amount: int, *, note: str) -> dict[str, int]:
        raise ValueError("no money")

    async with environment(workflows=[order]) as env:
        env.replace(pay, fake)
        began = env.now
        assert await (await env.start(order, 1)).result() == [{"paid": 0}]
        assert (env.now - began).total_seconds() == 3600
        mock = AsyncMock(return_value={"paid": 3})
        env.replace(pay, mock)
        assert await (await env.start(order, 1)).result() == [{"paid": 3}]
        mock.assert_awaited_once_with(1, note="x")
        env.replace(pay, failing)
        with pytest.raises(WorkflowFailed, match="no money"):
            await (await env.start(order, 1)).result()


async def test_a_fake_survives_a_restart_and_fits_a_start_by_hand() -> None:
    async with environment(workflows=[patient, pay]) as env:
        env.replace(pay, lambda amount, note="": {"paid": 7})
        handle = await env.start(patient)
        await env.restart()
        await env.send_event("go", "test")
        assert await handle.result() == "7"
        assert await (await env.start(pay, 1)).result() == {"paid": 7}


async def test_a_workflow_that_an_event_starts_can_be_replaced() -> None:
    async with environment(workflows=[placed]) as env:
        env.replace(placed, lambda event: event.data)
        await env.send_event("placed", "test", 5)
        [found] = (await env.app.list_instances()).items
        assert (found.status, found.output) == ("completed", 5)


async def test_what_a_fake_returns_must_fit_the_workflow() -> None:
    async with environment(workflows=[order]) as env:
        env.replace(pay, lambda amount, note: "text")  # type: ignore[arg-type, return-value]
        with pytest.raises(WorkflowFailed):
            await (await env.start(order, 1)).result()


async def test_children_in_the_order_of_their_start() -> None:
    async with environment(workflows=[order, pay]) as env:
        handle = await env.start(order, *range(30))
        children = await env.children(handle)
        assert [child.instance_id for child in children] == [f"{handle.instance_id}/pay:{n}" for n in range(1, 31)]
        assert await env.children(children[0]) == []
        await env.cancel(children[0])
        assert await children[0].status() == "cancelled"
