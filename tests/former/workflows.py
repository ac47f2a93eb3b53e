"""What runs in the recorded databases. Never change it: old histories must go on."""

from __future__ import annotations

from romancy import (
    NO_RETRY,
    ActivityContext,
    ReceivedEvent,
    RetryPolicy,
    WaitTimeout,
    WorkflowContext,
    activity,
    sleep,
    wait_event,
    workflow,
)

FOREVER = 10**9
"""Seconds. Recorded databases are used for years."""


@activity
async def reserve(ctx: ActivityContext, number: int) -> str:
    return f"reserved {number}"


@activity(retry=RetryPolicy(max_attempts=5, initial=2, jitter=0.0))
async def flaky(ctx: ActivityContext) -> int:
    if ctx.attempt == 1:
        raise ValueError("once more")
    return ctx.attempt


@activity(retry=NO_RETRY)
async def broken(ctx: ActivityContext) -> None:
    raise ValueError("for good")


@workflow
async def order(ctx: WorkflowContext, number: int) -> list[str]:
    reserved = await reserve(ctx, number)
    paid = await wait_event(ctx, "paid", where={"order": number}, timeout=FOREVER)
    return [reserved, paid.id, await reserve(ctx, number + 100)]


@workflow
async def sleepy(ctx: WorkflowContext) -> str:
    await sleep(ctx, 2)
    return (await wait_event(ctx, "early")).id


@workflow
async def impatient(ctx: WorkflowContext) -> str:
    try:
        await wait_event(ctx, "never", timeout=2)
    except WaitTimeout:
        return "timed out"
    return "not so"


@workflow
async def persistent(ctx: WorkflowContext) -> int:
    return await flaky(ctx)


@workflow
async def failing(ctx: WorkflowContext) -> None:
    await broken(ctx)


@workflow(on_event="placed")
async def placed(ctx: WorkflowContext, event: ReceivedEvent[dict[str, int]]) -> str:
    return (await wait_event(ctx, "paid", where={"order": event.data["order"]})).id


WORKFLOWS = [order, sleepy, impatient, persistent, failing, placed]
