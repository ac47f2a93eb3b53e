"""Reports what became of the ticks of schedules: to hooks, and as metrics."""

from __future__ import annotations

from romancy.core.clock import Clock
from romancy.core.model import SECOND, from_us
from romancy.core.schedules import Plan
from romancy.engine.hook_runner import HookRunner
from romancy.engine.metrics import Metrics
from romancy.hooks import ScheduleFailedInfo, ScheduleFiredInfo, ScheduleSkippedInfo
from romancy.storage.schedules import ScheduleRow


class TickReport:
    """Told by the worker that wrote it, after the write. Metrics are by workflow: schedules may be very many."""

    def __init__(self, clock: Clock, hooks: HookRunner, metrics: Metrics) -> None:
        self._clock, self._hooks, self._metrics = clock, hooks, metrics

    def done(self, row: ScheduleRow, step: Plan, instance: str | None, started: bool) -> None:
        """A plan was carried out. `started`: an instance was started; otherwise its tick was skipped, too."""
        skipped = step.skipped + (step.start is not None and not started)
        now, workflow, ticks = self._clock.now(), row.order.workflow, self._metrics.schedule_ticks
        about = {"schedule": row.name, "workflow": workflow, "at": from_us(now)}
        if started and step.start is not None:
            ticks[workflow, "started"] += 1
            due = step.start if row.due_at is None or row.next_at != step.start else row.due_at
            self._metrics.schedule_lag.observe(max(0, now - due) / SECOND)
            self._hooks.tell(ScheduleFiredInfo, **about, instance_id=instance, scheduled_at=from_us(step.start))
        if skipped:
            ticks[workflow, "skipped"] += skipped
            self._hooks.tell(ScheduleSkippedInfo, **about, skipped=skipped, until=from_us(step.done))

    def next_is(self, due: int | None) -> None:
        """The next tick of any schedule is due then."""
        self._metrics.schedule_next = due

    def failed(self, row: ScheduleRow, error: str) -> None:
        """A tick is due, but this worker can't start it."""
        workflow = row.order.workflow
        self._metrics.schedule_ticks[workflow, "failed"] += 1
        now = from_us(self._clock.now())
        self._hooks.tell(ScheduleFailedInfo, schedule=row.name, workflow=workflow, at=now, error=error)
