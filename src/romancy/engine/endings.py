"""Endings: callers that wait for an instance to end, and how they learn of it."""

from __future__ import annotations

import asyncio
from itertools import islice

from romancy.core.failure import Failure
from romancy.core.model import STOPPED
from romancy.core.outcome import Outcome
from romancy.errors import CodecError, InstanceNotFound
from romancy.storage.protocol import Storage
from romancy.storage.records import Finished
from romancy.storage.unopened import check

LOOKUPS = 500
"""How many instances are checked at a time for having ended."""


def outcome_of(row: Finished) -> Outcome | None:
    """Return how an instance ended, or that it is blocked; None if neither."""
    if row.status not in STOPPED:
        return None
    check(row.output if row.error is None else row.error)
    return Outcome(row.status, row.output, Failure.decode(row.error) if row.error else None)


class Endings:
    """Futures by instance id. They are set when an instance ends here, or when a read shows that it ended elsewhere.

    One read covers many instances: while it runs, the next ones gather.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._waiting: dict[str, list[asyncio.Future[Outcome]]] = {}
        self._wanted: dict[str, asyncio.Future[None]] = {}
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    async def ending(self, instance: str, seconds: float | None, *, is_here: bool) -> Outcome:
        """Wait for an instance to end. The database is not read for one that is in memory."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(instance, []).append(future)
        try:
            if not is_here:
                await self._find(instance)
            if seconds is None:
                return await future
            async with asyncio.timeout(seconds):
                return await future
        finally:
            self._forget(instance, future)

    def _forget(self, instance: str, future: asyncio.Future[Outcome]) -> None:
        futures = self._waiting.get(instance, [])
        if future in futures:
            futures.remove(future)
        if not futures:
            self._waiting.pop(instance, None)

    def announce(self, instance: str, outcome: Outcome) -> None:
        for future in self._waiting.pop(instance, ()):
            if not future.done():
                future.set_result(outcome)

    def _fail(self, instance: str, error: Exception) -> None:
        for future in self._waiting.pop(instance, ()):
            if not future.done():
                future.set_exception(error)

    def fail_all(self, error: Exception) -> None:
        for instance in list(self._waiting):
            self._fail(instance, error)

    # --- in the database --------------------------------------------------------------------------------------------
    def some(self, limit: int) -> list[str]:
        """Return up to `limit` instances that callers wait for. The next call continues with others."""
        ids = list(islice(self._waiting, limit))
        for id in ids:
            self._waiting[id] = self._waiting.pop(id)
        return ids

    async def read(self, instances: list[str]) -> set[str]:
        """Announce which instances ended, and return their ids."""
        rows = await self._storage.finished(instances)
        for row in rows:
            try:
                outcome = outcome_of(row)
            except CodecError as error:
                self._fail(row.id, error)
                continue
            if outcome is not None:
                self.announce(row.id, outcome)
        return {row.id for row in rows}

    async def _find(self, instance: str) -> None:
        """Announce how it ended, or that it does not exist. Return after a read that began after the call."""
        future = self._wanted.get(instance)
        if future is None:
            future = self._wanted[instance] = asyncio.get_running_loop().create_future()
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._find_wanted(), name="romancy-endings")
        await asyncio.shield(future)

    async def _find_wanted(self) -> None:
        while self._wanted:
            batch = {id: self._wanted.pop(id) for id in list(islice(self._wanted, LOOKUPS))}
            try:
                await self._find_all(list(batch))
            except Exception as error:
                for future in batch.values():
                    future.set_exception(error)
                    future.exception()  # marks it as retrieved: the caller may be gone
                continue
            for future in batch.values():
                future.set_result(None)

    async def _find_all(self, instances: list[str]) -> None:
        open_ones = set(instances) - await self.read(instances)
        if open_ones:
            for id in open_ones - await self._storage.existing(open_ones):
                self._fail(id, InstanceNotFound(instance_id=id))
