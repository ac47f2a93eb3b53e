"""`/metrics`: what the engine counted, in Prometheus' words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from romancy.engine import Engine
from romancy.engine.metrics import Histogram
from romancy.http.responses import Response
from romancy.http.routes import Request, Route
from romancy.http.traffic import Traffic


async def metrics(request: Request) -> Response:
    """What this process has done, in Prometheus text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(request.runtime.engine, request.traffic))
    return Response(200, generate_latest(registry), [(b"content-type", CONTENT_TYPE_LATEST.encode())])


class _Collector(Collector):
    """Reads an engine's counts; nothing is kept twice."""

    def __init__(self, engine: Engine, traffic: Traffic) -> None:
        self._engine, self._metrics, self._traffic = engine, engine.metrics, traffic

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from self._workflows()
        yield from self._activities()
        yield from self._events()
        yield from self._engine_room()
        yield from self._requests()

    def _workflows(self) -> Iterator[Metric]:
        m = self._metrics
        started = {(name,): n for name, n in m.workflows_started.items()}
        yield _counter("workflows_started", "Instances this process began to run.", ["workflow"], started)
        yield _counter("workflows_ended", "Instances that ended here.", ["workflow", "status"], m.workflows_ended)
        yield _histograms("workflow_duration_seconds", "From start to end.", "workflow", m.workflow_seconds)

    def _activities(self) -> Iterator[Metric]:
        m = self._metrics
        text = "Attempts of activities that ended here."
        yield _counter("activity_attempts", text, ["activity", "outcome"], m.activities_ended)
        yield _histograms("activity_duration_seconds", "One attempt.", "activity", m.activity_seconds)

    def _events(self) -> Iterator[Metric]:
        m = self._metrics
        yield _counter("events", "Events accepted here.", ["kind"], _only(m.events, "new", "duplicate"))
        yield _counter("events_differing", "Duplicates with other content.", [], {(): m.events.get("differing", 0)})
        text = "What became of accepted events: instances reached, not fitted or started; events nobody waited for."
        fates = _only(m.events, "delivered", "mismatched", "started", "unmatched")
        yield _counter("event_outcomes", text, ["outcome"], fates)
        outcomes = _only(m.waits_ended, "received", "timed_out", "withdrawn")
        yield _counter("waits_ended", "Waits for events that ended here.", ["outcome"], outcomes)
        yield _histogram("wait_duration_seconds", "How long waits for events took.", m.wait_seconds)
        yield _histogram("delivery_lag_seconds", "From an event's acceptance to its wait.", m.delivery_lag)
        yield _histogram("timer_lag_seconds", "How late timers were fed.", m.timer_lag)

    def _requests(self) -> Iterator[Metric]:
        t = self._traffic
        yield _gauge("http_connections", "Connections to `romancy serve`.", t.connections)
        text = "Connections that were closed or refused because there were too many."
        yield _counter("http_connections_crowded_out", text, [], {(): t.crowded_out})
        yield _counter("http_wrong_tokens", "Requests with a token that is not known.", [], {(): t.wrong_tokens})
        yield _counter("http_over_quota", "Requests beyond the quota of their token.", [], {(): t.over_quota})

    def _engine_room(self) -> Iterator[Metric]:
        m, engine = self._metrics, self._engine
        yield _histogram("commit_items", "Items in one group commit.", m.commit_items)
        yield _histogram("commit_duration_seconds", "One group commit, the way there and back.", m.commit_seconds)
        yield _gauge("resident_instances", "Instances in memory.", len(engine.scheduler.residents))
        yield _gauge("activities_running", "Attempts that run or wait for a free slot.", engine.activities.running)
        yield _gauge("commit_queue", "Items that wait to be stored.", engine.committer.queued)
        yield _gauge("timers_armed", "Timers due within the look-ahead.", engine.timers.armed)


def _only(counts: Mapping[str, int], *names: str) -> dict[tuple[str], int]:
    """Every name has a value from the beginning: a rate of something absent is nothing one can watch."""
    return {(name,): counts.get(name, 0) for name in names}


def _counter(name: str, text: str, labels: Sequence[str], counts: Mapping[tuple[str, ...], int]) -> Metric:
    family = CounterMetricFamily(f"romancy_{name}", text, labels=labels)
    for values, count in counts.items():
        family.add_metric(values, count)
    return family


def _gauge(name: str, text: str, value: int) -> Metric:
    return GaugeMetricFamily(f"romancy_{name}", text, value=value)


def _histogram(name: str, text: str, histogram: Histogram) -> Metric:
    return HistogramMetricFamily(f"romancy_{name}", text, buckets=_buckets(histogram), sum_value=histogram.sum)


def _histograms(name: str, text: str, label: str, histograms: Mapping[str, Histogram]) -> Metric:
    family = HistogramMetricFamily(f"romancy_{name}", text, labels=[label])
    for value, histogram in histograms.items():
        family.add_metric([value], _buckets(histogram), histogram.sum)
    return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    total, buckets = 0, list[tuple[str, float]]()
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        total += count
        buckets.append(("+Inf" if bound == float("inf") else f"{bound:g}", total))
    return buckets


ROUTE = Route("GET", "/metrics", metrics, {200: str})
