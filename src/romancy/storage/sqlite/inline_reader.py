"""Small reads on the event loop's own thread. There are thousands of them when many instances are woken.

A thread would spend more time waiting for the interpreter than reading, and all reads would queue behind it. While the
disk is slow, a thread reads instead, so that the event loop is not blocked.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from romancy.core.clock import stopwatch

T = TypeVar("T")
_QUICK = 0.0005
"""Seconds: if reads take longer on average, they are left to a thread."""


class NearReader:
    """Reads on a connection of its own, so that it never waits for another job."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._cost = 0.0

    def __repr__(self) -> str:
        return f"<NearReader cost={self._cost * 1e6:.0f}us>"

    def read(self, job: Callable[[sqlite3.Connection], T], parts: int = 1) -> T | None:
        """Return the result of one read, or of several together; None if they were not done, for any reason."""
        if self._cost > _QUICK:
            self._cost *= 0.9  # the disk may only be slow for a while: try again later
            return None
        begin = stopwatch()
        try:
            return job(self._connection)
        except sqlite3.Error:
            return None  # the thread will report what is wrong
        finally:
            self._cost += ((stopwatch() - begin) / parts - self._cost) * 0.2

    def close(self) -> None:
        self._connection.close()
