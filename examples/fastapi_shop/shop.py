"""A shop on FastAPI, SQLAlchemy and PostgreSQL: orders and their workflows are stored in one database.

An order and the start of its workflow commit together, and so do a payment and the result of the activity that takes
it. Whatever crashes, there is no order without a workflow, and no payment that a workflow does not know of.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from romancy import App, TransactionContext, WorkflowContext, activity, wait_event, workflow
from romancy.contrib.sqlalchemy import async_session

DATABASE = os.environ.get("DATABASE_URL", "postgresql://localhost/shop")
engine = create_async_engine(DATABASE.replace("postgresql://", "postgresql+asyncpg://", 1))
sessions = async_sessionmaker(engine)


# --- tables ---------------------------------------------------------------------------------------------------------
class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    article: Mapped[str]
    state: Mapped[str] = mapped_column(default="placed")


class Payment(Base):
    __tablename__ = "payments"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int]
    amount: Mapped[int]


# --- workflows ------------------------------------------------------------------------------------------------------
@activity(transactional=True)
async def book_payment(ctx: TransactionContext[Any], order_id: int, amount: int) -> int:
    """Insert the payment. If this process dies, the row and the result are both there, or neither is."""
    async with async_session(ctx) as session:
        payment = Payment(order_id=order_id, amount=amount)
        session.add(payment)
        order = await session.get_one(Order, order_id)
        order.state = "paid"
        await session.flush()
        return payment.id


@workflow
async def fulfil(ctx: WorkflowContext, order_id: int) -> int:
    paid = await wait_event(ctx, "payment.received", subject=str(order_id))
    return await book_payment(ctx, order_id, paid.data["amount"])


romancy = App(DATABASE, workflows=[fulfil])


# --- HTTP -----------------------------------------------------------------------------------------------------------
@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with romancy:
        yield
    await engine.dispose()


api = FastAPI(lifespan=lifespan)
api.mount("/romancy", romancy)  # the viewer, and POST /romancy/ for events


async def transaction() -> AsyncIterator[AsyncSession]:
    async with sessions.begin() as session:
        yield session


Transaction = Annotated[AsyncSession, Depends(transaction, scope="function")]
"""Commits before the response is sent."""


class Placed(BaseModel):
    article: str


@api.post("/orders", status_code=201)
async def place(order: Placed, session: Transaction) -> dict[str, Any]:
    row = Order(article=order.article)
    session.add(row)
    await session.flush()
    pending = await romancy.within(session).start_workflow(fulfil, row.id, instance_id=f"order-{row.id}")
    return {"id": row.id, "workflow": pending.instance_id}


@api.post("/orders/{order_id}/payment", status_code=202)
async def pay(order_id: int, amount: int, session: Transaction) -> dict[str, str]:
    if await session.get(Order, order_id) is None:
        raise HTTPException(404, f"there is no order {order_id}")
    event = {"amount": amount}
    await romancy.within(session).send_event("payment.received", "shop", event, subject=str(order_id))
    return {"state": "payment received"}


@api.get("/orders/{order_id}")
async def show(order_id: int, session: Transaction) -> dict[str, Any]:
    order = await session.get(Order, order_id)
    if order is None:
        raise HTTPException(404, f"there is no order {order_id}")
    return {"id": order.id, "article": order.article, "state": order.state}
