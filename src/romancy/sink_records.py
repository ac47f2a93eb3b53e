"""Sinks and dead letters, as users see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from romancy.core.model import from_us
from romancy.records import EventRecord, to_event_record
from romancy.storage.sinks import DeadRow, SinkCounts


@dataclass(frozen=True)
class SinkRecord:
    """A sink, and how it does. Counts go up to 10,000."""

    name: str
    types: Sequence[str]
    """The types of events it takes."""
    worker_id: str | None
    """The worker that runs it; None if no live worker does."""
    parked: int
    """Events that wait for another attempt, or for an earlier event of their subject."""
    dead: int
    """Events that it gave up."""
    last_error: str | None = None
    """Why the parked event that is tried next could not be delivered; None if nothing is parked."""


@dataclass(frozen=True)
class DeadLetter:
    """An event that a sink gave up."""

    sink: str
    event: EventRecord
    attempts: int
    error: str
    """Why the last attempt failed."""
    since: datetime
    """When it was given up."""


def to_sink_record(row: SinkCounts) -> SinkRecord:
    return SinkRecord(row.name, row.types, row.worker, row.parked, row.dead, row.error)


def to_dead_letter(row: DeadRow) -> DeadLetter:
    return DeadLetter(row.sink, to_event_record(row.event), row.attempts, row.error, from_us(row.since))
