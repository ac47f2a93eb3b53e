"""Every statement goes by an index, with statistics and without: SQLite must not choose to read a big table."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from romancy.storage.sqlite.connection import connect
from romancy.storage.sqlite.migrations import migrate
from romancy.storage.sqlite.statements import SQL, STATEMENTS

ROWS = 2_000
LISTS = {"listed", "codes", "seqs", "workflows", "pairs", "absent"}
"""Parameters that are JSON."""
SMALL = {"workers", "orphans", "owners", "shapes", "triggers", "schema_info", "json_each", "deliveries", "requests"}
SMALL |= {"sessions", "deaths", "trials", "schedules", "queues"}
SMALL |= {"interests", "cuts", "names", "types"}  # few workflows and types; the last two go through an index by steps
SMALL |= {"inbox"}
SMALL |= {"minutes"}  # those of one day
SMALL |= {"vault"}  # one row
SMALL |= {"sinks", "sink_types", "found"}  # few; the last one goes through an index by steps
"""Hints, requests and the like: handled and deleted at once, or bounded, so reading them all is right."""
ONCE = {"refile_waits", "refile_events", "refile_marks"}
"""Run once for a file, when its values are first sealed: they change every row."""
DRIVEN_BY = {
    "free_with_mail": "deliveries",
    "free_with_request": "requests",
    "mail": "deliveries",
    "due_waits": "waits",
    "due_retries": "attempts",
    "free_due": "waits",
    "orphaned_running": "orphans",
    "due_schedules": "schedules",
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
    for n, id in enumerate(ids):
        status = (2, 1, 10)[n % 3]
        owner = "me" if n % 2 and status < 10 else None
        parent = ids[n % 7] if n % 3 else None
        insert(c, "instances", id=id, workflow="wf", status=status, owner=owner, created_at=n, parent=parent)
        c.execute("UPDATE romancy_instances SET finished_at = ? WHERE id = ? AND status = 10", (n, id))
        insert(c, "waits", instance=id, op="w", due_at=n, spec=b"{}")
        insert(c, "wait_keys", type="go", shape=n % 3, key=b"k%d" % n, instance=id, op="w")
        insert(c, "history", instance=ids[n % 50], n=n, op="x")
        target, expires = (None if n % 5 else id), (None if n % 7 else n)
        insert(c, "events", id=id, type=f"type{n % 20}", target=target, accepted_at=n, expires_at=expires)
        insert(c, "event_keys", shape=n % 3, key=b"k%d" % n, seq=n)
        insert(c, "consumed", instance=ids[n % 50], event=n, op="w")
        insert(c, "marks", instance=id, type="go")
        insert(c, "misfits", instance=id, model="M", event=n)
        insert(c, "attempts", instance=id, op="a", next_due=n)
        insert(c, "views", instance=id)
        insert(c, "attributes", instance=id, name="tier", value='"gold"', created_at=n)
        insert(c, "attributes", instance=id, name="customer", value=f'"{n % 100}"', created_at=n)
    insert(c, "workers", id="me")
    c.execute("COMMIT")


def insert(c: sqlite3.Connection, table: str, **values: Any) -> None:
    """A row; what the schema wants besides is made up."""
    for _, column, kind, required, default, _ in _columns(c, table):
        if required and default is None and column not in values:
            values[column] = {"INTEGER": 0, "BLOB": b""}.get(kind, "")
    names = ", ".join(values)
    c.execute(f"INSERT INTO romancy_{table} ({names}) VALUES ({', '.join('?' * len(values))})", list(values.values()))


def _columns(c: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    return c.execute(f"PRAGMA table_info(romancy_{table})").fetchall()


def plan(c: sqlite3.Connection, name: str) -> list[tuple[str, str]]:
    """(table, how) of everything a statement reads, outermost first."""
    statement, values = SQL[name], ["[]" if name in LISTS else 0 for name in STATEMENTS[name].names]
    names = {m[2] or m[1]: m[1].removeprefix("romancy_") for m in _TABLES.finditer(statement)}
    steps = [row[3] for row in c.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    found = [re.match(r"(SCAN|SEARCH) (\w+)", step) for step in steps]
    made = {step.split()[1] for step in steps if step.startswith(("CO-ROUTINE", "MATERIALIZE"))}
    assert not made & (names.keys() - names.values()), "a subquery has the name of a table"
    return [(names.get(m[2], m[2]), m.string) for m in found if m and m[2] not in {"CONSTANT", "SUBQUERY"} | made]


_TABLES = re.compile(
    r"(?:FROM|JOIN|UPDATE|INTO) (\w+)(?:\([^)]*\))?"
    r"(?: (?!WHERE|SET|ON|LEFT|JOIN|CROSS|INDEXED|ORDER|VALUES|UNION)(\w+))?"
)


@pytest.mark.parametrize("name", [name for name in SQL if name not in ONCE])
def test_no_big_table_is_read_from_end_to_end(both: list[sqlite3.Connection], name: str) -> None:
    for c in both:
        scans = [step for table, step in plan(c, name) if step.startswith("SCAN") and table not in SMALL]
        assert not scans, f"{name}: {scans}"


@pytest.mark.parametrize("name", DRIVEN_BY)
def test_what_is_few_comes_first(both: list[sqlite3.Connection], name: str) -> None:
    """A sweep that finds nothing must cost nothing, however many instances wait."""
    for c in both:
        (first, step), *_ = plan(c, name)
        assert first == DRIVEN_BY[name], f"{name} begins with {step}"


def test_what_some_builds_could_not_follow_is_read_in_order(both: list[sqlite3.Connection]) -> None:
    """Nearly always there is none, and a sweep must not read other blocked instances."""
    for c in both:
        steps = [row[3] for row in c.execute(f"EXPLAIN QUERY PLAN {SQL['unfit']}", ["wf", "", 10])]
        assert steps == ["SEARCH romancy_instances USING INDEX romancy_instances_unfit (workflow=? AND id>?)"]


BY_PARENT = [
    *(name for name in SQL if name.endswith("_of_parent")),
    "waits_for_children",
    "parents_of_unsuccessful",
]


@pytest.mark.parametrize("name", BY_PARENT)
def test_children_are_found_by_their_parent_in_order(both: list[sqlite3.Connection], name: str) -> None:
    """A parent without children costs nothing, and a page of a million children is read without sorting them."""
    for c in both:
        statement, values = SQL[name], ["[]" if name in LISTS else 0 for name in STATEMENTS[name].names]
        steps = [row[3] for row in c.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
        used = [step for step in steps if "INDEX romancy_instances_parent (parent=?" in step]
        assert used, steps
        assert not any("TEMP B-TREE" in step for step in steps), steps


@pytest.mark.parametrize("name", [name for name in SQL if name.endswith("_of_attribute") or name == "count_attribute"])
def test_instances_are_found_by_an_attribute_in_order(both: list[sqlite3.Connection], name: str) -> None:
    for c in both:
        statement, values = SQL[name], ["[]" if name in LISTS else 0 for name in STATEMENTS[name].names]
        steps = [row[3] for row in c.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
        assert any("INDEX romancy_attributes_value (name=? AND value=?" in step for step in steps), steps
        assert not any("TEMP B-TREE" in step for step in steps), steps
        others = [step for step in steps if re.search(r"SEARCH (a|i) ", step)]
        assert all("(instance=?" in step or "(id=?" in step for step in others), steps


# --- instances that have work, among many that only wait -------------------------------------------------------------
MANY = 1_000


def _steps(c: sqlite3.Connection, name: str, **values: Any) -> int:
    """How many instructions of SQLite's virtual machine a statement takes."""
    steps = 0

    def tick() -> int:
        nonlocal steps
        steps += 1
        return 0

    wanted = [values.get(parameter, 0) for parameter in STATEMENTS[name].names]
    c.set_progress_handler(tick, 1)
    try:
        c.execute(SQL[name], wanted).fetchall()
    finally:
        c.set_progress_handler(None, 0)
    return steps


@pytest.mark.parametrize("analyzed", [False, True], ids=["without statistics", "with statistics"])
@pytest.mark.parametrize(
    "name", ["free_running", "orphaned_running", "restless_of_worker", "last_sign", "free_waiting"]
)
def test_a_sweep_does_not_read_the_instances_that_it_does_not_want(name: str, analyzed: bool) -> None:
    # Both bounds of the status are needed, one for the index, one for the search, and SQLite searches by the first.
    c = connect(":memory:", durability="normal")
    try:
        migrate(c, ":memory:")
        unwanted = 8 if name == "free_waiting" else 2
        for n in range(MANY):
            for owner in (None, "me", "dead"):
                insert(c, "instances", id=f"{owner}{n}", workflow="wf", status=unwanted, owner=owner, created_at=n)
        c.execute("INSERT INTO romancy_orphans (id, at, clean) VALUES ('dead', 0, 1)")
        if analyzed:
            c.execute("ANALYZE")
        assert _steps(c, name, workflow="wf", workflows='["wf"]', worker="me", limit=100) < MANY
    finally:
        c.close()
