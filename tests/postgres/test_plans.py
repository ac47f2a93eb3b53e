"""Every statement goes by an index once tables are big, whatever the values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from romancy.storage.postgres.gathering import _COLUMNS
from romancy.storage.postgres.statements import _BLOCKS, Statements
from tests.postgres.conftest import Place

ROWS = 30_000
SMALL = {"workers", "orphans", "shapes", "triggers", "deliveries", "requests", "unlooked", "undispatched"}
"""Hints, requests and the like: handled and deleted at once, so reading them all is right."""
PARTS = {"free", "now", "claimable", "session_locks"}
LISTS = {"instances": {"where": "WHERE status = ANY(:s::smallint[])"}, "waits": {"waits": "", "attempts": ""}}
LISTS["listed_events"] = {"where": "WHERE e.seq < :before::bigint"}
LISTS["search"] = LISTS["search_bound"] = LISTS["instances"]
LISTS["shown_events"] = {"where": "WHERE e.seq < :before::bigint", "order": "ORDER BY e.seq DESC"}
BATCHES = [
    ["starts"],
    ["touches", "entries"],
    ["appended"],
    ["steps", "entries", "ended"],
    ["events"],
    [piece for piece in [*_COLUMNS, "ended", "unlooked"] if piece != "touches"],
]
FILL = """
INSERT INTO instances
  (id, workflow, status, owner, token, birth, born, input, input_kind, created_at, updated_at, finished_at)
  SELECT 'i' || n, 'wf' || n % 5, (ARRAY[2, 1, 10])[n % 3 + 1], CASE WHEN n % 3 < 2 AND n % 2 = 1 THEN 'me' END, '', '',
    pg_current_snapshot(), '', 0, n, n, CASE WHEN n % 3 = 2 THEN n END FROM generate_series(1, :rows) n;
INSERT INTO history SELECT 'i' || n, 1, 1, 'x', 0 FROM generate_series(1, :rows) n;
INSERT INTO waits SELECT 'i' || n, 'w', n, NULL, NULL, '', '{}', '', 0 FROM generate_series(1, :rows) n;
INSERT INTO wait_keys SELECT 'type' || n % 20, n % 3, n::text::bytea, 'i' || n, 'w' FROM generate_series(1, :rows) n;
INSERT INTO events (seq, source, id, type, target, token, accepted_at, expires_at) SELECT n, 's', n, 'type' || n % 20,
  CASE WHEN n % 5 = 0 THEN 'i' || n END, '', n, CASE WHEN n % 7 = 0 THEN n END FROM generate_series(1, :rows) n;
INSERT INTO event_keys SELECT n % 3, n::text::bytea, '5'::xid8, n FROM generate_series(1, :rows) n;
INSERT INTO consumed SELECT 'i' || n % 50, n, 'w' FROM generate_series(1, :rows) n;
INSERT INTO marks SELECT 'i' || n, 'type1', 0, '', '', '5'::xid8, n FROM generate_series(1, :rows) n;
INSERT INTO misfits SELECT 'i' || n, 'M', n, 'w', '' FROM generate_series(1, :rows) n;
INSERT INTO attempts SELECT 'i' || n, 'a', 1, 0, n, NULL, NULL, 0, false FROM generate_series(1, :rows) n;
INSERT INTO workers VALUES ('me', '', 0, 0, false);
ANALYZE;
"""


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


async def test_no_statement_reads_a_big_table_from_end_to_end(place: Place) -> None:
    await place.storage(listen=False)
    raw = await place.raw()
    if raw.get_server_version().major < 16:
        pytest.skip("EXPLAIN (GENERIC_PLAN) came with PostgreSQL 16")
    for statement in FILL.replace(":rows", str(ROWS)).split(";\n"):
        if statement.strip():
            await raw.execute(statement)
    statements = Statements(place.schema)
    names = [name for name in _BLOCKS if not name.startswith("write_") and name not in PARTS]
    made = {name: statements.get(name, **LISTS.get(name, {})) for name in names}
    made |= {f"write {' '.join(pieces)}": statements.write(pieces) for pieces in BATCHES}
    scans: list[str] = []
    for name, statement in made.items():
        plan = nodes(json.loads(await explain(raw, statement.sql))[0]["Plan"])
        big = [n for n in plan if n["Node Type"] == "Seq Scan" and n["Relation Name"] not in SMALL]
        scans += [f"{name}: {node['Relation Name']} {node.get('Filter')}" for node in big]
    assert not scans, "\n".join(scans)


async def explain(raw: Any, sql: str) -> str:
    """The plan for whatever values. Inside a function, because the driver would want to send some."""
    await raw.execute(
        "CREATE OR REPLACE FUNCTION pg_temp.plan(statement text) RETURNS text LANGUAGE plpgsql AS $f$ "
        "DECLARE plan text; BEGIN "
        "EXECUTE 'EXPLAIN (GENERIC_PLAN, FORMAT JSON) ' || statement INTO plan; RETURN plan; END $f$"
    )
    return await raw.fetchval("SELECT pg_temp.plan($1)", sql)
