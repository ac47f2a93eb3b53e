"""Starting a task at once: what it does first need not wait until the event loop comes round to it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def start_now(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that has taken its first step when this returns, where the loop lets us; else it does so soon."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(coroutine, loop=loop, eager_start=True)
    task = asyncio.Task(coroutine, loop=loop)
    ready = getattr(loop, "_ready", None)
    if ready and asyncio.current_task(loop) is None:
        ready.pop()._run()  # before 3.12: the step that was just put at the end of the queue
    return task
