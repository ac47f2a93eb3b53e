"""What plays take place on: a database that is empty at the beginning of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import asyncpg

from romancy.storage.postgres import PostgresStorage
from romancy.storage.protocol import Storage
from romancy.storage.sql import prefixed
from romancy.storage.sqlite import SQLiteStorage
from romancy.testing import ManualClock
from tests import pg_server
from tests.helpers import unqualified

TABLES = (
    "workers orphans instances history waits wait_keys unlooked events undispatched event_keys deliveries consumed "
    "marks misfits requests attempts triggers trials deaths views attributes"
).split()
"""Everything but what the storage knows by heart: the version, and the shapes."""


class Ground(Protocol):
    """A database for plays, and for the environments of tests that want nothing but a database."""

    is_quick: bool
    """A play takes a few milliseconds."""

    async def lay(self, clock: ManualClock) -> Storage:
        """An empty database, open."""
        ...

    async def dust_settled(self) -> None:
        """What the dead left under way on the server has ended."""
        ...

    async def tidy(self) -> None:
        """Do what the pruner does now and then: a hint may have come in just after its instance ended."""
        ...

    async def clear(self) -> None:
        """The play is over."""
        ...

    def open_storage(self, database: str, **options: Any) -> Storage:
        """For an environment, which opens and closes it."""
        ...

    async def read(self, query: str) -> list[tuple[Any, ...]]:
        """The query names tables as `romancy.waits`."""
        ...


class SQLiteGround:
    """A new database in memory every time."""

    is_quick = True

    async def lay(self, clock: ManualClock) -> Storage:
        await self.open_storage(":memory:", clock=clock).open()
        return self._storage

    async def dust_settled(self) -> None:
        """A transaction here ends before anybody else has a say."""

    async def tidy(self) -> None:
        """Who ends an instance here deletes everything: nothing is left to tidy."""

    async def clear(self) -> None:
        await self._storage.close()

    def open_storage(self, database: str, **options: Any) -> Storage:
        self._storage = SQLiteStorage(database, **options)
        return self._storage

    async def read(self, query: str) -> list[tuple[Any, ...]]:
        return await self._storage._read(lambda c: c.execute(prefixed(query)).fetchall())


class PostgresGround:
    """One schema for all tests, one storage for all plays of a test: making them anew would take most of the time."""

    is_quick = False

    def __init__(self, schema: str, storage: PostgresStorage, spy: Any) -> None:
        self._schema, self._storage, self._spy = schema, storage, spy

    async def lay(self, clock: ManualClock) -> Storage:
        self._storage._clock = self._storage._owning._clock = clock
        return self._storage

    async def dust_settled(self) -> None:
        while self._storage._commits:
            await asyncio.wait(self._storage._commits)

    async def tidy(self) -> None:
        await self.dust_settled()
        await self._storage.prune(0, 0, 1)

    async def clear(self) -> None:
        await self.dust_settled()
        for (worker,) in await self.read("SELECT id FROM romancy.workers"):
            self._storage.drop_lock(worker)
        await self._spy.execute("; ".join(f"DELETE FROM {table}" for table in TABLES))

    def open_storage(self, database: str, **options: Any) -> Storage:
        return PostgresStorage(pg_server.url(), schema=self._schema, **options)

    async def read(self, query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self._spy.fetch(unqualified(query))]


@asynccontextmanager
async def postgres_ground(schema: str) -> AsyncGenerator[PostgresGround, None]:
    storage = PostgresStorage(pg_server.url(), schema=schema, durability="normal")
    await storage.open()
    spy = await asyncpg.connect(pg_server.url(), server_settings={"search_path": schema})
    ground = PostgresGround(schema, storage, spy)
    try:
        yield ground
    finally:
        await ground.clear()
        await spy.close()
        await storage.close()
