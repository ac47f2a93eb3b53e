"""Runs code that may never end, such as workflow code that is replayed, in a thread, and ends it after a while."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_AGAIN = 0.1
"""Seconds until a thread that goes on is told to end once more: code can catch everything."""
_TIMES = 20


class OutOfTime(BaseException):
    """The time is up. Not an `Exception`, so that code which handles all errors does not handle it."""


async def run_for(seconds: float, work: Callable[[], T]) -> T:
    """Return what `work` returns. Raise `TimeoutError` if it takes longer.

    It runs in a thread. Python code is interrupted between two instructions. If that does not end it, because it calls
    into C or catches everything, its thread is left alone; it does not keep the process from ending.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()

    def run() -> None:
        result, error = None, None
        with contextlib.suppress(OutOfTime, RuntimeError):  # told to end while it did, or the loop was closed meanwhile
            try:
                result = work()
            except BaseException as raised:
                error = raised
            loop.call_soon_threadsafe(settle, result, error)

    def settle(result: T | None, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((result, error))

    thread = threading.Thread(target=run, name="romancy-replay", daemon=True)
    thread.start()
    await asyncio.wait({ended}, timeout=seconds)
    if not ended.done():
        await _end(thread, ended)
        raise TimeoutError(f"it did not end within {seconds:g} s")
    result, error = ended.result()
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


async def _end(thread: threading.Thread, ended: asyncio.Future[Any]) -> None:
    for _ in range(_TIMES):
        if ended.done() or not thread.is_alive():
            return
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(OutOfTime))
        await asyncio.wait({ended}, timeout=_AGAIN)
