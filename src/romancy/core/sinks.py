"""Sinks as the engine sees them: what to deliver, how, and when to give up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from romancy.core.model import Event


class NotDelivered(Exception):
    """A delivery failed. `retry_after`: the receiver's own wish, in seconds."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


@dataclass(frozen=True, eq=False, kw_only=True)
class Outlet:
    """A sink with all its settings."""

    name: str
    types: Sequence[str]
    deliver: Callable[[Event], Awaitable[None]]
    """Raises an error if the event was not delivered."""
    close: Callable[[], Awaitable[None]]
    """Called when the app stops. It can be used again afterwards."""
    timeout: float
    """Seconds that a delivery may take in all."""
    max_concurrent: int
    give_up_after: int
    """Microseconds after the first failure."""
    holds: bool
    """Whether an event that is given up holds those after it."""
