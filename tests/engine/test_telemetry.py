"""OpenTelemetry: one connected trace per instance, nothing held open, nothing repeated."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from romancy import (
    NO_RETRY,
    ActivityContext,
    App,
    InstanceExists,
    RetryPolicy,
    Schedule,
    WaitTimeout,
    WorkerOptions,
    WorkflowContext,
    activity,
    send_event,
    sleep,
    start_workflow,
    wait_event,
    workflow,
)
from romancy.contrib.opentelemetry import OpenTelemetry
from romancy.service import runtime_of
from romancy.testing import environment

pytestmark = pytest.mark.asyncio
DAY = timedelta(days=1)


class Traces:
    """What was exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    def middleware(self, **options: Any) -> OpenTelemetry:
        return OpenTelemetry(tracer_provider=self.provider, **options)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span

    @property
    def names(self) -> list[str]:
        return sorted(span.name for span in self.spans)

    def check_connected(self) -> None:
        """Assert that all spans are of one trace, and that every parent was exported."""
        ids = [context_of(span).span_id for span in self.spans]
        assert len(ids) == len(set(ids))
        assert len({context_of(span).trace_id for span in self.spans}) == 1, self.names
        assert [span.name for span in self.spans if span.parent and span.parent.span_id not in ids] == []
        assert len([span for span in self.spans if span.parent is None]) == 1


