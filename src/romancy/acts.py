"""Who did what to instances."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from romancy.core.model import from_us
from romancy.storage.acts import ActRow


@dataclass(frozen=True)
class Act:
    """Something that was done to an instance by name. `who` is the name of a token or of a command-line user."""

    verb: str
    """"start", "cancel", "resume", "retry", "retry now", "fork" or "answer"."""
    who: str
    at: datetime


def to_act(row: ActRow) -> Act:
    return Act(row.verb, row.who, from_us(row.at))
