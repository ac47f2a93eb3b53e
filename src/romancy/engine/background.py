"""Background duties. Each has a round of work that returns how long to rest; the loop is the same for all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from romancy.engine.outage import Outage
from romancy.storage.errors import TransientError

_logger = logging.getLogger("romancy")


class Duty:
    """Repeats `round` until stopped. `kick` ends its rest; parts that come before it set the event `kicked` instead."""

    def __init__(
        self, name: str, round: Callable[[], Awaitable[float]], outage: Outage, kicked: asyncio.Event | None = None
    ) -> None:
        self._name, self.round, self._outage = name, round, outage
        self._kicked = kicked or asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._working = False
        self._failing = False

    def __repr__(self) -> str:
        return f"<Duty {self._name} working={self._working}>"

    def start(self) -> None:
        self._kicked.set()
        self._task = asyncio.create_task(self._repeat(), name=f"romancy-{self._name}")

    def kick(self) -> None:
        """Do a round now, or another one after the current one."""
        self._kicked.set()

    def retire(self) -> None:
        """Begin no more rounds. `stop` waits for the current one to end."""
        if self._task is not None:
            self._task.cancel()

    @property
    def is_idle(self) -> bool:
        """Whether no requested round is due or in progress. Regular rounds don't count."""
        return not self._working and not self._kicked.is_set()

    async def stop(self) -> None:
        while self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task], timeout=1.0)  # a failing driver may swallow a cancellation

    async def _repeat(self) -> None:
        try:
            await self._repeat_for_ever()
        finally:
            self._outage.left(self._name)

    async def _repeat_for_ever(self) -> None:
        while True:
            self._working = self._kicked.is_set()
            self._kicked.clear()
            try:
                rest = await self.round()
                self._failing = False
                self._outage.over(self._name)
            except TransientError as error:
                self._outage.noticed(self._name, error)
                rest = 1.0
            except Exception as error:
                if _program_ends(error):
                    return
                if not self._failing:
                    _logger.warning("%s: %s; trying again every second", self._name, error)
                self._failing = True
                rest = 1.0
            self._working = False
            await self._rest(rest)

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._kicked.wait()
        except TimeoutError:
            return


def _program_ends(error: Exception) -> bool:
    """Whether no thread can begin any more: the program ends without having stopped the app.

    Python says this in two ways, "after interpreter shutdown" and, once a thread of the pool has noticed, "after
    shutdown".
    """
    return isinstance(error, RuntimeError) and "cannot schedule new futures after" in str(error)
