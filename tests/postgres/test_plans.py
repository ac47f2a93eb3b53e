"""Every statement goes by an index once tables are big, whatever the values."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest

from romancy.storage.postgres.columns import _COLUMNS
from romancy.storage.postgres.connection import _SETTINGS
from romancy.storage.postgres.statements import BLOCKS, Statements
from romancy.storage.sql import blocks
from tests.postgres.conftest import Place
from tests.postgres.gates import patient

pytestmark = [patient, pytest.mark.play]
SETTINGS = {name: value for name, value in _SETTINGS.items() if name.endswith(("scan", "cost"))}
"""Of all connections of the app: plans depend on them."""
ROWS = 1_100_000 if os.environ.get("ROMANCY_TEST_THOROUGH") else 33_000
"""Of eleven instances ten are finished: what there is most of must not be read."""
SMALL = {
    "schema_info",
    "workers",
    "orphans",
    "shapes",
    "triggers",
    "deliveries",
    "requests",
    "unlooked",
    "undispatched",
    "sessions",
    "minutes",
    "deaths",
    "trials",
    "schedules",
    "sinks",
    "sink_types",
    "sink_parked",  # empty here, and usually: the SQLite twin of this test checks its indexes
    "inbox",
    "interests",
    "cuts",
    "queues",
    "vault",
    "pg_database",
}
"""Hints, requests and the like: handled and deleted at once, or bounded, so reading them all is right."""
BATCHES = [
    ["starts"],
    ["touches", "entries"],
    ["appended"],
    ["steps", "entries", "ended"],
    ["events"],
    ["runs", "entries", "letters", "last_children", "first_attributes"],
    ["touches", "entries", "views", "attributes", "removed"],
    ["moved", "starts", "events", "left"],
    [piece for piece in [*_COLUMNS, "ended", "unlooked"] if piece not in ("touches", "runs")],
]
FILL = """
INSERT INTO instances
  (id, workflow, status, owner, token, birth, born, input, input_kind, created_at, updated_at, finished_at)
  SELECT 'i' || n, 'wf' || n % 5, CASE WHEN n % 11 > 0 THEN 10 ELSE 2 + (n % 3 = 0)::integer END,
    CASE WHEN n % 11 = 0 AND n % 2 = 1 THEN 'me' END, '', '', pg_current_snapshot(), '', 0, n, n,
    CASE WHEN n % 11 > 0 THEN n END FROM generate_series(1, :rows) n;
UPDATE instances SET parent = 'i' || length(id), parent_op = 'x' WHERE created_at % 4 = 1;
UPDATE instances SET status = 1 WHERE status < 9 AND length(id) % 2 = 0 AND id LIKE '%7';
UPDATE instances SET queue = 'q' || created_at % 3, queue_key = 'k' || created_at % 97, priority = 0
  WHERE created_at % 3 > 0;
UPDATE instances SET status = 8 WHERE queue IS NOT NULL AND status = 2 AND owner IS NULL;
INSERT INTO queue_keys SELECT 'q1', 'k' || n, n FROM generate_series(1, :rows) n;
INSERT INTO history SELECT 'i' || n, 1, 1, 'x', 0 FROM generate_series(1, :rows) n;
INSERT INTO waits SELECT 'i' || n, 'w', n, NULL, NULL, '', '{}', '', 0 FROM generate_series(11, :rows, 11) n;
INSERT INTO wait_keys
  SELECT 'type' || n % 20, n % 3, n::text::bytea, 'i' || n, 'w' FROM generate_series(11, :rows, 11) n;
INSERT INTO events (seq, source, id, type, target, token, accepted_at, expires_at) SELECT n, 's', n, 'type' || n % 20,
  CASE WHEN n % 5 = 0 THEN 'i' || n END, '', n, CASE WHEN n % 7 = 0 THEN n END FROM generate_series(1, :rows) n;
