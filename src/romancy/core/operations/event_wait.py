"""Event waits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from romancy.core.codec import Codec
from romancy.core.filters import NO_FILTER, Filter
from romancy.core.history import Entry, Kind, Meaning, Payload, place_of, plain_data, received, unpack_event
from romancy.core.model import Event, ReceivedEvent, Status, WaitKind, from_us
from romancy.core.operations.operation import About, Answer, Operation, shortened
from romancy.core.operations.row import Since, Sought, WaitRow
from romancy.errors import NotStorable, WaitTimeout
from romancy.hooks import EventReceivedInfo, WaitCompletedInfo, WaitInfo, WaitStartedInfo, WaitTimedOutInfo

MODELS: dict[str, Codec] = {}
"""Every model of a wait in this process, by fingerprint. Used to check data for waits that are not in memory."""
Group = tuple[bytes, str]
"""Waits of one instance are alike if these are equal: types and filter, and the model."""


@dataclass(slots=True, eq=False)
class EventWait(Operation):
    """A wait for one event of the given types, with or without a time limit."""

    name: ClassVar[WaitKind] = "event"
    status: ClassVar[Status] = "waiting_for_event"
    answers: ClassVar[Mapping[int, Meaning]] = {
        Kind.EVENT_RECEIVED: Meaning("received", Payload.EVENT),
        Kind.WAIT_TIMED_OUT: Meaning("timed out"),
    }
    when_due: ClassVar[Kind | None] = Kind.WAIT_TIMED_OUT
    looks_first: ClassVar[bool] = True

    types: tuple[str, ...]
    spec: bytes
    filter: Filter = NO_FILTER
    since_event: Since = None
    models: tuple[Codec | None, ...] = (None,)
    keeps_place: bool = False
    """Whether to record the place of the event it takes, so that another wait can go on from there."""
    place: str | None = field(default=None, init=False)
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

    def is_sought_by(self, row: Sought) -> bool:
        """Return whether a stored wait is woken by the events for this one. Other code may have stored it."""
        return row.spec == self.spec and row.has_beginning == (self.since_event is not None)

    def is_stored_as(self, row: Sought) -> bool:
        """Return whether a stored wait can stay as it is.

        One with a beginning of its own is offered events by its id, so another model makes no difference to it.
        """
        return self.is_sought_by(row) and (row.has_beginning or row.model == self.model_key)

    @property
    def input(self) -> bytes | None:
        return self.spec

    @property
    def row(self) -> WaitRow:
        return WaitRow(
            self.id,
            self.opened_at,
            self.due,
            types=self.types,
            filter=self.filter,
            since=self.since_event,
            model=self.model_key,
            spec=self.spec,
            location=self.location,
            follows=self.follows,
        )

    @property
    def is_endless(self) -> bool:
        return self.due is None

    def settle(self, entry: Entry, event: ReceivedEvent[Any] | None) -> None:
        if entry.kind == Kind.EVENT_RECEIVED:
            if self.keeps_place:
                self.place = place_of(entry.payload or b"{}")
            self.resolve(lambda payload: event or self.fit(unpack_event(payload)), entry.payload or b"{}")
            return
        assert self.future is not None
        names = " or ".join(repr(t) for t in self.types)
        error = WaitTimeout(f"no event {names} came in time for wait {self.id!r}", types=self.types, wait_id=self.id)
        self.future.fail(error, entry.n)

    def fit(self, event: Event) -> ReceivedEvent[Any]:
        """Return the event with its data read by the model; raise `NotStorable` if the data does not fit."""
        model = self.models[0] if len(self.models) == 1 else self.models[self.types.index(event.type)]
        if model is None:
            try:
                return received(event, plain_data(event))
            except (ValueError, RecursionError) as error:
                raise NotStorable(f"its data can't be read as {event.datacontenttype or 'JSON'}: {error}") from None
        return received(event, model.judge(event.data if event.data is not None else b"null"))

    def opened_infos(self, about: About) -> Sequence[object]:
        return [self._info(WaitStartedInfo, about)]

    def settled_infos(self, answer: Answer, about: About) -> Sequence[object]:
        event = answer.event
        if event is None:
            return [self._info(WaitTimedOutInfo, about)]
        of: dict[str, Any] = {"event_type": event.type, "event_data": event.data, "event": event, "wait_id": self.id}
        arrived = EventReceivedInfo(**about, **of, since=from_us(self.opened_at))
        return [arrived, self._info(WaitCompletedInfo, about)]

    def _info(self, info: type[WaitInfo], about: About) -> WaitInfo:
        due, since = None if self.due is None else from_us(self.due), from_us(self.opened_at)
        return info(**about, wait_id=self.id, types=self.types, due_at=due, since=since)

    def __str__(self) -> str:
        return f"event {self.id} {shortened(self.spec)}"


class Groups:
    """The open event waits of one instance that are alike, oldest first."""

    __slots__ = ("_waits",)

    def __init__(self) -> None:
        self._waits: dict[Group, EventWait | OrderedDict[str, EventWait]] = {}
        """Most waits are alone in their group, and need no ordered dict."""

    def first(self, group: Group) -> EventWait | None:
        """Return the wait of a group that has been open longest."""
        waits = self._waits.get(group)
        return next(iter(waits.values())) if isinstance(waits, OrderedDict) else waits

    def add(self, wait: EventWait) -> None:
        group = wait.group
        if group is None:
            return
        others = self._waits.get(group)
        wait.follows = others is not None
        if others is None:
            self._waits[group] = wait
        elif isinstance(others, EventWait):
            self._waits[group] = OrderedDict({others.id: others, wait.id: wait})
        else:
            others[wait.id] = wait

    def remove(self, wait: EventWait) -> None:
        group = wait.group
        if group is None:
            return
        waits = self._waits[group]
        if isinstance(waits, OrderedDict):
            del waits[wait.id]
        if waits is wait or not waits:
            del self._waits[group]


def model_for(model_key: str, types: Sequence[str], event_type: str) -> Codec | None:
    """Return the model a stored wait has for a type, if this process has used it."""
    keys = model_key.split(",")
    return MODELS.get(keys[0] if len(keys) == 1 else keys[types.index(event_type)])
