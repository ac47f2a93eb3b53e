"""`romancy why` of an instance whose activity waits for a slot, asked of the server that runs it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from romancy import ActivityContext, App, WorkerOptions, WorkflowContext, activity, workflow
from tests.helpers import eventually
from tests.http.conftest import Live


@activity(max_per_worker=1)
async def print_page(ctx: ActivityContext, page: int) -> None:
    await asyncio.Event().wait()


@workflow
async def prints(ctx: WorkflowContext) -> None:
    await asyncio.gather(print_page(ctx, 1), print_page(ctx, 2))


def test_why_says_that_it_waits_for_a_slot(romancy: Any, answered: Any, tmp_path: Path) -> None:
    live = Live(App(tmp_path / "slots.db", workflows=[prints], worker=WorkerOptions(grace=0)))
    try:
        assert live.client.post("/api/workflows/prints/start", json={"instance_id": "book"}).status_code == 201
        eventually(lambda: "free slot" in live.client.get("/api/instances/book").text, within=10)
        said = "waits for a free slot (1 of 1 of `print_page` run here)"
        printed = romancy("why", "book", "--url", live.url).stdout
        assert printed.count(said) == 1
        assert printed.index("activity print_page:2") < printed.index(said)
        assert [wait["slot"] for wait in answered("why", "book", "--url", live.url)["waits"]] == [None, said]
    finally:
        live.stop()
