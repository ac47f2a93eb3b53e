"""Who did what to instances."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from romancy.core.model import from_us
from romancy.storage.acts import ActRow


@dataclass(frozen=True)
class Act:
    """What somebody did to an instance: the name of their token, or of their account if it was by command line."""

    verb: str
    """"start", "cancel", "resume", "retry", "retry now", "fork" or "answer"."""
    who: str
    at: datetime


def to_act(row: ActRow) -> Act:
    return Act(row.verb, row.who, from_us(row.at))
