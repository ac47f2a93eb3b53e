"""OpenTelemetry: one connected trace, from the request that starts an order to its end.

The spans are kept in memory and printed as a tree. A real program exports them, and would see the same
trace if other workers had run parts of it.
"""

import asyncio

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from romancy import ActivityContext, App, WorkflowContext, activity, wait_event, workflow
from romancy.contrib.opentelemetry import OpenTelemetry

provider, exporter = TracerProvider(), InMemorySpanExporter()
provider.add_span_processor(SimpleSpanProcessor(exporter))
tracer = provider.get_tracer("shop")


@activity
async def charge(ctx: ActivityContext, amount: int) -> None:
    with tracer.start_as_current_span("POST /charges"):  # as an instrumented HTTP client would
        await asyncio.sleep(0.01)


@workflow
async def order(ctx: WorkflowContext, amount: int) -> str:
    await charge(ctx, amount)
    paid = await wait_event(ctx, "payment.completed")
    return f"paid by {paid.data['by']}"


WORKFLOWS = [order]


def show(spans: list[ReadableSpan], parent: ReadableSpan | None = None, depth: int = 0) -> None:
    for span in sorted(spans, key=lambda span: span.start_time or 0):
        above = None if parent is None else parent.get_span_context()
        if (span.parent.span_id if span.parent else None) == (above.span_id if above else None):
            print("  " * depth + span.name + (" (linked)" if span.links else ""))
            show(spans, span, depth + 1)


async def main() -> None:
    telemetry = OpenTelemetry(tracer_provider=provider)
    async with App(":memory:", workflows=WORKFLOWS, middleware=[telemetry]) as app:
        with tracer.start_as_current_span("GET /checkout"):
            handle = await app.start_workflow(order, 5)
        while not (await app.list_waits(instance_id=handle.instance_id)).items:  # noqa: ASYNC110 - until it waits
            await asyncio.sleep(0.01)
        await app.send_event("payment.completed", "bank", {"by": "Ada"})
        print(await handle.result(timeout=10))
    show(list(exporter.get_finished_spans()))


if __name__ == "__main__":
    asyncio.run(main())

# expect: paid by Ada
# expect: GET /checkout
# expect:   start order
# expect:     workflow order
# expect:     run charge
# expect:       POST /charges
# expect:     wait payment.completed (linked)
# expect: send payment.completed
