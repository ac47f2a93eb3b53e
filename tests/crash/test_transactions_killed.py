"""Workers die at each point of a transaction. There is one row for each call, without any unique key."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import romancy
from romancy import App, Database
from romancy.storage.postgres import PostgresStorage
from romancy.storage.sqlite import SQLiteStorage
from tests import pg_schemas, pg_server
from tests.engine.ledgers import Ledger

pytestmark = pytest.mark.play

ROOT = Path(__file__).parents[2]
WORKFLOWS = 12
DEATHS = [("ran", 3), ("stored", 2), ("committed", 4), ("stored", 5), ("committed", 1), ("ran", 1)]


@pytest.fixture(params=["sqlite", "postgres"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    async with pg_schemas.schemas() as another:
        storage: Any = SQLiteStorage(str(tmp_path / "romancy.db"))
        if request.param == "postgres":
            storage = PostgresStorage(pg_server.url(), schema=another(), create=True)
        await storage.open()
        await storage.close()
        yield storage


def spawn(storage: Any, table: str, *point: Any, stderr: Any = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(Path(romancy.__file__).parents[1]), str(ROOT)])
    at = [storage.path, ""] if isinstance(storage, SQLiteStorage) else [storage.url, storage.schema]
    command = [sys.executable, "-m", "tests.crash.transaction_worker", *at, table, *map(str, point)]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stderr=stderr)


async def test_one_row_for_each_call(storage: Any) -> None:
    ledger = Ledger(storage)
    await ledger.create()
    is_file = isinstance(storage, SQLiteStorage)
    database = Database(storage.path) if is_file else Database(storage.url, schema=storage.schema)
    async with App(database, worker=False) as app:
        handles: list[Any] = [await app.start_workflow("books", n, instance_id=f"books-{n}") for n in range(WORKFLOWS)]
        for point in DEATHS:
            process = spawn(storage, ledger.table, *point)
            try:
                assert await asyncio.to_thread(process.wait, 60) == -signal.SIGKILL, point
            finally:
                process.kill()
        process = spawn(storage, ledger.table, "", 0)
        try:
            for n, handle in enumerate(handles):
                assert await handle.result(60) == [f"{n}/{k}" for k in range(3)]
        finally:
            process.kill()
            process.wait()
        entries = sorted(f"{n}/{k}" for n in range(WORKFLOWS) for k in range(3))
        assert await ledger.rows() == entries
        for type in ("booked", "seen"):
            events = await app.list_events(type=type, limit=1000)
            assert len(events.items) == len(entries)
