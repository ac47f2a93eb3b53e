"""Limits repeated log messages: one per period, with the number of those left out."""

from __future__ import annotations

from romancy.core.clock import stopwatch


class Throttle:
    """Lets one message through every `period` seconds.

    >>> if (more := throttle.turn()) is not None:
    ...     logger.warning("... (%d more like it)", more)
    """

    def __init__(self, period: float = 60.0) -> None:
        self._period = period
        self._next = 0.0
        self._left_out = 0

    def turn(self) -> int | None:
        """Return how many messages were left out since the last one let through; None if this one is left out too."""
        now = stopwatch()
        if now < self._next:
            self._left_out += 1
            return None
        left_out, self._left_out, self._next = self._left_out, 0, now + self._period
        return left_out


def and_more(left_out: int) -> str:
    """Return the end of a message: how many were left out before it."""
    return f" ({left_out:,} more like it in the meantime)" if left_out else ""
