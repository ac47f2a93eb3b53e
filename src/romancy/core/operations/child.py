"""Child workflows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from romancy.core.failure import Failure
from romancy.core.history import Entry, Kind, Meaning, Payload
from romancy.core.model import ReceivedEvent, Status, WaitKind
from romancy.core.operations.operation import Operation, shortened
from romancy.core.queues import Place
from romancy.core.registry import WorkflowDefinition
from romancy.errors import InstanceExists, WorkflowCancelled, WorkflowFailed

MAX_ID = 255
"""Characters of an instance id."""
UNBEGUN = Failure("CancelledError", "given up before it began")


@dataclass(slots=True, eq=False)
class ChildCall(Operation):
    """A child that was started, until its end is recorded. A free one goes on without its parent."""

    name: ClassVar[WaitKind] = "child"
    status: ClassVar[Status] = "waiting_for_child"
    has_row: ClassVar[bool] = False
    stays_open: ClassVar[bool] = True
    answers: ClassVar[Mapping[int, Meaning]] = {
        Kind.CHILD_COMPLETED: Meaning("completed", Payload.VALUE),
        Kind.CHILD_FAILED: Meaning("failed", Payload.FAILURE),
        Kind.CHILD_CANCELLED: Meaning("cancelled", Payload.FAILURE),
        Kind.CHILD_REFUSED: Meaning("refused", Payload.FAILURE),
    }

    workflow: str
    definition: WorkflowDefinition | None
    """None if the workflow is given by name and not registered here."""
    arguments: bytes
    input_kind: int
    child: str
    """The id of its instance."""
    timeout: int | None
    is_free: bool = False
    own_id: str | None = None
    """The id that the code chose for the child. Replay compares it."""
    place: Place | None = None
    """Where it waits, if its workflow has a queue."""
    is_of_fork: bool = field(default=False, init=False)
    """Started by a fork in place of an open child of the original. Its id is not the one that the code chose."""
    is_over: bool = field(default=False, init=False)
    """Whether its end is recorded."""
    is_asked: bool = field(default=False, init=False)
    """Whether it was asked to cancel, because the code gave it up."""
    is_cancelled: bool = field(default=False, init=False)
    """Whether the code asked to cancel it."""

    @property
    def input(self) -> bytes | None:
        """Its arguments and, if the code chose it, its id: no workflow has a parameter with the name of that option."""
        if self.own_id is None:
            return self.arguments
        comma = "" if self.arguments == b"{}" else ","
        return self.arguments[:-1] + f'{comma}"instance_id":{json.dumps(self.own_id)}}}'.encode()

    def is_recorded_as(self, input: bytes) -> bool:
        """Return whether it is the same call, apart from defaults that were added since."""
        if input == self.input:
            return True
        arguments: dict[str, Any] = json.loads(input)
        own_id = arguments.pop("instance_id", None)
        if own_id != self.own_id:
            return False
        return self._has_arguments(input if own_id is None else json.dumps(arguments).encode())

    def _has_arguments(self, input: bytes) -> bool:
        if input == self.arguments or self.definition is None:
            return input == self.arguments
        signature = self.definition.signature
        again = signature.read_again(input)
        return signature.same_call(input, self.arguments) or (
            again is not None and signature.same_call(again, self.arguments)
        )

    def rename(self, parent: str, suffix: str) -> None:
        """After a retry, it may be another child: its id ends in this suffix."""
        self.child = child_id(parent, self.id, None if self.is_of_fork else self.own_id, suffix)

    @property
    def is_endless(self) -> bool:
        return self.is_free

    @property
    def goes_on(self) -> bool:
        return self.is_free

    def settle(self, entry: Entry, event: ReceivedEvent[Any] | None) -> None:
        assert self.future is not None
        self.is_over = True
        if entry.kind == Kind.CHILD_COMPLETED:
            read = json.loads if self.definition is None else self.definition.signature.result.decode
            self.resolve(read, entry.payload or b"null")
        else:
            error = self._error(entry.kind, Failure.decode(entry.payload or b"{}"))
            self.future.fail(error, entry.n)
            if self.is_free:
                self.future.exception()  # marks it as retrieved: perhaps nobody will ask for it

    def _error(self, kind: int, failure: Failure) -> Exception:
        if kind == Kind.CHILD_REFUSED:
            return InstanceExists(failure.message, instance_id=self.child)
        if kind == Kind.CHILD_CANCELLED:
            reason = None if failure.message == "cancelled" else failure.message
            return WorkflowCancelled(instance_id=self.child, reason=reason)
        message, kind_of_error = failure.message, failure.error_type
        return WorkflowFailed(message, instance_id=self.child, error_type=kind_of_error, traceback=failure.traceback)

    def settle_late(self, entry: Entry) -> None:
        self.is_over = True

    def answer_unbegun(self) -> tuple[Kind, bytes]:
        return Kind.CHILD_CANCELLED, UNBEGUN.encode()

    def __str__(self) -> str:
        return f"child {self.id} {self.workflow}({shortened(self.input or b'')})"


def child_id(parent: str, operation: str, own: str | None = None, suffix: str = "") -> str:
    """Return `<parent>/<operation>`, or the id that the code chose. If that is too long, a hash replaces its middle."""
    id = f"{parent}/{operation}{suffix}" if own is None else f"{own}{suffix}"
    if len(id) <= MAX_ID:
        return id
    digest = hashlib.blake2b(id.encode(), digest_size=12).hexdigest()
    kept = (MAX_ID - len(digest) - 2) // 2
    return f"{id[:kept]}~{digest}~{id[-kept:]}"
