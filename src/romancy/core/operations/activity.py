"""Activity calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from romancy.core import failure as failures
from romancy.core.failure import Failure
from romancy.core.history import Entry, Kind
from romancy.core.model import ReceivedEvent
from romancy.core.operations.operation import Operation, shortened
from romancy.core.registry import ActivityDefinition
from romancy.core.retry import RetryPolicy


@dataclass(slots=True, eq=False)
class ActivityCall(Operation):
    """A call of an activity."""

    answers: ClassVar[frozenset[int]] = frozenset({Kind.ACTIVITY_COMPLETED, Kind.ACTIVITY_FAILED})

    activity: ActivityDefinition
    arguments: bytes
    retry: RetryPolicy | None
    timeout: int | None

    @property
    def input(self) -> bytes | None:
        return self.arguments

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
            self.resolve(self.activity.signature.result.decode, entry.payload or b"null")
            return
        failure = Failure.decode(entry.payload or b"{}")
        assert self.future is not None
        self.future.set_exception(failures.rebuild(failure, self.activity.name, self.activity.raises))

    def __str__(self) -> str:
        return f"activity {self.id} {self.activity.name}({shortened(self.arguments)})"
