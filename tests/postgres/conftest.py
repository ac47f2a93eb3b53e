"""Several processes' worth of storages on one schema, and a raw connection to look at it or stand in its way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from romancy.storage.postgres import PostgresStorage
from romancy.testing import ManualClock
from tests import pg_server
from tests.storage.conftest import BEGINNING, Database


class Place:
    """One schema, and everybody who uses it."""

    def __init__(self, schema: str, url: str) -> None:
        self.schema, self.url = schema, url
        self.clock = ManualClock(BEGINNING)
        self._opened: list[Any] = []

    async def storage(self, **options: Any) -> PostgresStorage:
        options = {"schema": self.schema, "clock": self.clock, "durability": "normal", **options}
        storage = PostgresStorage(self.url, **options)
        self._opened.append(storage)
        await storage.open()
        return storage

    async def worker(self, name: str, **options: Any) -> Database:
        """A storage of its own with a registered worker."""
        db = Database(await self.storage(**options), self.clock)
        await db.register(name)
        return db

    async def raw(self, **settings: str) -> Any:
        connection = await asyncpg.connect(self.url, server_settings={"search_path": self.schema, **settings})
        self._opened.append(connection)
        return connection

    async def close(self) -> None:
        for opened in reversed(self._opened):
            await opened.close()


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        schema = await stack.enter_async_context(pg_server.schema())
        place = Place(schema, pg_server.url())
        stack.push_async_callback(place.close)
        yield place
