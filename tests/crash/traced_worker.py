"""A worker that writes its spans to a folder, to be killed: `database schema folder`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from romancy import ActivityContext, App, Database, WorkflowContext, activity, wait_event, workflow
from romancy.contrib.opentelemetry import OpenTelemetry


class Lines(SpanExporter):
    """Appends every span as a line of JSON, at once."""

    def __init__(self, folder: str) -> None:
        self._file = Path(folder, f"spans.{os.getpid()}").open("a", buffering=1)  # noqa: SIM115

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            context = span.get_span_context()
            assert context is not None
            found = {
                "name": span.name,
                "trace": context.trace_id,
                "id": context.span_id,
                "parent": span.parent.span_id if span.parent else None,
                "links": [link.context.span_id for link in span.links],
                "attributes": dict(span.attributes or {}),
            }
            self._file.write(json.dumps(found) + "\n")
        return SpanExportResult.SUCCESS


def telemetry(folder: str) -> OpenTelemetry:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Lines(folder)))
    return OpenTelemetry(tracer_provider=provider)


@activity
async def prepare(ctx: ActivityContext) -> int:
    return 1


@activity
def deadly(ctx: ActivityContext) -> int:
    """Tell that it runs, and then wait to be killed, the first time."""
    folder: Path = ctx.state
    if not (folder / "running").exists():
        (folder / "running").touch()
        time.sleep(60)
    return 2


@workflow
async def long(ctx: WorkflowContext) -> int:
    first = await prepare(ctx)
    second = await deadly(ctx)
    event = await wait_event(ctx, "go")
    return first + second + event.data


async def main(url: str, schema: str, folder: str) -> None:
    database = Database(url, schema=schema or None)
    app = App(database, workflows=[long], state=Path(folder), lease=0.5, middleware=telemetry(folder))
    async with app:
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
