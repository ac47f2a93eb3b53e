"""What the code of an instance asked for, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from romancy.core.codec import Codec
from romancy.core.continuation import ContinueAsNew, NextRun, continuation
from romancy.core.failure import Failure, capture
from romancy.core.history import Entry
from romancy.core.model import Event, Status
from romancy.core.operations import ChildCall, Operation
from romancy.core.published import Publication
from romancy.errors import WorkflowBlocked, WorkflowCancelled, WorkflowFailed


@dataclass(slots=True)
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
            not_undone = tuple(error.not_undone or ())
            message = None
            if error.missing is not None:
                message = (
                    f"instance {instance_id!r} is blocked, because the worker that tried it lacks the key "
                    f"{error.missing!r}: {error.message}; a worker that has the key continues it by itself"
                )
            raise WorkflowBlocked(message, instance_id=instance_id, reason=error.message, not_undone=not_undone)
        kind, traceback = error.error_type, error.traceback
        raise WorkflowFailed(error.message, instance_id=instance_id, error_type=kind, traceback=traceback)


def ending(
    output: bytes | None, error: BaseException | None, cancelling: str | None, culprits: Sequence[int] = ()
) -> Outcome:
    """Return how an instance ended whose code returned, or raised `error`. `cancelling`: why it was cancelled.

    `culprits`: the entries that led to this.
    """
    if cancelling is None:
        if error is None:
            return Outcome("completed", output)
        next_run = continuation(error)
        if next_run is not None:
            return Outcome("running", next_run=next_run)
        return Outcome("failed", output, replace(capture(error), culprits=[*culprits]))
    failure = None if error is None else replace(capture(error), culprits=[*culprits])
    if error is None or isinstance(error, asyncio.CancelledError | ContinueAsNew):
        failure = Failure("CancelledError", cancelling, culprits=[*culprits])
    return Outcome("cancelled", output, failure)


@dataclass(slots=True)
class Asked:
    """Everything since the last `take`. It is stored as one commit."""

    entries: Sequence[Entry]
    opened: Sequence[Operation]
    closed: Sequence[Operation]
    sent: Sequence[Event]
    outcome: Outcome | None
    description: str | None
    given_up: Sequence[Operation] = ()
    """Operations that the code no longer waits for, and that stay open until they are answered."""
    unstarted: Sequence[ChildCall] = ()
    """Free children that the run started just before it ended."""
    early: Sequence[ChildCall] = ()
    """Children that were started before something was sent."""
    asks: Sequence[tuple[str, str]] = ()
    """(child, reason) of children that are asked to cancel."""
    publication: Publication | None = None
    """What changes in what the instance shows of itself."""
    emitted: Sequence[tuple[str, bytes]] = ()
    """The topics and values that were emitted."""
