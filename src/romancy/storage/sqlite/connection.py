"""SQLite connections: how a file is opened and brought up to date, and what its errors mean in plain words."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from romancy.errors import StorageError
from romancy.storage import sql
from romancy.storage.errors import NotThere

LIBRARY_VERSION = 5
"""The newest schema this library knows."""
_ROOM = 65_536
"""Bytes: SQLite needs less than that for the files it makes beside a database."""

_FENCE_ALL = (
    "INSERT INTO orphans SELECT id, strftime('%s', 'now') * 1000000, 1 FROM workers WHERE true ON CONFLICT DO NOTHING",
    "DELETE FROM workers",
)
"""Run where older libraries may no longer write: nothing their workers submit is accepted after it. Workers that may
still write register again."""


def connect(path: str, *, durability: str) -> sqlite3.Connection:
    """Open a database file (or `:memory:`) for use by one thread at a time."""
    _check_place(path)
    try:
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=0, cached_statements=256
        )
    except sqlite3.Error as error:
        raise explain(error, path) from error
    try:
        _patiently(connection, "PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
        connection.execute("PRAGMA fullfsync = 1")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA cache_size = -65536")
        connection.execute("PRAGMA wal_autocheckpoint = 1000")
    except sqlite3.Error as error:
        connection.close()
        raise explain(error, path) from error
    return connection


def _check_place(path: str) -> None:
    if path == ":memory:":
        return
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise NotThere(f"the folder {str(folder)!r} for the database does not exist; create it first")
    if Path(path).is_dir():
        raise StorageError(f"{path!r} is a folder, not a database file")
    # Ask before SQLite does: it would leave read-only -wal and -shm files beside a read-only database.
    for file in (path, f"{path}-wal", f"{path}-shm"):
        if os.path.exists(file) and not _may_write(file):
            raise StorageError(f"{file!r} is read-only; allow writing to the file and its folder")
    if not _may_write(folder):
        raise StorageError(f"the folder {str(folder)!r} is read-only; allow writing to it")


def _may_write(path: str | Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _patiently(connection: sqlite3.Connection, statement: str) -> None:
    """Several processes may open a new file at the same moment; here SQLite's own patience will do."""
    connection.execute("PRAGMA busy_timeout = 5000")
    connection.execute(statement)
    connection.execute("PRAGMA busy_timeout = 0")


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Bring the schema up to date, or refuse a database that only a newer library can use.

    Where it is up to date nothing is written: another process may be writing for as long as it likes, the disk may be
    full.
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
    """The schema's version and the oldest library that may use it: (0, 0) where there is nothing yet."""
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
    """Somebody else may have done it while we waited for the file."""
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


def explain(error: sqlite3.Error, path: str) -> StorageError:
    """SQLite's error in words that say what to do."""
    code = (getattr(error, "sqlite_errorname", "") or "").removeprefix("SQLITE_")
    hints = {
        "NOTADB": f"{path!r} is not a SQLite database; give another path, or move that file away",
        "CORRUPT": f"{path!r} is damaged; restore it from a backup",
        "READONLY": f"{path!r} is read-only; allow writing to the file and its folder",
        "CANTOPEN": f"{path!r} can't be opened; check that the folder exists and may be written to",
        "FULL": f"the disk that holds {path!r} is full; work goes on when there is room again",
        "BUSY": f"{path!r} is locked by another program for too long",
        "PERM": f"{path!r} may not be used by this user",
    }
    if code.startswith("IOERR") and _is_full(path):
        code = "FULL"  # what it says where it can't make the files beside the database
    hint = next((text for key, text in hints.items() if code.startswith(key)), f"{path!r}: {error}")
    if "attempt to write a readonly database" in str(error):
        hint = hints["READONLY"]
    return StorageError(hint)


def _is_full(path: str) -> bool:
    try:
        disk = os.statvfs(Path(path).resolve().parent)
    except (OSError, AttributeError):  # not on Windows
        return False
    return disk.f_bavail * disk.f_frsize < _ROOM


def lock_folder(path: str) -> Path:
    """Where the workers of this file keep their locks."""
    return Path(os.path.realpath(path) + ".workers")
