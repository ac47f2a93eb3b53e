"""Opens SQLite connections."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from romancy.errors import StorageError
from romancy.storage.errors import NotThere
from romancy.storage.sqlite.errors import explain


class Connection(sqlite3.Connection):
    """A connection of Romancy's own."""

    level = 0
    """See `opener.SEALED`."""


def connect(path: str, *, durability: str, factory: type[Connection] = Connection, level: int = 0) -> Connection:
    """Open a database file (or `:memory:`, or a URI) for use by one thread at a time."""
    _check_place(path)
    _create_privately(path)
    options: dict[str, Any] = {"uri": True} if is_uri(path) else {}
    try:
        connection = sqlite3.connect(
            path,
            isolation_level=None,
            check_same_thread=False,
            timeout=0,
            cached_statements=256,
            factory=factory,
            **options,
        )
    except sqlite3.Error as error:
        raise explain(error, path) from error
    connection.level = level
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


def _create_privately(path: str) -> None:
    """Create a new file so that only its user can read it. The -wal and -shm files get the same permissions."""
    if path == ":memory:" or is_uri(path) or os.path.exists(path):
        return
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError:
        return  # another process was first, or SQLite says better what is wrong


def is_uri(path: str) -> bool:
    """Return whether a path names a database in memory that several connections share."""
    return path.startswith("file:") and path.endswith("?mode=memory&cache=shared")


def absolute(path: str) -> str:
    """Return a path that means the same file wherever the process goes: connections are also opened later."""
    return path if path == ":memory:" or is_uri(path) else os.path.abspath(path)


def _check_place(path: str) -> None:
    if path == ":memory:" or is_uri(path):
        return
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise NotThere(f"the folder {str(folder)!r} for the database does not exist; create it first")
    if Path(path).is_dir():
        raise StorageError(f"{path!r} is a folder, not a database file")
    # Check before SQLite does: it would leave read-only -wal and -shm files beside a read-only database.
    for file in (path, f"{path}-wal", f"{path}-shm"):
        if os.path.exists(file) and not _may_write(file):
            raise StorageError(f"{file!r} is read-only; allow writing to the file and its folder")
    if not _may_write(folder):
        raise StorageError(f"the folder {str(folder)!r} is read-only; allow writing to it")


def _may_write(path: str | Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _patiently(connection: sqlite3.Connection, statement: str) -> None:
    """Run a statement with SQLite's own busy timeout: several processes may open a new file at the same moment."""
    connection.execute("PRAGMA busy_timeout = 5000")
    connection.execute(statement)
    connection.execute("PRAGMA busy_timeout = 0")


def lock_folder(path: str) -> Path:
    """Return the folder in which the workers of this file keep their locks."""
    return Path(os.path.realpath(path) + ".workers")
