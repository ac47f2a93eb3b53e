"""What people see of transactional activities: while they run, while they wait for one another, and afterwards."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2

from romancy import (
    NO_RETRY,
    ActivityContext,
    App,
    Client,
    HTTPOptions,
    RetryPolicy,
    TransactionContext,
    WorkerOptions,
    WorkflowContext,
    activity,
    workflow,
)
from romancy.service import runtime_of
from tests.engine.helpers import command, until


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
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as visitor:
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


@activity
async def look(ctx: ActivityContext) -> int:
    return 1


@activity(transactional=True, retry=RetryPolicy(max_attempts=2, initial=0))
async def pay_at_last(ctx: TransactionContext[Any], good_from: int) -> int:
    if ctx.attempt < good_from:
        raise ValueError("not yet")
    return good_from


@workflow
async def marked(ctx: WorkflowContext) -> None:
    await look(ctx)
    await pay_at_last(ctx, 2)
    await pay_at_last(ctx, 9)


@workflow
async def unrelated(ctx: WorkflowContext) -> None: ...


MARKED = [
    ("started", False),
    ("activity_completed", False),
    ("attempt_failed", True),
    ("activity_completed", True),
    ("attempt_failed", True),
    ("activity_failed", True),
]


async def test_the_history_says_what_was_transactional_without_the_code(db: str) -> None:
    async with App(db, workflows=[marked]) as app:
        handle = await app.start_workflow(marked.options(instance_id="order"))
        await until(lambda: runtime_of(app).engine.metrics.workflows_ended["marked", "failed"])
        assert await handle.status() == "failed"
    async with App(db, workflows=[unrelated], http=HTTPOptions(open=True)) as app:
        assert [(entry.kind, entry.transactional) for entry in await app.get_history("order")] == MARKED
        transport = httpx2.ASGITransport(app)
        async with Client("http://localhost", transport=transport, retry_for=0) as client:
            assert [(entry.kind, entry.transactional) for entry in await client.get_history("order")] == MARKED
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as visitor:
            page = (await visitor.get("/viewer/instances/order")).text
    assert page.count(">in one transaction</span>") == 1
    assert page.count(">rolled back</span>") == 3
    assert page.count("; in one transaction with its result") == 1
    shown = await command(db, "show", "order")
    assert shown.count("(in one transaction)") == 1
    assert shown.count("(rolled back)") == 3


async def test_the_mark_survives_a_retry_and_a_fork(db: str) -> None:
    async with App(db, workflows=[marked]) as app:
        await app.start_workflow(marked.options(instance_id="order"))
        await until(lambda: runtime_of(app).engine.metrics.workflows_ended["marked", "failed"])
        await app.retry_workflow("order")
        await until(lambda: runtime_of(app).engine.metrics.workflows_ended["marked", "failed"] == 2)
        assert [(e.kind, e.transactional) for e in await app.get_history("order")][:6] == MARKED
        await app.fork_workflow("order", at=3, new_id="copy")
        await until(lambda: runtime_of(app).engine.metrics.workflows_ended["marked", "failed"] == 3)
        assert [(e.kind, e.transactional) for e in await app.get_history("copy")][:4] == MARKED[:4]


@activity
async def wait_long(ctx: ActivityContext) -> None:
    ctx.state.append(1)
    await asyncio.Event().wait()


@activity(transactional=True)
async def book(ctx: TransactionContext[Any]) -> None: ...


@workflow
async def books(ctx: WorkflowContext) -> None:
    await book(ctx)
    await asyncio.gather(wait_long(ctx), wait_long(ctx))


async def test_why_leaves_out_what_has_ended(db: str) -> None:
    """Its attempts stay recorded until the code has received its result, but it neither runs nor starts again."""
    begun: list[int] = []
    async with App(db, workflows=[books], worker=WorkerOptions(grace=0), state=begun) as app:
        await app.start_workflow(books.options(instance_id="order"))
        await until(lambda: len(begun) == 2)
        snapshot = await runtime_of(app).engine.storage.load("order")
        assert snapshot is not None
        assert [attempt.op for attempt in snapshot.attempts] == ["book:1"]
        running = await command(db, "why", "order")
    assert "last recorded: activity_completed book:1" in running
    assert "activities in their first attempt, which are recorded when they end" in running
    assert "activity book:1:" not in running
    stopped = await command(db, "why", "order")
    assert "last recorded: activity_completed book:1" in stopped
    assert "activity book:1:" not in stopped
