"""Databases: the protocol, and the backend a URL names."""

from __future__ import annotations

from typing import Any

from romancy.core.clock import Clock
from romancy.errors import StorageError
from romancy.storage.places import is_postgres
from romancy.storage.protocol import Storage
from romancy.storage.sqlite import SQLiteStorage

__all__ = ["open_storage"]


def open_storage(database: str, *, durability: str, clock: Clock, create: bool = True, **options: Any) -> Storage:
    """The backend for a path, `:memory:` or URL; not opened yet. `options`: `schema`, `notify_url` for PostgreSQL.

    With `create=False` a PostgreSQL database in which there is nothing yet is refused; a file is made all the same.
    """
    options = {name: value for name, value in options.items() if value is not None}
    if is_postgres(database):
        return _postgres()(database, durability=durability, clock=clock, create=create, **options)
    scheme, separator, rest = database.partition("://")
    if options:
        raise StorageError(f"{', '.join(options)}: only databases with a postgresql:// URL have such options")
    if not separator:
        return SQLiteStorage(database, durability=durability, clock=clock)
    if scheme in ("sqlite", "file"):
        return SQLiteStorage(
            rest.removeprefix("/") if rest.startswith("//") else rest, durability=durability, clock=clock
        )
    raise StorageError(
        f"{scheme!r} databases are not supported by this version; use a file path, :memory: or postgresql://"
    )


def _postgres() -> Any:
    try:
        from romancy.storage.postgres import PostgresStorage  # here, because its driver is optional
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise StorageError("PostgreSQL needs its driver; install it with: pip install 'romancy[postgres]'") from None
    return PostgresStorage
