"""An event loop on which time passes only when there is nothing else to do, and everything happens in the same order.

Nothing waits: a sleep of an hour takes no time. Threads are played by callbacks. With one seed the whole of an engine,
its pauses, leases and timers included, does the same thing twice.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import selectors
import sys
import uuid
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from romancy.core.clock import Alarm
from romancy.core.model import SECOND

NOON = 1_800_000_000 * SECOND
MOST_TURNS = 2_000_000
"""Turns of the loop after which something goes round in circles."""
BUSY_TURNS = 500
"""Turns in which a millisecond passes although there is something to do."""


class Stuck(AssertionError):
    """The simulation can't go on."""


class _Selector(selectors.SelectSelector):
    """Waits for no file: it turns the clock instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now_us = 0
        self.turns = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        self.turns += 1
        if timeout is None:
            raise Stuck("nothing will ever happen again, and somebody still waits")
        if self.turns > MOST_TURNS:
            raise Stuck(f"{MOST_TURNS} turns of the loop: something goes round in circles")
        if timeout > 0:
            self.now_us += max(1, round(timeout * SECOND))
        elif self.turns % BUSY_TURNS == 0:
            self.now_us += 1000
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """`random` decides how long what would run in a thread takes."""

    def __init__(self, random: random.Random) -> None:
        self._virtual = _Selector()
        self._random = random
        super().__init__(self._virtual)
        self._clock_resolution = 1e-7

    def time(self) -> float:
        return self._virtual.now_us / SECOND

    @property
    def time_us(self) -> int:
        return self._virtual.now_us

    @property
    def turns(self) -> int:
        return self._virtual.turns

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except BaseException as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        self.call_later(self._random.choice((0, 0, 0.001, 0.05, 0.7)), work)
        return future


class VirtualClock:
    """The clock of all engines on one virtual loop; `offset` is what somebody set it by."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.offset = 0

    def now(self) -> int:
        return NOON + self._loop.time_us + self.offset

    def call_at(self, due: int, callback: Callable[[], None]) -> Alarm:
        return _Alarm(self, self._loop, due, callback)


class _Alarm:
    def __init__(self, clock: VirtualClock, loop: VirtualLoop, due: int, callback: Callable[[], None]) -> None:
        self._clock, self._loop, self._due, self._callback = clock, loop, due, callback
        self._arm()

    def _arm(self) -> None:
        delay = max(0, self._due - self._clock.now()) / SECOND
        self._handle = self._loop.call_later(min(delay, 1.0), self._ring)

    def _ring(self) -> None:
        if self._clock.now() >= self._due:
            self._callback()
        else:
            self._arm()

    def cancel(self) -> None:
        self._handle.cancel()


@contextmanager
def deterministic(seed: int) -> Generator[tuple[random.Random, VirtualLoop], None, None]:
    """All that the engine draws or measures follows from the seed, as does what comes from the source that is given."""
    source, ids, ticks = random.Random(seed), random.Random(seed + 1), itertools.count()
    loop = VirtualLoop(source)
    state = random.getstate()
    random.seed(seed)

    def stopwatch() -> float:
        return loop.time() + next(ticks) * 1e-6

    modules = [module for name, module in sys.modules.items() if name.startswith("romancy.")]
    with ExitStack() as patches:
        patches.callback(random.setstate, state)
        patches.enter_context(
            patch.object(uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4)),
        )
        for module in modules:
            if "stopwatch" in vars(module):
                patches.enter_context(patch.object(module, "stopwatch", stopwatch))
        yield source, loop
