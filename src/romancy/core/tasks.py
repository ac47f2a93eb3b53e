"""Starts a task immediately, without waiting for the next iteration of the event loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


def start_now(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T], context: Context | None = None
) -> asyncio.Task[T]:
    """Return a task that has already taken its first step. If the loop does not support that, it does so soon."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(coroutine, loop=loop, context=context, eager_start=True)
    task = asyncio.Task(coroutine, loop=loop, context=context)
    ready = getattr(loop, "_ready", None)
    if ready and asyncio.current_task(loop) is None:
        ready.pop()._run()  # before 3.12: run the step that was just queued
    return task
