"""Reads on the event loop's own thread: small ones, asked for by the thousand when many instances are woken.

A thread would spend longer fighting for the interpreter than reading, and everybody would queue behind it. While the
disk is slow the threads read after all: they hold up nobody.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from romancy.core.clock import stopwatch

T = TypeVar("T")
_QUICK = 0.0005
"""Seconds: reads that take longer, on the whole, are left to a thread."""


class NearReader:
    """A connection of its own, so that nobody has to be waited for."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._cost = 0.0

    def __repr__(self) -> str:
        return f"<NearReader cost={self._cost * 1e6:.0f}us>"

    def read(self, job: Callable[[sqlite3.Connection], T]) -> T | None:
        """None: it was not read, for whatever reason, or there is nothing."""
        if self._cost > _QUICK:
            self._cost *= 0.9  # the disk may have been slow only for a while: try again after some
            return None
        begin = stopwatch()
        try:
            return job(self._connection)
        except sqlite3.Error:
            return None  # a thread has the place to say what is wrong
        finally:
            self._cost += (stopwatch() - begin - self._cost) * 0.2

    def close(self) -> None:
        self._connection.close()
