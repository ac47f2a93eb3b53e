"""Every interleaving of statements: actors stop before each one, and a schedule says who goes next."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Mapping, Sequence
from itertools import combinations
from typing import Any

from romancy.storage.postgres import PostgresStorage
from romancy.storage.postgres.statements import Statement

MANY = 60


class Gate:
    """Stops a storage before each statement until it is let through."""

    def __init__(self, storage: PostgresStorage) -> None:
        self._connections = storage._connections
        self._through = self._connections.write
        self._asking: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()
        self._done: asyncio.Event = asyncio.Event()
        self.count = 0

    async def _write(self, statement: Statement, given: Mapping[str, Any]) -> list[Any]:
        if "pg_notify" in statement.sql:
            return await self._through(statement, given)  # nobody waits for it
        leave: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asking.put_nowait(leave)
        await leave
        try:
            return await self._through(statement, given)
        finally:
            self.count += 1
            self._done.set()

    async def begin(self, action: Awaitable[Any]) -> asyncio.Task[Any]:
        """Start an action; from here on its statements wait at the gate."""
        self._connections.write = self._write  # type: ignore[method-assign]
        self.task = asyncio.ensure_future(action)
        return self.task

    async def step(self) -> bool:
        """Let one statement through and wait for its end; false: the action is over."""
        ask = asyncio.ensure_future(self._asking.get())
        await asyncio.wait([ask, self.task], return_when=asyncio.FIRST_COMPLETED)
        if not ask.done():
            ask.cancel()
            return False
        self._done.clear()
        ask.result().set_result(None)
        await self._done.wait()
        return True

    async def finish(self) -> Any:
        while await self.step():
            pass
        return self.open()

    def open(self) -> Any:
        self._connections.write = self._through  # type: ignore[method-assign]
        return self.task.result()

    async def crash(self) -> None:
        """The process is gone: what it was about to do it never does."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self._connections.write = self._through  # type: ignore[method-assign]


def schedules(first: int, second: int) -> list[tuple[int, ...]]:
    """Every order in which so many steps of two actors can happen; a choice, the same each time, if they are many.

    With ROMANCY_TEST_THOROUGH set, always every one.
    """
    found = [
        tuple(1 if n in places else 0 for n in range(first + second))
        for places in combinations(range(first + second), second)
    ]
    return _some(found)


def deaths(first: int, second: int, actor: int) -> list[tuple[int, ...]]:
    """Every way for one of two actors to die before its end: what happened up to then."""
    return _some(
        [
            tuple(1 if n in places else 0 for n in range(a + b))
            for a in range(first + (actor == 1))
            for b in range(second + (actor == 0))
            for places in combinations(range(a + b), b)
        ]
    )


def _some(found: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    if len(found) <= MANY or os.environ.get("ROMANCY_TEST_THOROUGH"):
        return found
    return random.Random(0).sample(found, MANY)


async def play(schedule: Sequence[int], gates: Sequence[Gate]) -> None:
    """Run by schedule; who has nothing to do misses a turn."""
    for actor in schedule:
        await gates[actor].step()
