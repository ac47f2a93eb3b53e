"""OpenTelemetry for workflows: one connected trace per instance, whatever restarts and workers come between.

>>> from romancy.contrib.opentelemetry import OpenTelemetry
>>> app = App("shop.db", workflows=[order], middleware=[OpenTelemetry()])

It needs `pip install "romancy[otel]"`, and uses the tracer and meter providers that your program has set up.

spans.py    spans: of starts, attempts, waits, sent events and whole workflows
meters.py   metrics: the families of `/metrics`, under the same names
"""

try:
    import opentelemetry as _opentelemetry
except ModuleNotFoundError as error:  # pragma: no cover - the tests have it
    raise ModuleNotFoundError(
        'romancy.contrib.opentelemetry needs the package "opentelemetry-api": pip install "romancy[otel]"'
    ) from error

from romancy.contrib.opentelemetry.spans import OpenTelemetry

del _opentelemetry
__all__ = ["OpenTelemetry"]
