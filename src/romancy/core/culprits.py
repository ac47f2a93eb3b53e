"""Culprits: the entries of a history that led to the end of an instance. A retry drops them.

Every exception that an entry becomes carries the number of that entry. From the error that left the workflow, the
nearest exceptions with a number are found: the members of a group, else the cause, else the context.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TypeVar, cast

_NUMBER = "__romancy_entry__"
E = TypeVar("E", bound=BaseException)


def blame(error: E, entry: int) -> E:
    """Note which entry became this exception."""
    error.__dict__[_NUMBER] = entry
    return error


def culprits_of(error: BaseException, rung: int | None) -> list[int]:
    """Return the entries that led to an error. `rung`: the last timer of asyncio that rang."""
    return sorted(set(_walk(error, rung, set())))


def _walk(error: BaseException | None, rung: int | None, seen: set[int]) -> Iterator[int]:
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    number = error.__dict__.get(_NUMBER)
    if number is not None:
        yield number
    elif rung is not None and _is_time_limit(error):
        yield rung
    elif isinstance(error, BaseExceptionGroup):
        for member in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _walk(member, rung, seen)
    else:
        yield from _walk(error.__cause__ or error.__context__, rung, seen)


def _is_time_limit(error: BaseException) -> bool:
    """Return whether it comes from `asyncio.timeout`, which turns a cancellation into a `TimeoutError`."""
    return isinstance(error, TimeoutError) and isinstance(error.__cause__, asyncio.CancelledError)
