"""A worker is stopped inside a transactional activity on SQLite, where it holds the write lock of the file."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from romancy import App
from romancy.storage.sqlite import SQLiteStorage
from tests.crash.test_transactions_killed import spawn
from tests.crash.test_transactions_paused import until_stopped
from tests.engine.ledgers import Ledger

PATIENCE = 2.0
"""Seconds after which the other worker says that the file is locked."""
STOPPED = 7.0
"""Seconds: more than three leases, and the other worker gives up several times."""
LOCKED = "has been locked by another program for too long); work pauses until it can"


async def within(app: App, path: str, timeout: float, id: str) -> None:
    """Start an instance in a transaction of a caller, which waits for the file up to a time."""

    def leave() -> None:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=timeout)) as connection:
            connection.execute("BEGIN")
            asyncio.run(_leave(app, connection, id))
            connection.execute("COMMIT")

    await asyncio.to_thread(leave)


async def _leave(app: App, connection: sqlite3.Connection, id: str) -> None:
    await app.within(connection).start_workflow("counts", 30, instance_id=id)


@pytest.mark.play
@pytest.mark.parametrize("point", ["stop-ran", "stop-stored"])
@pytest.mark.parametrize("end", [signal.SIGCONT, signal.SIGKILL])
async def test_others_wait_for_a_worker_that_is_stopped(tmp_path: Path, point: str, end: signal.Signals) -> None:
    storage = SQLiteStorage(str(tmp_path / "romancy.db"))
    await storage.open()
    await storage.close()
    ledger, log = Ledger(storage), tmp_path / "log"
    await ledger.create()
    async with App(storage.path, worker=False) as app:
        with log.open("wb") as stderr:
            other = spawn(storage, ledger.table, "", 0, PATIENCE, stderr=stderr)
        ready: Any = await app.start_workflow("counts", 0, instance_id="ready")
        assert await ready.result(60) == 2, "the other worker works"
        stopped = spawn(storage, ledger.table, point, 2)
        try:
            handles: list[Any] = []
            while not await has_stopped(stopped, 0.5):  # both workers take what is started
                handles.append(await app.start_workflow("books", len(handles), instance_id=f"b{len(handles)}"))
                handles.append(await app.start_workflow("counts", len(handles), instance_id=f"c{len(handles)}"))
            late = [
                asyncio.ensure_future(app.start_workflow("counts", 20, instance_id="late")),
                asyncio.ensure_future(within(app, storage.path, 60, "left")),
            ]
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                await within(app, storage.path, 0.2, "never")
            rows = await ledger.rows()
            await asyncio.sleep(STOPPED)
            assert other.poll() is None
            assert log.read_text().count(LOCKED) == 1, log.read_text()
            assert "is back" not in log.read_text()
            assert await ledger.rows() == rows, "nobody can write"
            assert not any(task.done() for task in late)
            os.kill(stopped.pid, end)
            async with asyncio.timeout(60):
                await asyncio.gather(*late)
            await check_all_ended(app, handles)
            assert await app.handle("late").result(30) == 22
            assert await app.handle("left").result(30) == 32
            books = [n for n, handle in enumerate(handles) if handle.instance_id.startswith("b")]
            entries = sorted(f"{n}/{k}" for n in books for k in range(3))
            assert await ledger.rows() == entries
            for type in ("booked", "seen"):
                assert len((await app.list_events(type=type, limit=1000)).items) == len(entries)
            assert await app.count_instances() == len(handles) + 3, "what failed in the caller's hands left nothing"
            assert other.poll() is None
            assert log.read_text().count("the database is back; work continues") == 1, log.read_text()
        finally:
            for process in (stopped, other):
                process.kill()
                process.wait()


async def has_stopped(process: Any, within: float) -> bool:
    try:
        async with asyncio.timeout(within):
            await until_stopped(process)
    except TimeoutError:
        return False
    return True


async def check_all_ended(app: App, handles: list[Any]) -> None:
    for n, handle in enumerate(handles):
        expected: Any = [f"{n}/{k}" for k in range(3)] if handle.instance_id.startswith("b") else n + 2
        assert await handle.result(60) == expected
