"""What the code of an instance asked for, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from romancy.core.codec import Codec
from romancy.core.continuation import NextRun
from romancy.core.failure import Failure
from romancy.core.history import Entry
from romancy.core.model import Event, Status
from romancy.core.operations import ChildCall, Operation
from romancy.errors import WorkflowBlocked, WorkflowCancelled, WorkflowFailed


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: with it the instance ended or is blocked, or it goes on with the next run."""

    status: Status
    output: bytes | None = None
    error: Failure | None = None
    next_run: NextRun | None = None
    """What it continues with; the status is then "running"."""

    def result(self, instance_id: str, codec: Codec) -> Any:
        """What the workflow returned; raises `WorkflowFailed`, `WorkflowCancelled` or `WorkflowBlocked`."""
        if self.status == "completed":
            return codec.decode(self.output or b"null")
        error = self.error or Failure("", "")
        if self.status == "cancelled":
            reason = None if error.message == "cancelled" else error.message
            raise WorkflowCancelled(instance_id=instance_id, reason=reason)
        if self.status == "blocked":
            raise WorkflowBlocked(instance_id=instance_id, reason=error.message)
        kind, traceback = error.error_type, error.traceback
        raise WorkflowFailed(error.message, instance_id=instance_id, error_type=kind, traceback=traceback)


@dataclass(slots=True)
class Asked:
    """Everything since the last `take`. It is stored as one commit."""

    entries: list[Entry]
    opened: list[Operation]
    closed: list[Operation]
    sent: list[Event]
    outcome: Outcome | None
    description: str | None
    given_up: Sequence[Operation] = ()
    unstarted: Sequence[ChildCall] = ()
    """Free children that the run started just before it ended."""
    asks: Sequence[tuple[str, str]] = ()
    """(child, reason) of children that are asked to cancel."""
    """Operations that the code no longer waits for, and that stay open until they are answered."""
