"""Time limits of requests: `asyncio.timeout`, with one timer for all requests that have the same limit."""

from __future__ import annotations

import asyncio
from types import TracebackType


class TimeLimit:
    """A number of seconds that a request can wait for something.

    >>> with limit.wait():  # raises TimeoutError
    ...     await something
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._due: dict[Wait, float] = {}
        """When the time of each wait is up; the first one first."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<TimeLimit {self.seconds:g} s waiting={len(self._due)}>"

    def wait(self) -> Wait:
        """Limit what is awaited inside this context."""
        return Wait(self)

    def begin(self, wait: Wait) -> None:
        loop = asyncio.get_running_loop()
        self._due[wait] = due = loop.time() + self.seconds
        if self._timer is None or self._loop is not loop:  # the timer of another loop may never fire
            self._loop, self._timer = loop, loop.call_at(due, self._check, loop)

    def end(self, wait: Wait) -> None:
        self._due.pop(wait, None)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the waits whose time is up, then wait for the next."""
        self._timer = None
        while self._due:
            wait, due = next(iter(self._due.items()))
            if due > loop.time():
                self._timer = loop.call_at(due, self._check, loop)
                return
            del self._due[wait]
            wait.expire()


class Wait:
    """One wait of one task."""

    __slots__ = ("_cancelling", "_has_expired", "_limit", "_task")

    def __init__(self, limit: TimeLimit) -> None:
        self._limit = limit
        self._has_expired = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "only tasks can wait"
        self._task, self._cancelling = task, task.cancelling()
        self._limit.begin(self)

    def expire(self) -> None:
        self._has_expired = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limit.end(self)
        # If it is also cancelled by someone else, that counts.
        if self._has_expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error
