"""SQLAlchemy sessions in the transaction of an activity: they can neither commit it nor roll it back."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from romancy import (
    NO_RETRY,
    RetryPolicy,
    TransactionContext,
    WorkflowContext,
    WorkflowFailed,
    activity,
    wait_event,
    workflow,
)
from romancy.contrib.sqlalchemy import async_session, session
from romancy.testing import Environment, environment
from tests.engine.ledgers import Ledger, ledger_of


class Base(DeclarativeBase):
    pass


class Entry(Base):
    __tablename__ = "ledger"
    entry: Mapped[str] = mapped_column(primary_key=True)


@pytest.fixture
async def env(db: str) -> AsyncIterator[Environment]:
    async with environment(database=db, retry=NO_RETRY) as env:
        yield env


@pytest.fixture
async def ledger(env: Environment) -> Ledger:
    return await ledger_of(env)


async def run(env: Environment, ledger: Ledger, ends_badly: bool) -> None:
    seen: list[Any] = []

    @activity(transactional=True)
    async def pay(ctx: TransactionContext) -> int:
        if ledger.is_sqlite:
            with session(ctx) as s:
                s.add(Entry(entry="first"))
                s.commit()
                seen.append(await ledger.rows())
                s.add(Entry(entry="undone"))
                s.flush()
                s.rollback()
                s.add(Entry(entry="last"))
        else:
            await ctx.connection.execute(f'SET LOCAL search_path = "{ledger.storage.schema}"')
            async with async_session(ctx) as s:
                s.add(Entry(entry="first"))
                await s.commit()
                seen.append(await ledger.rows())
                s.add(Entry(entry="undone"))
                await s.flush()
                await s.rollback()
                s.add(Entry(entry="last"))
        await ledger.add(ctx, "plain")
        if ends_badly:
            raise OSError("no")
        return 1

    @workflow
    async def shop(ctx: WorkflowContext) -> int:
        return await pay(ctx) + await pay_again(ctx)

    @activity(transactional=True)
    async def pay_again(ctx: TransactionContext) -> int:
        return 1

    handle = await env.start(shop)
    if ends_badly:
        with pytest.raises(WorkflowFailed, match="OSError"):
            await handle.result()
    else:
        assert await handle.result() == 2
    assert seen == [[]], "a commit of the session shows nothing outside"


async def test_a_session_joins_the_transaction(env: Environment, ledger: Ledger) -> None:
    await run(env, ledger, ends_badly=False)
    assert await ledger.rows() == ["first", "last", "plain"]


async def test_a_session_is_rolled_back_with_the_transaction(env: Environment, ledger: Ledger) -> None:
    await run(env, ledger, ends_badly=True)
    assert await ledger.rows() == []


async def test_the_wrong_kind_of_session_is_not_tried_again(env: Environment, ledger: Ledger) -> None:
    tries: list[int] = []

    @activity(transactional=True, retry=RetryPolicy(max_attempts=3))
    async def pay(ctx: TransactionContext) -> None:
        tries.append(1)
        if ledger.is_sqlite:
            async with async_session(ctx) as s:
                await s.execute(text("SELECT 1"))
        else:
            with session(ctx) as s:
                s.execute(text("SELECT 1"))

    @workflow
    async def shop(ctx: WorkflowContext) -> None:
        await pay(ctx)

    with pytest.raises(WorkflowFailed, match=r"the database is .* instead of"):
        await (await env.start(shop)).result()
    assert len(tries) == 1


async def test_an_error_that_is_listed_says_what_it_said(env: Environment, ledger: Ledger) -> None:
    """It refers to the error of the driver, which can't be stored; its message can."""
    await ledger.outside(f"CREATE UNIQUE INDEX once ON {ledger.table} (entry)")

    @activity(transactional=True, raises=[IntegrityError])
    async def pay(ctx: TransactionContext) -> None:
        if ledger.is_sqlite:
            with session(ctx) as s:
                s.add(Entry(entry="same"))
        else:
            await ctx.connection.execute(f'SET LOCAL search_path = "{ledger.storage.schema}"')
            async with async_session(ctx) as s:
                s.add(Entry(entry="same"))

    @workflow
    async def shop(ctx: WorkflowContext) -> list[str]:
        await pay(ctx)
        try:
            await pay(ctx)
        except IntegrityError as error:
            said = [str(error), repr(error), type(error).__name__]
            await wait_event(ctx, "go")
            return said
        return []

    handle = await env.start(shop)
    await env.restart()
    await env.send_event("go", "test")
    text, shown, name = await handle.result()
    assert "unique" in text.lower()
    assert "[SQL: INSERT INTO ledger" in text
    assert shown == f"IntegrityError({text!r})"
    assert name == "IntegrityError"
