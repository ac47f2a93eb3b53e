"""The index key of a file whose values are sealed. Each function is one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from romancy.storage.opener import OLDEST, SEALED
from romancy.storage.sqlite.leases import check_version
from romancy.storage.sqlite.migrations import FENCE_ALL
from romancy.storage.sqlite.statements import SQL


def index_key(c: sqlite3.Connection) -> bytes | None:
    """Return the sealed index key; None if there is none."""
    row = c.execute(SQL["index_key"]).fetchone()
    return None if row is None else row[0]


def folder(c: sqlite3.Connection) -> str:
    """Return the name of the folder for values that are kept outside."""
    return c.execute(SQL["folder"]).fetchone()[0]


def make_index(c: sqlite3.Connection, sealed: bytes, key: Callable[[bytes], bytes]) -> bytes:
    """Store an index key, and file everything under `key` of its former key. Return the one that is stored.

    Processes without a codec can't write any more. Another process may have been first.
    """
    check_version(c)
    stored = index_key(c)
    if stored is not None:
        return stored
    c.execute(SQL["set_index_key"], (sealed,))
    c.create_function("romancy_key", 1, key, deterministic=True)
    try:
        for name in ("refile_waits", "refile_events", "refile_marks"):
            c.execute(SQL[name])
    finally:
        c.create_function("romancy_key", 1, None)
    for statement in FENCE_ALL:
        c.execute(statement)
    c.execute(SQL["shut_out"], (OLDEST, SEALED))
    return sealed


def change_index(c: sqlite3.Connection, stored: bytes, sealed: bytes) -> None:
    """Replace the sealed index key: it is the same key, sealed with another one."""
    check_version(c)
    c.execute(SQL["change_index_key"], (sealed, stored))
