"""`events`: wait for one event after the other, as a loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, Self, TypeVar, overload

from romancy.api.context import WorkflowContext
from romancy.api.waiting import build_filter, build_spec, check_since, check_types, codecs_of, instance_for
from romancy.core.codec import Codec
from romancy.core.filters import Filter
from romancy.core.instance import Instance
from romancy.core.model import Duration, ReceivedEvent, Scalar, duration_us, to_us
from romancy.core.operations import After, EventWait, Since
from romancy.errors import WaitTimeout

T = TypeVar("T")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a stream waits for, and for how long. Times are in microseconds."""

    types: tuple[str, ...]
    filter: Filter
    spec: bytes
    models: tuple[Codec | None, ...]
    wait_id: str | None
    since: int | Literal["now"] | None
    limit: int | None
    until: int | None
    timeout: int | None


class EventStream(Generic[T_co]):
    """A stream of events: `async for event in events(ctx, "hit")`. Each event comes once, in the order of arrival.

    A wait is open only while the code awaits the next event. So you can leave the loop and come back to the same
    stream later: it goes on with the events that have arrived in the meantime.
    """

    def __init__(self, instance: Instance, asked: _Asked) -> None:
        self._instance, self._asked = instance, asked
        self._received = 0
        self._kept: deque[ReceivedEvent[Any]] = deque()
        """Events that were received, but not returned."""
        self._is_over = self._is_reading = False
        self._began: int | None = None
        self._place: str | None = None

    def __repr__(self) -> str:
        return f"<EventStream {' '.join(self._asked.types)} received={self._received}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedEvent[T_co]:
        with self._reading():
            event = await self._receive()
        if event is None:
            raise StopAsyncIteration
        return event

    async def take(self, count: int, *, window: Duration | None = None) -> list[ReceivedEvent[T_co]]:
        """Wait for an event, then return it with those that follow within `window`, `count` in all at most.

        The list is empty only if the stream is over. If `timeout` expires, or the code is cancelled, the events of the
        batch are kept for the next call.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"take needs the number of events, at least 1, got {count!r}")
        span = None if window is None else duration_us(window, "window")
        batch: list[ReceivedEvent[T_co]] = []
        with self._reading():
            try:
                event, ends = await self._receive(), None
                while event is not None:
                    batch.append(event)
                    if len(batch) == count:
                        break
                    ends = self._instance.at + span if ends is None and span is not None else ends
                    event = await self._receive(ends)
            except (WaitTimeout, asyncio.CancelledError):
                self._kept.extendleft(reversed(batch))
                raise
        return batch

    @contextmanager
    def _reading(self) -> Generator[None]:
        if self._is_reading:
            raise RuntimeError(f"{self!r} is already awaited; give each task a stream of its own")
        self._is_reading = True
        try:
            yield
        finally:
            self._is_reading = False

    async def _receive(self, window: int | None = None) -> ReceivedEvent[Any] | None:
        """Return the next event; None if the stream is over, or if the window ends before the next event."""
        if self._kept:
            return self._kept.popleft()
        if self._is_over or self._received == self._asked.limit:
            return None
        wait = self._wait(window)
        due = wait.due  # as computed here: a stored wait keeps the time it was stored with
        try:
            event = await self._instance.perform(wait)
        except WaitTimeout:
            if due == self._asked.until:
                self._is_over = True
            elif due != window:
                raise
            return None
        except asyncio.CancelledError:
            self._keep_result(wait)
            raise
        self._count(wait)
        return event

    def _wait(self, window: int | None) -> EventWait:
        instance, asked = self._instance, self._asked
        late = None if asked.timeout is None else instance.at + asked.timeout
        due = min((time for time in (late, window, asked.until) if time is not None), default=None)
        return EventWait(
            instance.run.next_id(asked.types[0], asked.wait_id),
            instance.at,
            types=asked.types,
            spec=asked.spec,
            filter=asked.filter,
            due=due,
            keeps_due=due == asked.until,
            since_event=self._since(),
            models=asked.models,
            keeps_place=asked.since is not None,
        )

    def _since(self) -> Since:
        """Return where the next wait begins: no event since the beginning of the stream may be left out."""
        if self._place is not None:
            return After(self._place)
        if self._asked.since != "now":
            return self._asked.since
        if self._began is None:
            self._began = self._instance.at
        # An earlier wait took no event. It was open from then on, so what it has missed was accepted later than that;
        # if no time has passed, it was never stored.
        return "now" if self._instance.at == self._began else self._began + 1

    def _count(self, wait: EventWait) -> None:
        self._received += 1
        self._place = wait.place

    def _keep_result(self, wait: EventWait) -> None:
        """Keep the event of a wait that was answered before its task was cancelled, in the same activation."""
        future = wait.future
        if future is not None and future.done() and not future.cancelled() and future.exception() is None:
            self._count(wait)
            self._kept.append(future.result())


@overload
def events(
    ctx: WorkflowContext,
    type: str,
    /,
    *types: str,
    model: type[T],
    limit: int | None = None,
    until: datetime | None = None,
    timeout: Duration | None = None,
    wait_id: str | None = None,
    subject: str | None = None,
    source: str | None = None,
    where: Mapping[str, Scalar] | None = None,
    since: datetime | Literal["now"] | None = None,
) -> EventStream[T]: ...
@overload
def events(
    ctx: WorkflowContext,
    type: str,
    /,
    *types: str,
    model: tuple[type[T], type[T2]],
    limit: int | None = None,
    until: datetime | None = None,
    timeout: Duration | None = None,
    wait_id: str | None = None,
    subject: str | None = None,
    source: str | None = None,
    where: Mapping[str, Scalar] | None = None,
    since: datetime | Literal["now"] | None = None,
) -> EventStream[T | T2]: ...
@overload
def events(
    ctx: WorkflowContext,
    type: str,
    /,
    *types: str,
    model: tuple[type[T], type[T2], type[T3]],
    limit: int | None = None,
    until: datetime | None = None,
    timeout: Duration | None = None,
    wait_id: str | None = None,
    subject: str | None = None,
    source: str | None = None,
    where: Mapping[str, Scalar] | None = None,
    since: datetime | Literal["now"] | None = None,
) -> EventStream[T | T2 | T3]: ...
@overload
def events(
    ctx: WorkflowContext,
    type: str,
    /,
    *types: str,
    model: Any = None,
    limit: int | None = None,
    until: datetime | None = None,
    timeout: Duration | None = None,
    wait_id: str | None = None,
    subject: str | None = None,
    source: str | None = None,
    where: Mapping[str, Scalar] | None = None,
    since: datetime | Literal["now"] | None = None,
) -> EventStream[Any]: ...
def events(
    ctx: WorkflowContext,
    type: str,
    /,
    *types: str,
    model: Any = None,
    limit: int | None = None,
    until: datetime | None = None,
    timeout: Duration | None = None,
    wait_id: str | None = None,
    subject: str | None = None,
    source: str | None = None,
    where: Mapping[str, Scalar] | None = None,
    since: datetime | Literal["now"] | None = None,
) -> EventStream[Any]:
    """Return a stream of events, for a loop. It takes what `wait_event` takes, and two ways to end.

    It ends after `limit` events, or when there is no more event accepted up to `until`. `timeout` is the time to wait
    for each event; then the stream raises `WaitTimeout`. `since="now"` means the first time an event is awaited.

    >>> async for hit in events(ctx, "hit", model=Hit, limit=1000, timeout=timedelta(hours=1)): ...
    """
    instance = instance_for(ctx, "events")
    all_types = check_types(instance, (type, *types))
    narrow = build_filter(subject, source, where)
    asked = _Asked(
        types=all_types,
        filter=narrow,
        spec=build_spec(all_types, narrow),
        models=codecs_of(model, all_types),
        wait_id=wait_id,
        since=check_since(since),
        limit=_check_limit(limit),
        until=_check_until(until),
        timeout=None if timeout is None else duration_us(timeout, "timeout"),
    )
    return EventStream(instance, asked)


def _check_limit(limit: int | None) -> int | None:
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"limit must be a number of events, or None for no limit, got {limit!r}")
    return limit


def _check_until(until: datetime | None) -> int | None:
    if until is None:
        return None
    if not isinstance(until, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"until must be an aware datetime, got {until!r}; for a time per event, use timeout=")
    return to_us(until)
