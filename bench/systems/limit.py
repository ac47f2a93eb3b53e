"""What the disk and the database allow: no engine, only commits; and, by hand, what asyncio allows beside them.

Our figures are shown as a share of these.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from bench.systems import by_hand  # noqa: F401 - its workloads
from bench.systems.common import Figures, Task, clock, main, workload

TABLE = "CREATE TABLE t (instance TEXT, n INTEGER, payload TEXT, PRIMARY KEY (instance, n))"
BATCH = 1000


@workload
async def commits(task: Task) -> Figures:
    """One row, one transaction, one after the other."""
    return {"commits_per_s": await (_sqlite if task.is_sqlite else _postgres)(task, 1)}


@workload
async def inserts(task: Task) -> Figures:
    """The same rows, a thousand to a transaction."""
    return {"rows_per_s": await (_sqlite if task.is_sqlite else _postgres)(task, BATCH)}


async def _sqlite(task: Task, batch: int) -> float:
    db = sqlite3.connect(task.path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute(f"{TABLE} WITHOUT ROWID")
    begin = clock()
    for first in range(0, task.size, batch):
        db.execute("BEGIN IMMEDIATE")
        if batch == 1:
            db.execute("INSERT INTO t VALUES ('x', ?, '{}')", (first,))
        else:
            db.executemany("INSERT INTO t VALUES ('x', ?, '{}')", [(n,) for n in range(first, first + batch)])
        db.execute("COMMIT")
    took = clock() - begin
    db.close()
    return task.size / took


async def _postgres(task: Task, batch: int) -> float:
    import asyncpg

    db: Any = await asyncpg.connect(task.database)
    await db.execute(TABLE)
    one = await db.prepare("INSERT INTO t VALUES ('x', $1, '{}')")
    many = await db.prepare("INSERT INTO t SELECT 'x', n, '{}' FROM unnest($1::int[]) n")
    begin = clock()
    for first in range(0, task.size, batch):
        if batch == 1:
            await one.fetch(first)
        else:
            await many.fetch(list(range(first, first + batch)))
    took = clock() - begin
    await db.close()
    return task.size / took


if __name__ == "__main__":
    main()
