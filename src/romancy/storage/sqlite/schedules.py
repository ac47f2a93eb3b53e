"""Writes to the table of schedules. Each is one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from romancy.storage.sqlite.leases import check_version, record
from romancy.storage.sqlite.statements import SQL, run


def write(c: sqlite3.Connection, name: str, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Run a write by name."""
    check_version(c)
    if name == "fire_schedule":
        return _fire(c, given)
    return _trigger(c, given) if name == "trigger_schedule" else run(c, name, given)


def _fire(c: sqlite3.Connection, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Advance a schedule and start its tick; see the statement of this name in postgres.sql."""
    if c.execute(SQL["fence"], (given["worker"],)).fetchone() is None:
        return []
    busy = bool(run(c, "open_of_schedule", {"name": given["name"], "limit": 1}))
    if busy and given["waits"]:
        return []
    wants = given["id"] is not None
    starts = wants and not (busy and given["yields"])
    skipped = given["skipped"] + (wants and not starts)
    if not run(c, "advance_schedule", {**given, "starts": starts, "skipped": skipped}):
        return []
    if starts:
        _insert(c, {**given, "owner": given["worker"] if given["mine"] else None})
    return [(starts,)]


def _trigger(c: sqlite3.Connection, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    rows = run(c, "advance_triggered", given)
    if rows:
        _, queue, key, priority = rows[0]
        _insert(c, {**given, "owner": None, "queue": queue, "queue_key": key, "priority": priority})
        record(c, [given["id"]], given["at"], "start", given["who"])
    return rows


def _insert(c: sqlite3.Connection, given: Mapping[str, Any]) -> None:
    if run(c, "insert_scheduled", given):
        run(c, "insert_scheduled_attributes", given)
