"""Stops code that must not continue, without letting it act, even if it catches every exception."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol


class Halted(BaseException):
    """Stops code that must not continue: its instance was evicted or left its history. Not an `Exception`."""


class Haltable(Protocol):
    """Counts how often its code was stopped."""

    refusals: int


class Refusal:
    """Awaiting it raises `Halted`. Code that catches that again and again is suspended forever."""

    PATIENCE = 100

    def __init__(self, instance: Haltable) -> None:
        self._instance = instance

    def __await__(self) -> Generator[None, None, Any]:
        self._instance.refusals += 1
        if self._instance.refusals < self.PATIENCE:
            raise Halted
        while True:
            yield


_unclosable: list[Any] = []
"""Coroutines that did not end. They are kept, because the garbage collector would throw into them again."""


def close_all(tasks: Sequence[asyncio.Task[Any]], unclosable: Callable[[], None]) -> None:
    """Close the coroutines of tasks that will never run again, newest first."""
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    for task in reversed(tasks):
        coroutine: Any = task.get_coro()
        if not any(_is_closed(coroutine) for _ in range(8)):
            _unclosable.append(coroutine)
            unclosable()
        _forget_waiting(task)


def _forget_waiting(task: asyncio.Task[Any]) -> None:
    """Undo who waits for whom: such tasks refer to each other, and only the garbage collector would find them."""
    for future in (task, task._fut_waiter):  # type: ignore[attr-defined]
        if future is not None:
            _forget_callbacks(future)


def _forget_callbacks(future: Any) -> None:
    for callback, _ in future._callbacks or ():
        future.remove_done_callback(callback)


def _is_closed(coroutine: Any) -> bool:
    try:
        coroutine.close()
    except BaseException:  # errors in the user's cleanup code don't matter here
        return False
    return True
