"""Route events to the right one of many instances.

There are two ways: put the id into the event type, or (the CloudEvents way) into the event's
subject. The order in which events arrive does not matter.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from romancy import ActivityContext, App, WorkflowContext, activity, wait_event, workflow


@dataclass
class PaymentCompleted:
    payment_id: str
    amount: float


@dataclass
class ParcelDelivered:
    signed_by: str


@activity
async def initiate_payment(ctx: ActivityContext, order_id: str) -> None:
    print(f"{order_id}: please pay")


@workflow
async def order(
    ctx: WorkflowContext,
    order_id: str,
    payment_within: timedelta = timedelta(minutes=5),
    delivery_within: timedelta = timedelta(days=14),
) -> str:
    await initiate_payment(ctx, order_id)
    paid = await wait_event(ctx, f"payment.completed.{order_id}", model=PaymentCompleted, timeout=payment_within)
    delivered = await wait_event(
        ctx, "parcel.delivered", model=ParcelDelivered, subject=order_id, timeout=delivery_within
    )
    return f"{paid.data.payment_id} for {paid.data.amount:.2f}, signed by {delivered.data.signed_by}"


WORKFLOWS = [order]


async def main() -> None:
    people = {"ORD-1": "Ada", "ORD-2": "Bob", "ORD-3": "Cleo"}
    async with App(":memory:", workflows=WORKFLOWS) as app:
        handles = {order_id: await app.start_workflow(order, order_id) for order_id in people}
        for order_id in reversed(people):
            await app.send_event("parcel.delivered", "post", ParcelDelivered(people[order_id]), subject=order_id)
        for number, order_id in enumerate(people, start=1):
            payment = PaymentCompleted(f"PAY-{number}", amount=number * 10)
            await app.send_event(f"payment.completed.{order_id}", "bank", payment)
        results = {order_id: await handle.result(timeout=10) for order_id, handle in handles.items()}
    for order_id, result in results.items():
        print(f"{order_id}: {result}")


if __name__ == "__main__":
    asyncio.run(main())

# expect: ORD-1: PAY-1 for 10.00, signed by Ada
# expect: ORD-2: PAY-2 for 20.00, signed by Bob
# expect: ORD-3: PAY-3 for 30.00, signed by Cleo
