"""Makes anyio deterministic inside workflows: its cancel scopes, its task states and its worker threads.

anyio runs on the workflow's loop as on any other. Three things in its asyncio backend need help: it keeps cancel scopes
in sets, whose order varies between runs; its table of task states keeps evicted tasks alive; and it starts threads
without asking the loop. Nothing here imports anyio: code that does not use it does not pay for it.
"""

from __future__ import annotations

import sys
from asyncio import Task
from collections.abc import Callable, Iterable
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

from romancy.errors import IOInWorkflow

_BACKEND = "anyio._backends._asyncio"
SPAWN = "_spawn"
"""The method of anyio's task groups that creates tasks."""
_is_prepared = False


class OrderedSet(dict[Any, None]):
    """A set that iterates in the order of insertion, with the methods that anyio uses."""

    def add(self, item: Any) -> None:
        self[item] = None

    def discard(self, item: Any) -> None:
        self.pop(item, None)

    def remove(self, item: Any) -> None:
        del self[item]


def prepare(is_in_workflow: Callable[[], bool]) -> None:
    """Refuse anyio's worker threads in workflows, once anyio was imported."""
    global _is_prepared
    if _is_prepared or "anyio" not in sys.modules:
        return
    _is_prepared = True
    backend: Any = import_module(_BACKEND).AsyncIOBackend
    run = backend.run_sync_in_worker_thread

    def run_unless_in_workflow(cls: Any, func: Any, *args: Any, **options: Any) -> Any:
        if is_in_workflow():
            refuse_thread(func)
        return run(func, *args, **options)

    backend.run_sync_in_worker_thread = classmethod(run_unless_in_workflow)


def refuse_thread(func: Any) -> NoReturn:
    name = getattr(func, "__qualname__", None) or repr(func)
    raise IOInWorkflow(
        f"workflow code called anyio.to_thread.run_sync({name}), or something of anyio that uses threads, such as "
        "anyio.Path or a `def` tool of an agent; move this into an activity"
    )


def order_scopes(spawn: FrameType) -> None:
    """Before a task group creates a task, let the scopes that will contain it keep their children in order.

    A scope has at most one child until a task is created in it. Cancellation goes over the children.
    """
    names = spawn.f_locals
    for scope in (getattr(names.get("self"), "cancel_scope", None), names.get("initial_scope")):
        children = getattr(scope, "_child_scopes", None)
        if type(children) is set:
            scope._child_scopes = OrderedSet.fromkeys(children)  # type: ignore[union-attr]


def forget(tasks: Iterable[Task[Any]]) -> None:
    """Forget the states of tasks that will never run again. Each state refers to its task, which keeps both alive."""
    backend: Any = sys.modules.get(_BACKEND)
    if backend is not None:
        for task in tasks:
            backend._task_states.pop(task, None)
