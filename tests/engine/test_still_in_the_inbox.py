"""Verbs about an instance that is still in the inbox find it there, and rows that can't be read stall nobody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from romancy import (
    App,
    InstanceNotFound,
    InvalidInput,
    NotRetryable,
    WorkerOptions,
    WorkflowContext,
    wait_event,
    workflow,
)
from romancy.service import runtime_of
from tests.engine.helpers import command
from tests.engine.test_guests_at_work import caller


@workflow
async def double(ctx: WorkflowContext, n: int) -> int:
    return 2 * n


@workflow
async def patient(ctx: WorkflowContext) -> Any:
    return (await wait_event(ctx, "go")).data


@pytest.fixture
async def app(db: str) -> AsyncIterator[App]:
    """Nothing is taken in by itself."""
    async with App(db, workflows=[double, patient], worker=WorkerOptions(grace=0.5)) as app:
        engine: Any = runtime_of(app).engine
        await engine._moving.stop()
        yield app


async def left(app: App, *ids: str) -> None:
    async with caller(app) as me, me.transaction() as connection:
        for id in ids:
            await app.within(connection).start_workflow(patient, instance_id=id)


async def all_emitted(app: App, id: str) -> list[Any]:
    return [emission.value async for emission in app.handle(id).emitted()]


async def test_every_verb_finds_it(app: App) -> None:
    await left(app, "a")
    assert (await app.get_instance("a")).workflow == "patient"
    await left(app, "b")
    assert [entry.kind for entry in await app.get_history("b")] == ["started"]
    await left(app, "c")
    assert await app.cancel_workflow("c")
    await left(app, "d")
    assert not await app.resume_workflow("d")
    await left(app, "e")
    with pytest.raises(NotRetryable):
        await app.retry_workflow("e")
    await left(app, "f")
    assert (await app.fork_workflow("f")).created
    await left(app, "g")
    assert await app.handle("g").view() is None
    await left(app, "h")
    followed = asyncio.create_task(all_emitted(app, "h"))
    await app.cancel_workflow("h")
    assert await followed == []
    await left(app, "i")
    with pytest.raises(InvalidInput, match="no open question"):
        await app.answer_question("i", "ann", True)
    for verb in (app.get_instance, app.get_history, app.cancel_workflow, app.resume_workflow, app.retry_workflow):
        with pytest.raises(InstanceNotFound):
            await verb("none")


@pytest.mark.parametrize("words", [("show",), ("why",), ("replay", "--module", __name__)], ids=lambda words: words[0])
async def test_commands_find_it(app: App, db: str, words: tuple[str, ...]) -> None:
    assert "no instance" in await command(db, words[0], "none", *words[1:])
    await left(app, "b")
    assert "no instance" not in await command(db, words[0], "b", *words[1:])


async def test_a_pending_handle_finds_it(app: App) -> None:
    async with caller(app) as me, me.transaction() as connection:
        handles = [(await app.within(connection).start_workflow(patient)).handle() for _ in range(4)]
    assert await handles[0].status() in ("running", "waiting_for_event")
    assert await handles[1].view() is None
    assert await handles[2].cancel()
    with pytest.raises(NotRetryable):
        await handles[3].retry()


async def test_over_http(app: App) -> None:
    transport = httpx2.ASGITransport(app, client=("127.0.0.1", 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for number, path in enumerate(("", "/history", "/result")):
            await left(app, f"h{number}")
            assert (await client.get(f"/api/instances/h{number}{path}")).status_code == 200
        await left(app, "c")
        assert (await client.post("/cancel/c", json={})).status_code == 200
        assert (await client.get("/api/instances/none")).status_code == 404


async def test_rows_of_a_newer_library_stall_nobody(
    app: App, backend: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kind or an option that is not known here: such rows stay, which is told once, and the others are moved."""
    monkeypatch.setattr("romancy.engine.mover.PAGE", 3)
    engine, storage = runtime_of(app).engine, runtime_of(app).engine.storage
    table = "romancy_inbox" if backend == "sqlite" else f"{storage.schema}.inbox"  # type: ignore[attr-defined]
    async with caller(app) as me:
        if backend == "sqlite":
            await me.run("PRAGMA ignore_check_constraints = 1")
        else:
            await me.run(f"ALTER TABLE {table} DROP CONSTRAINT inbox_check")
        await left(app, "k1", "k2", "o1", "o2", "good")
        async with me.transaction() as connection:
            await app.within(connection).send_event("go", "here", 7)
        await me.run(f"UPDATE {table} SET kind = 9 WHERE instance IN ('k1', 'k2')")
        await me.run(f"""UPDATE {table} SET options = '{{"magic": 1}}' WHERE instance IN ('o1', 'o2')""")
        with caplog.at_level(logging.WARNING, "romancy"):
            await engine.take_in()
            await engine.take_in()
    assert await app.handle("good").result(timeout=10) == 7
    told = [record.getMessage() for record in caplog.records if "can't be read" in record.getMessage()]
    assert len(told) == 4
    assert "kind 9" in told[0]
    assert "magic" in told[2]
    assert len(await storage.catalog.inbox(0, 10)) == 4


async def test_what_was_refused_is_kept_as_long_as_ended_instances(app: App, backend: str) -> None:
    """It is removed some time after it was refused, however long it had waited before."""
    engine, storage = runtime_of(app).engine, runtime_of(app).engine.storage
    await left(app, "a")
    await engine.take_in()
    async with caller(app) as me, me.transaction() as connection:
        await app.within(connection).start_workflow(double, 2, instance_id="a")
        await app.within(connection).send_event("other", "here")
    await engine.take_in()
    refused_by = engine.clock.now()
    [row] = (await app.list_inbox()).items
    assert row.refused is not None
    hour = 3600 * 1_000_000
    assert await storage.prune(refused_by - hour, 0, 10) == 0
    assert [item.number for item in (await app.list_inbox()).items] == [row.number]
    await left(app, "waits")
    assert await storage.prune(refused_by + 1, 0, 10) == 1
    assert [item.instance_id for item in (await app.list_inbox()).items] == ["waits"]
