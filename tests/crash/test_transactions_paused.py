"""A worker is stopped inside a transaction for longer than its lease, and goes on later: its rows are rolled back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from typing import Any

import pytest

from romancy import App, Database
from romancy.storage.sqlite import SQLiteStorage
from tests.crash import transaction_worker
from tests.crash.test_transactions_killed import spawn, storage  # noqa: F401 - a fixture
from tests.engine.ledgers import Ledger

PAUSE = 8.0
"""Seconds: the lease is two."""


async def until_stopped(process: subprocess.Popen[bytes]) -> None:
    """Until the process has stopped itself."""
    async with asyncio.timeout(60):
        while True:
            assert process.poll() is None, "it ended"
            with open(f"/proc/{process.pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "T":
                    return
            await asyncio.sleep(0.05)


@pytest.mark.play
@pytest.mark.parametrize("point", ["stop-ran", "stop-stored"])
async def test_a_worker_that_was_stopped_past_its_lease(storage: Any, point: str) -> None:  # noqa: F811
    assert transaction_worker.__doc__
    ledger = Ledger(storage)
    await ledger.create()
    is_file = isinstance(storage, SQLiteStorage)
    database = Database(storage.path) if is_file else Database(storage.url, schema=storage.schema)
    async with App(database, worker=False) as app:
        handle: Any = await app.start_workflow("books", 0, instance_id="books-0")
        paused = spawn(storage, ledger.table, point, 2)
        await until_stopped(paused)
        other = spawn(storage, ledger.table, "", 0)
        try:
            await asyncio.sleep(PAUSE)
            if not is_file:  # in a file, the stopped worker has the write lock: nobody else can write at all
                assert await handle.result(60) == ["0/0", "0/1", "0/2"]
            os.kill(paused.pid, signal.SIGCONT)
            assert await handle.result(60) == ["0/0", "0/1", "0/2"]
            await asyncio.sleep(1)
            assert await ledger.rows() == ["0/0", "0/1", "0/2"]
            for type in ("booked", "seen"):
                assert len((await app.list_events(type=type)).items) == 3
        finally:
            for process in (paused, other):
                process.kill()
                process.wait()
