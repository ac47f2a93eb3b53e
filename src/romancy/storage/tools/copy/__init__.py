"""Copies a SQLite database to PostgreSQL with everything in it, so that its workflows continue there.

The copy is one transaction: either everything arrives or nothing. Events keep their numbers; their order and every
beginning are rewritten (see order.py). The file is not changed. Workers that continue on it would do everything twice.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

from romancy.core.clock import Clock, SystemClock
from romancy.errors import StorageError
from romancy.storage.errors import NotThere
from romancy.storage.opener import OLDEST, SEALED
from romancy.storage.postgres.connection import Connections
from romancy.storage.postgres.driver import FAILED, asyncpg
from romancy.storage.postgres.errors import words
from romancy.storage.postgres.migrations import SHUT_OUT, bring_up_to_date
from romancy.storage.postgres.numbers import ADVANCE
from romancy.storage.postgres.statements import Statements
from romancy.storage.sqlite.errors import explain
from romancy.storage.tools.copy.order import Order
from romancy.storage.tools.copy.source import counts, cuts, last_event, open_alone, own_tables
from romancy.storage.tools.copy.tables import COLUMNS, Reader, Row
from romancy.storage.urls import quoted

__all__ = ["Told", "copy", "own_tables"]

Told = Callable[[str, int, int], None]
"""Called with the progress: the table, its rows copied so far, and its total rows."""
_EVERY = 1000


async def copy(
    file: str, url: str, *, schema: str = "romancy", told: Told | None = None, clock: Clock | None = None
) -> dict[str, int]:
    """Copy a file that is not in use to a schema that is empty or missing; return the row count of each table."""
    connections = Connections(url, Statements(schema))
    with closing(open_alone(file)) as source:
        try:
            target = await asyncpg.connect(url, target_session_attrs="read-write", timeout=10)
            try:
                return await _copy(source, target, schema, told or _nobody, (clock or SystemClock()).now())
            finally:
                await target.close(timeout=5)
        except sqlite3.Error as error:
            raise explain(error, file) from error
        except OverflowError as error:
            raise StorageError(f"{connections.name}: {words(error, url)}; nothing was copied") from error
        except (*FAILED, ValueError) as error:
            raise _explained(connections, error) from error


def _nobody(table: str, copied: int, total: int) -> None:
    """Ignore the progress."""


def _explained(connections: Connections, error: Exception) -> StorageError:
    said = connections.explain(error)
    where = getattr(error, "table_name", None)
    kind = NotThere if isinstance(error, asyncpg.InvalidCatalogNameError) else StorageError
    return kind(f"{said}{f' (in the table {where})' if where else ''}; nothing was copied")


async def _copy(source: sqlite3.Connection, target: Any, schema: str, told: Told, now: int) -> dict[str, int]:
    places = cuts(source)
    if places:
        await target.execute(ADVANCE.format(len(places)))  # so that there are enough below that of the copy
    async with target.transaction():
        await _make_room(target, schema)
        last = int(await target.fetchval("SELECT pg_current_xact_id()::text"))
        reader = Reader(source, Order(places, last), now, os.urandom(16))
        totals = counts(source)
        for table, total in totals.items():
            rows = _telling(reader.rows(table), table, total, told)
            await target.copy_records_to_table(table, schema_name=schema, columns=COLUMNS[table], records=rows)
        await _go_on_counting(target, last_event(source))
        await _verify(target, totals)
        if totals["vault"]:
            await target.execute(SHUT_OUT, OLDEST, SEALED)
        for table in COLUMNS:
            await target.execute(f"ANALYZE {table}")  # the planner knows nothing about a table that was just filled
    await _tidy(target, schema)
    return totals


async def _tidy(target: Any, schema: str) -> None:
    """Vacuum the copied tables; otherwise the first readers would have to mark all the new rows as valid."""
    with suppress(*FAILED):  # otherwise the server does it over time
        for table in COLUMNS:
            await target.execute(f"VACUUM {quoted(schema)}.{table}")


async def _make_room(target: Any, schema: str) -> None:
    """Migrate the schema, check that it is empty, and lock it until the copy is complete."""
    await bring_up_to_date(target, schema)
    await target.execute(f"SET LOCAL search_path TO {quoted(schema)}; SET LOCAL lock_timeout = '10s'")
    await target.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
    tables = (*COLUMNS, "workers", "unlooked", "undispatched")
    await target.execute(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")
    for table in tables:
        if await target.fetchval(f"SELECT EXISTS (SELECT 1 FROM {table})"):
            raise StorageError(
                f"the schema {schema!r} is not empty (there are rows in {table}), so nothing was copied; "
                "use another schema, or drop that one first"
            )


def _telling(rows: Iterator[Row], table: str, total: int, told: Told) -> Iterator[Row]:
    n = 0
    told(table, n, total)
    for n, row in enumerate(rows, 1):
        if n % _EVERY == 0:
            told(table, n, total)
        yield row
    told(table, n, total)


async def _go_on_counting(target: Any, last: int) -> None:
    """Advance the sequences, so that numbers are not reused."""
    if last:
        await target.execute("SELECT setval('event_numbers', $1)", last)
    for table in ("shapes", "requests", "inbox", "acts"):
        await target.execute(
            f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table} HAVING max(id) IS NOT NULL"
        )


async def _verify(target: Any, totals: dict[str, int]) -> None:
    for table, total in totals.items():
        found = await target.fetchval(f"SELECT count(*) FROM {table}")
        if found != total:
            raise StorageError(f"{found} of the {total} rows of {table} arrived, so nothing was copied; try again")
