"""Brings a file up to date in one transaction, so that many processes can start at once."""

from __future__ import annotations

import re
import sqlite3

from romancy.errors import StorageError
from romancy.storage import sql
from romancy.storage.errors import SealedDatabase
from romancy.storage.opener import SEALED, can_read
from romancy.storage.sqlite.connection import Connection
from romancy.storage.sqlite.errors import explain

LIBRARY_VERSION = 13
"""The newest schema this library knows."""
INFO = "romancy_schema_info"
"""The table that holds the version."""
PREFIXED = 7
"""From this version on, tables and indexes have a prefix."""
_FORMER = {"schema_info", "instances", "history", "workers"}
"""A file with these tables, and not ours, is of an earlier version: there they had no prefix."""
_CREATED = re.compile(r"CREATE (TABLE|INDEX) romancy\.(\w+)")
FENCE_ALL = (
    "INSERT INTO romancy_orphans SELECT id, strftime('%s', 'now') * 1000000, 1 FROM romancy_workers WHERE true "
    "ON CONFLICT DO NOTHING",
    "DELETE FROM romancy_workers",
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


def stored_versions(connection: sqlite3.Connection, path: str) -> tuple[int, int]:
    """Return the schema's version and the oldest library that can use it; (0, 0) if the file has no tables of ours."""
    info = _info_table(connection)
    if info is None:
        return 0, 0
    version, min_reader = connection.execute(f"SELECT version, min_reader FROM {info}").fetchone() or (0, 0)
    if not (isinstance(version, int) and isinstance(min_reader, int)):
        raise StorageError(f"{path!r} is damaged: its table {info} has no version; restore the file from a backup")
    return version, min_reader


def _info_table(connection: sqlite3.Connection) -> str | None:
    """Return the table that holds the version: in a former schema, it has no prefix."""
    tables = _tables(connection)
    if INFO in tables:
        return INFO
    return "schema_info" if tables.issuperset(_FORMER) else None


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _versions(connection: sqlite3.Connection, path: str) -> tuple[int, int]:
    version, min_reader = stored_versions(connection, path)
    level = connection.level if isinstance(connection, Connection) else 0
    if not can_read(min_reader, LIBRARY_VERSION, level):
        if min_reader > SEALED and not level:
            raise SealedDatabase
        raise StorageError(
            f"the database {path!r} has schema version {version} and needs a newer romancy (this one knows version "
            f"{LIBRARY_VERSION}); upgrade the package"
        )
    return version, min_reader


def _migrate(connection: sqlite3.Connection, path: str) -> None:
    """Run the missing migrations; another process may have run them while we waited for the file."""
    version, min_reader = _versions(connection, path)
    if _info_table(connection) == "schema_info":
        _rename(connection, version)
    connection.execute(f"CREATE TABLE IF NOT EXISTS {INFO} (version INTEGER NOT NULL, min_reader INTEGER NOT NULL)")
    before = (version, min_reader)
    for number, reader, script in sql.migrations("sqlite"):
        if number > version:
            for statement in sql.prefixed(script).split(";\n"):
                connection.execute(statement)
            version, min_reader = number, max(min_reader, reader + (SEALED if min_reader > SEALED else 0))
    if before[0] and min_reader > before[1]:
        for statement in FENCE_ALL:
            connection.execute(statement)
    connection.execute(f"DELETE FROM {INFO}")
    connection.execute(f"INSERT INTO {INFO} VALUES (?, ?)", (version, min_reader))


def _rename(connection: sqlite3.Connection, version: int) -> None:
    """Give the tables and indexes of a former schema their prefix; others in the file are the user's.

    `schema_info` stays, for libraries that look there: it tells them that they are too old.
    """
    connection.execute("UPDATE schema_info SET version = ?, min_reader = ?", (PREFIXED, PREFIXED))
    created = (_CREATED.findall(script) for number, _, script in sql.migrations("sqlite") if number <= version)
    for kind, name in dict.fromkeys(found for script in created for found in script):
        if kind == "TABLE":
            connection.execute(f"ALTER TABLE {name} RENAME TO romancy_{name}")
        else:
            _rename_index(connection, name)


def _rename_index(connection: sqlite3.Connection, name: str) -> None:
    """Create it anew: SQLite can't rename indexes."""
    query = "SELECT sql FROM sqlite_master WHERE type = 'index' AND name = ?"
    (definition,) = connection.execute(query, (name,)).fetchone()
    connection.execute(f"DROP INDEX {name}")
    connection.execute(definition.replace(f"INDEX {name} ", f"INDEX romancy_{name} ", 1))
