"""Who is logged in to the viewer: kept in the database, so that every process behind an address knows the same."""

from __future__ import annotations

from dataclasses import dataclass

from romancy.storage.sql import Run

MOST = 1000
"""Sessions at a time; one more ends the oldest."""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A hash that only the right token and the visitor's secret together give, and when it ends."""

    proof: bytes
    until: int


class Sessions:
    """Sessions by the hash of the visitor's secret."""

    def __init__(self, ask: Run, do: Run) -> None:
        self._ask, self._do = ask, do

    async def add(self, key: bytes, session: StoredSession, now: int) -> None:
        """Remember one; those that have ended by now are forgotten."""
        await self._do("delete_old_sessions", now=now, most=MOST - 1)
        await self._do("insert_session", key=key, proof=session.proof, until=session.until)

    async def get(self, key: bytes) -> StoredSession | None:
        """The session, also if its time is over."""
        rows = await self._ask("session", key=key)
        return StoredSession(*rows[0]) if rows else None

    async def remove(self, key: bytes) -> None:
        """Forget it, if there is such a one."""
        await self._do("delete_session", key=key)
