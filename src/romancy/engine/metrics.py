"""The engine's metrics, as plain numbers: counting must cost next to nothing."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LONG = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)


class Histogram:
    """Counts values up to each bound, and their sum. The last count is for values above all bounds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def __repr__(self) -> str:
        return f"<Histogram n={sum(self.counts)} sum={self.sum:.6g}>"

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Metrics:
    """The counts of one engine since it started. Workflow and activity names come from code, so there are few."""

    def __init__(self) -> None:
        self.workflows_started: Counter[str] = Counter()
        """By workflow."""
        self.workflows_continued: Counter[str] = Counter()
        """Runs that continued as new, by the workflow of the new run."""
        self.workflows_retried: Counter[str] = Counter()
        """Instances that went on after they had failed or were cancelled, by workflow."""
        self.workflows_ended: Counter[tuple[str, str]] = Counter()
        """By workflow and status."""
        self.workflow_seconds: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(LONG))
        self.activities_ended: Counter[tuple[str, str]] = Counter()
        """Attempts, by activity and outcome: completed, failed, withdrawn."""
        self.activity_seconds: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(SECONDS))
        self.transactions: Counter[tuple[str, str]] = Counter()
        """Transactions of activities, by activity and outcome: committed, rolled_back."""
        self.transaction_seconds: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(SECONDS))
        self.compensations: Counter[tuple[str, str]] = Counter()
        """By workflow and outcome: started, completed, failed."""
        self.waits_ended: Counter[str] = Counter()
        """By outcome: received, timed_out, withdrawn."""
        self.wait_seconds = Histogram(LONG)
        self.events: Counter[str] = Counter()
        """Accepted events: new, duplicate; for new ones also delivered, mismatched, started, unmatched; for duplicates
        also differing."""
        self.moved: Counter[str] = Counter()
        """What was taken in from the inbox: start, event; of these, refused."""
        self.events_held: Mapping[str, int] = {}
        """Events that are kept for open instances beyond the retention period, by type; counted every hour."""
        self.held_since: int | None = None
        """When the oldest of these was accepted."""
        self.events_cut: Counter[str] = Counter()
        """Events that were removed although an open instance might have taken them, by type."""
        self.instances_admitted: Counter[str] = Counter()
        """By queue."""
        self.schedule_ticks: Counter[tuple[str, str]] = Counter()
        """By workflow and outcome: started, skipped, failed."""
        self.schedule_lag = Histogram(SECONDS)
        """Seconds between the time at which a tick was due and its start."""
        self.schedule_next: int | None = None
        """When the next tick of any schedule is due, as this worker saw it last."""
        self.sink_deliveries: Counter[tuple[str, str]] = Counter()
        """By sink and outcome: delivered, failed; of the latter, dead."""
        self.sink_lag = Histogram(LONG)
        """Seconds between accepting an event and its delivery by a sink."""
        self.emissions = self.emission_bytes = 0
        """Values that instances emitted here, with their bytes, and marks that operations began anew."""
        self.commit_items = Histogram(SIZES)
        self.commit_seconds = Histogram(SECONDS)
        self.timer_lag = Histogram(SECONDS)
        """Seconds between a timer's due time and its firing."""
        self.delivery_lag = Histogram(SECONDS)
        """Seconds between accepting an event and offering it to a wait."""

    def workflow_ended(self, workflow: str, status: str, seconds: float) -> None:
        self.workflows_ended[workflow, status] += 1
        self.workflow_seconds[workflow].observe(seconds)

    def attempt_ended(self, activity: str, outcome: str, seconds: float) -> None:
        self.activities_ended[activity, outcome] += 1
        self.activity_seconds[activity].observe(seconds)

    def transaction_ended(self, activity: str, outcome: str, seconds: float) -> None:
        self.transactions[activity, outcome] += 1
        self.transaction_seconds[activity].observe(seconds)

    def wait_ended(self, outcome: str, seconds: float) -> None:
        self.waits_ended[outcome] += 1
        self.wait_seconds.observe(seconds)
