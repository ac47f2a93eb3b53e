"""OpenTelemetry with what others send, tracers that fail, several apps, and clocks that are set back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from romancy import ActivityContext, App, ReceivedEvent, WorkflowContext, activity, workflow
from romancy.contrib.opentelemetry import OpenTelemetry
from romancy.hooks import WorkflowCompletedInfo
from romancy.testing import environment

pytestmark = [pytest.mark.asyncio, pytest.mark.sqlite]
calls: list[str] = []


@activity
async def charge(ctx: ActivityContext) -> None:
    calls.append(ctx.instance_id)


@workflow(on_event="order.placed")
async def order(ctx: WorkflowContext, event: ReceivedEvent[Any]) -> None:
    await charge(ctx)
    await charge(ctx)


@workflow
async def payment(ctx: WorkflowContext) -> str:
    await charge(ctx)
    return "paid"


def traced(*processors: SpanProcessor) -> tuple[TracerProvider, InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    for processor in (SimpleSpanProcessor(exporter), *processors):
        provider.add_span_processor(processor)
    return provider, exporter


@pytest.mark.parametrize("parent", ["garbage", f"00-{'0' * 32}-{'0' * 16}-01", f"ff-{'1' * 32}-{'1' * 16}-01"])
async def test_a_trace_that_is_none_is_replaced(parent: str) -> None:
    provider, exporter = traced()
    async with environment(workflows=[order], middleware=OpenTelemetry(tracer_provider=provider)) as env:
        brought = {"traceparent": parent, "tracestate": "a=b"}
        await env.send_event("order.placed", "shop", {}, extensions=brought)
        await env.settle()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    start = spans["start order"].context
    assert start is not None
    for name in ("run charge", "workflow order"):
        assert spans[name].parent is not None, "it is not in the trace of its instance"
        assert spans[name].parent.span_id == start.span_id  # type: ignore[union-attr]
        assert not spans[name].context.trace_state  # type: ignore[union-attr]


class BreaksAtStart(SpanProcessor):
    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise RuntimeError("broken")


class BreaksAtEnd(SpanProcessor):
    def on_end(self, span: Any) -> None:
        raise RuntimeError("broken")


@pytest.mark.parametrize("broken", [BreaksAtStart, BreaksAtEnd])
async def test_a_broken_tracer_repeats_and_fails_nothing(
    broken: type[SpanProcessor], caplog: pytest.LogCaptureFixture
) -> None:
    calls.clear()
    provider, _ = traced(broken())
    async with environment(workflows=[payment], middleware=OpenTelemetry(tracer_provider=provider)) as env:
        assert await (await env.start(payment)).result() == "paid"
        await env.app.send_event("noted", "x")
    assert len(calls) == 1
    assert "the tracer failed" in caplog.text


async def test_several_apps_of_a_process_are_observed_together() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])

    def ended() -> list[Any]:
        found: Any = reader.get_metrics_data()
        metrics = [m for r in found.resource_metrics for s in r.scope_metrics for m in s.metrics]
        return [p.value for m in metrics if m.name == "romancy_workflows_ended" for p in m.data.data_points]

    for number in (1, 2):  # a second pair, after the first has been stopped
        one, two = (
            App(":memory:", workflows=[payment], middleware=OpenTelemetry(metrics=True, meter_provider=provider))
            for _ in range(2)
        )
        async with one, two:
            for app in (one, two, two)[: number + 1]:
                assert await (await app.start_workflow(payment)).result() == "paid"
            assert ended() == [number + 1]
    provider.shutdown()


async def test_no_span_ends_before_it_begins() -> None:
    provider, exporter = traced()
    now = datetime(2026, 7, 1, tzinfo=UTC)
    later = now + timedelta(hours=1)  # of a worker whose clock was fast
    info = WorkflowCompletedInfo("p-1", "payment", now, started_at=later)
    OpenTelemetry(tracer_provider=provider).on_workflow_completed(info)
    [span] = exporter.get_finished_spans()
    assert span.start_time == span.end_time
