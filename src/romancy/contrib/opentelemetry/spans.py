"""Spans. The parent of all is the span of the start, which has ended before anything runs.

So no span is held open while an instance waits, a running instance has no missing parent, and the worker that ends it
need not be the one that began it. The context of that span is in the instance's headers.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from romancy.api.context import ActivityContext
from romancy.core.model import Duration, ReceivedEvent, duration_us
from romancy.core.new_events import Event
from romancy.hooks import (
    ActivityLostInfo,
    EventReceivedInfo,
    TimerFiredInfo,
    WaitTimedOutInfo,
    WorkflowBlockedInfo,
    WorkflowCancelledInfo,
    WorkflowCompletedInfo,
    WorkflowFailedInfo,
    WorkflowInfo,
)
from romancy.middleware import MiddlewareBase, StartRequest

T = TypeVar("T")
_W3C = TraceContextTextMapPropagator()
_logger = logging.getLogger("romancy")


class _Info(Protocol):
    """What all infos of hooks have."""

    @property
    def at(self) -> datetime: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


class OpenTelemetry(MiddlewareBase):
    """Writes spans, and metrics if wanted. Give it to the app once: `App(middleware=[OpenTelemetry()])`.

    `activities`: spans around attempts, current inside them, so that those of your HTTP client nest. `waits`: spans for
    waits and timers that are over. `metrics`: what `/metrics` shows, under the same names. `new_trace_after`: if a run
    lasted longer, the next one (`continue_as_new`) begins a new trace, with a link to the old one.

    The providers are the global ones unless given.
    """

    def __init__(
        self,
        *,
        activities: bool = True,
        waits: bool = True,
        metrics: bool = False,
        new_trace_after: Duration = timedelta(days=1),
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("romancy", tracer_provider=tracer_provider)
        self._activities, self._waits, self._metrics = activities, waits, metrics
        self._new_trace_after = timedelta(microseconds=duration_us(new_trace_after, "new_trace_after"))
        self._meter_provider = meter_provider

    def __repr__(self) -> str:
        return f"<OpenTelemetry activities={self._activities} waits={self._waits} metrics={self._metrics}>"

    def attach(self, app: Any, /) -> None:
        if self._metrics:
            from romancy.contrib.opentelemetry.meters import observe

            observe(app, self._meter_provider)

    # --- starts -----------------------------------------------------------------------------------------------------
    async def around_start(self, start: StartRequest, call_next: Callable[[], Awaitable[T]], /) -> T:
        with self._current(
            f"start {start.workflow}",
            None if trace.get_current_span().get_span_context().is_valid else _W3C.extract(start.headers),
            _about(start.instance_id, start.workflow),
            SpanKind.PRODUCER,
        ) as span:
            _write(start.headers)
            handle = await call_next()
            span.set_attribute("romancy.created", bool(getattr(handle, "created", True)))
            return handle

    def adopt(self, start: StartRequest, /) -> None:
        """Begin a trace for an instance that has none, or whose last run took too long to go on in its trace."""
        links = _links(start.headers)
        if links and (start.run_lasted is None or start.run_lasted <= self._new_trace_after):
            return
        span = self._tracer.start_span(
            f"start {start.workflow}",
            context=Context(),
            kind=SpanKind.PRODUCER,
            attributes={**_about(start.instance_id, start.workflow), "romancy.run": start.run_number},
            links=links,
        )
        _write(start.headers, trace.set_span_in_context(span, Context()))
        span.end()

    # --- attempts and sent events -----------------------------------------------------------------------------------
    async def around_activity(self, ctx: ActivityContext, call_next: Callable[[], Awaitable[T]], /) -> T:
        if not self._activities:
            return await call_next()
        with self._current(
            f"run {ctx.activity_name}",
            _parent(ctx.headers, get_current()),
            {
                **_about(ctx.instance_id, ctx.workflow_name),
                "romancy.activity.id": ctx.activity_id,
                "romancy.attempt": ctx.attempt,
            },
        ) as span:
            try:
                return await call_next()
            except BaseException:
                if ctx.is_cancelled:
                    span.set_status(Status(StatusCode.ERROR, "given up, or out of time"))
                raise

    async def around_send(self, event: Event, call_next: Callable[[Event], Awaitable[T]], /) -> T:
        carried = {name: str(value) for name, value in (event.extensions or {}).items()}
        about, links = _message(event.type, event.id), _links(carried)
        with self._current(f"send {event.type}", None, about, SpanKind.PRODUCER, links):
            if "traceparent" in carried:
                return await call_next(event)
            found: dict[str, str] = {}
            _W3C.inject(found)
            return await call_next(replace(event, extensions={**(event.extensions or {}), **found}))

    @contextmanager
    def _current(
        self,
        name: str,
        context: Context | None,
        attributes: Mapping[str, Any],
        kind: SpanKind = SpanKind.INTERNAL,
        links: list[Link] | None = None,
    ) -> Generator[Span]:
        """Run something in a span. If the tracer or its processors raise an error, it runs all the same, and once."""
        try:
            span = self._tracer.start_span(name, context, kind, dict(attributes), links)
        except Exception:
            _logger.exception("the tracer failed to begin the span %r", name)
            yield trace.INVALID_SPAN
            return
        try:
            with trace.use_span(span, record_exception=True, set_status_on_exception=True):
                yield span
        finally:
            try:
                span.end()
            except Exception:
                _logger.exception("the tracer failed to end the span %r", name)

    # --- what is over -----------------------------------------------------------------------------------------------
    def on_workflow_completed(self, info: WorkflowCompletedInfo) -> None:
        self._ended(info)

    def on_workflow_failed(self, info: WorkflowFailedInfo) -> None:
        self._ended(info, StatusCode.ERROR)

    def on_workflow_cancelled(self, info: WorkflowCancelledInfo) -> None:
        self._ended(info, StatusCode.ERROR)

    def on_workflow_blocked(self, info: WorkflowBlockedInfo) -> None:
        span = self._past(f"blocked {info.workflow}", info, None, _about(info.instance_id, info.workflow))
        _end(span, info.at, StatusCode.ERROR, info.error)

    def on_activity_lost(self, info: ActivityLostInfo) -> None:
        """The span of an attempt whose worker died was never exported. This one says so, in its place."""
        about = _about(info.instance_id, info.workflow)
        more = {"romancy.activity.id": info.activity_id, "romancy.attempt": info.attempt}
        lost = self._past(f"lost {info.activity}", info, None, {**about, **more})
        lost.set_attribute("romancy.crashes", info.crashes)
        _end(lost, info.at, StatusCode.ERROR, "its worker died")

    def on_event_received(self, info: EventReceivedInfo) -> None:
        if self._waits:
            event: ReceivedEvent[Any] = info.event
            extensions = {name: str(value) for name, value in event.extensions.items()}
            attributes = {**_about(info.instance_id, info.workflow), "romancy.wait.id": info.wait_id}
            attributes |= _message(event.type, event.id)
            name, links = f"wait {info.event_type}", _links(extensions)
            span = self._past(name, info, info.since, attributes, SpanKind.CONSUMER, links)
            _end(span, info.at)

    def on_wait_timed_out(self, info: WaitTimedOutInfo) -> None:
        if self._waits:
            attributes = {**_about(info.instance_id, info.workflow), "romancy.wait.id": info.wait_id}
            name = f"wait {', '.join(info.types)}"
            span = self._past(name, info, info.since, attributes, SpanKind.CONSUMER)
            span.set_attribute("romancy.timed_out", True)
            _end(span, info.at)

    def on_timer_fired(self, info: TimerFiredInfo) -> None:
        if self._waits:
            attributes = {**_about(info.instance_id, info.workflow), "romancy.timer.id": info.timer_id}
            _end(self._past("sleep", info, info.since, attributes), info.at)

    def _ended(self, info: WorkflowInfo, code: StatusCode = StatusCode.UNSET) -> None:
        about = _about(info.instance_id, info.workflow)
        span = self._past(f"workflow {info.workflow}", info, info.started_at, about)
        _end(span, info.at, code, info.error)

    def _past(
        self,
        name: str,
        info: _Info,
        since: datetime | None,
        attributes: Mapping[str, Any],
        kind: SpanKind = SpanKind.INTERNAL,
        links: list[Link] | None = None,
    ) -> Span:
        """Return a span that began in the past: not after it ended, even if a clock was set back meanwhile."""
        parent, began = _parent(info.headers, Context()), _nanoseconds(min(since or info.at, info.at))
        return self._tracer.start_span(name, parent, kind, dict(attributes), links, began)


def _parent(headers: Mapping[str, str], context: Context) -> Context:
    """Return a context in which the start of the instance is the current span. Without one, there is none."""
    without = trace.set_span_in_context(trace.INVALID_SPAN, context)
    return _W3C.extract(headers, without)


def _links(headers: Mapping[str, str]) -> list[Link]:
    found = trace.get_current_span(_W3C.extract(headers, Context())).get_span_context()
    return [Link(found)] if found.is_valid else []


def _write(headers: MutableMapping[str, str], context: Context | None = None) -> None:
    """Write the current span into headers, in place of another one. Without a tracer, they stay as they are."""
    found: dict[str, str] = {}
    _W3C.inject(found, context)
    if found:
        headers.pop("tracestate", None)
        headers.update(found)


def _about(instance_id: str, workflow: str) -> dict[str, str | int]:
    return {"romancy.instance.id": instance_id, "romancy.workflow": workflow}


def _message(type: str, id: str | None) -> dict[str, str | int]:
    found: dict[str, str | int] = {"messaging.system": "romancy", "messaging.destination.name": type}
    return found if id is None else {**found, "messaging.message.id": id}


def _end(span: Span, at: datetime, code: StatusCode = StatusCode.UNSET, error: object = None) -> None:
    if code is not StatusCode.UNSET:
        span.set_status(Status(code, None if error is None else str(error)))
    span.end(_nanoseconds(at))


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1000
