"""What the page of an instance shows of an activity that waits for a slot."""

from __future__ import annotations

import asyncio

import httpx2

from romancy import NO_RETRY, ActivityContext, App, HTTPOptions, WorkerOptions, WorkflowContext, activity, workflow


@activity(name="<print>", max_per_worker=1, retry=NO_RETRY)
async def print_page(ctx: ActivityContext, page: int) -> None:
    ctx.state.set()
    await asyncio.Event().wait()


@workflow
async def prints(ctx: WorkflowContext) -> None:
    await asyncio.gather(print_page(ctx, 1), print_page(ctx, 2))


async def test_one_that_waits_for_a_slot_says_so() -> None:
    begun, web = asyncio.Event(), HTTPOptions(open=True)
    async with App(":memory:", workflows=[prints], http=web, worker=WorkerOptions(grace=0), state=begun) as app:
        await app.start_workflow(prints.options(instance_id="book"))
        await asyncio.wait_for(begun.wait(), 10)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as visitor:
            page = (await visitor.get("/viewer/instances/book")).text
    assert page.count("waits for a free slot") == 1
    assert "waits for a free slot (1 of 1 of `&lt;print&gt;` run here)" in page
