"""An activity of one workflow sends the event that another workflow waits for.

The event is stored together with the activity's result, in one commit, so a failed attempt sends
nothing. In an `async def` activity use `send_event(ctx, ...)`. In a plain `def` activity, which
runs in a thread, use `ctx.send_event(...)`.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from romancy import ActivityContext, App, WorkflowContext, activity, send_event, wait_event, workflow


@dataclass
class PaymentCompleted:
    payment_id: str
    amount: float


@dataclass
class ReceiptPrinted:
    pages: int


@activity
async def process_payment(ctx: ActivityContext, order_id: str, amount: float) -> None:
    payment = PaymentCompleted(f"PAY-{order_id}", amount)
    await send_event(ctx, "payment.completed", "payment-processor", payment, subject=order_id)


@activity
def print_receipt(ctx: ActivityContext, order_id: str) -> None:
    ctx.send_event("receipt.printed", "printer", ReceiptPrinted(pages=2), subject=order_id)


@workflow
async def cashier(ctx: WorkflowContext, order_id: str, amount: float) -> str:
    await process_payment(ctx, order_id, amount)
    await print_receipt(ctx, order_id)
    return "next, please"


@workflow
async def customer(ctx: WorkflowContext, order_id: str, patience: timedelta = timedelta(minutes=5)) -> str:
    paid = await wait_event(ctx, "payment.completed", model=PaymentCompleted, subject=order_id, timeout=patience)
    receipt = await wait_event(ctx, "receipt.printed", model=ReceiptPrinted, subject=order_id, timeout=patience)
    return f"{paid.data.payment_id}, {paid.data.amount:.2f}, a receipt of {receipt.data.pages} pages"


WORKFLOWS = (cashier, customer)


async def main() -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        waiting = await app.start_workflow(customer, "ORD-1")
        working = await app.start_workflow(cashier, "ORD-1", 19.5)
        print("cashier:", await working.result(timeout=10))
        print("customer:", await waiting.result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())

# expect: cashier: next, please
# expect: customer: PAY-ORD-1, 19.50, a receipt of 2 pages
