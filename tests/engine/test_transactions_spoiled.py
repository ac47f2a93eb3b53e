"""Transactional activities that change the rows of their own instance: they end, and nothing of it is committed."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from romancy import (
    InstanceNotFound,
    RetryPolicy,
    TransactionContext,
    WorkflowContext,
    WorkflowFailed,
    activity,
    workflow,
)
from romancy.testing import Environment, environment
from tests.engine.ledgers import Ledger, ledger_of

QUICK = RetryPolicy(max_attempts=3, initial=timedelta(seconds=1), jitter=0)


@pytest.fixture
async def env(db: str) -> AsyncIterator[Environment]:
    async with environment(database=db, retry=QUICK) as env:
        yield env


@pytest.fixture
async def ledger(env: Environment) -> Ledger:
    return await ledger_of(env)


def instances(ledger: Ledger) -> str:
    return "romancy_instances" if ledger.is_sqlite else f'"{ledger.storage.schema}".instances'


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "change", ["DELETE FROM {}", "UPDATE {} SET version = version + 1", "UPDATE {} SET owner = 'me'"]
)
async def test_it_fails_for_good(env: Environment, ledger: Ledger, change: str) -> None:
    tries: list[int] = []

    @activity(transactional=True)
    async def spoil(ctx: TransactionContext) -> None:
        tries.append(1)
        await ledger.add(ctx, "a")
        await ledger.run(ctx, change.format(instances(ledger)))

    @workflow
    async def shop(ctx: WorkflowContext) -> None:
        await spoil(ctx)

    with pytest.raises(WorkflowFailed, match="changed the row of its own instance"):
        await (await env.start(shop)).result()
    assert len(tries) == 2, "the first time, it may have seen the row as it was before"
    assert await ledger.rows() == []


@pytest.mark.timeout(20)
async def test_an_instance_that_is_deleted_from_outside_is_dropped(
    env: Environment, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    if ledger.is_sqlite:
        pytest.skip("nothing else is written during a transaction")

    @activity(transactional=True)
    async def pay(ctx: TransactionContext) -> None:
        await ledger.outside(f"DELETE FROM {instances(ledger)}")

    @workflow
    async def shop(ctx: WorkflowContext) -> None:
        await pay(ctx)

    handle = await env.start(shop)
    await env.settle()
    with pytest.raises(InstanceNotFound):
        await handle.status()
    assert not env.app._runtime.engine.residents.get(handle.instance_id)
    assert "was deleted while it ran" in caplog.text
