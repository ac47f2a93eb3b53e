"""The SQLite file that is copied, opened exclusively."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from romancy.errors import StorageError
from romancy.storage.errors import NotThere
from romancy.storage.opener import SEALED
from romancy.storage.sqlite.connection import Connection, connect
from romancy.storage.sqlite.errors import explain
from romancy.storage.sqlite.migrations import LIBRARY_VERSION, PREFIXED, migrate, stored_versions
from romancy.storage.tools.copy.tables import COLUMNS
from romancy.storage.urls import quoted


def open_alone(path: str) -> sqlite3.Connection:
    """Open a file exclusively: no worker and no other process can have it open."""
    file = Path(path)
    if not file.is_file() or file.stat().st_size == 0:
        raise NotThere(f"there is no database at {path!r}; give the SQLite file to copy")
    connection = _alone(path)
    try:
        if stored_versions(connection, path) == (0, 0):
            raise NotThere(f"{path!r} has no tables of Romancy; give the SQLite file to copy")
        migrate(connection, path)
        version, _ = stored_versions(connection, path)
        if version > LIBRARY_VERSION:
            raise StorageError(
                f"{path!r} has schema version {version}, but this romancy can only copy version {LIBRARY_VERSION}; "
                "upgrade the package"
            )
    except BaseException:
        connection.close()
        raise
    return connection


def _alone(path: str) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0, factory=Connection)
        connection.level = SEALED  # what is sealed is copied as it is
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("COMMIT")  # the lock is kept until the connection is closed
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        if (getattr(error, "sqlite_errorname", "") or "").startswith("SQLITE_BUSY"):
            raise StorageError(f"{path!r} is in use{_by_whom(path)}; stop every process that works on it") from error
        raise explain(error, path) from error
    return connection


def _by_whom(path: str) -> str:
    connection = connect(path, durability="full")
    try:
        if stored_versions(connection, path)[0] < PREFIXED:  # others use the file, or older libraries
            return ""
        hosts = [host for (host,) in connection.execute("SELECT host FROM romancy_workers ORDER BY started_at DESC")]
    finally:
        connection.close()
    return f" by {len(hosts)} worker{'s' if len(hosts) > 1 else ''} (on {hosts[0]})" if hosts else ""


def cuts(c: sqlite3.Connection) -> list[int]:
    """Return the beginnings of waits that don't reach back to that of their instance, and of starts to come."""
    waits = "romancy_waits w JOIN romancy_instances i ON i.id = w.instance"
    query = f"SELECT w.since FROM {waits} WHERE w.since >= i.since UNION SELECT seen FROM romancy_inbox WHERE seen > 0"
    return [since for (since,) in c.execute(query)]


def last_event(c: sqlite3.Connection) -> int:
    """Return the greatest number that any event ever had; numbers are not reused."""
    row = c.execute("SELECT seq FROM sqlite_sequence WHERE name = 'romancy_events'").fetchone()
    return row[0] if row is not None else 0


def own_tables(path: str) -> dict[str, int]:
    """Return the user's tables in a file, which are not copied, with how many rows each has."""
    names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'schema_info' ORDER BY name"
    with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=rw", uri=True)) as c:
        found = [name for (name,) in c.execute(names) if not name.startswith(("romancy_", "sqlite_"))]
        return {name: c.execute(f"SELECT count(*) FROM {quoted(name)}").fetchone()[0] for name in found}


def counts(c: sqlite3.Connection) -> dict[str, int]:
    """Return how many rows each table will have."""
    found: dict[str, int] = {
        table: c.execute(f"SELECT count(*) FROM romancy_{table}").fetchone()[0] for table in COLUMNS
    }
    found["orphans"] += c.execute("SELECT count(*) FROM romancy_workers").fetchone()[0]
    return found
