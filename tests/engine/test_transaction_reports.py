"""What people see of transactional activities: while they run, while they wait for one another, and afterwards."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from romancy import NO_RETRY, App, HTTPOptions, TransactionContext, WorkerOptions, WorkflowContext, activity, workflow
from romancy.service import runtime_of
from tests.engine.helpers import until


@activity(transactional=True, retry=NO_RETRY)
async def pay(ctx: TransactionContext[Any], fails: bool = False) -> None:
    if fails:
        raise ValueError("no")
    if ctx.state is not None:
        await ctx.state.wait()


@workflow
async def shop(ctx: WorkflowContext, fails: bool = False) -> None:
    await pay(ctx, fails)


@workflow
async def twice(ctx: WorkflowContext) -> None:
    await asyncio.gather(pay(ctx), pay(ctx))


async def test_one_that_runs_and_one_that_waits_for_it(db: str) -> None:
    gate, web = asyncio.Event(), HTTPOptions(open=True)
    worker = WorkerOptions(max_transactions=1, grace=0)
    async with App(db, workflows=[twice], http=web, worker=worker, state=gate) as app:
        handle = await app.start_workflow(twice.options(instance_id="order"))
        await until(lambda: runtime_of(app).engine.activities.running == 2)
        slots = [wait.slot for wait in (await app.get_instance("order")).waits]
        assert "runs in one transaction with its result, since" in str(slots[0])
        assert slots[1] == "waits for a transaction: max_transactions=1 are open"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as visitor:
            running = (await visitor.get("/viewer/instances/order")).text
            gate.set()
            await handle.result(timeout=10)
            ended = (await visitor.get("/viewer/instances/order")).text
    assert "It <bdi>runs in one transaction with its result" in running
    assert "; in one transaction with its result" in ended
    assert ">in one transaction</span>" in ended


async def test_metrics(db: str) -> None:
    async with App(db, workflows=[shop]) as app:
        await (await app.start_workflow(shop)).result(timeout=10)
        failed = await app.start_workflow(shop, True)
        await until(lambda: runtime_of(app).engine.metrics.activities_ended["pay", "failed"])
        m = runtime_of(app).engine.metrics
        assert m.transactions == {("pay", "committed"): 1, ("pay", "rolled_back"): 1}
        assert sum(m.transaction_seconds["pay"].counts) == 2
        assert failed.created
