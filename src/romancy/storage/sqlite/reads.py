"""Loads instances into memory."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from romancy.core.history import Entry
from romancy.core.operations import Sought
from romancy.storage.records import Snapshot, StoredRequest
from romancy.storage.rows import to_attempt, to_instance
from romancy.storage.sqlite.statements import SQL

SHORT, MANY = 500, 2_000
"""The number of history entries up to which reading is fast: of one instance, and of those that are read together."""


def load(c: sqlite3.Connection, instance: str) -> Snapshot | None:
    """Return everything about one instance, from one snapshot."""
    return _load(c, [instance], None).get(instance)


def load_many(c: sqlite3.Connection, instances: Sequence[str]) -> dict[str, Snapshot | None]:
    """Return everything about these instances, from one snapshot, except those with long histories."""
    return _load(c, instances, MANY)


def _load(c: sqlite3.Connection, instances: Sequence[str], most: int | None) -> dict[str, Snapshot | None]:
    c.execute("BEGIN")
    try:
        rows = c.execute(SQL["instances_to_load"], (json.dumps(instances),)).fetchall()
        found: dict[str, Snapshot | None] = dict.fromkeys(instances)
        snapshots: dict[str, Snapshot] = {}
        for *row, length, headers in rows:
            if most is not None and (length > SHORT or length > most):
                del found[row[0]]
                continue
            most = None if most is None else most - length
            carried = None if headers is None else json.loads(headers)
            found[row[0]] = snapshots[row[0]] = Snapshot(to_instance(tuple(row)), [], {}, [], [], [], carried)
        if snapshots:
            _fill(c, snapshots)
        return found
    finally:
        c.execute("COMMIT")


def _fill(c: sqlite3.Connection, snapshots: dict[str, Snapshot]) -> None:
    ids = (json.dumps(list(snapshots)),)

    def rows(name: str) -> sqlite3.Cursor:
        return c.execute(SQL[name], ids)

    for id, *entry in rows("entries_to_load"):
        snapshots[id].history.append(Entry(*entry))
    for id, op, due, spec, model, has_beginning in rows("waits_to_load"):
        snapshots[id].waits[op] = due
        if spec:
            snapshots[id].sought[op] = Sought(spec, model, bool(has_beginning))
    for id, *attempt in rows("attempts_to_load"):
        snapshots[id].attempts.append(to_attempt(tuple(attempt)))
    for id, *request in rows("requests_to_load"):
        snapshots[id].requests.append(StoredRequest(*request))
    for id, event in rows("deliveries_to_load"):
        snapshots[id].deliveries.append(event)
