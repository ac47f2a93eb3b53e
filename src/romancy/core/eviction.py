"""Stops code that must not continue, without letting it act, even if it catches every exception."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, cast

from romancy.core.anyio_backend import forget

_enter_task: Callable[..., None] = asyncio.tasks._enter_task  # type: ignore[attr-defined]
_leave_task: Callable[..., None] = asyncio.tasks._leave_task  # type: ignore[attr-defined]
_discard_waiter: Any = getattr(asyncio, "future_discard_from_awaited_by", None)
"""From Python 3.14 on, a future refers to the tasks that await it."""


class Halted(BaseException):
    """Stops code that must not continue: its instance was evicted or left its history. Not an `Exception`."""


class _Loop(Protocol):
    """The loop of the tasks: it has those that have not ended, by number."""

    tasks: dict[int, asyncio.Task[Any]]
    last_number: int

    def drop_ready(self) -> None: ...


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


def _keep_forever(coroutine: Any) -> None:
    """Keep a coroutine that did not end, also when the interpreter exits: freeing it would throw into it again."""
    import ctypes  # lazily: such code is rare

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coroutine))


def close_all(tasks: Sequence[asyncio.Task[Any]], unclosable: Callable[[], None]) -> None:
    """Close the coroutines of tasks that will never run again, newest first, and those of tasks they create then.

    Nothing that becomes ready meanwhile runs.
    """
    if not tasks:
        return
    loop: _Loop = cast(Any, tasks[0].get_loop())
    last = loop.last_number
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    for task in reversed(tasks):
        coroutine: Any = task.get_coro()
        if not any(_is_closed(task, coroutine) for _ in range(8)):
            _keep_forever(coroutine)
            unclosable()
        _forget_waiting(task)
    forget(tasks)
    loop.drop_ready()
    if loop.last_number > last:
        close_all([loop.tasks.pop(n) for n in list(loop.tasks) if n > last], unclosable)


def _forget_waiting(task: asyncio.Task[Any]) -> None:
    """Undo who waits for whom: such tasks refer to each other, and only the garbage collector would find them."""
    for future in (task, task._fut_waiter):  # type: ignore[attr-defined]
        if future is not None:
            _forget_callbacks(future)
            if _discard_waiter is not None:
                _forget_waiters(future)


def _forget_waiters(future: Any) -> None:
    for awaited in (future, *getattr(future, "_children", ())):  # it may be a gather
        for waiter in getattr(awaited, "_asyncio_awaited_by", None) or ():
            _discard_waiter(awaited, waiter)


def _forget_callbacks(future: Any) -> None:
    for callback, _ in future._callbacks or ():
        future.remove_done_callback(callback)


def _is_closed(task: asyncio.Task[Any], coroutine: Any) -> bool:
    """End a coroutine where it is suspended; return whether it has ended, or awaits something else now.

    Not with `close`: if one of the coroutines that it awaits awaits something again, `close` ends all but that one.
    """
    loop = task.get_loop()
    _enter_task(loop, task)  # anyio's scopes can only be left in the task that entered them
    try:
        if not getattr(coroutine, "cr_suspended", True):  # it has not begun, or has ended
            coroutine.close()
            return True
        coroutine.throw(Halted())
    except BaseException:  # errors in the user's cleanup code don't matter here
        return True
    finally:
        _leave_task(loop, task)
    return False
