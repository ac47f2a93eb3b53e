"""The row of a wait: how an open operation is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from romancy.core.filters import NO_FILTER, Filter


@dataclass(frozen=True, slots=True)
class After:
    """The beginning of a wait that goes on where an earlier wait took an event. Only the storage reads `place`."""

    place: str
    again: bool = False
    """Including that event: it was given back."""


Since = int | Literal["now"] | After | None
"""None: since the instance began; "now": since the wait is stored; an int: since that time (microseconds)."""


class Sought(NamedTuple):
    """What a stored wait looks for."""

    spec: bytes
    model: str
    has_beginning: bool
    """Whether it has a beginning of its own (`since=`)."""


@dataclass(slots=True)
class WaitRow:
    """What an instance waits for: an event, a time, or both."""

    op: str
    created_at: int
    due: int | None = None
    types: tuple[str, ...] = ()
    filter: Filter = NO_FILTER
    since: Since = None
    model: str = ""
    spec: bytes = b""
    location: str = ""
    follows: bool = False
    """Opened while the instance had a similar wait that also reaches back to the beginning of the instance."""
