"""Runs middleware: around attempts, starts and sent events, the first one outermost."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

from romancy.api.context import ActivityContext, staged_events
from romancy.core import model
from romancy.core.history import unpack_event
from romancy.core.ids import is_text
from romancy.core.inputs import EVENT
from romancy.core.instance import Instance
from romancy.core.new_events import Event, from_stored, to_stored
from romancy.errors import InvalidInput
from romancy.hooks import HooksBase
from romancy.middleware import MiddlewareBase, StartRequest

T = TypeVar("T")
Next = Callable[[], Awaitable[T]]
Store = Callable[[list[Event]], Awaitable[list[T]]]
MAX_HEADERS = 4096
MAX_TRACE = 512
"""Longer values of `traceparent` and `tracestate` are ignored."""
TRACE = ("traceparent", "tracestate")
"""Headers that travel with events, as CloudEvents extensions."""
incoming: ContextVar[Mapping[str, str]] = ContextVar("romancy.incoming", default=MappingProxyType({}))
"""The trace that the current HTTP request belongs to."""
_logger = logging.getLogger("romancy")


class Around:
    """The middleware of an app. Only methods that were overridden are called."""

    def __init__(self, middleware: Sequence[MiddlewareBase] = ()) -> None:
        self._activity = [m.around_activity for m in middleware if _overrides(m, "around_activity")]
        self._start = [m.around_start for m in middleware if _overrides(m, "around_start")]
        self._send = [m.around_send for m in middleware if _overrides(m, "around_send")]
        self._adopt = [m.adopt for m in middleware if _overrides(m, "adopt")]
        self._attach = [m.attach for m in middleware if _overrides(m, "attach")]
        self.hooks: list[HooksBase] = [m for m in middleware if _has_hooks(m)]
        self.has_activities, self.has_starts = bool(self._activity), bool(self._start)
        self.has_sends, self.adopts = bool(self._send), bool(self._adopt)
        self.has_attempts = self.has_activities or self.has_sends
        """Whether attempts need it: they may send events."""

    def __repr__(self) -> str:
        return f"<Around activities={len(self._activity)} starts={len(self._start)} sends={len(self._send)}>"

    def attach(self, app: Any) -> None:
        """Tell middleware about its app."""
        for attach in self._attach:
            attach(app)

    async def activity(self, ctx: ActivityContext, inner: Next[T]) -> T:
        """Run around an attempt."""
        for around in reversed(self._activity):
            inner = _link(around, ctx, inner)
        return await inner()

    async def attempt(self, ctx: ActivityContext, call: Next[T]) -> T:
        """Run around an attempt, and then around the events that it sends."""
        passed = 0

        async def pass_on() -> None:
            nonlocal passed
            events = staged_events(ctx)
            if self.has_sends and len(events) > passed:
                events[passed:] = [one for event in events[passed:] async for one in self._pass(event)]
                passed = len(events)

        async def inner() -> T:
            result = await call()
            await pass_on()  # here, so that they are sent in the context of the attempt
            return result

        result = await self.activity(ctx, inner)
        await pass_on()  # those of middleware, and of a function whose error it has turned into a result
        return result

    async def _pass(self, event: model.Event) -> AsyncIterator[model.Event]:
        """Yield an event that an activity sends as middleware passes it on; nothing if it keeps it back."""
        passed: list[model.Event] = []

        async def keep(event: Event) -> None:
            passed.append(to_stored(event))

        await self.send(from_stored(event), keep)
        for event in passed:
            yield event

    async def start(self, request: StartRequest, inner: Next[T]) -> T:
        """Run around a start. Its headers are complete when `inner` is called."""
        for around in reversed(self._start):
            inner = _link(around, request, inner)
        return await inner()

    async def send(self, event: Event, inner: Callable[[Event], Awaitable[T]]) -> T:
        """Run around an event that is sent."""
        for around in reversed(self._send):
            inner = _link_event(around, inner)
        return await inner(event)

    async def send_all(self, events: Sequence[Event], store: Store[T]) -> list[T]:
        """Run around several events that are stored together: `store` is called once, when all have come through."""
        meeting = _Meeting(len(events), store)
        tasks = [asyncio.ensure_future(self._attend(meeting, n, event)) for n, event in enumerate(events)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            if meeting.has_begun:
                await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        failed = [o for o in outcomes if isinstance(o, BaseException)]
        others = [o for o in failed if not isinstance(o, asyncio.CancelledError)]
        for error in others or failed:
            raise error
        return cast("list[T]", outcomes)

    async def _attend(self, meeting: _Meeting[T], n: int, event: Event) -> T:
        result = await self.send(event, lambda event: meeting.bring(n, event))
        await meeting.leave(n)
        return result

    def adopt(self, instance: Instance, input: bytes, input_kind: int) -> Mapping[str, str] | None:
        """Return the headers of an instance that has none; None if it gets none. An error here must not stop it."""
        headers = _of_event(input) if input_kind == EVENT else {}
        return self._ask(StartRequest(instance.definition.name, instance.id, {}, headers), instance)

    def carry_on(self, old: Instance, number: int, now: int) -> Mapping[str, str] | None:
        """Return the headers for the next run of an instance; None if they do not change."""
        headers, lasted = dict(old.run.headers or {}), timedelta(microseconds=max(0, now - old.run.began_at))
        name = old.definition.name
        return self._ask(StartRequest(name, old.id, {}, headers, run_number=number, run_lasted=lasted), old)

    def _ask(self, request: StartRequest, instance: Instance) -> Mapping[str, str] | None:
        try:
            for adopt in self._adopt:
                adopt(request)
            headers = checked(request.headers)
        except Exception:
            _logger.exception("middleware failed to adopt instance %r; it goes on without headers", instance.id)
            return None
        return None if headers == (instance.run.headers or {}) else headers


NOTHING = Around()


class _Meeting(Generic[T]):
    """Where events meet that are stored together. Middleware can keep one back; then the others do not wait for it."""

    def __init__(self, size: int, store: Store[T]) -> None:
        self._missing, self._store = set(range(size)), store
        self._events: dict[int, Event] = {}
        self._stored: asyncio.Future[dict[int, T]] = asyncio.get_running_loop().create_future()
        self.has_begun = False
        """Whether they are being stored, or have been."""

    async def bring(self, n: int, event: Event) -> T:
        self._events[n] = event
        await self.leave(n)
        return (await self._stored)[n]

    async def leave(self, n: int) -> None:
        """Note that one of the events has come, or will not come. The last one stores them."""
        self._missing.discard(n)
        if self._missing or self.has_begun:
            return
        self.has_begun, numbers = True, sorted(self._events)
        try:
            answers = await self._store([self._events[n] for n in numbers]) if numbers else []
        except BaseException as error:
            self._stored.set_exception(error)
            self._stored.exception()  # if nobody waits for it, that is no fault
            raise
        self._stored.set_result(dict(zip(numbers, answers, strict=True)))


def _link(around: Callable[[Any, Next[T]], Awaitable[T]], subject: Any, inner: Next[T]) -> Next[T]:
    """Return a function that calls one middleware, which calls `inner` at most once."""

    async def call() -> T:
        is_called = False

        async def call_next() -> T:
            nonlocal is_called
            if is_called:
                raise RuntimeError(f"{around.__qualname__} called call_next() twice; call it once or not at all")
            is_called = True
            return await inner()

        return await around(subject, call_next)

    return call


def _link_event(
    around: Callable[[Event, Callable[[Event], Awaitable[T]]], Awaitable[T]], inner: Callable[[Event], Awaitable[T]]
) -> Callable[[Event], Awaitable[T]]:
    """Do the same for an event, which middleware can replace."""

    async def call(event: Event) -> T:
        passed: list[Event] = []

        async def call_next(event: Event) -> T:
            if passed:
                raise RuntimeError(f"{around.__qualname__} called call_next() twice; call it once or not at all")
            passed.append(event)
            return await inner(event)

        return await around(event, call_next)

    return call


def _overrides(middleware: MiddlewareBase, name: str) -> bool:
    return getattr(type(middleware), name) is not getattr(MiddlewareBase, name)


def _has_hooks(middleware: MiddlewareBase) -> bool:
    return any(name.startswith("on_") and _overrides(middleware, name) for name in dir(HooksBase))


def _of_event(input: bytes) -> dict[str, str]:
    """Return the trace that an event brings to the instance it starts."""
    return trace_in(unpack_event(input).extensions or {})


def trace_in(found: Mapping[str, object]) -> dict[str, str]:
    """Return the trace that somebody else sent, as far as it can be one. Romancy does not read it."""
    given = {name: value for name in TRACE if isinstance(value := found.get(name), str)}
    return {name: v for name, v in given.items() if len(v) <= MAX_TRACE and v.isascii() and v.isprintable()}


def traced(event: model.Event, headers: Mapping[str, str] | None) -> model.Event:
    """Return an event that workflow code sends, with the trace of its instance, unless it has one of its own."""
    found = {name: headers[name] for name in TRACE if name in headers} if headers else {}
    if not found or (event.extensions and TRACE[0] in event.extensions):
        return event
    return replace(event, extensions={**(event.extensions or {}), **found})


def checked(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers as they are stored; raise `InvalidInput` if they are no text, or too long."""
    for header in headers.items():
        if not all(isinstance(text, str) and is_text(text) and "\0" not in text for text in header):  # pyright: ignore[reportUnnecessaryIsInstance]
            name, value = header
            raise InvalidInput(f"names and values of an instance's headers must be strings, got {name!r}: {value!r}")
    size = len(json.dumps(dict(headers)))
    if size > MAX_HEADERS:
        raise InvalidInput(f"the headers of an instance are {size:,} bytes, more than the {MAX_HEADERS:,} allowed")
    return dict(headers)
