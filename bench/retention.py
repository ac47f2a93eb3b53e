"""Measures a round of retention on a long log: `python -m bench.retention [sqlite|postgres] [EVENTS]`.

The log holds so many events of 60 days, of 200 types, every tenth addressed. There are 100,000 open instances of 50
workflows, each interested in two types, and one of them is 60 days old. *all held*: a round, each minute, while that
one may take any event; *count*: counts what is held, each hour. Then it declares its two types. *500*, *5,000*: a round
that removes so many. Milliseconds: median and worst of 20.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg

from romancy.core.clock import SystemClock
from romancy.core.interests import Interest
from romancy.core.model import SECOND
from romancy.storage import open_storage
from tests import pg_server

DAY = 24 * 3600 * SECOND
TYPES, WORKFLOWS, INSTANCES = 200, 50, 100_000
ROUNDS = 20
STRAGGLER = "workflow7"
EVENTS = """INSERT INTO romancy{dot}events ({xid}seq, source, id, type, target, data, token, accepted_at)
SELECT {xid_value}n, 'bench', {text}, 'type' || (n % {types}), CASE WHEN n % 10 = 3 THEN 'i' || (n % {instances}) END,
  {data}, {data}, {now} - 60 * {day} + n * (60 * {day} / {count}) FROM {numbers}"""
OPEN = """INSERT INTO romancy{dot}instances (id, workflow, status, version, token, birth, {born}, input, input_kind,
  created_at, updated_at)
SELECT 'i' || n, 'workflow' || (n % {workflows}), 2, 1, {data}, {data}, {born_value}, {data}, 0,
  {now} - CASE WHEN n = 7 THEN 60 ELSE n % 7 END * {day}, {now} FROM {numbers}"""


def _sql(text: str, dialect: str, count: int, now: int) -> str:
    is_lite = dialect == "sqlite"
    series = f"(WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x WHERE n < {count}) SELECT n FROM x)"
    return text.format(
        dot="_" if is_lite else ".",
        xid="" if is_lite else "xid, ",
        xid_value="" if is_lite else "'3'::xid8, ",
        text="'e' || n",
        data="x'7b7d'" if is_lite else "'\\x7b7d'::bytea",
        born="since" if is_lite else "born",
        born_value="0" if is_lite else "pg_current_snapshot()",
        numbers=series if is_lite else f"generate_series(1, {count}::bigint) AS x(n)",
        types=TYPES,
        workflows=WORKFLOWS,
        instances=INSTANCES,
        count=count,
        day=DAY,
        now=now,
    )


async def _fill(dialect: str, database: str, count: int, now: int) -> None:
    statements = [_sql(EVENTS, dialect, count, now), _sql(OPEN, dialect, INSTANCES, now)]
    if dialect == "sqlite":
        with sqlite3.connect(database) as c:
            for statement in statements:
                c.execute(statement)
        c.close()
        return
    connection = await asyncpg.connect(database)
    try:
        for statement in statements:
            await connection.execute(statement, timeout=3600)
        await connection.execute("VACUUM ANALYZE romancy.events", timeout=3600)
        await connection.execute("VACUUM ANALYZE romancy.instances", timeout=3600)
    finally:
        await connection.close()


async def _time(what: str, job: Callable[[], Awaitable[Any]], rounds: int = ROUNDS) -> Any:
    times: list[float] = []
    found: Any = None
    for _ in range(rounds):
        begin = time.perf_counter()
        found = await job()
        times.append((time.perf_counter() - begin) * 1000)
    print(f"{what:8} {statistics.median(times):8.1f} {max(times):8.1f}", flush=True)
    return found


@asynccontextmanager
async def _database(dialect: str) -> Any:
    if dialect == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield str(Path(folder) / "bench.db")
    else:
        yield pg_server.url()


async def main(dialect: str = "sqlite", events: str = "1000000") -> None:
    count, now = int(events), SystemClock().now()
    async with _database(dialect) as database:
        storage = open_storage(database, durability="normal", clock=SystemClock())
        await storage.open()
        try:
            begin = time.perf_counter()
            await _fill(dialect, database, count, now)
            print(f"{count:,} events in {time.perf_counter() - begin:.0f} s", flush=True)
            types = [frozenset({f"type{n}", f"type{n + 50}"}) for n in range(WORKFLOWS)]
            declared = [Interest(f"workflow{n}", types[n], is_declared=True) for n in range(WORKFLOWS)]
            others = [interest for interest in declared if interest.workflow != STRAGGLER]
            await storage.expect([*others, Interest(STRAGGLER, is_open=True)])
            await _time("all held", lambda: storage.prune(0, now - 7 * DAY, 500))
            held = await _time("count", lambda: storage.held(now - 7 * DAY, 1_000_000), 3)
            print(f"{sum(one.count for one in held):,} held, of {len(held)} types", flush=True)
            await storage.expect(declared)
            await _time("500", lambda: storage.prune(0, now - 7 * DAY, 500))
            await _time("5,000", lambda: storage.prune(0, now - 7 * DAY, 5000))
        finally:
            await storage.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
