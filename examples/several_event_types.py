"""Wait for several event types at once: the first event decides.

Each type has its own model, and `event.data` is their union, so `match` and the type checker
can distinguish them. You need no second wait and no polling with short timeouts.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from romancy import App, WorkflowContext, wait_event, workflow


@dataclass
class PaymentCompleted:
    payment_id: str


@dataclass
class PaymentFailed:
    reason: str


@workflow
async def payment_outcome(ctx: WorkflowContext, order_id: str, patience: timedelta = timedelta(minutes=1)) -> str:
    event = await wait_event(
        ctx,
        "payment.completed",
        "payment.failed",
        model=(PaymentCompleted, PaymentFailed),
        subject=order_id,
        timeout=patience,
    )
    match event.data:
        case PaymentCompleted(payment_id):
            return f"paid with {payment_id}"
        case PaymentFailed(reason):
            return f"not paid, {reason} ({event.type})"


WORKFLOWS = [payment_outcome]


async def main() -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        lucky = await app.start_workflow(payment_outcome, "ORD-1")
        unlucky = await app.start_workflow(payment_outcome, "ORD-2")
        await app.send_event("payment.failed", "bank", PaymentFailed("card expired"), subject="ORD-2")
        await app.send_event("payment.completed", "bank", PaymentCompleted("PAY-1"), subject="ORD-1")
        print("ORD-1:", await lucky.result(timeout=10))
        print("ORD-2:", await unlucky.result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())

# expect: ORD-1: paid with PAY-1
# expect: ORD-2: not paid, card expired (payment.failed)
