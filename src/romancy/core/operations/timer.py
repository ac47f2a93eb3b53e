"""Timers: sleeps, asyncio's own timers, and the time limit of the workflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from romancy.core.history import Entry, Kind, Meaning
from romancy.core.model import ReceivedEvent, Status, WaitKind, from_us
from romancy.core.operations.operation import About, Answer, Operation
from romancy.hooks import TimerFiredInfo, TimerInfo, TimerStartedInfo


@dataclass(slots=True, eq=False)
class Timer(Operation):
    """Fires when it is due. `ring` is called then, if no future of the code waits for it."""

    name: ClassVar[WaitKind] = "timer"
    status: ClassVar[Status] = "waiting_for_timer"
    answers: ClassVar[Mapping[int, Meaning]] = {Kind.TIMER_FIRED: Meaning("fired")}
    when_due: ClassVar[Kind | None] = Kind.TIMER_FIRED

    ring: Callable[[], None] | None = None

    def settle(self, entry: Entry, event: ReceivedEvent[Any] | None) -> None:
        if self.ring is not None:
            self.ring()
        else:
            assert self.future is not None
            self.future.set_result(None)

    def opened_infos(self, about: About) -> Sequence[object]:
        return [self._info(TimerStartedInfo, about)]

    def settled_infos(self, answer: Answer, about: About) -> Sequence[object]:
        return [self._info(TimerFiredInfo, about)]

    def _info(self, info: type[TimerInfo], about: About) -> TimerInfo:
        return info(**about, timer_id=self.id, due_at=from_us(self.due or 0), since=from_us(self.opened_at))

    def __str__(self) -> str:
        return f"timer {self.id}"
