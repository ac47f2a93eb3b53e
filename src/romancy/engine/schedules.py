"""Schedules: starts instances when their ticks are due. No worker is special: whoever writes first starts a tick."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from zoneinfo import ZoneInfoNotFoundError

from romancy.core.clock import Alarm, Clock
from romancy.core.model import FINAL
from romancy.core.queues import Place
from romancy.core.registry import Registry
from romancy.core.schedules import Plan, due_ticks, plan
from romancy.core.timestamps import format_time
from romancy.engine.endings import Endings
from romancy.engine.leases import Lease
from romancy.engine.loader import Loader
from romancy.engine.residents import Residents
from romancy.engine.tick_report import TickReport
from romancy.engine.timetable import Timetable
from romancy.errors import RomancyError
from romancy.storage.errors import TransientError
from romancy.storage.protocol import Storage
from romancy.storage.schedules import Firing, Order, ScheduleRow

_logger = logging.getLogger("romancy")
POLL = 1.0
"""Seconds between rounds, because other processes change schedules."""
PAGE = 100
"""How many schedules are read at a time."""
IN_A_ROW = 100
"""How many ticks of one schedule are started in one round."""
SLICE = 20
"""How many ticks are counted without letting other tasks run: that takes about a millisecond."""
MOST_OPEN = 1000
"""How many instances a tick cancels at most."""


class SchedulesDuty:
    """Each round starts what is due, and sets an alarm for the next tick."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        registry: Registry,
        lease: Lease,
        residents: Residents,
        loader: Loader,
        endings: Endings,
        timetable: Timetable,
        cancel: Callable[[str, str], Awaitable[object]],
        started: Callable[[], None],
        kick: Callable[[], None],
        report: TickReport,
    ) -> None:
        self._report = report
        self._table, self._clock, self._registry, self._lease = storage.schedules, clock, registry, lease
        self._residents, self._loader = residents, loader
        self._endings, self._timetable, self._cancel = endings, timetable, cancel
        self._started, self._kick = started, kick
        self._alarm: Alarm | None = None
        self._due: int | None = None
        """When the alarm rings: then something is due."""
        self._held: dict[str, asyncio.Task[None]] = {}
        self._unsure: dict[str, tuple[str, int]] = {}
        """Instances that this worker may have started, with the schedule and the tick: nothing was answered."""

    async def round(self) -> float:
        worker = self._lease.worker
        if worker is None:
            return POLL
        if self._timetable.is_behind:
            await self._timetable.declare()
        if self._unsure:
            await self._look_again()
        now = self._clock.now()
        due = self._due if self._due is not None and self._due <= now else await self._table.next_due(0)
        if due is not None and due <= now:
            await self._fire_all(worker, now)
            due = await self._table.next_due(now)
        self._arm(due)
        return POLL

    @property
    def is_armed(self) -> bool:
        """Whether there is a next tick."""
        return self._alarm is not None

    def stop(self) -> None:
        """Forget the alarm, and instances that schedules wait for."""
        self._disarm()
        for task in list(self._held.values()):
            task.cancel()

    def _arm(self, due: int | None) -> None:
        self._disarm()
        self._due = due
        self._report.next_is(due)
        if due is not None:
            self._alarm = self._clock.call_at(due, self._kick)

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    # --- starting ---------------------------------------------------------------------------------------------------
    async def _fire_all(self, worker: str, now: int) -> None:
        place = (0, "")
        while rows := await self._table.due(now, place, PAGE):
            for row in rows:
                place = row.due_at or 0, row.name
                await self._fire_each(worker, row, now)

    async def _fire_each(self, worker: str, row: ScheduleRow, now: int) -> None:
        """Start the ticks of one schedule that are due."""
        current: ScheduleRow | None = row
        for _ in range(IN_A_ROW):
            step = None if current is None else await self._plan(current, now)
            if current is None or step is None or not await self._fire(worker, current, step):
                return
            current = await self._table.get(row.name)
        self._kick()

    async def _plan(self, row: ScheduleRow, now: int) -> Plan | None:
        if row.paused or row.next_at is None:
            return None
        try:
            return await self._plan_ticks(row, row.next_at, now)
        except (ZoneInfoNotFoundError, OSError) as error:
            text = f"the time zone {row.order.schedule.timezone!r} is not known to a worker: {error}"
            if row.error != text:
                _logger.error("schedule %r: %s; install the package tzdata there", row.name, text)
                await self._table.blame(row, text)
                self._report.failed(row, text)
            return None

    async def _plan_ticks(self, row: ScheduleRow, next_at: int, now: int) -> Plan | None:
        schedule, due = row.order.schedule, list[int]()
        for tick in due_ticks(row.name, schedule, row.course, next_at, now, row.held_until):
            due.append(tick)
            if len(due) % SLICE == 0:  # the write names what was read, so it may change meanwhile
                await asyncio.sleep(0)
        return plan(row.name, schedule, row.course, due, now, row.held_until) if due else None

    async def _fire(self, worker: str, row: ScheduleRow, step: Plan) -> bool:
        """Carry out a plan. False: nothing was written, because another worker was first, or it is too early."""
        if step.waits and row.open_instance is not None:
            self._hold(row.open_instance)
            return False
        if step.start is not None and row.order.schedule.overlap == "cancel" and row.is_busy:
            # Before the write: whoever finds the tick after a crash does it again.
            for id in await self._table.open_instances(row.name, MOST_OPEN):
                await self._cancel(id, f"schedule {row.name!r} starts again")
        id = None if step.start is None else f"{row.name}/{format_time(step.start)}"
        definition, place = self._registry.get(row.order.workflow), self._place(row.order)
        mine = definition is not None and place is None and self._residents.has_room
        firing = Firing(id, step.start, step.done, step.next, step.skipped, step.waits, self._clock.now(), mine, place)
        try:
            fired = await self._table.fire(worker, row, firing)
        except TransientError:
            if mine and id is not None:
                self._unsure[id] = row.name, step.done
            raise
        if fired is not None:
            self._report.done(row, step, id, fired)
        if fired and mine and id is not None:
            self._loader.load(id)
        elif fired:
            self._started()
        return fired is not None

    async def _look_again(self) -> None:
        """Load what was started although the database gave no answer: this worker owns it, so nobody else runs it.

        Once the tick is taken care of, a write that is still under way comes too late to start it.
        """
        for id, (name, tick) in list(self._unsure.items()):
            row = await self._table.get(name)
            if row is None or (row.done_at is not None and row.done_at >= tick):
                del self._unsure[id]
                self._loader.load(id)

    def _place(self, order: Order) -> Place | None:
        """Return where an instance waits. Its queue is that of the code, which may have changed since it was set."""
        definition = self._registry.get(order.workflow)
        if definition is None:
            return order.place
        if definition.queue is None or order.place is None:  # a worker that is about to run it lets it wait
            return None
        return order.place._replace(queue=definition.queue.name)

    # --- ticks that wait for an instance to end ---------------------------------------------------------------------
    def _hold(self, instance: str) -> None:
        if instance not in self._held:
            task = self._held[instance] = asyncio.create_task(self._wait_for(instance), name="romancy-schedule")
            task.add_done_callback(lambda _: self._held.pop(instance, None))

    async def _wait_for(self, instance: str) -> None:
        """Do a round when an instance has ended. If that can't be known now, a regular round sees it."""
        try:
            outcome = await self._endings.ending(instance, None, is_here=instance in self._residents)
        except RomancyError as error:
            _logger.debug("schedules: can't wait for instance %r: %s", instance, error)
            return
        if outcome.status in FINAL:
            self._kick()
