"""Databases: the protocol, and the backend a URL names."""

from __future__ import annotations

from romancy.core.clock import Clock
from romancy.errors import StorageError
from romancy.storage.protocol import Storage
from romancy.storage.sqlite import SQLiteStorage

__all__ = ["open_storage"]


def open_storage(database: str, *, durability: str, clock: Clock) -> Storage:
    """The backend for a path, `:memory:` or URL; not opened yet."""
    scheme, separator, rest = database.partition("://")
    if not separator:
        return SQLiteStorage(database, durability=durability, clock=clock)
    if scheme in ("sqlite", "file"):
        return SQLiteStorage(
            rest.removeprefix("/") if rest.startswith("//") else rest, durability=durability, clock=clock
        )
    raise StorageError(f"{scheme!r} databases are not supported by this version; use a file path or :memory:")
