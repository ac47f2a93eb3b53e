"""The workflows of the golden histories. Add new ones; never change or remove one that has a recorded history."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from romancy import (
    NO_RETRY,
    ActivityContext,
    ActivityError,
    ReceivedEvent,
    RetryPolicy,
    WaitTimeout,
    WorkflowContext,
    activity,
    saga,
    send_event,
    sleep,
    wait_event,
    workflow,
)


@dataclass
class Order:
    id: str
    amount: int


class Declined(Exception):
    """An answer, not a fault."""


@activity
async def charge(ctx: ActivityContext, order: Order) -> Order:
    return Order(order.id, order.amount + 1)


@activity(retry=RetryPolicy(max_attempts=3))
async def flaky(ctx: ActivityContext) -> int:
    if ctx.attempt < 3:
        raise ConnectionError("not yet")
    return ctx.attempt


@activity(retry=NO_RETRY)
async def broken(ctx: ActivityContext) -> None:
    raise ValueError("broken")


@activity(raises=[Declined])
async def decline(ctx: ActivityContext) -> None:
    raise Declined("no funds")


@activity
def ship(ctx: ActivityContext, order: Order) -> str:
    ctx.send_event("shipped", "golden", {"order": order.id}, id=f"{order.id}-shipped")
    return f"{order.id} shipped"


@workflow
async def activities(ctx: WorkflowContext, order: Order) -> list[Any]:
    charged, shipped = await charge(ctx, order), await ship(ctx, order)
    return [charged.amount, shipped, str(ctx.uuid4()), ctx.random.random(), ctx.now().isoformat()]


@workflow
async def failures(ctx: WorkflowContext) -> list[str]:
    seen: list[str] = []
    for call in (broken, decline):
        try:
            await call(ctx)
        except (ActivityError, Declined) as error:
            seen.append(f"{type(error).__name__}: {error}")
    return seen


@workflow
async def retries(ctx: WorkflowContext) -> int:
    return await flaky(ctx)


@workflow
async def fails(ctx: WorkflowContext) -> None:
    await broken(ctx)


@workflow
async def waits(ctx: WorkflowContext, id: str) -> list[Any]:
    plain = await wait_event(ctx, "plain")
    typed = await wait_event(ctx, "typed", model=Order, where={"id": id})
    first = await wait_event(ctx, "left", "right", subject="here")
    return [plain.data, typed.data.amount, first.type, typed.time.isoformat()]


@workflow
async def timers(ctx: WorkflowContext) -> list[Any]:
    await sleep(ctx, timedelta(days=30))
    try:
        await wait_event(ctx, "never", timeout=60)
    except WaitTimeout as error:
        return [type(error).__name__, ctx.now().isoformat()]
    return []


@workflow
async def sends(ctx: WorkflowContext) -> str:
    await send_event(ctx, "told", "golden", {"by": ctx.instance_id})
    await sleep(ctx, 1)
    await send_event(ctx, "told", "golden", {"by": ctx.instance_id}, subject="again")
    return "sent"


@workflow
async def cancelled(ctx: WorkflowContext) -> None:
    try:
        await wait_event(ctx, "never")
    finally:
        await charge(ctx, Order("cleanup", 0))


@workflow
async def gathers(ctx: WorkflowContext) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(sleep(ctx, 2))
        quick = group.create_task(charge(ctx, Order("quick", 1)))
    orders = await asyncio.gather(*(charge(ctx, Order(f"{n}", n)) for n in range(3)))
    return [slow.done(), quick.result().amount, [order.amount for order in orders]]


@workflow
async def limits(ctx: WorkflowContext) -> str:
    try:
        async with asyncio.timeout(5):
            await wait_event(ctx, "never")
    except TimeoutError:
        return "too late"
    return "in time"


@workflow(timeout=10)
async def too_long(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "never")


@workflow
async def changed(ctx: WorkflowContext) -> list[bool]:
    before = ctx.patched("before-anything")
    await charge(ctx, Order("one", 1))
    between = ctx.patched("between")
    await wait_event(ctx, "go")
    return [before, between, ctx.patched("between")]


@workflow(name="started", version=2, on_event="begin")
async def started(ctx: WorkflowContext, event: ReceivedEvent[Order]) -> int:
    await sleep(ctx, 1)
    return event.data.amount


DOWN: set[str] = set()
"""Services that are down while a history is recorded."""


@activity(retry=NO_RETRY)
async def call(ctx: ActivityContext, service: str) -> str:
    if service in DOWN:
        raise ConnectionError(f"{service} is down")
    return service


@workflow
async def retried(ctx: WorkflowContext) -> list[Any]:
    key = await call(ctx, str(ctx.uuid4()))
    calls = await asyncio.gather(*(call(ctx, name) for name in ("a", "b", "c")), return_exceptions=True)
    failed = [found for found in calls if isinstance(found, BaseException)]
    if failed:
        await send_event(ctx, "failed", "golden", len(failed))
        raise failed[0]
    event = await wait_event(ctx, "go", timeout=60)
    return [key, calls, event.data]


@workflow
async def forked(ctx: WorkflowContext) -> list[Any]:
    first = await call(ctx, str(ctx.uuid4()))
    return [first, await call(ctx, str(ctx.uuid4()))]


@activity
async def book(ctx: ActivityContext, what: str) -> str:
    return what.upper()


@book.compensate
async def unbook(ctx: ActivityContext, what: str) -> None: ...


@workflow
async def blocks(ctx: WorkflowContext) -> None:
    async def later() -> None:
        await wait_event(ctx, "go")
        await book(ctx, "later")

    await book(ctx, "outside")
    try:
        async with saga(ctx):
            await book(ctx, "inside")
            await asyncio.gather(later(), broken(ctx))
    except ActivityError:
        await wait_event(ctx, "end")
        raise
