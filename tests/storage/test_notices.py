"""An app hears at once that another process wrote to its file, also before it has written anything itself."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from romancy import App, WorkflowContext, wait_event, workflow
from romancy.storage.sqlite import SQLiteStorage


class Heard:
    """A storage that only reads, and the notices it got."""

    def __init__(self, storage: SQLiteStorage) -> None:
        self.storage, self.count = storage, 0
        self._news = asyncio.Event()
        storage.watch(self._hear)

    def _hear(self) -> None:
        self.count += 1
        self._news.set()

    async def next(self) -> None:
        async with asyncio.timeout(10):
            await self._news.wait()
        self._news.clear()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "romancy.db"


@pytest.fixture
async def heard(path: Path) -> AsyncIterator[Heard]:
    storage = SQLiteStorage(str(path))
    await storage.open()
    yield Heard(storage)
    await storage.close()


def write(path: Path, type: str) -> None:
    """As another process would."""
    with closing(sqlite3.connect(path, timeout=10)) as c, c:
        c.execute("INSERT INTO romancy_triggers VALUES (?, 'wf', NULL)", (type,))


async def test_an_app_that_has_not_written_hears_every_other_writer(path: Path, heard: Heard) -> None:
    for n in range(5):
        await asyncio.to_thread(write, path, f"t{n}")
        await heard.next()
        assert heard.count == n + 1


async def test_nothing_is_heard_while_nobody_else_writes(heard: Heard) -> None:
    """After a write the thread looks for others' writes before it answers."""
    for _ in range(3):
        await heard.storage._write(lambda c: c.execute("DELETE FROM romancy_triggers"))
    assert heard.count == 0


@workflow
async def one_event(ctx: WorkflowContext) -> str:
    return (await wait_event(ctx, "go")).id


async def test_a_client_learns_of_an_end_without_waiting_for_the_sweep(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("romancy.engine.sweep.SWEEP", 3600.0)
    async with App(path, workflows=[one_event]) as worker, App(path, worker=False) as client:
        handle = await worker.start_workflow(one_event)
        waiting = asyncio.create_task(client.handle(handle.instance_id).result(10))
        await asyncio.sleep(0)  # it has asked whether the instance has ended
        await client._runtime.engine.storage.finished([handle.instance_id])  # and was answered before this is
        await worker.send_event("go", "test", id="e")
        assert await waiting == "e"
