"""What tests hand on to one another is as good as new."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from romancy.storage.postgres import PostgresStorage
from romancy.testing import ManualClock
from tests import pg_schemas, pg_server
from tests.storage.conftest import BEGINNING, Database


async def used(schema: str) -> tuple[Database, Any]:
    """Somebody on it, and a raw connection."""
    db = Database(PostgresStorage(pg_server.url(), schema=schema), ManualClock(BEGINNING))
    await db.storage.open()
    await db.register("me")
    await db.waiting("a", "me")
    return db, await asyncpg.connect(pg_server.url(), server_settings={"search_path": schema})


async def test_it_is_empty_and_counts_from_the_beginning() -> None:
    seen: list[tuple[str, int, int]] = []
    for _ in range(2):
        async with pg_schemas.schemas() as another:
            db, raw = await used(schema := another())
            first = await db.send()
            seen.append((schema, first.seq, await raw.fetchval("SELECT count(*) FROM instances")))
            await raw.close()
            await db.storage.close()
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    "alter",
    [
        "ALTER TABLE instances ADD CHECK (id <> 'b')",
        "ALTER TABLE instances ADD COLUMN more text",
        "CREATE INDEX more ON events (data)",
        "DROP TABLE deaths",
        "UPDATE schema_info SET min_reader = 99",
        "ANALYZE instances",
        "GRANT SELECT ON instances TO PUBLIC",
        "SELECT 1; -- somebody stays",
    ],
)
async def test_one_that_is_not_as_it_was_made_is_dropped(alter: str) -> None:
    async with pg_schemas.schemas() as another:
        db, raw = await used(schema := another())
        await raw.execute(alter)
        await db.storage.close()
        if "stays" not in alter:
            await raw.close()
    if not raw.is_closed():
        await raw.close()
    assert schema not in pg_schemas._spares
    raw = await asyncpg.connect(pg_server.url())
    assert not await raw.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", schema)
    await raw.close()
