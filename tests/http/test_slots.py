"""What an activity that waits for a slot tells over HTTP and through the clients."""

from __future__ import annotations

import asyncio
from typing import Any

from romancy import ActivityContext, Client, WorkflowContext, activity, sync, workflow
from tests.helpers import eventually
from tests.http.conftest import Live

SAID = "waits for a free slot (1 of 1 of `print_page` run here)"


@activity(max_per_worker=1)
async def print_page(ctx: ActivityContext, page: int) -> None:
    await asyncio.Event().wait()


@workflow
async def prints(ctx: WorkflowContext) -> None:
    await asyncio.gather(print_page(ctx, 1), print_page(ctx, 2))


async def test_one_that_waits_for_a_slot_says_so(serve: Any) -> None:
    live: Live = serve(workflows=[prints])
    body = {"instance_id": "book"}
    assert live.client.post("/api/workflows/prints/start", json=body).status_code == 201
    eventually(lambda: "free slot" in live.client.get("/api/instances/book").text, within=10)
    first, second = live.client.get("/api/instances/book").json()["waits"]
    assert "slot" not in first
    assert second["slot"] == SAID
    async with Client(live.url) as client:
        assert [wait.slot for wait in (await client.get_instance("book")).waits] == [None, SAID]
    with sync.Client(live.url) as blocking:
        assert [wait.slot for wait in blocking.get_instance("book").waits] == [None, SAID]
