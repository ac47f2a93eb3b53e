"""An order waits for its payment, but not forever.

The workflow asks for a payment and waits five minutes for `payment.completed.<order>`. If none
arrives, `wait_event` raises `WaitTimeout`, and the workflow cancels both payment and order.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from romancy import ActivityContext, App, WaitTimeout, WorkflowContext, activity, wait_event, workflow


@dataclass
class PaymentCompleted:
    payment_id: str
    status: str


@activity
async def initiate_payment(ctx: ActivityContext, order_id: str) -> str:
    return f"PAY-{order_id}"


@activity
async def cancel_payment(ctx: ActivityContext, payment_id: str) -> None:
    print(f"{payment_id}: cancelled, not paid")


@activity
async def cancel_order(ctx: ActivityContext, order_id: str) -> None:
    print(f"{order_id}: back on the shelf")


@activity
async def fulfill_order(ctx: ActivityContext, order_id: str) -> None:
    print(f"{order_id}: on its way")


@workflow
async def payment_with_timeout(ctx: WorkflowContext, order_id: str, patience: timedelta = timedelta(minutes=5)) -> str:
    payment_id = await initiate_payment(ctx, order_id)
    try:
        event = await wait_event(ctx, f"payment.completed.{order_id}", model=PaymentCompleted, timeout=patience)
    except WaitTimeout:
        await cancel_payment(ctx, payment_id)
        await cancel_order(ctx, order_id)
        return "timeout"
    if event.data.status != "success":
        await cancel_order(ctx, order_id)
        return "payment failed"
    await fulfill_order(ctx, order_id)
    return "completed"


WORKFLOWS = [payment_with_timeout]


async def main() -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        paid = await app.start_workflow(payment_with_timeout, "ORD-1")
        declined = await app.start_workflow(payment_with_timeout, "ORD-2")
        forgotten = await app.start_workflow(payment_with_timeout, "ORD-3", patience=timedelta(seconds=0.2))
        for order_id, status in ("ORD-1", "success"), ("ORD-2", "declined"):
            payment = PaymentCompleted(f"PAY-{order_id}", status)
            await app.send_event(f"payment.completed.{order_id}", "payment-service", payment)
        results = await asyncio.gather(*(order.result(timeout=10) for order in (paid, declined, forgotten)))
    for number, result in enumerate(results, start=1):
        print(f"ORD-{number} ended as: {result}")


if __name__ == "__main__":
    asyncio.run(main())

# expect: ORD-1 ended as: completed
# expect: ORD-2 ended as: payment failed
# expect: ORD-3 ended as: timeout
