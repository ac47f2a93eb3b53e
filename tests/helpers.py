"""Small things several folders of tests need."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T], within: float, what: str = "the condition", every: float = 0.005) -> T:
    """Poll until the condition is true; returns its value. For other processes, whose moves nobody tells us."""
    deadline = time.monotonic() + within
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {within:g} s (last: {value!r})")
        time.sleep(every)


def unqualified(query: str) -> str:
    """SQL that names tables as `romancy.waits`, for a connection to PostgreSQL that finds them by its search path.

    For SQLite, it is `romancy.storage.sql.prefixed`.
    """
    return query.replace("romancy.", "")
