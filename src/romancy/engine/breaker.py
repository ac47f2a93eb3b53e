"""A breaker: stops deliveries to a receiver that takes none, and tries a single one from time to time."""

from __future__ import annotations

from romancy.core.model import SECOND

STRIKES = 5
"""How many different lines must fail, with no success in between, for the receiver to be at fault, not the events."""
FIRST_PAUSE, LONGEST_PAUSE = 5 * SECOND, 600 * SECOND


class Breaker:
    """Counts failures of a receiver. Times are microseconds."""

    def __init__(self) -> None:
        self._failed: set[str] = set()
        self._pause = FIRST_PAUSE
        self.shut_until: int | None = None
        """Nothing is delivered until then, and a single event after it. None: it is not shut."""

    def __repr__(self) -> str:
        return f"<Breaker failed={len(self._failed)} shut_until={self.shut_until}>"

    def allows(self, now: int, most: int) -> int:
        """Return how many deliveries may be under way."""
        return most if self.shut_until is None else 1 if now >= self.shut_until else 0

    def succeeded(self) -> bool:
        """Note a success. Return whether the breaker was shut."""
        was_shut = self.shut_until is not None
        self._failed.clear()
        self._pause, self.shut_until = FIRST_PAUSE, None
        return was_shut

    def failed(self, line: str, now: int, *, is_new: bool) -> bool:
        """Note a failure. Return whether the breaker has just been shut, the first time.

        `is_new`: it is the first of its event. Others don't count: events that always fail say nothing about the rest.
        """
        if is_new:
            self._failed.add(line)
        if self.shut_until is not None and now < self.shut_until:
            return False  # it was under way when the breaker was shut
        is_open = self.shut_until is None
        if is_open and len(self._failed) < STRIKES:
            return False
        self.shut_until = now + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        return is_open
