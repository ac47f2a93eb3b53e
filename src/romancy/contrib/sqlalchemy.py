"""SQLAlchemy sessions inside the transaction of an activity.

>>> @activity(transactional=True)
... async def pay(ctx: TransactionContext, order: str) -> int:
...     async with async_session(ctx) as session:
...         payment = Payment(order=order)
...         session.add(payment)
...         await session.flush()
...         return payment.id

A commit of the session ends a savepoint: the rows are committed together with the result of the activity. When the
block ends without an error, the session is committed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sqlalchemy import StaticPool, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from romancy.api.context import TransactionContext
from romancy.errors import TerminalError

__all__ = ["async_session", "session"]


@asynccontextmanager
async def async_session(ctx: TransactionContext[Any], /, **options: Any) -> AsyncGenerator[AsyncSession]:
    """Return a session in the transaction of an activity, on PostgreSQL. `options` are passed to `AsyncSession`."""
    connection = ctx.connection
    if isinstance(connection, sqlite3.Connection):
        raise TerminalError(
            "the database is SQLite: write `with session(ctx)` instead of `async with async_session(ctx)`"
        )

    async def connect() -> Any:
        return connection

    # asyncpg makes a savepoint of a transaction inside ours.
    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=StaticPool)
    given: dict[str, Any] = {"expire_on_commit": False, **options}
    try:
        async with AsyncSession(engine, **given) as opened:
            yield opened
            await opened.commit()
    finally:
        await engine.dispose(close=False)


@contextmanager
def session(ctx: TransactionContext[Any], /, **options: Any) -> Generator[Session]:
    """Return a session in the transaction of an activity, on SQLite. `options` are passed to `Session`."""
    connection = ctx.connection
    if not isinstance(connection, sqlite3.Connection):
        raise TerminalError(
            "the database is PostgreSQL: write `async with async_session(ctx)` instead of `with session(ctx)`"
        )
    engine = create_engine("sqlite://", creator=lambda: _Joined(connection), poolclass=StaticPool)
    given: dict[str, Any] = {"join_transaction_mode": "create_savepoint", **options}
    try:
        with engine.connect() as bound:
            bound.begin()
            with Session(bound, **given) as opened:
                yield opened
                opened.commit()
    finally:
        engine.dispose(close=False)


class _Joined:
    """A connection whose transaction belongs to somebody else: SQLAlchemy would end it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def commit(self) -> None:
        """Do nothing: the transaction is committed together with the result of the activity."""

    def rollback(self) -> None:
        """Do nothing: the session rolls back to its savepoint."""

    def close(self) -> None:
        """Do nothing: the connection is still needed."""
