"""Reads: short, and each with a limit, so that the log can always be checkpointed."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Any

from romancy.core.history import Entry
from romancy.core.model import Status
from romancy.storage.batch import STATUS_CODES
from romancy.storage.records import Due, InstanceRow, Mail, Snapshot, StoredEvent, StoredWait
from romancy.storage.rows import to_attempt, to_entry, to_event, to_instance
from romancy.storage.sqlite.event_lookup import SQL

SHORT = 500
"""Entries of a history that is read in a moment."""
_INSTANCE_COLUMNS = SQL["instance"].partition(" WHERE ")[0]
_EVENT_COLUMNS = SQL["listed_event"].partition(" WHERE ")[0]
_WAITS = """
SELECT instance, workflow, op, kind, spec, created_at, due_at, location, error FROM (
  SELECT w.instance, i.workflow, w.op, CASE WHEN w.spec = x'' THEN 'timer' ELSE 'event' END AS kind, w.spec,
    w.created_at, w.due_at, w.location, NULL AS error
  FROM waits w JOIN instances i ON i.id = w.instance {waits}
  UNION ALL
  SELECT a.instance, i.workflow, a.op, 'retry', x'', a.first_at, a.next_due, '', a.error
  FROM attempts a JOIN instances i ON i.id = a.instance WHERE a.next_due IS NOT NULL {attempts}
) {after} ORDER BY instance, op LIMIT ?
"""


def load_small(c: sqlite3.Connection, instance: str) -> Snapshot | None:
    """Everything of one instance; None, too, if its history is long, which takes a while to read."""
    return load(c, instance, SHORT)


def load(c: sqlite3.Connection, instance: str, most: int = -1) -> Snapshot | None:
    """Everything of one instance, from one snapshot of the database, if its history has at most so many entries."""
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
            [to_entry(entry) for entry in entries],
            dict(c.execute(SQL["waits_of_instance"], (instance,)).fetchall()),
            [to_attempt(r) for r in c.execute(SQL["attempts_of_instance"], (instance,))],
            c.execute(SQL["requests_of_instance"], (instance,)).fetchall(),
            [seq for (seq,) in c.execute(SQL["deliveries_of_instance"], (instance,))],
        )
    finally:
        c.execute("COMMIT")


def history(c: sqlite3.Connection, instance: str) -> list[Entry]:
    return [to_entry(row) for row in c.execute(SQL["history"], (instance,))]


def instance(c: sqlite3.Connection, instance: str) -> InstanceRow | None:
    row = c.execute(SQL["instance"], (instance,)).fetchone()
    return None if row is None else to_instance(row)


def finished(c: sqlite3.Connection, instances: Collection[str]) -> list[InstanceRow]:
    rows = (c.execute(SQL["finished_instance"], (id,)).fetchone() for id in instances)
    return [to_instance(row) for row in rows if row is not None]


def existing(c: sqlite3.Connection, instances: Collection[str]) -> set[str]:
    return {id for id in instances if c.execute(SQL["known_instance"], (id,)).fetchone() is not None}


def mail(c: sqlite3.Connection, worker: str, limit: int) -> Mail:
    return Mail(
        c.execute(SQL["mail_deliveries"], (worker, limit)).fetchall(),
        c.execute(SQL["mail_requests"], (worker, limit)).fetchall(),
    )


def due(c: sqlite3.Connection, worker: str, before: int, limit: int) -> list[Due]:
    """Waits and retries, the earliest first."""
    rows = [row for name in ("due_waits", "due_retries") for row in c.execute(SQL[name], (before, worker, limit))]
    return [Due(*row) for row in sorted(rows)[:limit]]


def instances(
    c: sqlite3.Connection,
    status: Collection[Status],
    workflow: str | None,
    text: str | None,
    started_after: int | None,
    limit: int,
    cursor: tuple[Any, ...] | None,
) -> list[InstanceRow]:
    """Newest first; `cursor` is (created_at, id) of the last one shown."""
    where: list[str] = []
    values: list[Any] = []
    if status:
        where.append(f"status IN ({', '.join('?' * len(status))})")
        values += [STATUS_CODES[s] for s in status]
    if workflow is not None:
        where.append("workflow = ?")
        values.append(workflow)
    if text:
        where.append("(instr(id, ?) OR instr(CAST(input AS TEXT), ?) OR instr(CAST(error AS TEXT), ?))")
        values += [text, text, text]
    if started_after is not None:
        where.append("created_at > ?")
        values.append(started_after)
    if cursor is not None:
        where.append("(created_at, id) < (?, ?)")
        values += cursor
    condition = f" WHERE {' AND '.join(where)}" if where else ""
    query = f"{_INSTANCE_COLUMNS}{condition} ORDER BY created_at DESC, id DESC LIMIT ?"
    return [to_instance(row) for row in c.execute(query, (*values, limit))]


def waits(
    c: sqlite3.Connection, instance: str | None, type: str | None, limit: int, cursor: tuple[Any, ...] | None
) -> list[StoredWait]:
    """By (instance, op); `cursor` is that of the last one shown."""
    on_waits, on_attempts = ["1"], ""
    values_w: list[Any] = []
    values_a: list[Any] = []
    if instance is not None:
        on_waits.append("w.instance = ?")
        on_attempts = "AND a.instance = ?"
        values_w.append(instance)
        values_a.append(instance)
    if type is not None:
        on_waits.append(
            "EXISTS (SELECT 1 FROM wait_keys k WHERE k.instance = w.instance AND k.op = w.op AND k.type = ?)"
        )
        on_attempts += " AND 0"
        values_w.append(type)
    after = "WHERE (instance, op) > (?, ?)" if cursor is not None else ""
    query = _WAITS.format(waits=f"WHERE {' AND '.join(on_waits)}", attempts=on_attempts, after=after)
    return [StoredWait(*row) for row in c.execute(query, (*values_w, *values_a, *(cursor or ()), limit))]


def events(
    c: sqlite3.Connection, type: str | None, instance: str | None, unmatched: bool, limit: int, before: int | None
) -> list[StoredEvent]:
    """Newest first, each with the instances that took it."""
    where: list[str] = []
    values: list[Any] = []
    if type is not None:
        where.append("type = ?")
        values.append(type)
    if instance is not None:
        where.append("seq IN (SELECT event FROM consumed WHERE instance = ?)")
        values.append(instance)
    if unmatched:
        where.append("NOT EXISTS (SELECT 1 FROM consumed x WHERE x.event = seq)")
    if before is not None:
        where.append("seq < ?")
        values.append(before)
    condition = f" WHERE {' AND '.join(where)}" if where else ""
    rows = c.execute(f"{_EVENT_COLUMNS}{condition} ORDER BY seq DESC LIMIT ?", (*values, limit)).fetchall()
    return [StoredEvent(to_event(row[:-1]), c.execute(SQL["receivers"], (row[0],)).fetchall(), row[-1]) for row in rows]
