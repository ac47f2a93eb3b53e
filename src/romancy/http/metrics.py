"""`/metrics`: the engine's counters in the Prometheus format."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from romancy.core.model import SECOND
from romancy.engine import Engine
from romancy.engine.metrics import Histogram
from romancy.errors import StorageError
from romancy.http.responses import Response
from romancy.http.routes import Request, Route
from romancy.http.traffic import Traffic
from romancy.records import QueueRecord
from romancy.storage.desk import LATE, MOST_WORKERS
from romancy.storage.protocol import Storage
from romancy.storage.sinks import SinkCounts

PATIENCE = 2.0
"""Seconds to wait for counts from the database. Without an answer, the other metrics are still returned."""
MOST_IN_INBOX = 100_000
"""Up to this many starts and events in the inbox are counted."""


async def metrics(request: Request) -> Response:
    """Metrics of this process, in the Prometheus text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Families(request.runtime.engine, request.traffic, await _counts(request)))
    return Response(200, generate_latest(registry), [(b"content-type", CONTENT_TYPE_LATEST.encode())])


class _Counts(NamedTuple):
    """What has to be read from the database."""

    inbox: tuple[int, int] | None = None
    """How much is in the inbox, and how much was refused."""
    queues: Sequence[QueueRecord] = ()
    """Those that this process has in its code, and those that have instances."""
    sinks: Sequence[SinkCounts] = ()
    attention: Sequence[tuple[str, str, int]] = ()
    """Gauges of what may need a person: name, description, value."""


async def _counts(request: Request) -> _Counts:
    """Count, if the database answers soon: the other metrics don't need it."""
    known = request.runtime.registry.queues
    try:
        async with asyncio.timeout(PATIENCE):
            inbox = await request.runtime.engine.storage.catalog.inbox_counts(MOST_IN_INBOX)
            queues = await request.app.list_queues()
            shown = [queue for queue in queues if queue.name in known or queue.running or queue.waiting]
            storage = request.runtime.engine.storage
            attention = await _attention(storage, request.runtime.clock.now())
            return _Counts(inbox, shown, await storage.sinks.all(), attention)
    except (StorageError, TimeoutError):
        return _Counts()


async def _attention(storage: Storage, now: int) -> list[tuple[str, str, int]]:
    """Count what may need a person."""
    desk, tallies = storage.desk, await storage.desk.tallies(now, now - LATE)
    workers = len(await storage.catalog.live_workers(now, MOST_WORKERS))
    text = "Workers whose lease has not ended. Without any, nothing runs."
    retrying = "Instances with an activity that failed and is tried again, up to 10,000."
    overdue = "Timers, timeouts and retries that are more than ten seconds late, up to 10,000."
    mail = "Events that instances have yet to look at, up to 10,000."
    return [
        ("workers_alive", text, workers),
        ("instances_blocked", "Instances that are blocked, up to 10,000.", tallies.blocked.n),
        ("instances_retrying", retrying, tallies.retrying.n),
        ("instances_overdue", overdue, tallies.overdue.n),
        ("deliveries_waiting", mail, await desk.count_deliveries()),
    ]