def context_of(span: ReadableSpan) -> Any:
    context = span.get_span_context()
    assert context is not None
    return context


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def links_of(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


@pytest.fixture
def traces() -> Iterator[Traces]:
    found = Traces()
    yield found
    found.provider.shutdown()


inner: list[Traces] = []


@activity
async def charge(ctx: ActivityContext, n: int) -> int:
    for traces in inner:
        with traces.tracer.start_as_current_span("POST /charges"):
            pass
    return n


@activity
def count(ctx: ActivityContext, n: int) -> int:
    for traces in inner:
        with traces.tracer.start_as_current_span("SELECT"):
            pass
    return n


@workflow
async def order(ctx: WorkflowContext, n: int) -> int:
    ctx.logger.warning("begins")
    await charge(ctx, n)
    event = await wait_event(ctx, "paid")
    await sleep(ctx, timedelta(minutes=5))
    return await count(ctx, event.data)


@pytest.fixture
def nested(traces: Traces) -> Iterator[Traces]:
    inner.append(traces)
    yield traces
    inner.clear()


async def test_an_instance_is_one_trace(db: str, nested: Traces, caplog: pytest.LogCaptureFixture) -> None:
    traces = nested
    caplog.set_level(logging.WARNING, "romancy")
    async with environment(workflows=[order], database=db, middleware=traces.middleware()) as env:
        with traces.tracer.start_as_current_span("GET /checkout") as caller:
            handle = await env.start(order, 1)
        await env.settle()
        await env.advance(timedelta(seconds=30))
        await env.restart()
        with traces.tracer.start_as_current_span("webhook") as sender:
            receipt = await env.send_event("paid", "bank", 5)
        assert receipt.delivered
        await env.advance(timedelta(minutes=6))
        assert await handle.result() == 5
    own = [span for span in traces.spans if span.name not in ("webhook", "send paid")]
    foreign = {context_of(traces.one(name)).trace_id for name in ("webhook", "send paid")}
    assert foreign == {sender.get_span_context().trace_id}
    assert sorted(span.name for span in own) == [
        "GET /checkout", "POST /charges", "SELECT", "run charge", "run count", "sleep", "start order", "wait paid",
        "workflow order",
    ]  # fmt: skip
    assert {context_of(span).trace_id for span in own} == {caller.get_span_context().trace_id}
    start = context_of(traces.one("start order")).span_id
    for name in ("run charge", "run count", "sleep", "wait paid", "workflow order"):
        assert parent_of(traces.one(name)) == start, name
    assert parent_of(traces.one("POST /charges")) == context_of(traces.one("run charge")).span_id
    assert parent_of(traces.one("SELECT")) == context_of(traces.one("run count")).span_id
    assert links_of(traces.one("wait paid")) == [context_of(traces.one("send paid")).span_id]
    slept, whole = traces.one("sleep"), traces.one("workflow order")
    assert ((slept.end_time or 0) - (slept.start_time or 0)) / 1e9 == pytest.approx(300, abs=1)
    assert ((whole.end_time or 0) - (whole.start_time or 0)) / 1e9 >= 330
    wait = traces.one("wait paid")
    assert ((wait.end_time or 0) - (wait.start_time or 0)) / 1e9 >= 30
    assert traces.one("run charge").attributes == {
        "romancy.instance.id": handle.instance_id, "romancy.workflow": "order", "romancy.activity.id": "charge:1",
        "romancy.attempt": 1,
    }  # fmt: skip
    assert traces.one("start order").kind is SpanKind.PRODUCER
    [record] = [record for record in caplog.records if record.message == "begins"]
    assert getattr(record, "trace_id") == f"{caller.get_span_context().trace_id:032x}"  # noqa: B009


async def test_nothing_is_repeated_after_crashes_and_evictions(db: str, traces: Traces) -> None:
    @workflow
    async def long(ctx: WorkflowContext) -> None:
        for n in range(3):
            await charge(ctx, n)
            await wait_event(ctx, f"go{n}")

    for n in range(4):
        around = traces.middleware()
        app = App(db, workflows=[long], middleware=around, worker=WorkerOptions(max_resident=1), lease=1)
        await app.start()
        if n == 0:
            await app.start_workflow(long, instance_id="a")
            await app.start_workflow(long, instance_id="b")
        else:
            await app.send_event(f"go{n - 1}", "x", to="a")
        if n < 3:
            async with asyncio.timeout(20):
                while not (await app.list_waits(instance_id="a", type=f"go{n}")).items:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            await runtime_of(app).crash()
        else:
            await app.handle("a").result(timeout=20)
            await app.stop()
    of_a = [s for s in traces.spans if (s.attributes or {}).get("romancy.instance.id") == "a"]
    assert len({context_of(span).trace_id for span in of_a}) == 1
    names = sorted(span.name for span in of_a)
    assert names == sorted(["start long", "workflow long", "wait go0", "wait go1", "wait go2", *["run charge"] * 3])


async def test_failed_attempts_and_workflows_are_errors(traces: Traces) -> None:
    @activity(retry=RetryPolicy(max_attempts=2, initial=0.01))
    async def fails(ctx: ActivityContext) -> None:
        raise ValueError("oh")

    @workflow
    async def fails_too(ctx: WorkflowContext) -> None:
        await fails(ctx)

    async with environment(workflows=[fails_too], middleware=traces.middleware()) as env:
        handle = await env.start(fails_too)
        await env.advance(timedelta(minutes=1))
        assert await handle.status() == "failed"
    attempts = traces.named("run fails")
    assert [(span.attributes or {})["romancy.attempt"] for span in attempts] == [1, 2]
    assert {span.status.status_code for span in attempts} == {StatusCode.ERROR}
    assert traces.one("workflow fails_too").status.status_code is StatusCode.ERROR
    traces.check_connected()


async def test_an_attempt_out_of_time_is_an_error(db: str, traces: Traces) -> None:
    @activity(timeout=0.05, retry=NO_RETRY)
    async def slow(ctx: ActivityContext) -> None:
        await asyncio.sleep(60)

    @workflow
    async def waits(ctx: WorkflowContext) -> None:
        await slow(ctx)

    async with App(db, workflows=[waits], middleware=traces.middleware()) as app:
        handle = await app.start_workflow(waits)
        while await handle.status() != "failed":  # noqa: ASYNC110 - the engine is at it
            await asyncio.sleep(0.01)
    assert traces.one("run slow").status.status_code is StatusCode.ERROR


@workflow
async def leaf(ctx: WorkflowContext, n: int) -> int:
    return await charge(ctx, n)


@workflow
async def tree(ctx: WorkflowContext) -> int:
    free = await start_workflow(ctx, leaf, 1)
    return await leaf(ctx, 2) + await free.result()


async def test_children_are_in_the_trace_of_their_parent(db: str, traces: Traces) -> None:
    async with environment(workflows=[tree, leaf], database=db, middleware=traces.middleware()) as env:
        assert await (await env.start(tree)).result() == 3
    assert traces.names == ["run charge", "run charge", "start tree", "workflow leaf", "workflow leaf", "workflow tree"]
    traces.check_connected()


@workflow(on_event="order.placed")
async def fulfil(ctx: WorkflowContext, event: Any) -> None:
    await charge(ctx, 1)


@activity
async def announce(ctx: ActivityContext) -> None:
    await send_event(ctx, "order.placed", "shop", {})


@workflow
async def place(ctx: WorkflowContext) -> None:
    await announce(ctx)


async def test_an_event_carries_the_trace_on(db: str, traces: Traces) -> None:
    async with environment(workflows=[place, fulfil], database=db, middleware=traces.middleware()) as env:
        await (await env.start(place)).result()
        await env.settle()
    traces.check_connected()
    sent = traces.one("send order.placed")
    assert parent_of(sent) == context_of(traces.one("run announce")).span_id
    assert parent_of(traces.one("workflow fulfil")) == context_of(sent).span_id


@workflow
async def says(ctx: WorkflowContext) -> None:
    await send_event(ctx, "order.placed", "shop", {})


async def test_an_event_of_workflow_code_carries_the_trace_of_the_instance(db: str, traces: Traces) -> None:
    async with environment(workflows=[says, fulfil], database=db, middleware=traces.middleware()) as env:
        await (await env.start(says)).result()
        await env.settle()
    traces.check_connected()
    assert parent_of(traces.one("workflow fulfil")) == context_of(traces.one("start says")).span_id


@workflow
async def monthly(ctx: WorkflowContext, n: int = 1) -> int:
    await charge(ctx, n)
    await sleep(ctx, timedelta(days=30) if n == 2 else timedelta(hours=1))
    if n < 4:
        monthly.continue_as_new(ctx, n + 1)
    return n


async def test_a_run_after_a_long_one_begins_a_new_trace(db: str, traces: Traces) -> None:
    async with environment(workflows=[monthly], database=db, middleware=traces.middleware()) as env:
        handle = await env.start(monthly)
        for span in (timedelta(hours=2), timedelta(days=30)):
            await env.advance(span)
            await env.restart()
        assert await handle.result() == 4
    first, second = sorted(traces.named("start monthly"), key=lambda span: span.start_time or 0)
    if links_of(first):
        first, second = second, first
    assert links_of(second) == [context_of(first).span_id]
    runs = {(s.attributes or {})["romancy.activity.id"]: parent_of(s) for s in traces.named("run charge")}
    of_first, of_second = context_of(first).span_id, context_of(second).span_id
    assert runs == {
        "charge:1": of_first, "charge:1@2": of_first, "charge:1@3": of_second, "charge:1@4": of_second
    }  # fmt: skip
    assert parent_of(traces.one("workflow monthly")) == of_second


async def test_what_a_schedule_starts_has_a_trace_of_its_own(db: str, traces: Traces) -> None:
    @workflow(schedule=Schedule("@daily"))
    async def nightly(ctx: WorkflowContext) -> None:
        await charge(ctx, 1)

    async with environment(workflows=[nightly], database=db, middleware=traces.middleware()) as env:
        await env.advance(DAY)
    assert traces.names == ["run charge", "start nightly", "workflow nightly"]
    traces.check_connected()


async def test_what_was_started_without_it_is_adopted(db: str, traces: Traces) -> None:
    async with App(db, workflows=[leaf], worker=False) as app:
        await app.start_workflow(leaf, 1, instance_id="x")
    async with environment(workflows=[leaf], database=db, middleware=traces.middleware()) as env:
        assert await env.app.handle("x", leaf).result() == 1
    traces.check_connected()


async def test_a_wait_that_timed_out_is_a_span(traces: Traces) -> None:
    @workflow
    async def waits(ctx: WorkflowContext) -> None:
        with pytest.raises(WaitTimeout):
            await wait_event(ctx, "never", timeout=60)

    async with environment(workflows=[waits], middleware=traces.middleware()) as env:
        handle = await env.start(waits)
        await env.advance(61)
        await handle.result()
    assert (traces.one("wait never").attributes or {})["romancy.timed_out"]


async def test_spans_can_be_left_out(traces: Traces) -> None:
    async with environment(workflows=[order], middleware=traces.middleware(activities=False, waits=False)) as env:
        handle = await env.start(order, 1)
        await env.send_event("paid", "bank", 1)
        await env.advance(timedelta(minutes=6))
        await handle.result()
    assert traces.names == ["send paid", "start order", "workflow order"]


async def test_a_start_that_is_refused_is_an_error(traces: Traces, db: str) -> None:
    async with App(db, workflows=[leaf], middleware=traces.middleware()) as app:
        await app.start_workflow(leaf, 1, instance_id="x")
        with pytest.raises(InstanceExists):
            await app.start_workflow(leaf, 2, instance_id="x")
        again = await app.start_workflow(leaf, 1, instance_id="x")
        assert not again.created
    made, refused, found = traces.named("start leaf")
    assert refused.status.status_code is StatusCode.ERROR
    assert [(span.attributes or {}).get("romancy.created") for span in (made, refused, found)] == [True, None, False]


async def test_a_blocked_instance_is_a_span(db: str, traces: Traces) -> None:
    @workflow(name="changing")
    async def before(ctx: WorkflowContext) -> None:
        await charge(ctx, 1)
        await wait_event(ctx, "go")

    @workflow(name="changing")
    async def after(ctx: WorkflowContext) -> None:
        await count(ctx, 1)

    async with environment(workflows=[before], database=db) as env:
        await env.start(before)
        await env.settle()
    async with environment(workflows=[after], database=db, middleware=traces.middleware()) as env:
        await env.send_event("go", "x")
        await env.settle()
    assert traces.one("blocked changing").status.status_code is StatusCode.ERROR


async def test_metrics_have_the_names_of_the_endpoint(db: str) -> None:
    reader = InMemoryMetricReader()
    around = OpenTelemetry(metrics=True, meter_provider=MeterProvider(metric_readers=[reader]))
    async with App(db, workflows=[leaf], middleware=around) as app:
        await (await app.start_workflow(leaf, 1)).result(timeout=10)
        data = await asyncio.to_thread(reader.get_metrics_data)
    assert data is not None
    found = {
        (metric.name, tuple(sorted((point.attributes or {}).items()))): point.value
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }
    assert found["romancy_workflows_started", (("workflow", "leaf"),)] == 1
    assert found["romancy_workflows_ended", (("status", "completed"), ("workflow", "leaf"))] == 1
    assert found["romancy_activity_duration_seconds_count", (("activity", "charge"),)] == 1
    assert found["romancy_resident_instances", ()] == 0
    assert not [name for name, _ in found if "http" in name]


async def test_without_a_provider_nothing_is_added(db: str) -> None:
    async with App(db, workflows=[leaf], middleware=OpenTelemetry()) as app:
        handle = await app.start_workflow(leaf, 1)
        assert await handle.result(timeout=10) == 1
        await app.send_event("x", "y")
        [record] = (await app.list_events()).items
        assert not record.event.extensions