INSERT INTO event_keys SELECT n % 3, n::text::bytea, '5'::xid8, n FROM generate_series(1, :rows) n;
INSERT INTO consumed SELECT 'i' || n % 50, n, 'w' FROM generate_series(1, :rows) n;
INSERT INTO marks SELECT 'i' || n, 'type1', 0, '', '', '5'::xid8, n FROM generate_series(1, :rows) n;
INSERT INTO misfits SELECT 'i' || n, 'M', n, 'w', '' FROM generate_series(1, :rows) n;
INSERT INTO attempts SELECT 'i' || n, 'a', 1, 0, n, NULL, NULL, 0, false FROM generate_series(11, :rows, 11) n;
INSERT INTO views SELECT 'i' || n, '1', n FROM generate_series(1, :rows) n;
INSERT INTO attributes SELECT 'i' || n, 'customer', n % 100, n FROM generate_series(1, :rows) n;
INSERT INTO attributes SELECT 'i' || n, 'tier', '"gold"', n FROM generate_series(1, :rows) n;
INSERT INTO headers SELECT 'i' || n, '{}' FROM generate_series(1, :rows) n;
INSERT INTO emissions SELECT 'i' || n, 1, 'tokens', 1, 1, n % 4, 'a:1', 1, n, 700, '1' FROM generate_series(1, :rows) n;
INSERT INTO emissions SELECT 'i' || n, 2, 'tokens', 2, 1, 0, 'a:1', 1, n, 700, '1' FROM generate_series(1, :rows) n;
INSERT INTO acts (instance, at, verb, who) SELECT 'i' || n, n, 'start', 'ann' FROM generate_series(1, :rows) n;
INSERT INTO workers VALUES ('me', '', 0, 0, false);
ANALYZE;
"""

ALL_WAIT = """
INSERT INTO instances (id, workflow, status, owner, token, birth, born, input, input_kind, created_at, updated_at)
  SELECT 'i' || n, 'wf', 2, 'dead', '', '', pg_current_snapshot(), '', 0, n, n FROM generate_series(1, :rows) n;
INSERT INTO waits SELECT 'i' || n, 'w', CASE WHEN n % 10 = 0 THEN n END, NULL, NULL, '', '{}', '', 0
  FROM generate_series(1, :rows) n;
