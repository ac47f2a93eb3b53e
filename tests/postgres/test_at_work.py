"""The server and the worker are busy at the same time, and an event needs few statements until it has its effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    App,
    Database,
    WorkerOptions,
    WorkflowContext,
    activity,
    wait_event,
    workflow,
)
from romancy.engine import scheduler
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


@workflow
async def listener(ctx: WorkflowContext) -> str:
    return (await wait_event(ctx, "all")).id


async def all_wait(app: App, count: int) -> None:
    engine = app._runtime.engine
    while not engine.is_idle or (await engine.storage.catalog.counts(count)).get("waiting_for_event", 0) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_the_first_commits_leave_before_the_last_instance_is_fed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, happened = 60, list[str]()
    monkeypatch.setattr(scheduler, "MOST", 20)
    async with App(Database(place.url, schema=place.schema), workflows=[listener]) as app:
        handles = [await app.start_workflow(listener) for _ in range(many)]
        await all_wait(app, many)
        engine = app._runtime.engine
        commit, step = engine.storage.commit, engine.scheduler._step

        def sent(batch: Any, answered: Callable[..., None]) -> None:
            happened.extend(["sent"] if batch.commits else [])
            commit(batch, answered)

        def fed(resident: Any) -> None:
            happened.append("fed")
            step(resident)

        monkeypatch.setattr(engine.storage, "commit", sent)
        monkeypatch.setattr(engine.scheduler, "_step", fed)
        event = await app.send_event("all", "test", id="e")
        assert event.delivered == many
        assert {await handle.result(20) for handle in handles} == {"e"}
    assert happened.index("sent") == 20


async def waits_for_nobody(place: Place) -> str:
    """Start an instance that waits, and whose worker has stopped."""
    async with App(Database(place.url, schema=place.schema), workflows=[listener]) as app:
        handle = await app.start_workflow(listener)
        await all_wait(app, 1)
    return handle.instance_id


async def test_an_event_wakes_an_instance_without_a_claim(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = await waits_for_nobody(place)
    async with App(Database(place.url, schema=place.schema), workflows=[listener]) as app:

        async def nothing(*_: Any) -> list[Any]:
            return []

        monkeypatch.setattr(app._runtime.engine.storage, "claim", nothing)
        await app.send_event("all", "test", id="e")
        assert await app.handle(instance, listener).result(20) == "e"


async def test_a_worker_without_room_leaves_an_instance_to_a_claim(place: Place) -> None:
    instance = await waits_for_nobody(place)
    held = asyncio.Event()

    @activity
    async def hold(ctx: ActivityContext) -> None:
        await held.wait()

    @workflow
    async def busy(ctx: WorkflowContext) -> None:
        await hold(ctx)

    options = WorkerOptions(max_resident=1)
    async with App(Database(place.url, schema=place.schema), workflows=[listener, busy], worker=options) as app:
        handle = await app.start_workflow(busy)
        while not app._runtime.engine.activities.running:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await app.send_event("all", "test", id="e")
        row = await app._runtime.engine.storage.catalog.instance(instance)
        assert row is not None
        assert row.owner != app._runtime.engine.worker_id
        held.set()
        await handle.result(20)
        assert await app.handle(instance, listener).result(20) == "e"
