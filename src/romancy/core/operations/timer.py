"""Timers: sleeps, asyncio's own timers, and the time limit of the workflow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from romancy.core.history import Entry, Kind
from romancy.core.model import ReceivedEvent
from romancy.core.operations.operation import Operation


@dataclass(slots=True, eq=False)
class Timer(Operation):
    """Fires when it is due. `ring` is called then, if no future of the code waits for it."""

    answers: ClassVar[frozenset[int]] = frozenset({Kind.TIMER_FIRED})

    due: int
    ring: Callable[[], None] | None = None

    def settle(self, entry: Entry, event: ReceivedEvent[Any] | None) -> None:
        if self.ring is not None:
            self.ring()
        else:
            assert self.future is not None
            self.future.set_result(None)

    def __str__(self) -> str:
        return f"timer {self.id}"
