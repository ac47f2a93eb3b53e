"""Processes around one inbox: workers that move what is in it, and callers that leave rows there.

`python -m tests.crash.inbox_crew DATABASE LOG LEASE SCHEMA [CALLER ROWS]`: a worker, or a caller that leaves ROWS rows.
A caller leaves a third of its rows as starts, the others as events, up to three in a transaction, and rolls back some
transactions. What it has committed is in the log.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import sys
from typing import Any

import asyncpg

from romancy import App, Database, WorkerOptions, WorkflowContext, wait_event, workflow
from tests.crash.worker import log

END = -1
"""The number in the last event of a caller."""


@workflow
async def row(ctx: WorkflowContext, caller: str, n: int) -> int:
    """Started by a caller, which then addresses an event to it."""
    return n + (await wait_event(ctx, "after")).data["n"]


@workflow
async def reader(ctx: WorkflowContext, caller: str) -> list[int]:
    """Takes the events of a caller, up to the last one."""
    taken: list[int] = []
    while END not in taken:
        taken.append((await wait_event(ctx, "row", subject=caller)).data["n"])
    return taken


class Caller:
    """Leaves rows on a connection of its own."""

    def __init__(self, app: App, connection: Any, name: str, state: int) -> None:
        self._app, self._connection, self._name, self._state = app, connection, name, state
        self._random = random.Random(name)
        self._n = 0
        self._is_addressed = True
        """The instance that was started last has got its event."""

    async def leave(self, rows: int) -> None:
        while self._n < rows:
            await self._transaction(min(self._random.choice([1, 1, 2, 3]), rows - self._n))
            await asyncio.sleep(self._random.uniform(0, 0.3))
        await self._run("BEGIN")
        await self._app.within(self._connection).send_event("row", self._name, {"n": END}, subject=self._name)
        await self._run("COMMIT")

    async def _transaction(self, size: int) -> None:
        is_kept, before = self._random.random() > 0.15, (self._n, self._is_addressed)
        await self._run("BEGIN" if not isinstance(self._connection, sqlite3.Connection) else "BEGIN IMMEDIATE")
        left = [await self._row(is_kept) for _ in range(size)]
        await self._run("COMMIT" if is_kept else "ROLLBACK")
        if is_kept:
            for kind, n in left:
                log(self._state, what=kind, caller=self._name, n=n)
        else:
            log(self._state, what="rolled back", caller=self._name, rows=size)
            self._n, self._is_addressed = before

    async def _row(self, is_kept: bool) -> tuple[str, int]:
        tx, n = self._app.within(self._connection), self._n
        self._n += 1
        name = f"{self._name}-{n}" if is_kept else f"never-{self._name}-{n}"
        if not self._is_addressed:
            self._is_addressed = True
            to = f"{self._name}-{n - 1}" if is_kept else "nobody"
            await tx.send_event("after", self._name, {"n": n}, to=to, id=name)
            return "after", n
        if n % 3 == 0:
            self._is_addressed = False
            await tx.start_workflow("row", self._name, n, instance_id=name)
            return "start", n
        await tx.send_event("row", self._name, {"n": n}, subject=self._name, id=name)
        return "event", n

    async def _run(self, sql: str) -> None:
        done = self._connection.execute(sql)
        if not isinstance(done, sqlite3.Cursor):
            await done


async def call(database: Database, url: str, state: int, name: str, rows: int) -> None:
    async with App(database, worker=False) as app:
        is_file = database.schema is None
        connection: Any = sqlite3.connect(url, isolation_level=None, timeout=60) if is_file else None
        connection = connection or await asyncpg.connect(url)
        log(state, what="ready")
        await Caller(app, connection, name, state).leave(rows)


async def work(database: Database, state: int, lease: float) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with App(database, workflows=[row, reader], lease=lease, worker=WorkerOptions(grace=1)):
        log(state, what="ready")
        await stop.wait()


async def main(url: str, log_file: str, lease: str, schema: str, name: str = "", rows: str = "0") -> None:
    state = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    database = Database(url, schema=schema or None)
    await (call(database, url, state, name, int(rows)) if name else work(database, state, float(lease)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
