"""Loads an instance into memory."""

from __future__ import annotations

import sqlite3

from romancy.core.history import Entry
from romancy.storage.records import Snapshot, StoredRequest
from romancy.storage.rows import to_attempt, to_instance
from romancy.storage.sqlite.statements import SQL

SHORT = 500
"""The number of history entries up to which reading is fast."""


def load_small(c: sqlite3.Connection, instance: str) -> Snapshot | None:
    """Return everything about one instance; also None if its history is long, which takes a while to read."""
    return load(c, instance, SHORT)


def load(c: sqlite3.Connection, instance: str, most: int = -1) -> Snapshot | None:
    """Return everything about one instance, from one snapshot, if its history has at most `most` entries."""
    c.execute("BEGIN")
    try:
        row = c.execute(SQL["instance"], (instance,)).fetchone()
        if row is None:
            return None
        found = c.execute(SQL["history"], (instance,))
        entries = found.fetchmany(most + 1) if most >= 0 else found.fetchall()
        found.close()
        if 0 <= most < len(entries):
            return None
        return Snapshot(
            to_instance(row),
            [Entry(*entry) for entry in entries],
            dict(c.execute(SQL["dues_of_instance"], (instance,)).fetchall()),
            [to_attempt(r) for r in c.execute(SQL["attempts_of_instance"], (instance,))],
            [StoredRequest(*r) for r in c.execute(SQL["requests_of_instance"], (instance,))],
            [seq for (seq,) in c.execute(SQL["deliveries_of_instance"], (instance,))],
        )
    finally:
        c.execute("COMMIT")
