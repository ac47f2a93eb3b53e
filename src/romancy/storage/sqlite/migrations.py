"""Brings a file up to date in one transaction, so that many processes can start at once."""

from __future__ import annotations

import sqlite3

from romancy.errors import StorageError
from romancy.storage import sql
from romancy.storage.sqlite.errors import explain

LIBRARY_VERSION = 6
"""The newest schema this library knows."""
_FENCE_ALL = (
    "INSERT INTO orphans SELECT id, strftime('%s', 'now') * 1000000, 1 FROM workers WHERE true ON CONFLICT DO NOTHING",
    "DELETE FROM workers",
)
"""Run where older libraries may no longer write: nothing their workers submit is accepted after it. Workers that may
still write register again."""


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Bring the schema up to date, or refuse a database that only a newer library can use.

    If it is up to date, nothing is written, so this works while another process writes or the disk is full.
    """
    try:
        connection.execute("PRAGMA busy_timeout = 10000")
        try:
            if not _is_current(connection, path):
                _bring_up_to_date(connection, path)
        finally:
            connection.execute("PRAGMA busy_timeout = 0")
    except sqlite3.Error as error:
        raise explain(error, path) from error


def _bring_up_to_date(connection: sqlite3.Connection, path: str) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        _migrate(connection, path)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _is_current(connection: sqlite3.Connection, path: str) -> bool:
    version, _ = _versions(connection, path)
    return version >= max(number for number, _, _ in sql.migrations("sqlite"))


def _versions(connection: sqlite3.Connection, path: str) -> tuple[int, int]:
    """Return the schema's version and the oldest library that can use it; (0, 0) for an empty file."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables and "schema_info" not in tables:
        raise StorageError(f"{path!r} is the database of another program; give Romancy a file of its own")
    row = connection.execute("SELECT version, min_reader FROM schema_info").fetchone() if tables else None
    version, min_reader = row or (0, 0)
    if not (isinstance(version, int) and isinstance(min_reader, int)):
        raise StorageError(f"{path!r} is damaged, or the database of another program; give Romancy a file of its own")
    if min_reader > LIBRARY_VERSION:
        raise StorageError(
            f"the database {path!r} has schema version {version} and needs a newer romancy (this one knows version "
            f"{LIBRARY_VERSION}); upgrade the package"
        )
    return version, min_reader


def _migrate(connection: sqlite3.Connection, path: str) -> None:
    """Run the missing migrations; another process may have run them while we waited for the file."""
    version, min_reader = _versions(connection, path)
    connection.execute("CREATE TABLE IF NOT EXISTS schema_info (version INTEGER NOT NULL, min_reader INTEGER NOT NULL)")
    before = (version, min_reader)
    for number, reader, script in sql.migrations("sqlite"):
        if number > version:
            for statement in script.split(";\n"):
                connection.execute(statement)
            version, min_reader = number, max(min_reader, reader)
    if before[0] and min_reader > before[1]:
        for statement in _FENCE_ALL:
            connection.execute(statement)
    connection.execute("DELETE FROM schema_info")
    connection.execute("INSERT INTO schema_info VALUES (?, ?)", (version, min_reader))
