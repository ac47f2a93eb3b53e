"""The base class of all operations: an id, a future, and the line of user code that waits."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, ClassVar, Protocol

from romancy.core.history import Entry
from romancy.core.loop import WorkflowLoop
from romancy.core.model import ReceivedEvent

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_OURS = (
    os.path.join(_ROOT, "core", ""),
    os.path.join(_ROOT, "api", ""),
    os.path.dirname(os.path.abspath(asyncio.__file__)),
)
_LOOP_RUN = WorkflowLoop.run.__code__


class _Instance(Protocol):
    """The instance an operation belongs to."""

    loop: WorkflowLoop

    def withdraw(self, op: str) -> None: ...


class OperationFuture(asyncio.Future[Any]):
    """Cancelling it withdraws the operation, immediately and in the same commit."""

    def __init__(self, instance: _Instance, operation: str) -> None:
        super().__init__(loop=instance.loop)
        self._instance, self._operation = instance, operation

    def cancel(self, msg: Any | None = None) -> bool:
        if not super().cancel(msg=msg):
            return False
        self._instance.withdraw(self._operation)
        return True


@dataclass(slots=True, eq=False)
class Operation:
    """Something that workflow code asked for and waits on. Each kind is a subclass in its own file."""

    answers: ClassVar[frozenset[int]] = frozenset()
    """The kinds of history entries that settle it."""

    id: str
    since: int
    line: tuple[CodeType, int] | None = field(default=None, init=False)
    future: OperationFuture | None = field(default=None, init=False)

    @property
    def input(self) -> bytes | None:
        """The identity that replay compares; None if only the id counts."""
        return None

    def is_recorded_as(self, input: bytes) -> bool:
        """Return whether an entry with this input answers the operation."""
        return input == self.input

    def settle(self, entry: Entry, event: ReceivedEvent[Any] | None) -> None:
        """Pass the recorded answer to the code. `event`: the entry's event, if it is already decoded."""
        raise TypeError(f"{self} can't be settled")  # not an abstract class: isinstance() would take ten times as long

    def resolve(self, decode: Callable[[bytes], Any], payload: bytes) -> None:
        """Pass a decoded copy of a recorded value to the code.

        If the value no longer fits the code's types, the code does not see the error, because the operation did not
        fail. The error leaves the instance, which is then blocked until the types fit again.
        """
        assert self.future is not None
        self.future.set_result(decode(payload))

    @property
    def location(self) -> str:
        """The line of user code that waits here."""
        if self.line is None:
            return ""
        code, number = self.line
        return f"{code.co_filename}:{number} in {code.co_name}"

    def __str__(self) -> str:
        return self.id


def user_line() -> tuple[CodeType, int] | None:
    """Return the innermost line of user code on the stack."""
    frame = sys._getframe(3)  # pyright: ignore[reportPrivateUsage] - past perform and the primitive itself
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_OURS):
            return frame.f_code, frame.f_lineno
        if frame.f_code is _LOOP_RUN:
            return None  # further down is the engine, not the workflow
        frame = frame.f_back
    return None


def shortened(raw: bytes | None, limit: int = 200) -> str:
    """Return the beginning of an input, for messages."""
    text = (raw or b"").decode("utf-8", "replace")
    return text if len(text) <= limit else text[:limit] + "..."
