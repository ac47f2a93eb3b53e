"""A database of a size people are afraid of: `python -m tests.viewer.make_many many.db 1000000`.

Half of the instances are finished, the rest waits: for one event each, most of them with a timeout.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from typing import Any

from romancy.core.clock import SystemClock
from romancy.core.failure import Failure
from romancy.core.filters import Filter
from romancy.core.model import SECOND
from romancy.storage.sqlite.connection import connect
from romancy.storage.sqlite.migrations import migrate

STATUSES = (10, 10, 10, 10, 10, 2, 2, 2, 3, 3)
"""Of each ten instances; every 997th has failed, every 9973th runs."""
WORKFLOWS = ("payment", "order", "shipping", "reminder")
RARE = "yearly_report"
TYPES = ("payment.completed", "order.approved", "parcel.delivered", "invoice.paid")
_ERROR = Failure("ValueError", "the card was declined", "Traceback ...").encode()


def status_of(n: int) -> int:
    return 11 if n % 997 == 0 else 1 if n % 9973 == 0 else STATUSES[n % 10]


def instances(count: int, now: int) -> Iterator[tuple[Any, ...]]:
    for n in range(count):
        status, at = status_of(n), now - (count - n) * SECOND // 10
        name = RARE if n == count // 2 else WORKFLOWS[n % len(WORKFLOWS)]
        given = json.dumps({"order": f"ORD-{n}"}).encode()
        finished = at + SECOND if status >= 10 else None
        error = _ERROR if status == 11 else None
        yield (f"order-{n:07}", name, status, b"", b"", 0, given, 0, error, at, at, finished)


def waits(count: int, now: int) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...] | None]]:
    for n in range(count):
        status, at, id = status_of(n), now - (count - n) * SECOND // 10, f"order-{n:07}"
        due = now + (n % 86_400) * SECOND
        if status == 3:
            yield (id, "sleep:1", due, "", b"", "shop.py:12 in order", at), None
        elif status == 2:
            type = TYPES[n // 10 % len(TYPES)]
            narrow = Filter.build(where={"order": f"ORD-{n}"})
            spec = json.dumps({"types": [type], "filter": narrow.to_json()}).encode()
            wait = (id, f"{type}:1", due if n % 3 else None, "", spec, "shop.py:9 in order", at)
            yield wait, (type, 1 + TYPES.index(type), narrow.key, id, f"{type}:1")


def events(count: int, now: int) -> Iterator[tuple[Any, ...]]:
    for n in range(count // 2):
        data = json.dumps({"order": f"ORD-{n}"}).encode()
        yield (
            n + 1,
            "bank",
            f"e{n}",
            TYPES[n % 4],
            b'{"datacontenttype": "application/json"}',
            data,
            b"",
            now - (count // 2 - n) * SECOND // 10,
        )


def fill(c: sqlite3.Connection, count: int) -> None:
    now = SystemClock().now()
    c.execute("BEGIN")
    c.executemany(
        "INSERT INTO romancy_instances (id, workflow, status, token, birth, since, input, input_kind, error, "
        "created_at, updated_at, finished_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        instances(count, now),
    )
    for n, type in enumerate(TYPES, 1):
        c.execute("INSERT INTO romancy_shapes (id, type, fields) VALUES (?, ?, ?)", (n, type, '[["order"]]'))
    for wait, key in waits(count, now):
        c.execute(
            "INSERT INTO romancy_waits (instance, op, due_at, model, spec, location, created_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            wait,
        )
        if key is not None:
            c.execute("INSERT INTO romancy_wait_keys (type, shape, key, instance, op) VALUES (?, ?, ?, ?, ?)", key)
    c.executemany(
        "INSERT INTO romancy_events (seq, source, id, type, attrs, data, token, accepted_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        events(count, now),
    )
    taken = ((f"order-{n:07}", n + 1, "w") for n in range(count // 2) if n % 1000)
    c.executemany("INSERT INTO romancy_consumed (instance, event, op) VALUES (?, ?, ?)", taken)
    c.execute("COMMIT")


def make(path: str, count: int) -> None:
    connection = connect(path, durability="normal")
    try:
        migrate(connection, path)
        fill(connection, count)
    finally:
        connection.close()


if __name__ == "__main__":
    make(sys.argv[1], int(sys.argv[2]))
