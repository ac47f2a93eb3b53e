"""The viewer's login sessions, kept in the database so that all processes behind one address share them."""

from __future__ import annotations

from dataclasses import dataclass

from romancy.storage.sql import Run

MOST = 1000
"""The maximum number of sessions; one more ends the oldest."""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A hash that requires both the right token and the visitor's secret, and when the session ends."""

    proof: bytes
    until: int


class Sessions:
    """Sessions by the hash of the visitor's secret."""

    def __init__(self, ask: Run, do: Run) -> None:
        self._ask, self._do = ask, do

    async def add(self, key: bytes, session: StoredSession, now: int) -> None:
        """Store a session, and delete those that have ended."""
        await self._do("delete_old_sessions", now=now, most=MOST - 1)
        await self._do("insert_session", key=key, proof=session.proof, until=session.until)

    async def get(self, key: bytes) -> StoredSession | None:
        """Return the session, even if it has ended."""
        rows = await self._ask("session", key=key)
        return StoredSession(*rows[0]) if rows else None

    async def remove(self, key: bytes) -> None:
        """Delete the session if it exists."""
        await self._do("delete_session", key=key)
