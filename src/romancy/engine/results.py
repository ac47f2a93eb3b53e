"""Who waits for which instance to end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from romancy.core.failure import Failure
from romancy.core.model import Status


@dataclass(frozen=True, slots=True)
class Ending:
    """How an instance ended, or that it is blocked."""

    status: Status
    output: bytes | None
    error: Failure | None


class Results:
    """Futures by instance id; told by the scheduler, or by a look into the database for other workers' instances."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[Ending]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def wanted(self) -> list[str]:
        return list(self._waiting)

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

    def announce(self, instance: str, status: Status, output: bytes | None, error: Failure | None) -> None:
        for future in self._waiting.pop(instance, ()):
            if not future.done():
                future.set_result(Ending(status, output, error))

    def fail_all(self, error: Exception) -> None:
        for futures in self._waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)
        self._waiting.clear()
