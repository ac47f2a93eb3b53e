"""Culprits: the entries of a history that led to the end of an instance. A retry drops them.

Every exception that an entry becomes carries the number of that entry. From the error that left the workflow, the
nearest exceptions with a number are found: the members of a group, else the cause, else the context. Code can raise one
exception object in many instances, and its context may be from another one: a number comes with its instance and run.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator
from typing import TypeVar, cast

_TAG = "__romancy_entry__"
Tag = tuple[str, int, int]
"""The id of an instance, the number of its run, and the number of an entry."""
_EXIT = asyncio.Timeout.__aexit__.__code__
E = TypeVar("E", bound=BaseException)


def blame(error: E, tag: Tag) -> E:
    """Note which entry became this exception."""
    error.__dict__[_TAG] = tag
    return error


def blame_limit(callback: object, tag: Tag) -> None:
    """Note which entry ended an `asyncio.timeout`, if this is what its timer calls."""
    limit = getattr(callback, "__self__", None)
    if isinstance(limit, asyncio.Timeout):
        limit.__dict__[_TAG] = tag


def culprits_of(error: BaseException, instance: str, run: int, rung: int | None) -> list[int]:
    """Return the entries that led to an error in a run. `rung`: the last timer of asyncio that rang."""
    return sorted(set(_walk(error, (instance, run), rung, set())))


def _walk(error: BaseException | None, of: tuple[str, int], rung: int | None, seen: set[int]) -> Iterator[int]:
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    tag: Tag | None = error.__dict__.get(_TAG)
    if tag is not None and tag[:2] == of:
        yield tag[2]
    elif rung is not None and _is_time_limit(error):
        yield _end_of_limit(error, of) or rung
    elif isinstance(error, BaseExceptionGroup):
        for member in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _walk(member, of, rung, seen)
    else:
        yield from _walk(error.__cause__ or error.__context__, of, rung, seen)


def _is_time_limit(error: BaseException) -> bool:
    """Return whether it comes from `asyncio.timeout`, which turns a cancellation into a `TimeoutError`."""
    return isinstance(error, TimeoutError) and isinstance(error.__cause__, asyncio.CancelledError)


def _end_of_limit(error: BaseException, of: tuple[str, int]) -> int | None:
    """Return the entry that ended the `asyncio.timeout` from which the error comes: the one that raised it."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is _EXIT:
            tag: Tag | None = frame.f_locals["self"].__dict__.get(_TAG)
            if tag is not None and tag[:2] == of:
                return tag[2]
    return None
