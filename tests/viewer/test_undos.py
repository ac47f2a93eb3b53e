"""The page of an instance whose undos have run, or failed."""

from __future__ import annotations

import httpx2
import pytest

from romancy import (
    NO_RETRY,
    ActivityContext,
    App,
    HTTPOptions,
    WorkflowBlocked,
    WorkflowContext,
    activity,
    saga,
    workflow,
)


@activity
async def reserve(ctx: ActivityContext, room: str) -> str:
    return room


@reserve.compensate
@activity(retry=NO_RETRY)
async def release(ctx: ActivityContext, booking: str) -> None:
    if booking == "a":
        raise ConnectionError("closed")


@workflow
async def trip(ctx: WorkflowContext) -> None:
    await reserve(ctx, "a")
    await reserve(ctx, "b")
    raise ValueError("no luck")


async def test_undos_are_linked_to_their_calls_and_cancelling_is_explained() -> None:
    async with App(":memory:", workflows=[trip], http=HTTPOptions(open=True)) as app:
        handle = await app.start_workflow(trip.options(instance_id="t"))
        with pytest.raises(WorkflowBlocked):
            await handle.result(timeout=30)
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            page = (await client.get("/viewer/instances/t")).text
    assert page.count('<line class="link"') == 2
    assert page.count('class="op-row') == 2, "an undo has no row of its own"
    assert "undo, in the row of the call it undoes" in page
    assert "the undos that failed are tried again" in page
    assert "What it did will not be undone: " in page
    assert "Fork here" not in page, "its results no longer hold"
    assert "so the new one starts again from its input" in page
    assert "so it can't be retried" not in page, "it is blocked"


@workflow
async def nested(ctx: WorkflowContext) -> None:
    await reserve(ctx, "c")
    async with saga(ctx):
        await reserve(ctx, "a")
        raise ValueError("no luck")


async def test_undos_outside_of_the_block_are_named_even_after_a_cancellation() -> None:
    async with App(":memory:", workflows=[nested], http=HTTPOptions(open=True)) as app:
        handle = await app.start_workflow(nested.options(instance_id="t"))
        with pytest.raises(WorkflowBlocked):
            await handle.result(timeout=30)
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            blocked = (await client.get("/viewer/instances/t")).text
            await app.cancel_workflow("t")
            cancelled = (await client.get("/viewer/instances/t")).text
    assert 'What it did will not be undone: <bdi class="mono">reserve:2, reserve:1</bdi>' in blocked
    for page in (blocked, cancelled):
        assert 'Not undone: <bdi class="mono">reserve:2, reserve:1</bdi>' in page
