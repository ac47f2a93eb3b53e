"""The measures: what is measured, with which size on which system, and under which name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SYSTEMS = ("romancy", "edda", "dbos", "restate")
TITLES = {"romancy": "Romancy", "edda": "Edda", "dbos": "DBOS", "restate": "Restate", "limit": "by hand"}
DATABASES = ("sqlite", "postgres")


@dataclass(frozen=True)
class Measure:
    """One row of the table. Systems without a size here are not measured."""

    name: str
    title: str
    workload: str
    figure: str
    unit: str
    sizes: Mapping[str, int]
    more: bool = False
    """More is better."""
    rounds: int = 3
    steps: int = 100
    also: tuple[str, ...] = ()
    """Other figures of the same run to show."""
    databases: tuple[str, ...] = DATABASES
    limit: float = 60.0
    alike: bool = True
    """Whether all systems do the same work, so that they can be compared."""
    growth: str | None = field(default=None)
    """The name of the curve that this is a point of."""


def _all(ours: int, peers: int, restate: int | None = None) -> dict[str, int]:
    return {"romancy": ours, "edda": peers, "dbos": peers, "restate": restate or peers}


def _and_by_hand(sizes: dict[str, int]) -> dict[str, int]:
    """Also measure a program without an engine, as a reference for our figure."""
    return sizes | {"limit": sizes["romancy"]}


RATE, SECONDS, MS = "1/s", "s", "ms"
MEASURES: list[Measure] = [
    Measure("limit", "raw commits, one row each", "commits", "commits_per_s", RATE, {"limit": 3000}, True),
    Measure("inserts", "raw inserts, 1,000 a commit", "inserts", "rows_per_s", RATE, {"limit": 200_000}, True, 1),
    Measure(
        "finish", "workflows of one activity, best number in flight", "finish", "workflows_per_s", RATE,
        _and_by_hand(_all(10_000, 1000) | {"edda": 200}), True,
    ),
    Measure(
        "sequential", "activities one after the other, one workflow", "sequential", "activities_per_s", RATE,
        _all(2000, 1000) | {"edda": 100}, True,
    ),
    Measure(
        "parallel20", "activities of 20 workflows at once", "parallel", "activities_per_s", RATE,
        _and_by_hand(_all(20, 20)), True,
    ),
    Measure(
        "parallel200", "activities of 200 workflows at once (Edda, DBOS: 50)", "parallel", "activities_per_s", RATE,
        _and_by_hand(_all(200, 50, 200)), True,
    ),
    Measure("latency", "one event to code running, idle", "latency", "p50_ms", MS, _all(500, 200) | {"edda": 20},
            also=("p99_ms",)),
    Measure("wake1k", "1,000 wait, an event to each: all finished", "wake", "wall_s", SECONDS, _all(1000, 1000),
            rounds=1, limit=150),
    Measure("wake100k", "100,000 wait, an event to each: all finished", "wake", "wall_s", SECONDS,
            {"romancy": 100_000}, rounds=1, limit=300),
    Measure("among100k", "one event among 100,000 that wait", "latency_among", "p50_ms", MS, {"romancy": 100_000},
            rounds=1, limit=300, also=("p99_ms", "resident")),
    Measure("broadcast", "one event wakes 10,000", "broadcast", "wall_s", SECONDS, {"romancy": 10_000}, rounds=1),
    Measure("broadcast100", "one event wakes 100", "broadcast", "wall_s", SECONDS, _all(100, 100),
            rounds=1),
    Measure("sleepers200", "200 sleepers due together, late by", "sleepers", "p50_ms", MS, _all(200, 200), rounds=1,
            also=("p99_ms",)),
    Measure("sleepers10k", "10,000 sleepers due together, late by", "sleepers", "p50_ms", MS, {"romancy": 10_000},
            also=("p99_ms",)),
    Measure("resume1k", "back after 1,000 recorded activities", "resume", "seconds", SECONDS, _all(1000, 1000),
            rounds=1, also=("resident_s",), limit=90),
    Measure("resume10k", "back after 10,000 recorded activities", "resume", "seconds", SECONDS, {"romancy": 10_000},
            rounds=1, also=("resident_s",)),
    Measure("replay", "recorded entries replayed", "replay", "entries_per_s", RATE, {"romancy": 10_000}, True),
    Measure("memory", "memory of a waiting workflow", "memory", "kb_per_workflow", "kB", _all(5000, 500), rounds=1),
    Measure("recovery", "killed with 1,000 in flight (Edda: 200): first activity again", "recovery", "first_s", SECONDS,
            _all(1000, 1000) | {"edda": 200}, rounds=1, also=("all_s",), limit=180),
    Measure("http", "events by HTTP, each finishes a workflow", "http", "events_per_s", RATE, _all(3000, 200, 1000),
            True, rounds=1, alike=False),
]  # fmt: skip
GROWTH: list[Measure] = [
    Measure(
        f"{workload}x{times}", f"{what}, {times}x", workload, figure, unit, {"romancy": base * times}, more,
        1, limit=120, growth=what,
    )
    for workload, what, figure, unit, base, more in (
        ("finish", "workflows of one activity", "workflows_per_s", RATE, 200, True),
        ("wake", "events to waiting workflows", "events_per_s", RATE, 100, True),
        ("sleepers", "sleepers due together", "p99_ms", MS, 100, False),
    )
    for times in (1, 10, 100)
]  # fmt: skip
