"""Replays a recorded history with today's code to see where it leads, without executing or storing anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from romancy.core.history import Entry
from romancy.core.instance import Instance
from romancy.core.model import Status
from romancy.core.open_operations import OpenOperations
from romancy.core.operations import ActivityCall, EventWait, Operation
from romancy.core.outcome import Outcome
from romancy.core.patches import BLOCKS_WAIT


@dataclass(frozen=True, slots=True)
class Opened:
    """When the code opened an operation, and when it was settled or withdrawn."""

    kind: str
    began: int
    over: int | None = None
    in_transaction: bool = False
    """Of an activity: its own writes are committed together with its result."""
    goes_on: bool = False
    """Of a child: it goes on by itself when its parent ends."""


@dataclass(slots=True)
class Replay:
    """The result of a replay: how far the code follows the history, and what it does on the way."""

    error: Exception | None = None
    """Why the code stops following: `NonDeterminismError`, or stored data that no longer fits its types."""
    status: Status = "running"
    outcome: Outcome | None = None
    waiting: Sequence[Operation] = ()
    """What the code waits for at the end."""
    opened: dict[str, Opened] = field(default_factory=dict[str, Opened])
    """A history only contains when operations ended; the replay also shows when they began."""
    event_waits: dict[str, EventWait] = field(default_factory=dict[str, EventWait])
    patches: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """The changes that the code asked about, and whether this run takes their new way."""


def replay(instance: Instance, entries: Sequence[Entry], *, observe: bool = True, has_begun: bool = True) -> Replay:
    """Run the code of a new instance over a history, then evict the instance.

    `observe`: also find out which operations the code opened, and when. This takes a fifth longer. `has_begun`: what
    the code does before its first wait is recorded.
    """
    found = Replay()
    if observe:
        instance.ops = _Observed(instance, found)
    try:
        instance.replay(entries) if has_begun else instance.begin()
    except Exception as error:
        found.error = error
    finally:
        found.status, found.outcome, found.waiting = instance.status, instance.outcome, [*instance.ops.values()]
        answers = instance.patches or {}
        found.patches = {
            change: is_new for change, is_new in answers.items() if is_new is not None and change != BLOCKS_WAIT
        }
        instance.evict()
    return found


class _Observed(OpenOperations):
    """The open operations of an instance. Records when each is added and removed."""

    def __init__(self, instance: Instance, found: Replay) -> None:
        super().__init__()
        self._instance, self._found = instance, found

    def __setitem__(self, id: str, operation: Operation) -> None:
        super().__setitem__(id, operation)
        if id != self._instance.run.timeout_id:
            in_transaction = isinstance(operation, ActivityCall) and operation.activity.transactional
            self._found.opened[id] = Opened(
                operation.name, operation.opened_at, in_transaction=in_transaction, goes_on=operation.goes_on
            )
        if isinstance(operation, EventWait):
            self._found.event_waits[id] = operation

    def __delitem__(self, id: str) -> None:
        super().__delitem__(id)
        known = self._found.opened.get(id)
        if known is not None:
            self._found.opened[id] = replace(known, over=self._instance.at)
