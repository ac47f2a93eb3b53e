"""The result of feeding an instance: what its code asked for, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass

from romancy.core.failure import Failure
from romancy.core.history import Entry
from romancy.core.model import Event, Status
from romancy.core.operations import Operation


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an instance ended, or that it is blocked."""

    status: Status
    output: bytes | None = None
    error: Failure | None = None


@dataclass(slots=True)
class Activation:
    """The result of the entries fed since the last `take`. It is stored as one commit."""

    entries: list[Entry]
    opened: list[Operation]
    closed: list[Operation]
    sent: list[Event]
    outcome: Outcome | None
    description: str | None
