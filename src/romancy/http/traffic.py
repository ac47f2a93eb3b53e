"""Counters for /metrics, and the limit on connections."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from romancy.core.throttle import Throttle, and_more

_logger = logging.getLogger("romancy")
MOST = 10_000
"""Maximum of connections, however many file descriptors are available."""
_EXPLAINED = 16
"""Connections beyond the limit that get an error; further ones are just closed."""
_UNKNOWN = 1000
"""Maximum of connections if the number of file descriptors is unknown."""


@dataclass(slots=True)
class Traffic:
    """Counts since the server started; `connections` is the current number."""

    connections: int = 0
    crowded_out: int = 0
    """Connections that were closed or refused because there were too many."""
    wrong_tokens: int = 0
    over_quota: int = 0
    """Requests that were refused because their token had used up its quota."""
    deliveries: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """Deliveries to webhooks, by webhook and outcome."""


def most_connections() -> int:
    """Leave over a quarter of the file descriptors to the database and the workflows."""
    try:
        import resource  # not available on Windows
    except ImportError:
        return _UNKNOWN
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return MOST
    return max(16, min(MOST, descriptors - descriptors // 4 - 32))


class Room:
    """The connections of a server. If there are too many, the longest idle ones are closed.

    A connection is idle while no request is under way: nothing has arrived, or only part of a head.
    """

    def __init__(self, limit: int, traffic: Traffic) -> None:
        self.limit = limit
        self._traffic = traffic
        self._idle: dict[Any, None] = {}
        """Longest idle first."""
        self._throttle = Throttle()

    def __repr__(self) -> str:
        return f"<Room connections={self._traffic.connections} limit={self.limit} idle={len(self._idle)}>"

    def enter(self, connection: Any) -> bool:
        """Add a connection. Returns False if there is no room and all others are busy."""
        self._traffic.connections += 1
        is_full = self._traffic.connections > self.limit
        if is_full:
            self._traffic.crowded_out += 1
            self._warn()
            longest = next(iter(self._idle), None)
            if longest is None:
                return False
            del self._idle[longest]
            longest.transport.abort()
        self._idle[connection] = None
        return True

    def can_explain(self) -> bool:
        """Whether a refused connection can stay for a moment, to be told why."""
        return self._traffic.connections <= self.limit + _EXPLAINED

    def leave(self, connection: Any) -> None:
        self._traffic.connections -= 1
        self._idle.pop(connection, None)

    def is_busy(self, connection: Any) -> None:
        """A request is under way on it."""
        self._idle.pop(connection, None)

    def is_idle(self, connection: Any) -> None:
        """Its request is answered."""
        self._idle[connection] = None

    def _warn(self) -> None:
        left_out = self._throttle.turn()
        if left_out is not None:
            _logger.warning(
                "the limit of %d connections is reached: the longest idle ones are closed, and new ones are refused if "
                "all are busy; to allow more, set HTTPOptions(max_connections=...) or raise the limit of file "
                "descriptors (ulimit -n)%s",
                self.limit,
                and_more(left_out),
            )
