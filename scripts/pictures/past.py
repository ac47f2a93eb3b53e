"""What happened in the shop in the last hour. The engine is the real one, and its clock is set by hand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from romancy.core.model import SECOND
from romancy.service import runtime_of
from romancy.testing import Environment, ManualClock, environment
from scripts.pictures import shop
from scripts.pictures.shop import Order

MINUTES = 58
KEYS = ["only for pictures, so it need not be a secret"]
ORDERS = [
    ("Ada Lovelace", "GB", 129.90, 9),
    ("Grace Hopper", "US", 48.00, 22),
    ("Emmy Noether", "DE", 240.50, 31),
    ("Katherine Johnson", "US", 17.95, 38),
    ("Sofia Kovalevskaya", "SE", 86.20, 45),
    ("Mary Cartwright", "GB", 310.00, 52),
]
"""Customers, countries, totals, and the minute of the order."""


@asynccontextmanager
async def _taking_time(clock: ManualClock) -> AsyncGenerator[None]:
    """Let activities take their time by this clock."""

    async def pause(seconds: float) -> None:
        over = asyncio.Event()
        clock.call_at(clock.now() + int(seconds * SECOND), over.set)
        await over.wait()

    before, shop.pause = shop.pause, pause
    try:
        yield
    finally:
        shop.pause = before


async def live_through(database: Path) -> None:
    """Fill a database with the last hour of the shop."""
    async with environment(workflows=shop.WORKFLOWS, database=str(database), signing_keys=KEYS) as env:
        began = env.clock.now() - (MINUTES * 60 + 20) * SECOND
        env.clock.turn_to(began)
        counting = runtime_of(env.app).engine.counting
        async with _taking_time(env.clock):
            chance = random.Random(7)
            for minute in range(MINUTES):
                await _minute(env, minute, chance)
                await env.turn_to(began + (minute + 1) * 60 * SECOND)
                await counting.round()  # a duty that follows the real clock


async def _minute(env: Environment, minute: int, chance: random.Random) -> None:
    start = env.app.start_workflow
    busy = 5 + 4 * (minute > 20) + 5 * (35 < minute < 50)
    for n in range(chance.randint(busy - 3, busy + 3)):
        await start(shop.checkout.options(instance_id=f"checkout-{minute:02}{n:02}"), f"cart-{minute:02}{n:02}")
    if minute > 30 and chance.random() < 0.35:
        supplier = chance.choice(["northwind", "contoso"])
        await start(shop.update_prices.options(instance_id=f"prices-{minute:02}"), supplier)
    if minute in (12, 40):
        await start(shop.check_vat.options(instance_id=f"vat-{minute}"), f"DE{minute}3456789")
    if minute in (18, 36, 50):
        market = {18: "bazaar", 36: "agora", 50: "souk"}[minute]
        await start(shop.sync_stock.options(instance_id=f"stock-{market}"), market)
    if minute % 8 == 1:
        await start(shop.cart_reminder.options(instance_id=f"reminder-{minute:02}"), f"cart-{minute:02}00")
    await _refunds(env, minute)
    for n, (customer, country, total, at) in enumerate(ORDERS, 1):
        await _order(env, Order(f"ORD-{1040 + n}", customer, country, total), minute - at)


async def _refunds(env: Environment, minute: int) -> None:
    asked: dict[int, tuple[Any, ...]] = {
        14: ("ORD-1017", 39.90, "a parcel never arrived"),
        33: ("ORD-1023", 112.00, "the wrong size, twice"),
        51: ("ORD-1031", 18.50, "it was broken"),
    }
    if minute in asked:
        await env.app.start_workflow(shop.refund.options(instance_id=f"refund-{asked[minute][0]}"), *asked[minute])


async def _order(env: Environment, order: Order, age: int) -> None:
    """An order is paid after twelve minutes, and two of them have arrived after a quarter of an hour more."""
    if age == 0:
        await env.app.start_workflow(shop.order.options(instance_id=order.id.lower()), order)
    elif age == 12:
        await env.send_event("payment.completed", "bank", {"amount": order.total}, subject=order.id)
    elif age == 27 and order.country == "GB":
        await env.send_event("parcel.delivered", "courier", {"signed_by": order.customer}, subject=order.id)
