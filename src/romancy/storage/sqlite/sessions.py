"""The viewer's sessions in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

from romancy.storage.sessions import MOST, StoredSession
from romancy.storage.sqlite.event_lookup import SQL

Run = Callable[[Callable[[sqlite3.Connection], Any]], Awaitable[Any]]


class SQLiteSessions:
    """Reads and writes through the storage's own connections."""

    def __init__(self, write: Run, read: Run) -> None:
        self._write, self._read = write, read

    async def add(self, key: bytes, session: StoredSession, now: int) -> None:
        def add(c: sqlite3.Connection) -> None:
            c.execute(SQL["delete_old_sessions"], (now, MOST - 1))
            c.execute(SQL["insert_session"], (key, session.proof, session.until))

        await self._write(add)

    async def get(self, key: bytes) -> StoredSession | None:
        row = await self._read(lambda c: c.execute(SQL["session"], (key,)).fetchone())
        return None if row is None else StoredSession(*row)

    async def remove(self, key: bytes) -> None:
        await self._write(lambda c: c.execute(SQL["delete_session"], (key,)).rowcount)
