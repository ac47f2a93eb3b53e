"""The server stores one batch while we follow up on the one before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from romancy import ActivityContext, App, Database, WorkflowContext, activity, workflow
from tests.postgres.conftest import Place


@activity
async def twice(ctx: ActivityContext, n: int) -> int:
    return 2 * n


@workflow
async def doubling(ctx: WorkflowContext, n: int) -> int:
    return await twice(ctx, n)


async def test_the_next_batch_leaves_before_the_last_is_followed_up(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = 500
    happened: list[str] = []
    async with App(Database(place.url, schema=place.schema), workflows=[doubling]) as app:
        commit, begin = app._runtime.engine.storage.commit, app._runtime.engine.revival.begin

        def sent(batch: Any, answered: Callable[..., None]) -> None:
            happened.append(f"{len(batch.starts)} sent")
            commit(batch, answered)

        def begun(start: Any) -> None:
            happened.append("begun")
            begin(start)

        monkeypatch.setattr(app._runtime.engine.storage, "commit", sent)
        monkeypatch.setattr(app._runtime.engine.revival, "begin", begun)
        handles = await asyncio.gather(*(app.start_workflow(doubling, n) for n in range(many)))
        assert await asyncio.gather(*(handle.result() for handle in handles)) == [2 * n for n in range(many)]
    assert happened.count("begun") == many
    assert happened[:2] == ["250 sent", "250 sent"], "the server had nothing to do while we were busy"
