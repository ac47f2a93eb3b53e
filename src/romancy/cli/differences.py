"""Where the current code leaves a stored history: both sides in words."""

from __future__ import annotations

from romancy.cli.lists import present
from romancy.cli.words import clean, value, wanted, when
from romancy.core.history import showable
from romancy.core.instance import Instance
from romancy.core.model import FINAL, from_us
from romancy.core.operations import EventWait, Operation
from romancy.core.registry import WorkflowDefinition
from romancy.core.replay import Replay
from romancy.errors import InvalidInput, NonDeterminismError, NotStorable
from romancy.records import to_wait
from romancy.storage.instances import InstanceRow
from romancy.storage.records import StoredWait


def instance_of(definition: WorkflowDefinition, row: InstanceRow) -> Instance:
    """Return the code of a stored instance, to be replayed."""
    kind, deadline = row.input_kind, row.deadline
    return Instance(definition, row.id, row.input, row.created_at, input_kind=kind, deadline=deadline, run=row.run)


def difference(found: Replay, row: InstanceRow) -> tuple[str, str] | None:
    """Return what is recorded and what the code does instead, or None if the code follows the history."""
    error, outcome = found.error, found.outcome
    if isinstance(error, NonDeterminismError):
        return error.recorded, error.asked
    if isinstance(error, (InvalidInput, NotStorable)):
        return f"started with {value(showable(row.input), 300)}", str(error)
    if error is not None:
        raise error
    if outcome is None:
        ended = row.status == "completed"
        return (_ending(row.status, row.output), f"continues with {waits_of(found)}") if ended else None
    if row.status in FINAL and (row.status, row.output) != (outcome.status, outcome.output):
        return _ending(row.status, row.output), _ending(outcome.status, outcome.output)
    return None


def waits_of(found: Replay) -> str:
    """Describe what the code waits for at the end."""
    return ", ".join(map(_waited, found.waiting))


def _waited(op: Operation) -> str:
    """Describe what the code waits for, like `why`."""
    until = "" if op.due is None else f", until {when(from_us(op.due), present())}"
    if not isinstance(op, EventWait):
        return clean(str(op)) + until
    stored = StoredWait("", "", op.id, op.name, op.spec, op.opened_at, op.due, op.location)
    return f"event {clean(op.id)} for {wanted(to_wait(stored))}{until}"


def _ending(status: str, output: bytes | None) -> str:
    return f"{status} with {value(showable(output), 300)}" if status == "completed" else status
