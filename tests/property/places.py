"""Where the machine works: what differs between databases, and what it reads behind the apps' backs."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any, ClassVar, Protocol

import asyncpg

from romancy.storage.sql import prefixed
from tests import pg_server
from tests.crash.ground import TABLES
from tests.helpers import unqualified

_FINGERPRINT = (
    "SELECT (SELECT sum(version) FROM romancy.instances), (SELECT count(*) FROM romancy.history),"
    " (SELECT max(seq) FROM romancy.events), (SELECT count(*) FROM romancy.waits),"
    " (SELECT max(id) FROM romancy.workers), (SELECT count(*) FROM romancy.workers),"
    " (SELECT count(*) FROM romancy.requests)"
)


class Place(Protocol):
    """A database that is empty at the beginning of an example."""

    database: str
    options: dict[str, Any]

    async def open(self) -> None:
        """An app was there: the tables are."""
        ...

    async def fingerprint(self) -> tuple[Any, ...] | None:
        """Changes when anything does; None: somebody is at it."""
        ...

    async def activity(self) -> list[str]:
        """What the database is at, in words."""
        ...

    async def has_waits(self, instance: str) -> bool: ...
    async def transactions(self) -> dict[int, int]:
        """Which transaction brought each event. Within one there is an order; between two only if one began later."""
        ...

    async def close(self) -> None: ...


class SQLitePlace:
    """A file. There is one writer, hence one order."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="romancy-")
        self.database = str(Path(self._folder.name) / "db")
        self.options: dict[str, Any] = {}
        self._reader: sqlite3.Connection | None = None

    async def open(self) -> None:
        self._reader = sqlite3.connect(self.database, isolation_level=None)

    def _one(self, query: str, *values: Any) -> Any:
        assert self._reader is not None
        return self._reader.execute(prefixed(query), values).fetchone()

    async def fingerprint(self) -> tuple[Any, ...] | None:
        return self._one(_FINGERPRINT)

    async def activity(self) -> list[str]:
        return [f"{self._one(_FINGERPRINT)}"]

    async def has_waits(self, instance: str) -> bool:
        return bool(self._one("SELECT count(*) FROM romancy.waits WHERE instance = ?", instance)[0])

    async def transactions(self) -> dict[int, int]:
        assert self._reader is not None
        return {seq: 0 for (seq,) in self._reader.execute("SELECT seq FROM romancy_events")}

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._folder.cleanup()


class PostgresPlace:
    """One schema, emptied for each example. What a dead process sent off may still come in: that is waited for."""

    schema: ClassVar[str]

    def __init__(self) -> None:
        self.database = pg_server.url()
        self.options: dict[str, Any] = {"schema": self.schema}
        self._reader: Any = None

    async def open(self) -> None:
        self._reader = await asyncpg.connect(self.database, server_settings={"search_path": self.schema})
        await self._reader.execute("; ".join(f"DELETE FROM {table}" for table in (*TABLES, "shapes")))

    async def fingerprint(self) -> tuple[Any, ...] | None:
        if await self._reader.fetchval(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE state = 'active' AND pid <> pg_backend_pid() AND query LIKE $1",
            f'%"{self.schema}".%',
        ):
            return None
        return tuple(await self._reader.fetchrow(unqualified(_FINGERPRINT)))

    async def activity(self) -> list[str]:
        rows = await self._reader.fetch(
            "SELECT pid, state, wait_event_type, wait_event, now() - xact_start, pg_blocking_pids(pid), query "
            "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return [str(tuple(row))[:600] for row in rows]

    async def has_waits(self, instance: str) -> bool:
        return bool(await self._reader.fetchval("SELECT count(*) FROM waits WHERE instance = $1", instance))

    async def transactions(self) -> dict[int, int]:
        return dict(await self._reader.fetch("SELECT seq, xid::text::bigint FROM events"))

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()