INSERT INTO wait_keys SELECT 'type', 1, n::text::bytea, 'i' || n, 'w' FROM generate_series(1, :rows) n;
INSERT INTO workers VALUES ('me', '', 0, 0, false);
INSERT INTO orphans VALUES ('dead', 0, false);
ANALYZE instances, waits, wait_keys;
"""
"""Everything waits, and its one owner died: the small tables have no statistics yet."""
EMPTY = {"events", "event_keys", "consumed", "marks", "misfits", "attempts", "history", "views", "attributes"}
EMPTY |= {"queue_keys", "acts", "headers", "emissions"}
"""Then."""


def nodes(plan: dict[str, Any], above: str = "") -> Iterator[dict[str, Any]]:
    """Return the parts of a plan. Each names the one above it."""
    yield {**plan, "above": above}
    for child in plan.get("Plans", ()):
        yield from nodes(child, plan["Node Type"])


@pytest.mark.parametrize("fill", [FILL, ALL_WAIT], ids=["mixed", "all wait"])
async def test_no_statement_reads_a_big_table_from_end_to_end(place: Place, fill: str) -> None:
    await place.storage(listen=False)
    raw = await place.raw(**SETTINGS)
    if raw.get_server_version().major < 16:
        pytest.skip("EXPLAIN (GENERIC_PLAN) came with PostgreSQL 16")
    for statement in fill.replace(":rows", str(ROWS)).split(";\n"):
        if statement.strip():
            await raw.execute(statement)
    statements = Statements(place.schema)
    made = {name: statements.get(name) for name in BLOCKS if not name.startswith("{")}
    made |= {f"write {' '.join(pieces)}": statements.write(pieces) for pieces in BATCHES}
    scans: list[str] = []
    for name, statement in made.items():
        plan = nodes(json.loads(await explain(raw, statement.sql))[0]["Plan"])
        big = [node for node in plan if fill is FILL or node.get("Relation Name") not in EMPTY]
        scans += [f"{name}: {n}" for n in big if reads_all(n)]
    assert not scans, "\n".join(scans)


async def test_what_some_builds_could_not_follow_is_read_in_order(place: Place) -> None:
    """Nearly always there is none, and a sweep must not read other blocked instances."""
    await place.storage(listen=False)
    raw = await place.raw(**SETTINGS)
    for statement in FILL.replace(":rows", str(ROWS)).split(";\n"):
        if statement.strip():
            await raw.execute(statement)
    await raw.execute("UPDATE instances SET status = 9, finished_at = NULL, builds = '[]' WHERE status = 10")
    await raw.execute("ANALYZE instances")
    statement = Statements(place.schema).get("unfit")
    given = {"workflows": ["wf1", "wf2"], "after_workflow": "", "after_id": "", "limit": 10}
    plan = json.loads(await raw.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.sql}", *statement.values(given)))
    reads = [node for node in nodes(plan[0]["Plan"]) if node.get("Relation Name") == "instances"]
    assert [(node["Index Name"], node["Actual Rows"], node["Actual Loops"]) for node in reads] == [
        ("instances_unfit", 10, 2)
    ]


@pytest.mark.parametrize(
    ("name", "given", "most"),
    [
        ("oldest_instances", {}, 12),
        ("oldest_events", {"after": "", "limit": 1000}, 42),
        ("last_completed", {"limit": 10}, 10),
        ("prunable_events", {"types": ["type1", "type2"], "befores": [300, 300], "at": 10**9, "limit": 10}, 200),
        ("forget_expired_data", {"at": 100}, 50),
    ],
)
async def test_a_round_of_retention_reads_only_what_it_returns(
    place: Place, name: str, given: dict[str, Any], most: int
) -> None:
    """Even if its first types are addressed events only, and all workflows but the last have completed."""
    await place.storage(listen=False)
    raw = await place.raw(**SETTINGS)
    for statement in FILL.replace(":rows", str(ROWS)).split(";\n"):
        if statement.strip():
            await raw.execute(statement)
    await raw.execute("UPDATE events SET target = CASE WHEN type < 'type1' THEN 'i1' ELSE target END, data = ''")
    await raw.execute("UPDATE instances SET status = 10 WHERE workflow < 'wf4'")
    await raw.execute("VACUUM ANALYZE instances, events")
    statement = Statements(place.schema).get(name)
    plan = json.loads(await raw.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.sql}", *statement.values(given)))
    big = [node for node in nodes(plan[0]["Plan"]) if node.get("Relation Name") not in {None, *SMALL}]
    read = sum(n["Actual Loops"] * (n["Actual Rows"] + n.get("Rows Removed by Filter", 0)) for n in big)
    assert 0 < read <= most, plan


def reads_all(node: dict[str, Any]) -> bool:
    """Whether a part of a plan goes through a table, or through an index from one end to the other."""
    if node["Node Type"] == "Seq Scan":
        return node["Relation Name"] not in SMALL
    if "Index" not in node["Node Type"] or node.get("Relation Name") in SMALL or "Index Cond" in node:
        return False
    if node["above"] == "Limit" and "Filter" not in node:
        return False  # ends after the first few
    return node["Index Name"] != "attempts_suspected"  # only what was running when a worker died is in it


def test_every_statement_is_looked_at() -> None:
    """A file or a piece of the group commit that is added is to be added here as well."""
    folder = resources.files("romancy.storage.sql")
    files = [file.name for file in folder.iterdir() if file.name.endswith(".sql") and "sqlite" not in file.name]
    assert {name for file in files for name in blocks(file)} == set(BLOCKS)
    pieces = {name.removeprefix("{write_").rstrip("}") for name in BLOCKS if name.startswith("{write_")}
    assert {piece for batch in BATCHES for piece in batch} == pieces - {"fence"}


async def explain(raw: Any, sql: str) -> str:
    """The plan for whatever values. Inside a function, because the driver would want to send some."""
    await raw.execute(
        "CREATE OR REPLACE FUNCTION pg_temp.plan(statement text) RETURNS text LANGUAGE plpgsql AS $f$ "
        "DECLARE plan text; BEGIN "
        "EXECUTE 'EXPLAIN (GENERIC_PLAN, FORMAT JSON) ' || statement INTO plan; RETURN plan; END $f$"
    )
    return await raw.fetchval("SELECT pg_temp.plan($1)", sql)
