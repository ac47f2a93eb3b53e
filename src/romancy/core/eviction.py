"""Ending code that must not go on, without letting it act: however hard it clings to life."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol


class Halted(BaseException):
    """Ends code that must not go on: its instance was evicted, or left its history. Never an `Exception`."""


class Haltable(Protocol):
    """Counts how often its code was refused."""

    refusals: int


class Refusal:
    """Awaiting it ends the code; code that catches even that, again and again, is left hanging where it stands."""

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
"""Coroutines that would not end: kept, or the collector would throw into them again."""


def close_all(tasks: Sequence[asyncio.Task[Any]], unclosable: Callable[[], None]) -> None:
    """Close the coroutines of tasks that will never run again, the newest first."""
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    for task in reversed(tasks):
        coroutine: Any = task.get_coro()
        if not any(_is_closed(coroutine) for _ in range(8)):
            _unclosable.append(coroutine)
            unclosable()


def _is_closed(coroutine: Any) -> bool:
    try:
        coroutine.close()
    except BaseException:  # whatever the user's cleanup does, it is not to matter
        return False
    return True
