"""The base class of all operations: what every kind has, and what a kind can say about itself.

The engine knows activities, which it runs, and events, which it offers. Everything else about a kind is in its own
file.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import CodeType
from typing import Any, ClassVar, NamedTuple, Protocol, TypedDict

from romancy.core.culprits import blame
from romancy.core.history import Entry, Kind, Meaning
from romancy.core.loop import WorkflowLoop
from romancy.core.model import BUSIEST_FIRST, ReceivedEvent, Status, WaitKind
from romancy.core.operations.row import WaitRow
from romancy.core.run import Run
from romancy.core.scope import Scope, current_scope

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_OURS = (
    os.path.join(_ROOT, "core", ""),
    os.path.join(_ROOT, "api", ""),
    os.path.join(_ROOT, "contrib", ""),
    os.path.dirname(os.path.abspath(asyncio.__file__)),
)
_LOOP_RUN = WorkflowLoop.run.__code__


class _Instance(Protocol):
    """The instance an operation belongs to."""

    id: str
    run: Run
    loop: WorkflowLoop

    def withdraw(self, op: str) -> None: ...


class OperationFuture(asyncio.Future[Any]):
    """Cancelling it withdraws the operation, immediately and in the same commit."""

    __slots__ = ("_instance", "_operation")

    def __init__(self, instance: _Instance, operation: str) -> None:
        super().__init__(loop=instance.loop)
        self._instance, self._operation = instance, operation

    def cancel(self, msg: Any | None = None) -> bool:
        if not super().cancel(msg=msg):
            return False
        self._instance.withdraw(self._operation)
        return True

    def fail(self, error: Exception, entry: int) -> None:
        """Raise an error in the code that waits. The entry that became this error is noted in it."""
        self.set_exception(blame(error, (self._instance.id, self._instance.run.number, entry)))


class About(TypedDict):
    """The fields that all infos for hooks have."""

    instance_id: str
    workflow: str
    at: datetime
    headers: Mapping[str, str]


class Answer(NamedTuple):
    """What settled an operation."""

    entry: Entry
    event: ReceivedEvent[Any] | None = None
    """The event of the entry, decoded."""
    attempt: int = 1
    """The number of the attempt, of a call."""


@dataclass(slots=True, eq=False)
class Operation:
    """Something that workflow code asked for and waits on. Each kind is a subclass in its own file."""

    name: ClassVar[WaitKind]
    """The name of the kind, for people and for the lists of waits."""
    status: ClassVar[Status]
    """The status of an instance that waits for nothing but this."""
    rank: ClassVar[int]
    """The place of that status among those of all kinds."""
    answers: ClassVar[Mapping[int, Meaning]] = {}
    """The kinds of history entries that settle it, and what each says."""
    has_row: ClassVar[bool] = True
    """Whether a row is stored while it is open."""
    when_due: ClassVar[Kind | None] = None
    """The entry that settles it when it is due; None: it has no due time of its own."""
    looks_first: ClassVar[bool] = False
    """Whether to look for an event once more when it is due: one that is already stored wins."""
    stays_open: ClassVar[bool] = False
    """Whether it stays open until it is answered even if the code gives it up."""

    id: str
    opened_at: int
    due: int | None = field(default=None, kw_only=True)
    keeps_due: bool = field(default=False, kw_only=True)
    """It is due at a time that the code named, so a retry or a fork does not put that off."""
    line: tuple[CodeType, int] | None = field(default=None, init=False)
    future: OperationFuture | None = field(default=None, init=False)
    activation: int = field(default=0, init=False)
    """The number of the activation that opened it. Set where `stays_open`."""
    scope: Scope | None = field(default=None, init=False)
    """The innermost `saga` block in which it was opened. Set where `stays_open`."""
    given_up: bool = field(default=False, init=False)
    """The code no longer waits for it, but it is still open."""

    def __init_subclass__(cls) -> None:
        cls.rank = BUSIEST_FIRST.index(cls.status)

    @property
    def input(self) -> bytes | None:
        """The identity that replay compares; None if only the id counts."""
        return None

    def is_recorded_as(self, input: bytes) -> bool:
        """Return whether an entry with this input answers the operation."""
        return input == self.input

    @property
    def row(self) -> WaitRow:
        """The row that is stored while it is open."""
        return WaitRow(self.id, self.opened_at, self.due, location=self.location)

    def note_origin(self, activation: int) -> None:
        """Note where it was opened: in the activation with this number, and in the block of the running code."""
        self.activation, self.scope = activation, current_scope.get(None)

    @property
    def is_endless(self) -> bool:
        """Whether only an event can end it, because it has no time limit."""
        return False

    @property
    def goes_on(self) -> bool:
        """Whether it goes on even if the code is closed."""
        return False

    def opened_infos(self, about: About) -> Sequence[object]:
        """Return the infos for hooks when it was opened."""
        return ()

    def settled_infos(self, answer: Answer, about: About) -> Sequence[object]:
        """Return the infos for hooks when it was settled."""
        return ()

    def settle(self, entry: Entry, event: ReceivedEvent[Any] | None) -> None:
        """Pass the recorded answer to the code. `event`: the entry's event, if it is already decoded."""
        raise TypeError(f"{self} can't be settled")  # not an abstract class: isinstance() would take ten times as long

    def settle_late(self, entry: Entry) -> None:
        """Take the recorded answer to an operation that the code gave up."""

    def answer_unbegun(self) -> tuple[Kind, bytes]:
        """Return the answer (kind, payload) to an operation that was given up before it could begin."""
        raise TypeError(f"{self} can't be given up")

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
