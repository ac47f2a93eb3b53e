"""The same work without an engine: a small program for just this workload, on asyncio's own loop, in group commits.

A yardstick, not a bound: with another loop, or commits on the loop's own thread, it would be faster still. It has no
replay, no retries, no other workers, no fence, no index but the primary keys, and nothing can be asked of it.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from bench.systems.common import Figures, Task, clock, workload

TABLES = (
    "CREATE TABLE instances (id TEXT PRIMARY KEY, input TEXT, output TEXT)",
    "CREATE TABLE history (instance TEXT, n INTEGER, payload TEXT, PRIMARY KEY (instance, n))",
)
ON_SQLITE = {
    "start": "INSERT INTO instances VALUES (?, ?, NULL)",
    "step": "INSERT INTO history VALUES (?, ?, ?)",
    "end": "UPDATE instances SET output = ?2 WHERE id = ?1",
}
ON_POSTGRES = """
WITH a AS (INSERT INTO instances SELECT * FROM unnest($1::text[], $2::text[])),
  b AS (INSERT INTO history SELECT * FROM unnest($3::text[], $4::int[], $5::text[]))
UPDATE instances i SET output = x.output FROM unnest($6::text[], $7::text[]) AS x(id, output) WHERE i.id = x.id"""
WIDTHS = {"start": 2, "step": 3, "end": 2}
Rows = dict[str, list[tuple[Any, ...]]]


class Group:
    """Rows to be stored: while one commit is under way, the next gathers."""

    def __init__(self, write: Callable[[Rows], Awaitable[None]]) -> None:
        self._write = write
        self._rows: Rows = {}
        self._stored: asyncio.Future[None] | None = None
        self._writer: asyncio.Task[None] | None = None

    def put(self, kind: str, *row: Any) -> asyncio.Future[None]:
        self._rows.setdefault(kind, []).append(row)
        if self._stored is None:
            self._stored = asyncio.get_running_loop().create_future()
        if self._writer is None:
            self._writer = asyncio.create_task(self._work())
        return self._stored

    async def _work(self) -> None:
        while self._stored is not None:
            rows, stored = self._rows, self._stored
            self._rows, self._stored = {}, None
            try:
                await self._write(rows)
            except BaseException as error:
                stored.set_exception(error)
                raise
            stored.set_result(None)
            await asyncio.sleep(0)  # those who waited go on, and put in what comes of it
        self._writer = None


@asynccontextmanager
async def _group(task: Task) -> AsyncIterator[Group]:
    if not task.is_sqlite:
        import asyncpg

        server: Any = await asyncpg.connect(task.database)
        for table in TABLES:
            await server.execute(table)
        together = await server.prepare(ON_POSTGRES)
        yield Group(lambda rows: together.fetch(*_columns(rows)))
        await server.close()
        return
    with ThreadPoolExecutor(1) as thread:
        db = sqlite3.connect(task.path, isolation_level=None, check_same_thread=False)
        for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", *TABLES):
            db.execute(statement + " WITHOUT ROWID" * statement.startswith("CREATE"))

        def write(rows: Rows) -> None:
            db.execute("BEGIN IMMEDIATE")
            for kind, many in rows.items():
                db.executemany(ON_SQLITE[kind], many)
            db.execute("COMMIT")

        loop = asyncio.get_running_loop()
        yield Group(lambda rows: loop.run_in_executor(thread, write, rows))
    db.close()


def _columns(rows: Rows) -> list[list[Any]]:
    return [[row[n] for row in rows.get(kind, ())] for kind, width in WIDTHS.items() for n in range(width)]


async def _noop(raw: str) -> int:
    return json.loads(raw)


async def _workflow(group: Group, id: str, steps: int) -> int:
    for n in range(steps):
        result = await asyncio.create_task(_noop(json.dumps(n)))
        stored = group.put("step", id, n, json.dumps(result))
        if n < steps - 1:
            await stored  # the last one goes with the end
    await group.put("end", id, json.dumps(steps))
    return steps


async def _run(group: Group, steps: int) -> None:
    id = str(uuid.uuid4())
    await group.put("start", id, json.dumps(steps))
    await asyncio.create_task(_workflow(group, id, steps))


@workload
async def finish(task: Task) -> Figures:
    async with _group(task) as group:
        numbers = iter(range(task.size))

        async def some() -> None:
            for _ in numbers:
                await _run(group, 1)

        begin = clock()
        await asyncio.gather(*(some() for _ in range(min(task.size, 1000))))
        return {"workflows_per_s": task.size / (clock() - begin)}


@workload
async def parallel(task: Task) -> Figures:
    async with _group(task) as group:
        begin = clock()
        for _ in range(task.repeats):
            await asyncio.gather(*(_run(group, task.steps) for _ in range(task.size)))
        return {"activities_per_s": task.repeats * task.size * task.steps / (clock() - begin)}
