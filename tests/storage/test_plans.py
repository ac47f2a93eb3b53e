"""Every statement goes by an index, with statistics and without. SQLite's planner must not choose to read a big table."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import pytest

from romancy.storage.sql import blocks
from romancy.storage.sqlite.connection import connect, migrate

SQL = blocks("sqlite.sql")
ROWS = 2_000
SMALL = {"workers", "orphans", "shapes", "triggers", "schema_info", "json_each", "deliveries", "requests"}
"""Hints, requests and the like: handled and deleted at once, so reading them all is right."""
DRIVEN_BY = {
    "free_with_mail": "deliveries",
    "free_with_request": "requests",
    "mail_deliveries": "deliveries",
    "mail_requests": "requests",
    "due_waits": "waits",
    "free_due": "waits",
    "orphaned_running": "orphans",
}
"""The table a statement must begin with: what is to be found there is little, and the rest is looked up by it."""


@pytest.fixture(scope="module")
def both() -> Iterator[list[sqlite3.Connection]]:
    """A database without statistics, as ours are, and one somebody ran ANALYZE on."""
    connections = [connect(":memory:", durability="normal") for _ in range(2)]
    for c in connections:
        migrate(c, ":memory:")
        fill(c)
    connections[1].execute("ANALYZE")
    yield connections
    for c in connections:
        c.close()


def fill(c: sqlite3.Connection) -> None:
    ids = [f"i{n:05}" for n in range(ROWS)]
    c.execute("BEGIN")
    c.execute("INSERT INTO workers (id, host, until, started_at) VALUES ('me', 'host', 1, 1)")
    c.executemany(
        "INSERT INTO instances (id, workflow, status, owner, token, since, input, input_kind, created_at, updated_at, "
        "finished_at) VALUES (?, 'wf', ?, ?, x'', 0, x'', 0, ?, 0, ?)",
        [
            (id, (2, 1, 10)[n % 3], (None, "me")[n % 2] if n % 3 < 2 else None, n, n if n % 3 == 2 else None)
            for n, id in enumerate(ids)
        ],
    )
    c.executemany("INSERT INTO waits VALUES (?, 'w', ?, NULL, '', x'00', '', 0)", [(id, n) for n, id in enumerate(ids)])
    c.executemany("INSERT INTO wait_keys VALUES (?, ?, ?, ?, 'w')", [("go", n % 3, b"k%d" % n, id) for n, id in enumerate(ids)])
    c.executemany("INSERT INTO history (instance, n, kind, op, at) VALUES (?, ?, 1, 'x', 0)", [(ids[n % 50], n) for n in range(ROWS)])
    c.executemany(
        "INSERT INTO events (source, id, type, target, token, accepted_at, expires_at) VALUES ('s', ?, ?, ?, x'', ?, ?)",
        [(id, f"type{n % 20}", None if n % 5 else id, n, None if n % 7 else n) for n, id in enumerate(ids)],
    )
    c.executemany("INSERT INTO event_keys VALUES (?, ?, ?)", [(n % 3, b"k%d" % n, n) for n in range(ROWS)])
    c.executemany("INSERT INTO consumed VALUES (?, ?, 'w')", [(ids[n % 50], n) for n in range(ROWS)])
    c.executemany("INSERT INTO marks VALUES (?, 'go', 0, x'', '', 1)", [(id,) for id in ids])
    c.executemany("INSERT INTO misfits VALUES (?, 'M', ?, 'w', '')", [(id, n) for n, id in enumerate(ids)])
    c.executemany("INSERT INTO attempts VALUES (?, 'a', 1, 0, ?, NULL, NULL, 0, 0)", [(id, n) for n, id in enumerate(ids)])
    c.execute("COMMIT")


def plan(c: sqlite3.Connection, statement: str) -> list[tuple[str, str]]:
    """(table, how) of everything a statement reads, outermost first."""
    names = {m[2] or m[1]: m[1] for m in _TABLES.finditer(statement)}
    steps = [row[3] for row in c.execute(f"EXPLAIN QUERY PLAN {statement}", [0] * statement.count("?"))]
    found = [re.match(r"(SCAN|SEARCH) (\w+)", step) for step in steps]
    return [(names.get(m[2], m[2]), m.string) for m in found if m and m[2] not in ("CONSTANT", "SUBQUERY")]


_TABLES = re.compile(
    r"(?:FROM|JOIN|UPDATE|INTO) (\w+)(?: (?!WHERE|SET|ON|LEFT|JOIN|CROSS|INDEXED|ORDER|VALUES|UNION)(\w+))?"
)


def cases(names: Iterable[str], known: Collection[str]) -> list[Any]:
    mark = pytest.mark.xfail(strict=True, reason="crash-6: driven by all instances, not by what is few")
    return [pytest.param(name, marks=mark if name in known else ()) for name in names]


@pytest.mark.parametrize("name", cases(SQL, ["free_with_mail", "free_with_request"]))
def test_no_big_table_is_read_from_end_to_end(both: list[sqlite3.Connection], name: str) -> None:
    for c in both:
        scans = [step for table, step in plan(c, SQL[name]) if step.startswith("SCAN") and table not in SMALL]
        assert not scans, f"{name}: {scans}"


@pytest.mark.parametrize("name", cases(DRIVEN_BY, DRIVEN_BY.keys() - {"free_due"}))
def test_what_is_few_comes_first(both: list[sqlite3.Connection], name: str) -> None:
    """A sweep that finds nothing must cost nothing, however many instances wait."""
    for c in both:
        (first, step), *_ = plan(c, SQL[name])
        assert first == DRIVEN_BY[name], f"{name} begins with {step}"


@pytest.mark.parametrize(
    "table", ["history", "consumed", "marks", "misfits", "attempts", "waits", "wait_keys", "deliveries"]
)
def test_what_belongs_to_an_instance_is_found_by_it(both: list[sqlite3.Connection], table: str) -> None:
    for c in both:
        [(_, step), *_] = plan(c, f"DELETE FROM {table} WHERE instance = ?")
        assert step.startswith("SEARCH"), step


@pytest.mark.parametrize(("table", "column"), [("event_keys", "seq"), ("consumed", "event"), ("events", "seq")])
def test_what_belongs_to_an_event_is_found_by_it(both: list[sqlite3.Connection], table: str, column: str) -> None:
    for c in both:
        [(_, step), *_] = plan(c, f"DELETE FROM {table} WHERE {column} = ?")
        assert step.startswith("SEARCH"), step
