"""Three workers admit to one queue in many orders of statements, on every database, and die at any point."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from copy import copy
from typing import Any

import pytest

from romancy import Queue
from romancy.storage.queues import Queues
from tests.storage.admitters import LIMITS, MOST, admit_all, fill, running
from tests.storage.conftest import Database

ORDERS = 40
WORKERS = ("one", "two", "three")


class Gated:
    """The queues of a database. Every call waits until it is let through."""

    def __init__(self, inner: Queues) -> None:
        self._inner, self.is_stopped, self._go = inner, asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        async def call(*args: Any, **given: Any) -> Any:
            self.is_stopped.set()
            await self._go.wait()
            self._go.clear()
            return await method(*args, **given)

        return call

    async def step(self) -> None:
        """Let one call through, up to the next one or the end."""
        self.is_stopped.clear()
        self._go.set()
        await self.is_stopped.wait()


def moves(choose: random.Random) -> Iterator[tuple[str, bool]]:
    """Who goes on next, or dies there. Two in three of them die."""
    fated = {name: choose.randrange(7) for name in WORKERS if choose.random() < 0.7}
    steps: Counter[str] = Counter()
    while True:
        name = choose.choice(WORKERS)
        steps[name] += 1
        yield name, fated.get(name) == steps[name] - 1


async def play(db: Database, queue: Queue, choose: random.Random) -> set[str]:
    """Return who died."""
    gates = {name: Gated(db.storage.queues) for name in WORKERS}
    tasks: dict[str, asyncio.Task[None]] = {}
    for name, gate in gates.items():
        tasks[name] = asyncio.create_task(admit_all(db, queue, name, gate))
        tasks[name].add_done_callback(lambda _, gate=gate: gate.is_stopped.set())
        await gate.is_stopped.wait()
    dead: set[str] = set()
    for name, dies in moves(choose):
        if all(task.done() for task in tasks.values()):
            break
        if dies and not tasks[name].done():
            tasks[name].cancel()
            await asyncio.wait([tasks[name]])
            dead.add(name)
        elif not tasks[name].done():
            await gates[name].step()
    for name, task in tasks.items():
        assert name in dead or task.exception() is None
    return dead


@pytest.mark.parametrize("limits", LIMITS)
async def test_no_limit_is_exceeded_whoever_dies_where(db: Database, limits: str) -> None:
    dead_ones: Counter[int] = Counter()
    await db.register(*WORKERS, "heir")
    for seed in range(ORDERS):
        queue = copy(LIMITS[limits])
        queue.name = f"q{seed}"
        await fill(db, queue.name, f" {seed}")
        dead = await play(db, queue, random.Random(f"{limits} {seed}"))
        before = await running(db, f" {seed}")
        assert len(before) <= MOST[limits], seed
        assert len(before) == MOST[limits] or len(dead) == len(WORKERS), f"{seed}: somebody left a slot free"
        await admit_all(db, queue, "heir")
        after = await running(db, f" {seed}")
        assert len(after) == MOST[limits], seed
        assert queue.rate is not None or max(Counter(id[0] for id in after).values()) == 1, seed
        dead_ones[len(dead)] += 1
    assert set(dead_ones) == {0, 1, 2, 3}, "all that can happen does"
