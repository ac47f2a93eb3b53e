"""Cancel a waiting workflow; it cleans up and stays cancelled.

In the workflow, cancelling raises `asyncio.CancelledError`, and `finally` can still run
activities. For the caller, `result()` raises `WorkflowCancelled`. A later event has no effect.
"""

import asyncio
from datetime import timedelta

from romancy import ActivityContext, App, WorkflowCancelled, WorkflowContext, activity, wait_event, workflow


@activity
async def hold_seat(ctx: ActivityContext, seat: str) -> None:
    print(f"seat {seat}: held")
    held: asyncio.Event = ctx.state
    held.set()


@activity
async def release_seat(ctx: ActivityContext, seat: str) -> None:
    print(f"seat {seat}: free again")


@workflow
async def booking(ctx: WorkflowContext, seat: str, patience: timedelta = timedelta(hours=1)) -> str:
    paid = False
    try:
        await hold_seat(ctx, seat)
        await wait_event(ctx, "seat.paid", subject=seat, timeout=patience)
        paid = True
    finally:
        if not paid:  # cancelled or timed out
            await release_seat(ctx, seat)
    return f"seat {seat} is yours"


WORKFLOWS = [booking]


async def main() -> None:
    held = asyncio.Event()
    async with App(":memory:", workflows=WORKFLOWS, state=held) as app:
        handle = await app.start_workflow(booking, "12A", instance_id="booking-1")
        await held.wait()  # cancelling works at any time; this gives it something to clean up
        await app.cancel_workflow("booking-1", reason="changed my mind")
        try:
            print(await handle.result(timeout=10))
        except WorkflowCancelled as cancelled:
            print(f"cancelled: {cancelled.reason}")
        receipt = await app.send_event("seat.paid", "bank", subject="12A")
        print(f"a late payment reaches {receipt.delivered} workflows; the booking is {await handle.status()}")


if __name__ == "__main__":
    asyncio.run(main())

# expect: seat 12A: held
# expect: seat 12A: free again
# expect: cancelled: changed my mind
# expect: a late payment reaches 0 workflows; the booking is cancelled
