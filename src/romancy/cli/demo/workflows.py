"""The demo's workflows: an order waits for its payment, a request for a decision, a batch sleeps between parts.

They are ordinary workflows, except that their activities print what they do.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from datetime import timedelta

from romancy import ActivityContext, WaitTimeout, WorkflowContext, activity, sleep, wait_event, workflow

BATCH_SIZE = 10


@dataclass
class PaymentCompleted:
    """The bank's report of a payment."""

    payment_id: str
    amount: float
    status: str


@dataclass
class Decision:
    """A decision on a request."""

    request_id: str
    approver: str
    approved: bool


@dataclass
class Approval:
    """The result of a request."""

    approved: bool
    approver: str | None = None
    escalated: bool = False


def tell(text: str) -> None:
    """Print one line for the user."""
    sys.stdout.write(f"{text}\n")  # one call, so that lines of threads don't mix
    sys.stdout.flush()


@activity
async def initiate_payment(ctx: ActivityContext, order_id: str) -> str:
    tell(f"requesting payment for {order_id}")
    return f"PAY-{order_id}"


@activity
async def pack_order(ctx: ActivityContext, order_id: str, seconds: float) -> str:
    tell(f"packing {order_id} (idempotency key {ctx.idempotency_key})")
    await asyncio.sleep(seconds)
    tell(f"packed {order_id}")
    return f"parcel of {order_id}"


@activity
async def cancel_order(ctx: ActivityContext, order_id: str) -> None:
    tell(f"{order_id} was not paid: cancelling it")


@activity
async def ask_for_approval(ctx: ActivityContext, request_id: str, role: str) -> None:
    tell(f"asking the {role} to decide on {request_id}")


@activity
def process_batch(ctx: ActivityContext, batch: int, items: list[str]) -> int:
    tell(f"processed batch {batch}, {items[0]} to {items[-1]}")
    return len(items)


@workflow
async def payment_with_timeout(
    ctx: WorkflowContext, order_id: str, patience: timedelta = timedelta(minutes=5), packing: float = 1.0
) -> str:
    await initiate_payment(ctx, order_id)
    try:
        paid = await wait_event(ctx, f"payment.completed.{order_id}", model=PaymentCompleted, timeout=patience)
    except WaitTimeout:
        await cancel_order(ctx, order_id)
        return "timeout"
    if paid.data.status != "success":
        await cancel_order(ctx, order_id)
        return "payment failed"
    return await pack_order(ctx, order_id, packing)


@workflow
async def approval_workflow(
    ctx: WorkflowContext, request_id: str, patience: timedelta = timedelta(hours=24)
) -> Approval:
    for role in ("manager", "director"):
        await ask_for_approval(ctx, request_id, role)
        try:
            decided = await wait_event(
                ctx, "approval.decision", model=Decision, where={"request_id": request_id}, timeout=patience
            )
        except WaitTimeout:
            continue
        return Approval(decided.data.approved, decided.data.approver, escalated=role == "director")
    return Approval(approved=False, escalated=True)


@workflow
async def batch_processor(
    ctx: WorkflowContext, batch_id: str, items: list[str], rest: timedelta = timedelta(seconds=5)
) -> list[int]:
    processed: list[int] = []
    for start in range(0, len(items), BATCH_SIZE):
        if start > 0:
            await sleep(ctx, rest)
        processed.append(await process_batch(ctx, start // BATCH_SIZE + 1, items[start : start + BATCH_SIZE]))
    return processed


WORKFLOWS = (payment_with_timeout, approval_workflow, batch_processor)
