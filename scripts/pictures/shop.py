"""A shop: workflows that a viewer of a real one would show."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from romancy import (
    NO_RETRY,
    ActivityContext,
    Queue,
    RetryPolicy,
    WaitTimeout,
    WorkflowContext,
    activity,
    ask,
    sleep,
    wait_event,
    workflow,
)

pause: Callable[[float], Awaitable[None]] = asyncio.sleep
"""How activities take their time. `past.py` replaces it by one that follows its clock."""
images = Queue("images", max_concurrent=3)


@dataclass
class Order:
    id: str
    customer: str
    country: str
    total: float


@dataclass
class Stage:
    stage: str
    parcels: int = 0


@dataclass
class Decision:
    approved: bool
    note: str = ""


@activity(retry=RetryPolicy(initial=4, jitter=0))
async def reserve_stock(ctx: ActivityContext, order_id: str) -> str:
    await pause(1.5)
    if ctx.attempt < 3:
        raise TimeoutError("the warehouse does not answer")
    return "shelf 7"


@activity
async def print_label(ctx: ActivityContext, order_id: str) -> str:
    await pause(3)
    return f"label-{order_id}.pdf"


@activity
async def book_courier(ctx: ActivityContext, order_id: str, country: str) -> str:
    await pause(6)
    return "courier tomorrow, 9:00 to 11:00"


@activity
async def send_invoice(ctx: ActivityContext, order_id: str, total: float) -> str:
    await pause(4)
    return f"INV-{order_id}"


@activity
async def pack(ctx: ActivityContext, order_id: str, shelf: str) -> int:
    await pause(5)
    return 2


@workflow(attributes={"customer": "order.customer", "country": "order.country"})
async def order(ctx: WorkflowContext, order: Order) -> str:
    """Reserves, waits for the payment, packs, and waits until the parcels have arrived."""
    ctx.set_view(Stage("waiting for the payment"))
    shelf = await reserve_stock(ctx, order.id)
    try:
        await wait_event(ctx, "payment.completed", subject=order.id, timeout=timedelta(days=3))
    except WaitTimeout:
        return "not paid"
    ctx.set_view(Stage("packing"))
    await asyncio.gather(
        print_label(ctx, order.id), book_courier(ctx, order.id, order.country), send_invoice(ctx, order.id, order.total)
    )
    parcels = await pack(ctx, order.id, shelf)
    ctx.set_view(Stage("on its way", parcels))
    await wait_event(ctx, "parcel.delivered", subject=order.id, timeout=timedelta(days=5))
    return f"{parcels} parcels delivered"


@activity
async def charge_card(ctx: ActivityContext, cart: str) -> str:
    return f"charged for {cart}"


@workflow
async def checkout(ctx: WorkflowContext, cart: str) -> str:
    """Charges the card of a customer."""
    return await charge_card(ctx, cart)


@activity(retry=NO_RETRY)
async def ask_tax_office(ctx: ActivityContext, number: str) -> None:
    raise ValueError(f"{number} is not a valid VAT number")


@workflow
async def check_vat(ctx: WorkflowContext, number: str) -> None:
    """Has a VAT number checked."""
    await ask_tax_office(ctx, number)


@activity(retry=NO_RETRY)
async def fetch_prices(ctx: ActivityContext, supplier: str) -> None:
    raise ConnectionError(f"{supplier} answered 502 Bad Gateway")


@workflow
async def update_prices(ctx: WorkflowContext, supplier: str) -> None:
    """Takes over the prices of a supplier."""
    await fetch_prices(ctx, supplier)


@activity(retry=RetryPolicy(initial=timedelta(minutes=2), maximum=timedelta(minutes=30), jitter=0))
async def push_stock(ctx: ActivityContext, market: str) -> None:
    raise TimeoutError(f"{market} took longer than 30 s")


@workflow
async def sync_stock(ctx: WorkflowContext, market: str) -> None:
    """Tells a marketplace what is in stock."""
    await push_stock(ctx, market)


@workflow
async def cart_reminder(ctx: WorkflowContext, cart: str) -> str:
    """Reminds a customer of a forgotten cart."""
    await sleep(ctx, timedelta(minutes=75))
    return f"reminded of {cart}"


@workflow(queue=images)
async def resize_images(ctx: WorkflowContext, product: str) -> None:
    """Makes the small pictures of a product."""
    await resize(ctx, product)


@activity
async def resize(ctx: ActivityContext, product: str) -> None:
    await pause(3600)


@workflow
async def refund(ctx: WorkflowContext, order_id: str, amount: float, reason: str) -> str:
    """Asks a person whether a customer gets the money back."""
    people = ["ada@shop.example", "grace@shop.example"]
    text = f"The customer wants {amount:.2f} € back: {reason}."
    question = await ask(ctx, Decision, title=f"Refund {order_id}?", text=text, people=people)
    answer = await question.answer(timeout=timedelta(days=2))
    return "refunded" if answer.data.approved else "refused"


WORKFLOWS = [order, checkout, check_vat, update_prices, sync_stock, cart_reminder, resize_images, refund]
