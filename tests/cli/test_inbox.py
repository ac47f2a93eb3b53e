"""The inbox as people see it: by the command, and over HTTP."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner, Result

from romancy import App, WorkflowContext, workflow
from romancy.cli.group import main
from romancy.service import runtime_of
from tests.http.conftest import Live


@workflow
async def double(ctx: WorkflowContext, n: int) -> int:
    return 2 * n


async def leave(db: str) -> None:
    """A start and an event, which wait for a worker."""
    async with App(db, worker=False) as app:
        with closing(sqlite3.connect(db)) as connection, connection:
            tx = app.within(connection)
            await tx.start_workflow("double", 2, instance_id="one")
            await tx.send_event("go", "here", id="e1")


async def refuse(db: str) -> None:
    """A start whose id is taken, moved by a worker."""
    async with App(db, workflows=[double]) as app:
        await runtime_of(app).engine.take_in()
        with closing(sqlite3.connect(db)) as connection, connection:
            await app.within(connection).start_workflow(double, 3, instance_id="one")
        await runtime_of(app).engine.take_in()


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "romancy.db")


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def items(db: str) -> list[dict[str, Any]]:
    return json.loads(call("inbox", "-d", db, "--json").stdout)["items"]


def test_the_command(db: str) -> None:
    asyncio.run(leave(db))
    assert [(item["kind"], item["refused"]) for item in items(db)] == [("start", None), ("event", None)]
    shown = call("inbox", "-d", db).stdout
    assert "double one" in shown
    assert "go e1" in shown
    asyncio.run(refuse(db))
    [refused] = items(db)
    assert "different input" in refused["refused"]
    assert "different input" in call("inbox", "-d", db).stdout
    done = call("inbox", "-d", db, "--forget", str(refused["number"]))
    assert done.exit_code == 0
    assert items(db) == []
    again = call("inbox", "-d", db, "--forget", str(refused["number"]))
    assert again.exit_code == 1
    assert "was refused" in again.output


def test_the_same_from_a_server(db: str) -> None:
    asyncio.run(leave(db))
    live = Live(App(db, worker=False))
    try:
        assert "double one" in call("inbox", "--url", live.url).stdout
        page = call("inbox", "--url", live.url, "--limit", "1")
        assert "--cursor" in page.stderr
        asyncio.run(refuse(db))
        [refused] = json.loads(call("inbox", "--url", live.url, "--json").stdout)["items"]
        assert "different input" in refused["refused"]
        assert call("inbox", "--url", live.url, "--forget", str(refused["number"])).exit_code == 0
        assert call("inbox", "--url", live.url, "--forget", str(refused["number"])).exit_code == 1
        assert "the inbox is empty" in call("inbox", "--url", live.url).stderr
    finally:
        live.stop()


async def test_over_http(db: str) -> None:
    await leave(db)
    async with App(db, worker=False) as app:
        transport = httpx2.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            first = (await client.get("/api/inbox", params={"limit": 1})).json()
            second = (await client.get("/api/inbox", params={"cursor": first["cursor"]})).json()
            described = (await client.get("/openapi.json")).json()
    [start], [event] = first["items"], second["items"]
    assert (start["kind"], start["instance_id"], start["workflow"], start["refused"]) == (
        "start",
        "one",
        "double",
        None,
    )
    assert (event["kind"], event["type"], event["source"], event["id"]) == ("event", "go", "here", "e1")
    assert second["cursor"] is None
    assert "/api/inbox" in described["paths"]
