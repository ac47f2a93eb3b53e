"""Shows the version of a database schema, and brings it up to date without starting an app."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path

from romancy.core.clock import SystemClock
from romancy.storage import open_storage, sql
from romancy.storage.opener import Bystander
from romancy.storage.sqlite import SQLiteStorage
from romancy.storage.sqlite.errors import explain
from romancy.storage.sqlite.migrations import stored_versions
from romancy.storage.urls import DEFAULT_SCHEMA, is_postgres


def newest(database: str) -> int:
    """Return the version that this library migrates the database to."""
    dialect = "postgres" if is_postgres(database) else "sqlite"
    return max(version for version, _, _ in sql.migrations(dialect))


async def version(database: str, schema: str | None = None) -> int:
    """Return the version of a database, 0 if it is empty. Nothing is changed, and no file is created."""
    storage = open_storage(database, durability="full", clock=SystemClock(), schema=schema)
    if isinstance(storage, SQLiteStorage):
        return await asyncio.to_thread(_version_of_file, storage.path)
    from romancy.storage.postgres import migrations  # lazy: its driver is optional
    from romancy.storage.postgres.connection import Connections
    from romancy.storage.postgres.statements import Statements

    connections = Connections(database, Statements(schema or DEFAULT_SCHEMA))
    await connections.open()
    try:
        return await migrations.version(connections, schema or DEFAULT_SCHEMA)
    finally:
        await connections.close()


async def migrate(database: str, schema: str | None = None) -> None:
    """Bring a database up to date, as opening it does; create it if it does not exist."""
    storage = open_storage(database, durability="full", clock=SystemClock(), schema=schema, opener=Bystander())
    await storage.open()
    await storage.close()


def _version_of_file(path: str) -> int:
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return 0
    try:
        connection = sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)
        try:
            return stored_versions(connection, path)[0]
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise explain(error, path) from error
