"""The row of a wait: how an open operation is stored."""

from __future__ import annotations

from dataclasses import dataclass

from romancy.core.filters import NO_FILTER, Filter


@dataclass(slots=True)
class WaitRow:
    """What an instance waits for: an event, a time, or both."""

    op: str
    created_at: int
    due: int | None = None
    types: tuple[str, ...] = ()
    filter: Filter = NO_FILTER
    since: int | str | None = None
    model: str = ""
    spec: bytes = b""
    location: str = ""
    follows: bool = False
    """Opened while the instance had a similar wait that also reaches back to the beginning of the instance."""
