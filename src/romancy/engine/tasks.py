"""Starting a task at once: most activities are over before the event loop would have come round to them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any


def start_now(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task that has taken its first step when this returns, where the loop lets us; else it does so soon."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(coroutine, loop=loop, eager_start=True)
    task = asyncio.Task(coroutine, loop=loop)
    ready = getattr(loop, "_ready", None)
    if ready and asyncio.current_task(loop) is None:
        ready.pop()._run()  # before 3.12: the step that was just put at the end of the queue
    return task
