"""Calls hooks after the commit, one after the other. Their errors are logged and have no other effect."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Awaitable, Sequence
from contextvars import copy_context
from typing import Any

from romancy.hooks import HooksBase

_logger = logging.getLogger("romancy")


class HookRunner:
    """Passes infos to every hook object: `EventReceivedInfo` goes to `on_event_received`."""

    def __init__(self, hooks: Sequence[HooksBase]) -> None:
        self._hooks = hooks
        self.wanted = bool(hooks)
        self._methods: dict[type, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._variables = copy_context()  # each call begins with these, not with those of what has happened

    def tell(self, info: type, **fields: Any) -> None:
        if self.wanted:
            self.run(info(**fields))

    def run(self, info: object) -> None:
        kind = type(info)
        name = self._methods.get(kind)
        if name is None:
            words = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__.removesuffix("Info")).lower()
            name = self._methods[kind] = f"on_{words}"
        for hook in self._hooks:
            variables = self._variables.copy()
            try:
                result = variables.run(getattr(hook, name), info)
            except BaseException as error:  # even a CancelledError of its own: a hook must not affect the engine
                _fail_softly(error, f"{type(hook).__name__}.{name}")
                continue
            if inspect.isawaitable(result):
                waiting = self._await(result, f"{type(hook).__name__}.{name}")
                task = asyncio.get_running_loop().create_task(waiting, context=variables)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

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
