"""The open operations of an instance: what its code waits for, and what changed since the last step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from romancy.core.model import BUSIEST_FIRST, Status
from romancy.core.operations import ChildCall, EventWait, Groups, Operation, Sought
from romancy.core.sequences import added

NONE_OPENED: dict[str, Operation] = {}
"""Shared by the many instances that only wait, and never changed."""
_RUNNING = BUSIEST_FIRST.index("running")


class OpenOperations(dict[str, Operation]):
    """The open operations by id, in the order in which they were opened."""

    __slots__ = ("_counts", "closed", "given_up", "groups", "opened")

    def __init__(self) -> None:
        super().__init__()
        self.groups = Groups()
        self._counts = [0] * len(BUSIEST_FIRST)
        self.opened = NONE_OPENED
        """Operations that are new since the last step."""
        self.closed: Sequence[Operation] = ()
        """Operations closed since the last step, except those that were also opened in it."""
        self.given_up: Sequence[Operation] = ()
        """Operations given up since the last step."""

    def open(self, operation: Operation) -> None:
        self[operation.id] = operation
        self.note_opened(operation)
        self._counts[operation.rank] += 1
        if isinstance(operation, EventWait):
            self.groups.add(operation)

    def note_opened(self, operation: Operation) -> None:
        """Note that an operation is new. It begins after the step."""
        if self.opened:
            self.opened[operation.id] = operation
        else:
            self.opened = {operation.id: operation}

    def close(self, operation: Operation) -> None:
        del self[operation.id]
        self._counts[operation.rank] -= 1
        if isinstance(operation, EventWait):
            self.groups.remove(operation)
        if operation.id in self.opened:
            del self.opened[operation.id]
        else:
            self.closed = added(self.closed, operation)

    def withdraw(self, id: str, activation: int) -> None:
        """Close an operation that the code no longer waits for: a sibling was faster, or a scope was cancelled.

        One that `stays_open` is only given up, unless it was opened in this activation, so nothing knows of it.
        """
        operation = self.get(id)
        if operation is None:
            return
        if operation.stays_open and operation.activation != activation:
            operation.given_up = True
            self.given_up = added(self.given_up, operation)
        else:
            self.close(operation)

    def reconcile(self, rows: Mapping[str, int | None]) -> list[str]:
        """Compare the open operations with the stored waits. See `Instance.reconcile`."""
        self.closed, self.given_up = (), ()
        self.opened = {op.id: op for op in self.values() if op.id not in rows}
        for op in self.values():
            if op.id in rows:
                op.due = rows[op.id]
        return [op for op in rows if op not in self]

    def outdated(self, rows: Mapping[str, Sought]) -> list[Operation]:
        """Return the waits that are stored as other code asked for them, with another filter or model."""
        waits = [(self.get(op), row) for op, row in rows.items()]
        return [op for op, row in waits if isinstance(op, EventWait) and not op.is_stored_as(row)]

    def take_given_up(self) -> Sequence[Operation]:
        """Return what was given up since the last call, and is still open."""
        given_up, self.given_up = self.given_up, ()
        return [op for op in given_up if op.id in self]

    @property
    def status(self) -> Status:
        """The status shown to people."""
        if self._counts[_RUNNING] or not self:
            return "running"
        return next(status for status, count in zip(BUSIEST_FIRST, self._counts, strict=True) if count)

    @property
    def activities(self) -> int:
        """How many operations are running, which are the activities."""
        return self._counts[_RUNNING]

    @property
    def children(self) -> int:
        """How many children are open."""
        return self._counts[ChildCall.rank]
