"""Endings: callers that wait for an instance to end, and how they hear of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice

from romancy.core.activation import Outcome
from romancy.core.failure import Failure
from romancy.storage.batch import BLOCKED, STATUS_CODES
from romancy.storage.records import InstanceRow


def outcome_of(row: InstanceRow) -> Outcome | None:
    """How an instance ended, or that it is blocked; None while it goes on."""
    if STATUS_CODES[row.status] < BLOCKED:
        return None
    return Outcome(row.status, row.output, Failure.decode(row.error) if row.error else None)


class Endings:
    """Futures by instance id; told by the scheduler, or by a look into the database for other workers' instances."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[Outcome]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def some(self, limit: int) -> list[str]:
        """So many of the instances that are waited for; the next call goes on with others."""
        ids = list(islice(self._waiting, limit))
        for id in ids:
            self._waiting[id] = self._waiting.pop(id)
        return ids

    def wait(self, instance: str) -> asyncio.Future[Outcome]:
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(instance, []).append(future)
        return future

    def forget(self, instance: str, future: asyncio.Future[Outcome]) -> None:
        futures = self._waiting.get(instance, [])
        if future in futures:
            futures.remove(future)
        if not futures:
            self._waiting.pop(instance, None)

    def announce(self, instance: str, outcome: Outcome) -> None:
        for future in self._waiting.pop(instance, ()):
            if not future.done():
                future.set_result(outcome)

    def fail(self, instance: str, error: Exception) -> None:
        for future in self._waiting.pop(instance, ()):
            if not future.done():
                future.set_exception(error)

    def fail_all(self, error: Exception) -> None:
        for futures in self._waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)
        self._waiting.clear()


class Lookups:
    """Reads how instances ended, many at a time: while some are read, the next gather."""

    def __init__(self, read: Callable[[list[str]], Awaitable[None]], limit: int) -> None:
        self._read, self._limit = read, limit
        self._wanted: dict[str, asyncio.Future[None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def read(self, instance: str) -> None:
        """Returns after a read that began after the call."""
        future = self._wanted.get(instance)
        if future is None:
            future = self._wanted[instance] = asyncio.get_running_loop().create_future()
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._work_off(), name="romancy-endings")
        await asyncio.shield(future)

    async def _work_off(self) -> None:
        while self._wanted:
            batch = {id: self._wanted.pop(id) for id in list(islice(self._wanted, self._limit))}
            try:
                await self._read(list(batch))
            except Exception as error:
                for future in batch.values():
                    future.set_exception(error)
                    future.exception()  # whoever asked may be gone; then it is nobody's error
                continue
            for future in batch.values():
                future.set_result(None)
