"""Small things several folders of tests need."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
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


def free_port() -> int:
    """Return a port that no other test is given meanwhile: below those that the system hands out."""
    for port in random.sample(range(20000, 30000), 100):
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")
