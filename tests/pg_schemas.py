"""Schemas that tests hand on to one another, where how a schema is made is not the point.

To make one and drop it takes longer than most tests. One that comes back is emptied, and looks as if it had just been
made; one that a test has altered, or that somebody may still write to, is dropped.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from romancy.storage.postgres import PostgresStorage
from tests import pg_server

_spares: list[str] = []
_as_made: list[Any] = []


@asynccontextmanager
async def schemas() -> AsyncIterator[Callable[[], str]]:
    """Gives out schemas to open: each is empty, or not there yet."""
    given: list[str] = []

    def give() -> str:
        given.append(_spares.pop() if _spares else _new_name())
        return given[-1]

    try:
        yield give
    finally:
        if given:
            await _take_back(given)


def _new_name() -> str:
    return f"test_{os.urandom(6).hex()}"


async def _take_back(names: list[str]) -> None:
    connection = await asyncpg.connect(pg_server.url())
    try:
        await connection.execute("SET client_min_messages = warning")
        is_alone = await _is_alone(connection)
        if not _as_made:
            _as_made.append(await _look(connection, await _make()))
        for name in names:
            if is_alone and await _look(connection, name) == _as_made[0]:
                await _empty(connection, name)
                _spares.append(name)
            else:
                await connection.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')
    finally:
        await asyncio.wait_for(connection.close(), 5)


async def _is_alone(connection: Any) -> bool:
    """Whether everybody else has left the server; those who are just leaving get a moment."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    for _ in range(20):
        if not await connection.fetchval(query):
            return True
        await asyncio.sleep(0.005)
    return False


async def _make() -> str:
    storage = PostgresStorage(pg_server.url(), schema=(name := _new_name()), create=True)
    await storage.open()
    await storage.close()
    _spares.append(name)
    return name


async def _look(connection: Any, name: str) -> Any:
    """What there is in a schema but for the rows (and what the planner knows of them); None where there is none."""
    if await connection.fetchval("SELECT to_regclass($1)", f"{name}.schema_info") is None:
        return None
    look = """SELECT relname, relkind, relacl, reloptions, relnatts, relchecks, relhasrules, relhastriggers
        FROM pg_class WHERE relnamespace = $1::text::regnamespace AND relkind <> 't'
        UNION ALL SELECT nspname, NULL, nspacl, NULL, NULL, NULL, NULL, NULL FROM pg_namespace
        WHERE nspname = $1 AND nspacl IS NOT NULL
        UNION ALL SELECT proname, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM pg_proc
        WHERE pronamespace = $1::text::regnamespace
        UNION ALL SELECT relname, 's', NULL, NULL, NULL, NULL, NULL, NULL
        FROM pg_statistic s JOIN pg_class c ON c.oid = s.starelid WHERE relnamespace = $1::text::regnamespace
        ORDER BY 1, 2"""
    return await connection.fetch(look, name), await connection.fetch(f'SELECT * FROM "{name}".schema_info')


async def _empty(connection: Any, name: str) -> None:
    """TRUNCATE, for what is only deleted stays in the way; but of few tables, for each takes a new file."""
    found = await connection.fetch(
        "SELECT relname, relkind FROM pg_class WHERE relnamespace = $1::text::regnamespace AND relkind IN ('r', 'S') "
        "AND relname <> 'schema_info'",
        name,
    )
    await connection.execute(f'SET search_path TO "{name}"')
    tables = [table for table, kind in found if kind == b"r"]
    filled = await connection.fetch(" UNION ALL ".join(f"SELECT '{t}' WHERE EXISTS (SELECT FROM {t})" for t in tables))
    if filled:
        await connection.execute(f"TRUNCATE {', '.join(table for (table,) in filled)} CASCADE")
    for sequence in [sequence for sequence, kind in found if kind == b"S"]:
        await connection.execute(f"ALTER SEQUENCE {sequence} RESTART")
