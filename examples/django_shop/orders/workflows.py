"""The workflow of an order, and the app that views and the worker use."""

import sqlite3
from functools import cache

from django.conf import settings

from romancy import TransactionContext, WorkflowContext, activity, wait_event, workflow
from romancy.sync import App


@activity(transactional=True)
def book_payment(ctx: TransactionContext[sqlite3.Connection], order_id: int, amount: int) -> int | None:
    """Insert the payment. If the worker dies, the row and the result are both there, or neither is."""
    ctx.connection.execute("UPDATE orders_order SET state = 'paid' WHERE id = ?", (order_id,))
    payment = "INSERT INTO orders_payment (order_id, amount) VALUES (?, ?)"
    return ctx.connection.execute(payment, (order_id, amount)).lastrowid


@workflow
async def fulfil(ctx: WorkflowContext, order_id: int) -> int | None:
    paid = await wait_event(ctx, "payment.received", subject=str(order_id))
    return await book_payment(ctx, order_id, paid.data["amount"])


def make_app(*, worker: bool) -> App:
    return App(settings.DATABASE, workflows=[fulfil], worker=worker)


@cache
def romancy() -> App:
    """Return the app of this process, started at its first use: servers fork before they serve.

    It only starts workflows and sends events. `manage.py work` runs them. Call this outside of a transaction: the first
    start creates Romancy's tables.
    """
    app = make_app(worker=False)
    app.start()
    return app
