"""Writes on their way to the database, bounded in amount and in how long a request waits for them.

While the database is unavailable, the engine keeps what it was given and stores it when it can. A sender can't wait
that long: after the limit it is told that the outcome is unknown. It sends the event again, which is then a duplicate.
Everything counts against the limit until it is stored, so an outage does not fill the memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from romancy.errors import Overloaded
from romancy.http.body import Hold
from romancy.http.responses import HTTPError
from romancy.options import HTTPOptions, seconds

T = TypeVar("T")
_logger = logging.getLogger("romancy")
_OVERHEAD = 2048
"""Memory that an event needs besides its own bytes."""


class Backpressure:
    """Stores things for requests."""

    def __init__(self, options: HTTPOptions) -> None:
        self._overdue = 0
        self._limit = options.max_waiting
        self._coming_limit = max(options.max_waiting // 2, min(options.max_body, options.max_waiting))
        self._coming = 0
        self._timeout = seconds(options.database_timeout)
        self._held = 0

    def __repr__(self) -> str:
        return f"<Backpressure held={self._held} coming={self._coming}{' stalled' if self.is_stalled else ''}>"

    @property
    def is_stalled(self) -> bool:
        """Whether a write has taken too long and is still not stored."""
        return self._overdue > 0

    @contextmanager
    def receiving(self) -> Generator[Hold]:
        """Count a body while it is received and parsed. Slow bodies can't take the room of those that arrive at once.

        `store` counts what it is given by itself.
        """
        mine = 0

        def hold(size: int) -> None:
            nonlocal mine
            if self._coming + size > self._coming_limit or self._held + self._coming + size > self._limit:
                raise Overloaded("too much data is being received at once; try again in a moment")
            self._coming += size
            mine += size

        try:
            yield hold
        finally:
            self._coming -= mine

    async def store(self, write: Coroutine[Any, Any, T], size: int, unknown: str, count: int = 1) -> T:
        """Return the outcome of a write. `unknown` is added to the error if it takes too long."""
        size += _OVERHEAD * count
        if self._held + size > self._limit:
            write.close()
            raise Overloaded
        self._held += size
        task = asyncio.get_running_loop().create_task(write)
        task.add_done_callback(lambda done: self._settled(done, size))
        try:
            async with asyncio.timeout(self._timeout):
                return await asyncio.shield(task)
        except TimeoutError:
            if not task.done():
                self._overdue += 1
                task.add_done_callback(self._late)
            raise out_of_time(self._timeout, unknown) from None

    def _settled(self, task: asyncio.Task[Any], size: int) -> None:
        self._held -= size
        if not task.cancelled():
            task.exception()  # retrieved here, since the request may be gone

    def _late(self, task: asyncio.Task[Any]) -> None:
        """The write ended after its request had given up."""
        self._overdue -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.warning("a write failed after its request had timed out: %s", error)


def out_of_time(timeout: float, unknown: str) -> HTTPError:
    text = f"the database did not answer within {timeout:g} s{unknown}"
    return HTTPError(503, text, kind="DatabaseUnavailable")
