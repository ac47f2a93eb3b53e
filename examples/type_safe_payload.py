"""Receive event data as your own types, validated.

With `model=`, `event.data` is a `PaymentCompleted`, for you and for the type checker. An event
whose data does not fit is not lost, and the workflow keeps waiting.
"""

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, Field

from romancy import App, WorkflowContext, WorkflowFailed, wait_event, workflow


class PaymentCompleted(BaseModel):
    payment_id: str
    amount: Decimal = Field(gt=0)
    status: Literal["success", "declined"]


class Paid(BaseModel):
    order_id: str
    payment_id: str
    amount: Decimal


@workflow
async def payment(ctx: WorkflowContext, order_id: str, patience: timedelta = timedelta(minutes=5)) -> Paid:
    event = await wait_event(ctx, "payment.completed", model=PaymentCompleted, subject=order_id, timeout=patience)
    if event.data.status != "success":
        raise ValueError(f"payment {event.data.payment_id} was {event.data.status}")
    return Paid(order_id=order_id, payment_id=event.data.payment_id, amount=event.data.amount)


WORKFLOWS = [payment]


async def main() -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        good = await app.start_workflow(payment, "ORD-1")
        bad = await app.start_workflow(payment, "ORD-2")
        for order_id, data in (
            ("ORD-1", {"payment_id": "PAY-0", "amount": "-5", "status": "success"}),  # does not fit
            ("ORD-1", {"payment_id": "PAY-1", "amount": "99.99", "status": "success"}),
            ("ORD-2", {"payment_id": "PAY-2", "amount": "10.00", "status": "declined"}),
        ):
            await app.send_event("payment.completed", "payment-service", data, subject=order_id)
        paid = await good.result(timeout=10)
        print(f"{paid.order_id}: {paid.amount} paid with {paid.payment_id}")
        try:
            await bad.result(timeout=10)
        except WorkflowFailed as failed:
            print(f"ORD-2: {failed.error_type}, {failed.message}")


if __name__ == "__main__":
    asyncio.run(main())

# expect: ORD-1: 99.99 paid with PAY-1
# expect: ORD-2: ValueError, payment PAY-2 was declined
