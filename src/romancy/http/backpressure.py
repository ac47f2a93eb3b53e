"""Writes on their way to the database, bounded in amount and in how long a request waits for them.

While the database is unavailable, the engine keeps what it was given and stores it when it can. A sender can't wait
that long: after the limit it is told that the outcome is unknown. It sends the event again, which is then a duplicate.
Everything counts against the limit until it is stored, so an outage does not fill the memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from romancy.core.actor import begin
from romancy.errors import Overloaded
from romancy.http.body import Hold
from romancy.http.responses import HTTPError
from romancy.http.time_limits import TimeLimit
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
        self._limit_of_time = TimeLimit(seconds(options.database_timeout))
        self._held = 0

    def __repr__(self) -> str:
        return f"<Backpressure held={self._held} coming={self._coming}{' stalled' if self.is_stalled else ''}>"

    @property
    def is_stalled(self) -> bool:
        """Whether a write has taken too long and is still not stored."""
        return self._overdue > 0

    def receiving(self) -> Receiving:
        """Count a body while it is received and parsed. `store` counts what it is given by itself."""
        return Receiving(self)

    def hold(self, size: int) -> None:
        """Make room for a part of a body. Slow bodies can't take the room of those that arrive at once."""
        if self._coming + size > self._coming_limit or self._held + self._coming + size > self._limit:
            raise Overloaded("too much data is being received at once; try again in a moment")
        self._coming += size

    def release(self, size: int) -> None:
        """Give back the room of a body."""
        self._coming -= size

    async def store(
        self,
        write: Coroutine[Any, Any, T] | Callable[[], asyncio.Future[T]],
        size: int,
        unknown: str,
        count: int = 1,
        limit: TimeLimit | None = None,
    ) -> T:
        """Return the outcome of a write, which begins here. `unknown` is added to the error if it takes too long.

        `limit`: for a sender that can't wait as long as others.
        """
        size += _OVERHEAD * count
        if self._held + size > self._limit:
            if not callable(write):
                write.close()
            raise Overloaded
        loop = asyncio.get_running_loop()
        writing = write() if callable(write) else begin(write)
        self._held += size
        # The write itself is not awaited, since a request that gives up would cancel it.
        answered: asyncio.Future[T] = loop.create_future()
        writing.add_done_callback(partial(self._settled, size, answered))
        limit = limit or self._limit_of_time
        try:
            with limit.wait():
                return await answered
        except TimeoutError:
            if not writing.done():
                self._overdue += 1
                writing.add_done_callback(self._late)
            raise out_of_time(limit.seconds, unknown) from None

    def _settled(self, size: int, answered: asyncio.Future[Any], writing: asyncio.Future[Any]) -> None:
        self._held -= size
        if writing.cancelled():
            answered.cancel()
            return
        error = writing.exception()  # retrieved in any case, since the request may be gone
        if answered.done():
            return
        if error is None:
            answered.set_result(writing.result())
        else:
            answered.set_exception(error)

    def _late(self, writing: asyncio.Future[Any]) -> None:
        """The write ended after its request had given up."""
        self._overdue -= 1
        if not writing.cancelled() and (error := writing.exception()) is not None:
            _logger.warning("a write failed after its request had timed out: %s", error)


class Receiving:
    """A body that is being received. Not a generator: every event has one."""

    __slots__ = ("_mine", "_pressure")

    def __init__(self, pressure: Backpressure) -> None:
        self._pressure, self._mine = pressure, 0

    def __enter__(self) -> Hold:
        return self._hold

    def __exit__(self, *_: object) -> None:
        self._pressure.release(self._mine)

    def _hold(self, size: int) -> None:
        self._pressure.hold(size)
        self._mine += size


def out_of_time(timeout: float, unknown: str) -> HTTPError:
    text = f"the database did not answer within {timeout:g} s{unknown}"
    return HTTPError(503, text, kind="DatabaseUnavailable")
