"""The viewer's sessions in PostgreSQL."""

from __future__ import annotations

from romancy.storage.postgres.connection import Connections
from romancy.storage.sessions import MOST, StoredSession


class PostgresSessions:
    """Each a statement of its own."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def add(self, key: bytes, session: StoredSession, now: int) -> None:
        given = {"key": key, "proof": session.proof, "until": session.until, "now": now, "most": MOST}
        await self._connections.do("insert_session", **given)

    async def get(self, key: bytes) -> StoredSession | None:
        rows = await self._connections.ask("session", key=key)
        return StoredSession(*rows[0]) if rows else None

    async def remove(self, key: bytes) -> None:
        await self._connections.do("delete_session", key=key)
