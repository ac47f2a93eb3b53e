"""Messages that may come in floods: one of a kind in a while, with how many were left out."""

from __future__ import annotations

from romancy.core.clock import stopwatch


class Throttle:
    """Lets one message through in `period` seconds.

    >>> if (more := throttle.turn()) is not None:
    ...     logger.warning("... (%d more like it)", more)
    """

    def __init__(self, period: float = 60.0) -> None:
        self._period = period
        self._next = 0.0
        self._left_out = 0

    def turn(self) -> int | None:
        """How many were left out since the last that came through; None: this one is left out, too."""
        now = stopwatch()
        if now < self._next:
            self._left_out += 1
            return None
        left_out, self._left_out, self._next = self._left_out, 0, now + self._period
        return left_out


def and_more(left_out: int) -> str:
    """What a message that came through says about those that did not."""
    return f" ({left_out:,} more like it in the meantime)" if left_out else ""
