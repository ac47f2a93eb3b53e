"""Who does something: the name of the token that a request came with, or of the user of the command line.

It is read where a verb is called, and carried with what is stored: batches are written by other tasks. A context
variable is inherited by everything that a request sets off, such as activities and hooks. What they do was not asked
for by name. So an actor only acts in its own task, and in those that it begins for itself (`begin`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")


@dataclass(slots=True)
class _Actor:
    name: str
    tasks: WeakSet[asyncio.Task[Any]] = field(default_factory=WeakSet["asyncio.Task[Any]"])


_actor: ContextVar[_Actor | None] = ContextVar("romancy.actor", default=None)


def current_actor() -> str | None:
    """Return the name to record, if there is one."""
    actor = _actor.get()
    return None if actor is None or _this_task() not in actor.tasks else actor.name


@contextmanager
def acting_as(name: str) -> Generator[None]:
    """Record this name with what the current task does meanwhile."""
    actor, task = _Actor(name), _this_task()
    if task is not None:
        actor.tasks.add(task)
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)


def begin(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Begin a task that does a part of what the current one is to do, in the same name."""
    task = asyncio.get_running_loop().create_task(work)
    if current_actor() is not None and (actor := _actor.get()) is not None:
        actor.tasks.add(task)
    return task


def _this_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # a thread without an event loop
        return None


def origin_of(way: str, who: str | None) -> str:
    """Return the origin of an event that came in by this way: `http alice`."""
    return way if who is None else f"{way} {who}"


def sent_by(origin: str | None) -> str | None:
    """Return who sent an event: the name of a token, or `webhook NAME`; None if that is not known."""
    way, _, who = (origin or "").partition(" ")
    return None if not who else origin if way == "webhook" else who
