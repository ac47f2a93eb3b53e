"""Who did what to instances. Acts are written with what was done, in one transaction, and removed with the instance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from romancy.storage.sql import Run

MOST = 1000
"""The maximum number of acts that are read, oldest first."""


@dataclass(frozen=True, slots=True)
class ActRow:
    """An act and its author. The verbs are start, cancel, resume, retry, retry now, fork and answer."""

    verb: str
    who: str
    at: int


class Acts:
    """Reads acts, for people."""

    def __init__(self, ask: Run) -> None:
        self._ask = ask

    async def of(self, instance: str) -> Sequence[ActRow]:
        """Return who did what to an instance, in order. Acts from before its start are not its own."""
        return [ActRow(*row) for row in await self._ask("acts_of", instance=instance, limit=MOST)]
