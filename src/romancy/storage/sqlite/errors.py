"""Explains SQLite's errors."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from romancy.errors import StorageError
from romancy.storage.errors import RefusedValue, TransientError, Unusable

_ROOM = 65_536
"""Bytes: SQLite needs less than this for the files that it creates beside a database."""
_UNUSABLE = ("READONLY", "NOTADB", "CORRUPT", "PERM", "AUTH", "CANTOPEN", "ERROR")
"""SQLite's names for errors that do not go away by themselves; the last means a missing table or column."""


def explain(error: sqlite3.Error, path: str) -> StorageError:
    """Return an error that says what to do."""
    code = (getattr(error, "sqlite_errorname", "") or "").removeprefix("SQLITE_")
    hints = {
        "NOTADB": f"{path!r} is not a SQLite database; use another path, or move that file away",
        "CORRUPT": f"{path!r} is damaged; restore it from a backup",
        "READONLY": f"{path!r} is read-only; allow writing to the file and its folder",
        "CANTOPEN": f"{path!r} can't be opened; check that the folder exists and is writable",
        "FULL": f"the disk that holds {path!r} is full; work continues when there is space again",
        "BUSY": f"{path!r} has been locked by another program for too long",
        "PERM": f"{path!r} can't be used by this user; check the permissions of the file",
    }
    if code.startswith("IOERR") and _is_full(path):
        code = "FULL"  # SQLite reports this if it can't create the files beside the database
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


def as_storage_error(error: sqlite3.Error, path: str) -> StorageError:
    """Distinguish an outage (try again) from a value that will never be accepted."""
    text = str(explain(error, path))
    if isinstance(
        error, sqlite3.DataError | sqlite3.IntegrityError | sqlite3.InterfaceError | sqlite3.ProgrammingError
    ):
        return RefusedValue(text)
    if "Could not decode to UTF-8" in str(error):
        return RefusedValue(f"{text} (a row is damaged)")
    code = (getattr(error, "sqlite_errorname", "") or "").removeprefix("SQLITE_")
    return Unusable(text) if code.split("_")[0] in _UNUSABLE else TransientError(text)
