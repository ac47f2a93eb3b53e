"""Every interleaving of statements: actors stop before each one, and a schedule says who goes next."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from itertools import product
from math import factorial, prod
from typing import Any

import pytest

from romancy.storage.postgres import PostgresStorage
from romancy.storage.postgres.statements import Statement

MANY, THOROUGH = 40, 6_000
"""How many orders are tried at most."""
patient = pytest.mark.timeout(3600 if os.environ.get("ROMANCY_TEST_THOROUGH") else 120)


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


def schedules(*counts: int) -> list[tuple[int, ...]]:
    """Every order in which so many steps of each actor can happen; a choice, the same each time, if they are many.

    With ROMANCY_TEST_THOROUGH set the choice is so big that for two actors it is nearly always every one.
    """
    return _some([counts])


def deaths(*counts: int, actor: int) -> list[tuple[int, ...]]:
    """Every way for one of the actors to die before its end: what happened up to then."""
    ends = product(*(range(count + (n != actor)) for n, count in enumerate(counts)))
    return _some(list(ends))


def _some(ends: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    limit = THOROUGH if os.environ.get("ROMANCY_TEST_THOROUGH") else MANY
    if sum(_how_many(counts) for counts in ends) <= limit:
        return [order for counts in ends for order in _orders(counts)]
    chance, found = random.Random(0), dict[tuple[int, ...], None]()
    while len(found) < limit:
        order = [actor for actor, count in enumerate(chance.choice(ends)) for _ in range(count)]
        chance.shuffle(order)
        found[tuple(order)] = None
    return list(found)


def _how_many(counts: Sequence[int]) -> int:
    return factorial(sum(counts)) // prod(map(factorial, counts))


def _orders(counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if not any(counts):
        yield ()
    for actor, count in enumerate(counts):
        if count:
            for rest in _orders((*counts[:actor], count - 1, *counts[actor + 1 :])):
                yield (actor, *rest)


async def play(schedule: Sequence[int], gates: Sequence[Gate]) -> None:
    """Run by schedule; who has nothing to do misses a turn."""
    for actor in schedule:
        await gates[actor].step()
