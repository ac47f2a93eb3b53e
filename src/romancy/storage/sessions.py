"""Who is logged in to the viewer: kept in the database, so that every process behind an address knows the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

MOST = 1000
"""Sessions at a time; one more ends the oldest."""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A hash that only the right token and the visitor's secret together give, and when it ends."""

    proof: bytes
    until: int


class SessionStore(Protocol):
    """Sessions by the hash of the visitor's secret."""

    async def add(self, key: bytes, session: StoredSession, now: int) -> None:
        """Remember one; those that have ended by now are forgotten."""
        ...

    async def get(self, key: bytes) -> StoredSession | None:
        """The session, also if its time is over."""
        ...

    async def remove(self, key: bytes) -> None:
        """Forget it, if there is such a one."""
        ...
