"""Activity calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from romancy.core import failure as failures
from romancy.core.failure import Failure
from romancy.core.history import Entry, Kind, Meaning, Payload
from romancy.core.model import ReceivedEvent, Status, WaitKind, from_us
from romancy.core.operations.operation import About, Answer, Operation, shortened
from romancy.core.registry import ActivityDefinition
from romancy.core.retry import RetryPolicy
from romancy.hooks import ActivityCompletedInfo, ActivityFailedInfo, ActivityLostInfo, ActivityRetryingInfo

UNBEGUN = Failure("CancelledError", "given up before it began")
"""How a call fails that the code gave up before it was begun."""


@dataclass(slots=True, eq=False)
class ActivityCall(Operation):
    """A call of an activity."""

    name: ClassVar[WaitKind] = "activity"
    status: ClassVar[Status] = "running"
    has_row: ClassVar[bool] = False
    answers: ClassVar[Mapping[int, Meaning]] = {
        Kind.ACTIVITY_COMPLETED: Meaning("completed", Payload.VALUE),
        Kind.ACTIVITY_FAILED: Meaning("failed", Payload.FAILURE),
    }

    activity: ActivityDefinition
    arguments: bytes
    retry: RetryPolicy | None
    timeout: int | None

    @property
    def input(self) -> bytes | None:
        return self.arguments

    @property
    def undo_of(self) -> str | None:
        """The id of the call that it undoes, if it undoes one."""
        return None

    def is_recorded_as(self, input: bytes) -> bool:
        """Return whether it is the same call, apart from defaults that were added since."""
        if input == self.arguments:
            return True
        signature = self.activity.signature
        again = signature.read_again(input)
        return signature.same_call(input, self.arguments) or (
            again is not None and signature.same_call(again, self.arguments)
        )

    def settle(self, entry: Entry, event: ReceivedEvent[Any] | None) -> None:
        if entry.kind == Kind.ACTIVITY_COMPLETED:
            self.resolve(self.activity.result.decode, entry.payload or b"null")
            return
        failure = Failure.decode(entry.payload or b"{}")
        assert self.future is not None
        error = failures.rebuild(failure, self.activity.name, self.activity.raises)
        self.future.fail(error, entry.n)

    def settled_infos(self, answer: Answer, about: About) -> Sequence[object]:
        entry, attempt = answer.entry, answer.attempt
        if entry.kind == Kind.ACTIVITY_COMPLETED:
            return [ActivityCompletedInfo(**about, **self._named, attempt=attempt)]
        failure = Failure.decode(entry.payload or b"{}")
        more: dict[str, Any] = {"error_type": failure.error_type, "message": failure.message}
        return [ActivityFailedInfo(**about, **self._named, attempt=attempt, **more)]

    def retrying_info(self, attempt: int, due: int, error_type: str, message: str, about: About) -> object:
        """Return the info for hooks when an attempt failed and the next one is due."""
        more: dict[str, Any] = {"error_type": error_type, "message": message}
        return ActivityRetryingInfo(**about, **self._named, attempt=attempt, next_at=from_us(due), **more)

    def lost_info(self, attempt: int, crashes: int, about: About) -> object:
        """Return the info for hooks when the worker died that ran an attempt."""
        return ActivityLostInfo(**about, **self._named, attempt=attempt, crashes=crashes)

    def answer_unbegun(self) -> tuple[Kind, bytes]:
        return Kind.ACTIVITY_FAILED, UNBEGUN.encode()

    @property
    def _named(self) -> dict[str, Any]:
        about = {"activity": self.activity.name, "activity_id": self.id, "undo_of": self.undo_of}
        return {**about, "first_at": from_us(self.opened_at)}

    def __str__(self) -> str:
        return f"activity {self.id} {self.activity.name}({shortened(self.arguments)})"


@dataclass(slots=True, eq=False)
class StepCall(ActivityCall):
    """A call of a function that is not an activity. Its arguments are what `input=` says; b"": nothing is compared."""

    @property
    def input(self) -> bytes | None:
        return self.arguments or None

    def is_recorded_as(self, input: bytes) -> bool:
        return not self.arguments or input == self.arguments or _same_json(input, self.arguments)


def _same_json(recorded: bytes, asked: bytes) -> bool:
    """Return whether two inputs are equal, apart from the order of keys."""
    return json.dumps(json.loads(recorded), sort_keys=True) == json.dumps(json.loads(asked), sort_keys=True)
