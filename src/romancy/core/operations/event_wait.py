"""Event waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from romancy.core.codec import Codec
from romancy.core.filters import NO_FILTER, Filter
from romancy.core.history import Entry, Kind, plain_data, received, unpack_event
from romancy.core.model import Event, ReceivedEvent
from romancy.core.operations.operation import Operation, shortened
from romancy.errors import NotStorable, WaitTimeout

MODELS: dict[str, Codec] = {}
"""Every model of a wait in this process, by fingerprint. Used to check data for waits that are not in memory."""
Group = tuple[bytes, str]
"""Waits of one instance are alike if these are equal: types and filter, and the model."""


@dataclass(slots=True, eq=False)
class EventWait(Operation):
    """A wait for one event of the given types, with or without a time limit."""

    answers: ClassVar[frozenset[int]] = frozenset({Kind.EVENT_RECEIVED, Kind.WAIT_TIMED_OUT})

    types: tuple[str, ...]
    spec: bytes
    filter: Filter = NO_FILTER
    due: int | None = None
    since_event: int | str | None = None
    """None: since the instance began; "now": since this wait was recorded; an int: since that time (microseconds)."""
    models: tuple[Codec | None, ...] = (None,)
    follows: bool = field(default=False, init=False)
    """It was opened while another wait of its group was open."""
    model_key: str = field(default="", init=False)
    """Distinguishes models: data that does not fit one can fit another."""

    def __post_init__(self) -> None:
        if any(self.models):
            self.model_key = ",".join(m.fingerprint if m else "" for m in self.models)
            MODELS.update((m.fingerprint, m) for m in self.models if m)

    @property
    def group(self) -> Group | None:
        """Waits of one group take each other's events, oldest first; None: this wait looks for its own events."""
        return (self.spec, self.model_key) if self.since_event is None else None

    @property
    def input(self) -> bytes | None:
        return self.spec

    def settle(self, entry: Entry, event: ReceivedEvent[Any] | None) -> None:
        if entry.kind == Kind.EVENT_RECEIVED:
            self.resolve(lambda payload: event or self.fit(unpack_event(payload)), entry.payload or b"{}")
            return
        assert self.future is not None
        names = " or ".join(repr(t) for t in self.types)
        self.future.set_exception(
            WaitTimeout(f"no event {names} came in time for wait {self.id!r}", types=self.types, wait_id=self.id)
        )

    def fit(self, event: Event) -> ReceivedEvent[Any]:
        """Return the event with its data read by the model; raise `NotStorable` if the data does not fit."""
        model = self.models[0] if len(self.models) == 1 else self.models[self.types.index(event.type)]
        if model is None:
            try:
                return received(event, plain_data(event))
            except (ValueError, RecursionError) as error:
                raise NotStorable(f"its data can't be read as {event.datacontenttype or 'JSON'}: {error}") from None
        return received(event, model.judge(event.data if event.data is not None else b"null"))

    def __str__(self) -> str:
        return f"wait {self.id} for {shortened(self.spec)}"


def model_for(model_key: str, types: Sequence[str], event_type: str) -> Codec | None:
    """Return the model a stored wait has for a type, if this process has used it."""
    keys = model_key.split(",")
    return MODELS.get(keys[0] if len(keys) == 1 else keys[types.index(event_type)])
