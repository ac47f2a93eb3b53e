"""Undos: calls that owe one, calls that are one, and the hold of an instance whose undos failed for good."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic_core import from_json, to_json

from romancy.core.failure import Failure
from romancy.core.history import Entry, Kind, Meaning
from romancy.core.model import ReceivedEvent, Status, WaitKind
from romancy.core.operations.activity import ActivityCall
from romancy.core.operations.operation import Operation
from romancy.core.registry import ActivityDefinition
from romancy.core.retry import RetryPolicy
from romancy.core.scope import Scope

_PREFIX = "undo "


def undo_name(of: str) -> str:
    """Return the name under which the calls of an undo are counted."""
    return _PREFIX + of


def undone_by(op: str) -> str | None:
    """Return what an operation with this id undoes: the id of a call, or the name of an undo by hand."""
    return op.removeprefix(_PREFIX).rpartition(":")[0] or None if op.startswith(_PREFIX) else None


@dataclass(slots=True, eq=False)
class UndoableCall(ActivityCall):
    """A call of an activity that has an undo. It owes the undo once its result is recorded, even if it was given up."""

    stays_open: ClassVar[bool] = True

    owe: Callable[[UndoableCall, bytes], None]

    def settle(self, entry: Entry, event: ReceivedEvent[Any] | None) -> None:
        # First: the result is recorded, whether or not the code gets to see it.
        self.settle_late(entry)
        ActivityCall.settle(self, entry, event)

    def settle_late(self, entry: Entry) -> None:
        if entry.kind == Kind.ACTIVITY_COMPLETED:
            self.owe(self, entry.payload or b"null")

    def undo_arguments(self, result: bytes) -> bytes:
        """Return the arguments of its undo, taken by name from what is recorded. They are checked when it runs."""
        rule = self.activity.undo
        assert rule is not None
        given: dict[str, Any] = from_json(self.arguments)
        values = {name: given[name] for name in rule.arguments}
        if rule.result is not None:
            values = {rule.result: from_json(result), **values}
        return to_json(values)


@dataclass(slots=True, eq=False)
class Undo:
    """An undo that is owed. Nothing is stored: replay leads to the same list."""

    of: str
    """The id of the call it undoes; for `compensate(ctx, ...)` the name of the undo."""
    activity: ActivityDefinition
    retry: RetryPolicy | None
    timeout: int | None
    arguments: Callable[[], bytes]
    scope: Scope
    is_late: bool = False
    """The code gave the call up, and was told that it did not happen."""
    is_by_hand: bool = False
    """The code chose the arguments, so replay compares them."""
    is_under_way: bool = field(default=False, init=False)
    is_done: bool = field(default=False, init=False)
    problem: str = field(default="", init=False)
    """Why it failed for good."""

    def __str__(self) -> str:
        name = self.activity.name
        return name if self.is_by_hand else f"{name} (undo of {self.of})"


@dataclass(slots=True, eq=False)
class UndoCall(ActivityCall):
    """A call that undoes something. Nothing interrupts it: if the code that waits for it is ended, it goes on."""

    stays_open: ClassVar[bool] = True

    undo: Undo

    @property
    def undo_of(self) -> str | None:
        return self.undo.of

    def is_recorded_as(self, input: bytes) -> bool:
        """Return whether it is the same undo. One that follows from its call has the arguments its code asks for."""
        return not self.undo.is_by_hand or ActivityCall.is_recorded_as(self, input)

    def settle(self, entry: Entry, event: ReceivedEvent[Any] | None) -> None:
        self.settle_late(entry)
        assert self.future is not None
        self.future.set_result(None)

    def settle_late(self, entry: Entry) -> None:
        self.undo.is_done = entry.kind == Kind.ACTIVITY_COMPLETED
        if not self.undo.is_done:
            failure = Failure.decode(entry.payload or b"{}")
            self.undo.problem = f"{failure.error_type}: {failure.message}"


@dataclass(slots=True, eq=False)
class Hold(Operation):
    """Undos failed for good. The instance is blocked here, until someone resumes it."""

    name: ClassVar[WaitKind] = "activity"
    status: ClassVar[Status] = "waiting_for_event"
    has_row: ClassVar[bool] = False
    answers: ClassVar[Mapping[int, Meaning]] = {Kind.RESUMED: Meaning("resumed")}

    failed: Sequence[Undo]

    def settle(self, entry: Entry, event: ReceivedEvent[Any] | None) -> None:
        assert self.future is not None
        self.future.set_result(None)

    def __str__(self) -> str:
        return f"hold {self.id}"
