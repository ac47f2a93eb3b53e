"""Who waits for which instance to end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice

from romancy.core.failure import Failure
from romancy.core.model import Status
from romancy.storage.protocol import BLOCKED, STATUS_CODES, InstanceRow


@dataclass(frozen=True, slots=True)
class Ending:
    """How an instance ended, or that it is blocked."""

    status: Status
    output: bytes | None
    error: Failure | None

    @classmethod
    def of(cls, row: InstanceRow) -> Ending | None:
        """None: it has not ended."""
        if STATUS_CODES[row.status] < BLOCKED:
            return None
        return cls(row.status, row.output, Failure.decode(row.error) if row.error else None)


class Results:
    """Futures by instance id; told by the scheduler, or by a look into the database for other workers' instances."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[Ending]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def some(self, limit: int) -> list[str]:
        """So many of the instances that are waited for; the next call goes on with others."""
        ids = list(islice(self._waiting, limit))
        for id in ids:
            self._waiting[id] = self._waiting.pop(id)
        return ids

    def wait(self, instance: str) -> asyncio.Future[Ending]:
        future: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(instance, []).append(future)
        return future

    def forget(self, instance: str, future: asyncio.Future[Ending]) -> None:
        futures = self._waiting.get(instance, [])
        if future in futures:
            futures.remove(future)
        if not futures:
            self._waiting.pop(instance, None)

    def announce(self, instance: str, ending: Ending) -> None:
        for future in self._waiting.pop(instance, ()):
            if not future.done():
                future.set_result(ending)

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


class Looks:
    """Looks into the database, many instances at a time: while some are looked for, the next gather."""

    def __init__(self, look: Callable[[list[str]], Awaitable[None]], limit: int) -> None:
        self._look, self._limit = look, limit
        self._wanted: dict[str, asyncio.Future[None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def look(self, instance: str) -> None:
        """Returns after a look that began after the call."""
        future = self._wanted.get(instance)
        if future is None:
            future = self._wanted[instance] = asyncio.get_running_loop().create_future()
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._work_off(), name="romancy-looks")
        await asyncio.shield(future)

    async def _work_off(self) -> None:
        while self._wanted:
            batch = {id: self._wanted.pop(id) for id in list(islice(self._wanted, self._limit))}
            try:
                await self._look(list(batch))
            except Exception as error:
                for future in batch.values():
                    future.set_exception(error)
                    future.exception()  # whoever asked may be gone; then it is nobody's error
                continue
            for future in batch.values():
                future.set_result(None)
