"""Operations: what workflow code asks for and waits on. Each has an id, a future, and a row or activity behind it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any

from romancy.core.codec import Codec
from romancy.core.filters import NO_FILTER, Filter
from romancy.core.loop import TimerHandle, WorkflowLoop
from romancy.core.registry import ActivityDefinition
from romancy.core.retry import RetryPolicy

if TYPE_CHECKING:
    from romancy.core.instance import Instance

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_OURS = (
    os.path.join(_ROOT, "core", ""),
    os.path.join(_ROOT, "api", ""),
    os.path.dirname(os.path.abspath(asyncio.__file__)),
)


_LOOP_RUN = WorkflowLoop.run.__code__

MODELS: dict[str, Codec] = {}
"""Every model a wait of this process ever had, by fingerprint: so that data can be judged for waits not in memory."""


Group = tuple[bytes, str]
"""What makes waits of one instance alike: types and filter, and the model."""


def model_for(model_key: str, types: Sequence[str], event_type: str) -> Codec | None:
    """The model a stored wait has for a type, as far as this process has met it."""
    keys = model_key.split(",")
    return MODELS.get(keys[0] if len(keys) == 1 else keys[types.index(event_type)])


class OperationFuture(asyncio.Future[Any]):
    """Cancelling it withdraws the operation, at once and in the same commit."""

    def __init__(self, instance: Instance, operation: str) -> None:
        super().__init__(loop=instance.loop)
        self._instance, self._operation = instance, operation

    def cancel(self, msg: Any | None = None) -> bool:
        if not super().cancel(msg=msg):
            return False
        self._instance.withdraw(self._operation)
        return True


@dataclass(slots=True, eq=False)
class Operation:
    """Something open: an activity that runs, a wait for an event, a timer."""

    id: str
    since: int
    line: tuple[CodeType, int] | None = field(default=None, init=False)
    future: OperationFuture | None = field(default=None, init=False)

    @property
    def input(self) -> bytes | None:
        """The identity replay compares; None where only the id counts."""
        return None

    @property
    def location(self) -> str:
        """The line of the user's code that waits here."""
        if self.line is None:
            return ""
        code, number = self.line
        return f"{code.co_filename}:{number} in {code.co_name}"

    def __str__(self) -> str:
        return self.id


@dataclass(slots=True, eq=False)
class ActivityCall(Operation):
    """An activity the code called."""

    activity: ActivityDefinition
    arguments: bytes
    retry: RetryPolicy | None
    timeout: int | None

    @property
    def input(self) -> bytes | None:
        return self.arguments

    def __str__(self) -> str:
        return f"activity {self.id} {self.activity.name}({_short(self.arguments)})"


@dataclass(slots=True, eq=False)
class EventWait(Operation):
    """A wait for one event of some types, with or without an end."""

    types: tuple[str, ...]
    spec: bytes
    filter: Filter = NO_FILTER
    due: int | None = None
    since_event: int | str | None = None
    """None: since the instance began; "now": since this wait was recorded; an int: since that time (microseconds)."""
    models: tuple[Codec | None, ...] = (None,)
    follows: bool = field(default=False, init=False)
    """It was opened while another of its group was open."""
    model_key: str = field(default="", init=False)
    """Tells models apart that judge differently: what did not fit one may fit another."""

    def __post_init__(self) -> None:
        if any(self.models):
            self.model_key = ",".join(m.fingerprint if m else "" for m in self.models)
            MODELS.update((m.fingerprint, m) for m in self.models if m)

    @property
    def group(self) -> Group | None:
        """Waits of one group take each other's events, oldest first; None: this one looks for itself."""
        return (self.spec, self.model_key) if self.since_event is None else None

    @property
    def input(self) -> bytes | None:
        return self.spec

    def model_of(self, event_type: str) -> Codec | None:
        if len(self.models) == 1:
            return self.models[0]
        return self.models[self.types.index(event_type)]

    def __str__(self) -> str:
        return f"wait {self.id} for {_short(self.spec)}"


@dataclass(slots=True, eq=False)
class Timer(Operation):
    """A sleep, or a timer of asyncio's; it belongs to a handle then."""

    due: int
    handle: TimerHandle | None = None

    def __str__(self) -> str:
        return f"timer {self.id}"


def user_line() -> tuple[CodeType, int] | None:
    """The innermost line on the stack that is the user's own."""
    frame = sys._getframe(3)  # pyright: ignore[reportPrivateUsage] - past perform and the primitive itself
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_OURS):
            return frame.f_code, frame.f_lineno
        if frame.f_code is _LOOP_RUN:
            return None  # below is the engine, not the workflow
        frame = frame.f_back
    return None


def _short(raw: bytes | None, limit: int = 200) -> str:
    text = (raw or b"").decode("utf-8", "replace")
    return text if len(text) <= limit else text[:limit] + "..."
