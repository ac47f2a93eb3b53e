"""Emissions, as users see them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal

from typing_extensions import TypeVar

from romancy.core.codec import Codec
from romancy.core.emitted import check_topic
from romancy.core.model import from_us, show
from romancy.storage.emissions import OF_WORKFLOW, REMOVED, RESTART, EmissionRow

T_co = TypeVar("T_co", covariant=True, default=Any)
MOST = 2**63 - 2
"""The largest number after which somebody can read: a database still holds the next one."""


@dataclass(frozen=True)
class Emission(Generic[T_co]):
    """A value that an activity or a workflow emitted. `after=n` goes on with the next one."""

    n: int
    """Its number, from 1 on, without gaps: among the values of the topic, or among all if you read all topics."""
    topic: str
    value: T_co
    at: datetime
    activity_id: str | None
    """The activity that emitted it, e.g. `ask:1`; None: the workflow itself."""
    attempt: int
    """How often that activity has begun to emit; above 1 it was repeated."""
    kind: Literal["data", "restart"] = "data"
    """"restart": the activity begins anew. Drop what it has emitted on this topic so far; `value` is None."""


def check_after(after: Any) -> int:
    """Check the number after which somebody wants to read."""
    if not isinstance(after, int) or isinstance(after, bool) or not 0 <= after <= MOST:
        raise ValueError(f"after must be the number of an emission, or 0, got {show(after)}")
    return after


def check_wanted(topic: Any, after: Any) -> tuple[str | None, int]:
    """Check what somebody wants to read."""
    return None if topic is None else check_topic(topic), check_after(after)


def reader_of(model: Any, instance_id: str) -> Callable[[bytes], Any]:
    """Return what reads values: as a model, or as plain JSON."""
    return json.loads if model is Any else Codec(model, f"what instance {instance_id!r} emits").judge


def to_emissions(
    row: EmissionRow, topic: str | None, after: int, read: Callable[[bytes], Any]
) -> Iterator[Emission[Any]]:
    """Return the values of a row, after a number, as a reader of one topic, or of all, counts."""
    if row.kind == REMOVED:
        return
    first, at = row.first(topic), from_us(row.at)
    activity_id = None if row.op == OF_WORKFLOW else row.op
    if row.kind == RESTART:
        yield Emission(first, row.topic, None, at, activity_id, row.run, "restart")
        return
    for n, line in enumerate(row.lines(), first):
        if n > after:
            yield Emission(n, row.topic, read(line), at, activity_id, row.run)
