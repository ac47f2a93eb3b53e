"""Metrics: what `/metrics` shows of the engine, as OpenTelemetry instruments under the same names."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter
from prometheus_client.metrics_core import Metric

from romancy.engine import Engine
from romancy.http.metrics import Families
from romancy.http.traffic import Traffic
from romancy.service import Service, runtime_of

_ATTEMPTS = 3
"""How often a family is read if counts are added to it meanwhile, by another thread."""
Read = Callable[[CallbackOptions], Iterable[Observation]]


def observe(app: Service, provider: MeterProvider | None) -> None:
    """Add an app to those whose counts are observed. A meter has each instrument once, for all apps of the process."""
    key = _Global if provider is None else provider
    observed = _observed.get(key)
    if observed is None:
        observed = _observed[key] = _Observed()
    observed.apps.add(app)
    meter = get_meter("romancy", meter_provider=provider)
    for family in observed.read():
        if family.name not in observed.names:
            observed.names.add(family.name)
            _add(meter, family, observed.read)


class _Observed:
    """The apps that are observed by one provider, as long as they exist, and the families that have instruments."""

    def __init__(self) -> None:
        self.apps: weakref.WeakSet[Service] = weakref.WeakSet()
        self.names: set[str] = set()
        self._traffic = Traffic()

    def read(self) -> list[Metric]:
        """Return the families of all apps that run."""
        engines = [engine for app in list(self.apps) if (engine := runtime_of(app).engine_if_running) is not None]
        return [family for engine in engines for family in self._families(engine)]

    def _families(self, engine: Engine) -> list[Metric]:
        for _ in range(_ATTEMPTS):
            try:
                return list(Families(engine, self._traffic).collect())
            except RuntimeError:  # a dictionary was changed by the app's thread
                continue
        return []


class _Global:
    """Stands for the global provider, which a program can set later."""


_observed: weakref.WeakKeyDictionary[object, _Observed] = weakref.WeakKeyDictionary()


def _add(meter: Meter, family: Metric, read: Callable[[], list[Metric]]) -> None:
    """Add the instrument of a family. Of a histogram, which can't be observed afterwards, its count and its sum."""
    name, text = family.name, family.documentation
    if name.startswith(("romancy_http", "romancy_webhook")):
        return
    if family.type == "counter":
        meter.create_observable_counter(name, [_samples(name, "_total", read)], description=text)
    elif family.type == "gauge":
        meter.create_observable_gauge(name, [_samples(name, "", read)], description=text)
    elif family.type == "histogram":
        for part in ("_count", "_sum"):
            meter.create_observable_counter(name + part, [_samples(name, part, read)], description=text)


def _samples(name: str, part: str, read: Callable[[], list[Metric]]) -> Read:
    def observe(options: CallbackOptions) -> Iterable[Observation]:
        sums: dict[tuple[tuple[str, str], ...], float] = {}
        for family in read():
            for sample in family.samples if family.name == name else ():
                if sample.name == name + part:
                    labels = tuple(sample.labels.items())
                    sums[labels] = sums.get(labels, 0) + sample.value
        return [Observation(value, dict(labels)) for labels, value in sums.items()]

    return observe