class Families(Collector):
    """Reads the counters of an engine when asked; keeps no copy."""

    def __init__(self, engine: Engine, traffic: Traffic, counts: _Counts | None = None) -> None:
        """Without `counts`, what has to be read from the database is left out."""
        self._engine, self._metrics, self._traffic = engine, engine.metrics, traffic
        self._inbox, self._queues, self._stored_sinks, self._needs = counts or _Counts()

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from self._workflows()
        yield from self._admissions()
        yield from self._activities()
        yield from self._transactions()
        yield from self._schedules()
        yield from self._compensations()
        yield from self._events()
        yield from self._inbox_gauges()
        yield from self._attention()
        yield from self._sinks()
        yield from self._emissions()
        yield from self._kept_events()
        yield from self._engine_internals()
        yield from self._requests()

    def _workflows(self) -> Iterator[Metric]:
        m = self._metrics
        started = {(name,): n for name, n in m.workflows_started.items()}
        yield _counter("workflows_started", "Instances this process started to run.", ["workflow"], started)
        continued = {(name,): n for name, n in m.workflows_continued.items()}
        retried = {(name,): n for name, n in m.workflows_retried.items()}
        yield _counter("workflows_retried", "Instances that were retried after they had ended.", ["workflow"], retried)
        yield _counter("workflows_continued", "Runs that began by continue_as_new.", ["workflow"], continued)
        yield _counter("workflows_ended", "Instances that ended here.", ["workflow", "status"], m.workflows_ended)
        yield _histograms("workflow_duration_seconds", "From start to end.", "workflow", m.workflow_seconds)

    def _admissions(self) -> Iterator[Metric]:
        admitted = {(name,): n for name, n in self._metrics.instances_admitted.items()}
        yield _counter("instances_admitted", "Queued instances that this process admitted.", ["queue"], admitted)
        running = GaugeMetricFamily("romancy_queue_running", "Instances that hold a slot.", labels=["queue"])
        waiting = GaugeMetricFamily("romancy_queue_waiting", "Instances that wait for a slot.", labels=["queue"])
        for queue in self._queues:
            running.add_metric([queue.name], queue.running)
            waiting.add_metric([queue.name], queue.waiting)
        yield running
        yield waiting

    def _activities(self) -> Iterator[Metric]:
        m = self._metrics
        text = "Attempts of activities that ended here."
        yield _counter("activity_attempts", text, ["activity", "outcome"], m.activities_ended)
        yield _histograms("activity_duration_seconds", "Duration of one attempt.", "activity", m.activity_seconds)

    def _transactions(self) -> Iterator[Metric]:
        m = self._metrics
        text = "Transactions of activities with transactional=True that ended here."
        yield _counter("transactions", text, ["activity", "outcome"], m.transactions)
        text = "Duration of one transaction, with the wait for its turn to write."
        yield _histograms("transaction_duration_seconds", text, "activity", m.transaction_seconds)

    def _schedules(self) -> Iterator[Metric]:
        m = self._metrics
        text = "Ticks of schedules that this process started or skipped, and that it can't start."
        yield _counter("schedule_ticks", text, ["workflow", "outcome"], m.schedule_ticks)
        yield _histogram("schedule_lag_seconds", "How late ticks were started.", m.schedule_lag)
        if m.schedule_next is not None:
            text = "When the next tick of any schedule is due."
            yield _gauge("schedule_next_timestamp_seconds", text, m.schedule_next / SECOND)

    def _compensations(self) -> Iterator[Metric]:
        text = "Instances and saga blocks that were undone here, and whose undos failed for good."
        yield _counter("compensations", text, ["workflow", "outcome"], self._metrics.compensations)

    def _events(self) -> Iterator[Metric]:
        m = self._metrics
        yield _counter("events", "Events accepted here.", ["kind"], _only(m.events, "new", "duplicate"))
        yield _counter("events_differing", "Duplicates with different content.", [], {(): m.events.get("differing", 0)})
        text = "Outcomes of accepted events: instances reached, mismatched or started; unmatched events."
        outcomes = _only(m.events, "delivered", "mismatched", "started", "unmatched")
        yield _counter("event_outcomes", text, ["outcome"], outcomes)
        text = "Starts and events taken in from transactions of callers; refused ones."
        yield _counter("inbox", text, ["kind"], _only(m.moved, "start", "event", "refused"))
        outcomes = _only(m.waits_ended, "received", "timed_out", "withdrawn")
        yield _counter("waits_ended", "Waits for events that ended here.", ["outcome"], outcomes)
        yield _histogram("wait_duration_seconds", "Duration of waits for events.", m.wait_seconds)
        yield _histogram("delivery_lag_seconds", "From accepting an event to receiving it.", m.delivery_lag)
        yield _histogram("timer_lag_seconds", "How late timers fired.", m.timer_lag)

    def _inbox_gauges(self) -> Iterator[Metric]:
        if self._inbox is not None:
            waiting, refused = self._inbox
            yield _gauge("inbox_waiting", "Starts and events in the inbox that no worker has taken in yet.", waiting)
            yield _gauge("inbox_refused", "Starts and events in the inbox that were refused.", refused)

    def _attention(self) -> Iterator[Metric]:
        for name, text, value in self._needs:
            yield _gauge(name, text, value)

    def _emissions(self) -> Iterator[Metric]:
        m = self._metrics
        yield _counter("emissions", "Values that instances emitted here.", [], {(): m.emissions})
        yield _counter("emission_bytes", "Bytes of these values, as JSON.", [], {(): m.emission_bytes})

    def _kept_events(self) -> Iterator[Metric]:
        m = self._metrics
        held = GaugeMetricFamily("romancy_events_held", "Old events that are kept for open instances.", labels=["type"])
        for type, count in m.events_held.items():
            held.add_metric([type], count)
        yield held
        if m.held_since is not None:
            text = "Age of the oldest event that is kept for an open instance."
            age = max(0, self._engine.clock.now() - m.held_since) / SECOND
            yield _gauge("events_held_oldest_seconds", text, age)
        cut = {(type,): n for type, n in m.events_cut.items()}
        yield _counter("events_cut", "Events removed although an open instance might take them.", ["type"], cut)

    def _sinks(self) -> Iterator[Metric]:
        m = self._metrics
        text = "Deliveries by sinks: delivered, failed; of the latter, dead, when an event was given up."
        yield _counter("sink_deliveries", text, ["sink", "outcome"], m.sink_deliveries)
        yield _histogram("sink_lag_seconds", "From accepting an event to its delivery by a sink.", m.sink_lag)
        parked = GaugeMetricFamily("romancy_sink_parked", "Events that a sink tries again later.", labels=["sink"])
        dead = GaugeMetricFamily("romancy_sink_dead", "Events that a sink gave up.", labels=["sink"])
        for sink in self._stored_sinks:
            parked.add_metric([sink.name], sink.parked)
            dead.add_metric([sink.name], sink.dead)
        yield from (parked, dead)

    def _requests(self) -> Iterator[Metric]:
        t = self._traffic
        yield _gauge("http_connections", "Connections to `romancy serve`.", t.connections)
        text = "Connections closed or refused because there were too many."
        yield _counter("http_connections_crowded_out", text, [], {(): t.crowded_out})
        yield _counter("http_wrong_tokens", "Requests with an unknown token.", [], {(): t.wrong_tokens})
        text = "Deliveries to webhooks: accepted, duplicate, ignored, answered, refused, invalid or failed."
        yield _counter("webhook_deliveries", text, ["webhook", "outcome"], t.deliveries)
        yield _counter("http_over_quota", "Requests beyond the quota of their token.", [], {(): t.over_quota})

    def _engine_internals(self) -> Iterator[Metric]:
        m, engine = self._metrics, self._engine
        yield _histogram("commit_items", "Items in one group commit.", m.commit_items)
        yield _histogram("commit_duration_seconds", "One group commit, with the round trip.", m.commit_seconds)
        yield _gauge("resident_instances", "Instances in memory.", len(engine.scheduler.residents))
        yield _gauge("activities_running", "Attempts running or waiting for a slot.", engine.activities.running)
        yield _gauge("commit_queue", "Items waiting to be stored.", engine.committer.queued)
        yield _gauge("timers_armed", "Timers due within the look-ahead.", engine.timers.armed)


def _only(counts: Mapping[str, int], *names: str) -> dict[tuple[str], int]:
    """Give every name a value from the start, so that its rate can be watched before the first event."""
    return {(name,): counts.get(name, 0) for name in names}


def _counter(name: str, text: str, labels: Sequence[str], counts: Mapping[tuple[str, ...], int]) -> Metric:
    family = CounterMetricFamily(f"romancy_{name}", text, labels=labels)
    for values, count in counts.items():
        family.add_metric(values, count)
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
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


ROUTE = Route("GET", "/metrics", metrics, {200: str}, scope="metrics")
