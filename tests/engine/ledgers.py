"""A table of the user's own, in the database of the app, to be written by transactional activities."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

import asyncpg

from romancy import TransactionContext
from romancy.testing import Environment
from tests import pg_server


@dataclass
class Ledger:
    """Knows both databases. Reads go through a connection of their own, so they see only what is committed."""

    storage: Any

    @property
    def is_sqlite(self) -> bool:
        return hasattr(self.storage, "path")

    @property
    def table(self) -> str:
        return "ledger" if self.is_sqlite else f'"{self.storage.schema}".ledger'

    async def create(self, columns: str = "entry text") -> None:
        await self.outside(f"CREATE TABLE {self.table} ({columns})")

    async def outside(self, query: str) -> list[Any]:
        """Run a statement in a transaction of its own."""
        if self.is_sqlite:
            connection = sqlite3.connect(self.storage.path, timeout=10)
            try:
                with connection:
                    return connection.execute(query).fetchall()
            finally:
                connection.close()
        outside = await asyncpg.connect(pg_server.url())
        try:
            return list(await outside.fetch(query))
        finally:
            await outside.close()

    async def rows(self) -> list[str]:
        return sorted(row[0] for row in await self.outside(f"SELECT entry FROM {self.table}"))

    async def add(self, ctx: TransactionContext, entry: str) -> None:
        """Write a row in the transaction of an activity."""
        if self.is_sqlite:
            ctx.connection.execute(f"INSERT INTO {self.table} (entry) VALUES (?)", (entry,))
        else:
            await ctx.connection.execute(f"INSERT INTO {self.table} (entry) VALUES ($1)", entry)

    async def run(self, ctx: TransactionContext, query: str) -> None:
        """Run a statement in the transaction of an activity."""
        if self.is_sqlite:
            ctx.connection.execute(query)
        else:
            await ctx.connection.execute(query)


async def ledger_of(env: Environment, columns: str = "entry text") -> Ledger:
    ledger = Ledger(env.app._runtime.engine.storage)
    await ledger.create(columns)
    return ledger
