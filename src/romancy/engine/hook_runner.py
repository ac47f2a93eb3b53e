"""Calls hooks after the commit, one after the other. Their errors are logged and have no other effect."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from typing import Any

from romancy.hooks import HooksBase

_logger = logging.getLogger("romancy")


_Method = Callable[[Any], Awaitable[None] | None]


class HookRunner:
    """Passes infos to every hook object: `EventReceivedInfo` goes to `on_event_received`."""

    def __init__(self, hooks: Sequence[HooksBase]) -> None:
        self._hooks = hooks
        self.wanted = bool(hooks)
        self._methods: dict[type, list[tuple[str, _Method]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._variables = copy_context()  # each call begins with these, not with those of what has happened

    def tell(self, info: type, **fields: Any) -> None:
        if self.wanted:
            self.run(info(**fields))

    def run(self, info: object) -> None:
        kind = type(info)
        methods = self._methods.get(kind)
        if methods is None:
            methods = self._methods[kind] = self._overridden(kind)
        for name, method in methods:
            variables = self._variables.copy()
            try:
                result = variables.run(method, info)
            except BaseException as error:  # even a CancelledError of its own: a hook must not affect the engine
                _fail_softly(error, name)
                continue
            if inspect.isawaitable(result):
                task = asyncio.get_running_loop().create_task(self._await(result, name), context=variables)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _overridden(self, kind: type) -> list[tuple[str, _Method]]:
        """Return what to call with this kind of info. The empty methods of `HooksBase` are not worth a call."""
        words = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__.removesuffix("Info")).lower()
        name, methods = f"on_{words}", list[tuple[str, _Method]]()
        for hook in self._hooks:
            method = getattr(hook, name, None)  # an object of another class may have only some of them
            if method is not None and getattr(method, "__func__", None) is not getattr(HooksBase, name):
                methods.append((f"{type(hook).__name__}.{name}", method))
        return methods

    async def _await(self, result: Awaitable[None], name: str) -> None:
        try:
            await result
        except BaseException as error:
            _fail_softly(error, name)

    @property
    def is_idle(self) -> bool:
        return not self._tasks

    async def finish(self, limit: float) -> None:
        """Give running hooks `limit` seconds to end, then cancel them."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=limit)
        for task in self._tasks:
            task.cancel()


def _fail_softly(error: BaseException, name: str) -> None:
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        raise error
    _logger.error("hook %s failed", name, exc_info=error)
