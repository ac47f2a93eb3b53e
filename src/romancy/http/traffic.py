"""What comes in, counted for /metrics; and how many connections there may be."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from romancy.core.throttle import Throttle, and_more

_logger = logging.getLogger("romancy")
MOST = 10_000
"""Connections at a time, however many descriptors there are."""
_EXPLAINED = 16
"""Connections beyond the limit that are told so; others are just closed."""
_UNKNOWN = 1000
"""Connections where it can't be asked how many descriptors there are."""


@dataclass(slots=True)
class Traffic:
    """Counts since the server began, but for the connections, which are those there are now."""

    connections: int = 0
    crowded_out: int = 0
    """Connections that were closed, or refused, because there were too many."""
    wrong_tokens: int = 0
    over_quota: int = 0
    """Requests that were refused because their token had used up its quota."""


def most_connections() -> int:
    """As many as leave a quarter of the descriptors, and then some, to the database and the workflows."""
    try:
        import resource  # there is none on Windows
    except ImportError:
        return _UNKNOWN
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return MOST
    return max(16, min(MOST, descriptors - descriptors // 4 - 32))


class Room:
    """The connections of a server. When there are too many, those that have been idle longest are closed.

    Idle is a connection on which no request is under way: nothing has come, or only a part of a head.
    """

    def __init__(self, limit: int, traffic: Traffic) -> None:
        self.limit = limit
        self._traffic = traffic
        self._idle: dict[Any, None] = {}
        """In order of how long."""
        self._told = Throttle()

    def __repr__(self) -> str:
        return f"<Room connections={self._traffic.connections} limit={self.limit} idle={len(self._idle)}>"

    def enter(self, connection: Any) -> bool:
        """False: there is no room for it, for all are busy."""
        self._traffic.connections += 1
        is_full = self._traffic.connections > self.limit
        if is_full:
            self._traffic.crowded_out += 1
            self._tell()
            longest = next(iter(self._idle), None)
            if longest is None:
                return False
            del self._idle[longest]
            longest.transport.abort()
        self._idle[connection] = None
        return True

    def can_explain(self) -> bool:
        """Whether a connection without room may stay for a moment, to be told why."""
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

    def _tell(self) -> None:
        left_out = self._told.turn()
        if left_out is not None:
            _logger.warning(
                "there are %d connections, which is as many as there may be: those idle longest are closed, and if all "
                "are busy, new ones refused; HTTPOptions(max_connections=...) or more descriptors (ulimit -n) allow "
                "more%s",
                self.limit,
                and_more(left_out),
            )
