"""What former versions left behind is put right when a database is brought up to date."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from romancy import App, Database, WorkflowContext, wait_event, workflow
from romancy.storage.tools.migration import migrate
from tests.postgres.conftest import Place

FORMER = """
ALTER TABLE wait_keys DROP CONSTRAINT wait_keys_pkey, DROP COLUMN follows, DROP COLUMN alike,
  ADD PRIMARY KEY (type, shape, key, instance, op);
ALTER TABLE instances DROP COLUMN parent_op, DROP COLUMN base, DROP COLUMN began_at, DROP COLUMN builds,
  DROP COLUMN limited_from, DROP COLUMN seed, DROP COLUMN is_free, DROP COLUMN schedule, DROP COLUMN scheduled_at,
  DROP COLUMN queue, DROP COLUMN queue_key, DROP COLUMN priority;
DROP TABLE schedules, queues, queue_keys, sinks, sink_types, sink_parked, minutes, acts, headers, emissions, vault;
ALTER TABLE workers DROP COLUMN about, DROP COLUMN load;
ALTER TABLE events DROP COLUMN origin;
DROP INDEX instances_parent;
DROP TABLE views, attributes;
DROP TABLE inbox;
DROP TABLE interests, cuts;
DROP INDEX instances_oldest, events_age, events_addressed, events_expiring;
ALTER TABLE requests DROP COLUMN op;
UPDATE schema_info SET version = 4, min_reader = 2;
"""
"""Before there were followers."""
MISSED = """
INSERT INTO events (seq, source, id, type, data, token, accepted_at)
  SELECT nextval('event_numbers'), 'shop', 'e' || n, 'paid', '{"order": 7}', '', n FROM generate_series(1, 2) n
    ORDER BY n;
INSERT INTO event_keys (shape, key, xid, seq) SELECT k.shape, k.key, e.xid, e.seq FROM wait_keys k, events e
  WHERE e.type = 'paid' AND k.shape > 0 AND k.instance = 'a';
"""
"""Two events that a wait with a filter looked for before they had their keys."""
PASSED_OVER = """
INSERT INTO marks SELECT k.instance, k.type, k.shape, k.key, '', max(e.xid), max(e.seq) FROM wait_keys k, events e
  WHERE k.shape > 0 GROUP BY 1, 2, 3, 4
"""
"""And the instance has taken a later one since."""


@workflow
async def order(ctx: WorkflowContext, number: int) -> str:
    return (await wait_event(ctx, "paid", where={"order": number})).id


@asynccontextmanager
async def running(place: Place) -> AsyncIterator[App]:
    async with App(Database(place.url, schema=place.schema), workflows=[order]) as app:
        yield app


async def former(place: Place, *changes: str) -> Any:
    """A database as a former version left it: two instances wait, and the first missed its event."""
    async with running(place) as app:
        for id, number in (("a", 7), ("b", 8)):
            await app.start_workflow(order, number, instance_id=id)
        while len((await app.list_waits(limit=3)).items) < 2:  # noqa: ASYNC110 - the engine is at it
            await asyncio.sleep(0.01)
    raw = await place.raw()
    for change in (MISSED, *changes, FORMER):
        await raw.execute(change)
    assert await raw.fetch("TABLE deliveries") == await raw.fetch("TABLE unlooked") == []
    return raw


@pytest.mark.parametrize("changes", [[], [PASSED_OVER]], ids=["none taken", "later one taken"])
async def test_a_wait_that_missed_its_event_gets_it(place: Place, changes: list[str]) -> None:
    await former(place, *changes)
    async with running(place) as app:
        assert await asyncio.wait_for(app.handle("a", order).result(), 30) == "e1"
        assert await app.handle("b", order).status() == "waiting_for_event"


async def test_only_those_that_missed_something_are_looked_at(place: Place) -> None:
    raw = await former(place)
    [first, _] = [row["seq"] for row in await raw.fetch("SELECT seq FROM events ORDER BY seq")]
    await migrate(place.url, place.schema)
    assert [tuple(row) for row in await raw.fetch("TABLE deliveries")] == [("a", first)]


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO consumed SELECT 'a', seq, 'x' FROM events",
        "INSERT INTO misfits SELECT 'a', '', seq, 'x', '' FROM events",
        "UPDATE events SET target = 'b'",
        "UPDATE events SET expires_at = 1",
        "UPDATE waits SET born = pg_current_snapshot()",
        "UPDATE waits SET since = 3",
        "UPDATE instances SET status = 9",
    ],
)
async def test_what_a_wait_may_not_take_is_not_missed(place: Place, change: str) -> None:
    raw = await former(place, change)
    await migrate(place.url, place.schema)
    assert await raw.fetch("TABLE deliveries") == []
