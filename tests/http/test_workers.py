"""Workers, and attempts that begin now: over HTTP, through the client, blocking, and on the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner

from romancy import (
    ActivityContext,
    App,
    Client,
    HTTPOptions,
    InstanceNotFound,
    NotRetryable,
    RetryPolicy,
    WorkflowContext,
    activity,
    sync,
    wait_event,
    workflow,
)
from romancy.cli.group import main
from romancy.service import runtime_of

SLOW = RetryPolicy(initial=timedelta(hours=1), maximum=timedelta(hours=1))


@activity(retry=SLOW)
async def dial(ctx: ActivityContext) -> int:
    if ctx.attempt == 1:
        raise ConnectionError("busy")
    return ctx.attempt


@workflow
async def calling(ctx: WorkflowContext) -> int:
    return await dial(ctx)


async def retrying(app: App, id: str) -> None:
    """An instance whose activity failed, and is to be tried again in an hour."""
    await app.start_workflow(calling, instance_id=id)
    desk, clock = runtime_of(app).engine.storage.desk, runtime_of(app).clock
    async with asyncio.timeout(30):
        while id not in {row.instance for row in await desk.retrying(clock.now(), 10)}:  # noqa: ASYNC110 - a table
            await asyncio.sleep(0.005)


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[App, Client, httpx2.AsyncClient]]:
    async with App(":memory:", workflows=[calling], http=HTTPOptions(open=True)) as app:
        transport = httpx2.ASGITransport(app)
        async with (
            Client("http://localhost", transport=transport, retry_for=0) as client,
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as raw,
        ):
            yield app, client, raw


async def test_workers_are_the_same_through_the_client() -> None:
    async with serving() as (app, client, raw):
        [worker] = await client.list_workers()
        assert [replace(found, until=worker.until) for found in await app.list_workers()] == [worker]
        [item] = (await raw.get("/api/workers")).json()["items"]
        assert (item["id"], item["workflows"], item["is_alive"]) == (worker.id, ["calling"], True)


async def test_retry_now() -> None:
    async with serving() as (app, client, raw):
        await retrying(app, "c")
        assert (await raw.get("/metrics")).text.count("romancy_instances_retrying 1.0") == 1
        assert await client.retry_now("c")
        assert await app.handle("c").result(timeout=30) == 2
        with pytest.raises(NotRetryable, match="has ended"):
            await client.retry_now("c")
        with pytest.raises(InstanceNotFound):
            await client.retry_now("nobody")
        assert (await raw.post("/api/instances/c/retry-now")).status_code == 409
        assert "romancy_instances_overdue 0.0" in (await raw.get("/metrics")).text


async def test_nothing_waits() -> None:
    async with serving() as (app, client, raw):
        await app.start_workflow("elsewhere", instance_id="e")
        answer = await raw.post("/api/instances/e/retry-now")
        assert (answer.status_code, answer.json()) == (
            200, {"instance_id": "e", "status": "running", "begins": False},
        )  # fmt: skip
        assert not await client.retry_now("e")


@workflow
async def waiting(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "go")


async def test_a_server_tells_that_no_worker_is_alive(tmp_path: Path) -> None:
    db = f"{tmp_path}/shop.db"
    async with App(db, workflows=[waiting]) as app:
        await app.start_workflow(waiting, instance_id="a")
        while await app.handle("a").status() != "waiting_for_event":  # noqa: ASYNC110
            await asyncio.sleep(0)
    async with App(db, worker=False, http=HTTPOptions(open=True)) as app:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as raw:
            await app.send_event("go", "test")
            lines = (await raw.get("/metrics")).text.splitlines()
            assert {"romancy_workers_alive 0.0", "romancy_deliveries_waiting 1.0"} < set(lines)
            assert "romancy_instances_blocked 0.0" in lines
            async with App(db, workflows=[waiting]) as worker:
                assert await worker.handle("a").result(timeout=20) is None
                lines = (await raw.get("/metrics")).text.splitlines()
                assert {"romancy_workers_alive 1.0", "romancy_deliveries_waiting 0.0"} < set(lines)


def test_on_the_command_line_and_blocking(tmp_path: Path) -> None:
    db = str(tmp_path / "romancy.db")
    with sync.App(db, workflows=[calling]) as app:
        app.start_workflow(calling, instance_id="c")
        [worker] = app.list_workers()
        listed = json.loads(CliRunner().invoke(main, ["workers", "-d", db, "--json"]).stdout)["items"]
        assert [item["id"] for item in listed] == [worker.id]
        assert "calling" in CliRunner().invoke(main, ["workers", "-d", db], env={"COLUMNS": "200"}).stdout
        shown = None
        for _ in range(500):
            shown = CliRunner().invoke(main, ["retry-now", "c", "-d", db])
            if shown.exit_code == 0:
                break
        assert shown is not None
        assert "'c' begin now" in shown.output
        assert app.handle("c").result(timeout=30) == 2
        with pytest.raises(NotRetryable):
            app.retry_now("c")
        again = CliRunner().invoke(main, ["retry-now", "nobody", "c", "-d", db])
        assert again.exit_code != 0
        assert "'nobody'" in again.output
        assert "has ended" in again.output
