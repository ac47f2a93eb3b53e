"""The engine of one app: connects the parts, starts and stops them, and does what the app asks for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from romancy.core.clock import Clock
from romancy.core.model import Event
from romancy.core.outcome import Outcome
from romancy.core.queues import Queue
from romancy.core.registry import Registry
from romancy.core.retry import Policies
from romancy.core.sinks import Outlet
from romancy.core.tickets import NO_LINKS, Links
from romancy.engine.about import describe
from romancy.engine.activities import Activities
from romancy.engine.admission import Admissions
from romancy.engine.announcement import Announcement
from romancy.engine.around import Around
from romancy.engine.background import Duty
from romancy.engine.balancing import Balancing
from romancy.engine.changes import ChangeFeed
from romancy.engine.children import Children
from romancy.engine.committer import Committer
from romancy.engine.custody import Custody
from romancy.engine.delivery import Accepted, Delivery
from romancy.engine.emission_readers import Readers
from romancy.engine.emissions import Emissions
from romancy.engine.endings import Endings
from romancy.engine.exits import Exits
from romancy.engine.followup import Followup
from romancy.engine.hook_runner import HookRunner
from romancy.engine.inbox import Inboxes
from romancy.engine.inquest import Inquest
from romancy.engine.leases import Lease
from romancy.engine.loader import Loader
from romancy.engine.lost_queues import warn_of_lost_queues
from romancy.engine.metrics import Metrics
from romancy.engine.minutes import MinuteCounts
from romancy.engine.mover import Mover
from romancy.engine.outage import Outage
from romancy.engine.recollection import Recollection
from romancy.engine.relays import Relays
from romancy.engine.replays import Replays
from romancy.engine.resident import CancelAsked, Hastened
from romancy.engine.residents import Residents
from romancy.engine.retention import REST, Pruner
from romancy.engine.revival import Revival
from romancy.engine.scheduler import Scheduler
from romancy.engine.schedules import SchedulesDuty
from romancy.engine.sweep import Sweep
from romancy.engine.tick_report import TickReport
from romancy.engine.timer_refresh import TimerRefresh
from romancy.engine.timers import WINDOW, Timers
from romancy.engine.timetable import Timetable
from romancy.engine.transactions import Transactions
from romancy.engine.unfit import UnfitInstances
from romancy.engine.waiting_room import Unplaced, WaitingRoom
from romancy.engine.watchdog import Watchdog
from romancy.errors import AppNotRunning, InstanceNotFound, Outdated, QueueFull
from romancy.hooks import HooksBase
from romancy.options import Retention
from romancy.storage.batch import CANCEL, HASTEN, BatchResult, Request, RequestAnswer, Start, StartAnswer
from romancy.storage.errors import TransientError
from romancy.storage.protocol import Storage

T = TypeVar("T")
_logger = logging.getLogger("romancy")
NO_QUEUES = 3600.0
"""Seconds between rounds of admission in a worker without queues. A sweep begins a round once there are some."""


class Engine:
    """Runs the workflows of one app on one event loop."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        registry: Registry,
        *,
        worker: bool,
        hooks: Sequence[HooksBase],
        around: Around,
        retry: Policies,
        state: Any,
        max_activities: int,
        max_resident: int,
        max_transactions: int,
        retention: Retention,
        lease: int,
        grace: float,
        build: str,
        timer_window: int = WINDOW,
        proposes: bool = True,
        links: Links = NO_LINKS,
        sinks: Sequence[Outlet] = (),
    ) -> None:
        """Each part gets those before it. Calls to later ones are lambdas; the lease calls methods of the engine."""
        self.loop, self._grace, self.around = asyncio.get_running_loop(), grace, around
        self.storage, self.clock, self.registry = storage, clock, registry
        self._to_sweep, self._to_refresh, self._to_admit = asyncio.Event(), asyncio.Event(), asyncio.Event()
        metrics, told = self.metrics, self.hooks = Metrics(), HookRunner([*hooks, *around.hooks])
        watchdog, outage = Watchdog(), Outage()
        endings = self.endings = Endings(storage)
        announcement = self._announcement = Announcement(storage, registry, outage, is_worker=worker, proposes=proposes)
        me = self.lease = self._make_lease(outage, lease, worker, lambda: describe(registry, build, max_activities))
        relays = self._relays = Relays(sinks, storage, clock, me, metrics, outage)
        residents = self.residents = Residents(max_resident, self._to_sweep.set)
        inboxes = self.inboxes = Inboxes(residents, lambda: scheduler.feed())
        loader = self.loader = Loader(storage, me, inboxes, outage, lambda arrival: revival.revive(arrival))
        delivery = self.delivery = Delivery(registry, clock, metrics, relays.stored if relays else None)
        emissions = self.emissions = Emissions(storage, clock, me, outage, metrics, Readers(storage, self.ending))
        committer = self.committer = Committer(
            storage, clock, registry, me, outage, metrics, emissions=emissions,
            on_events=delivery.stored, on_answer=self._answered, on_settled=inboxes.hurry,
            room=lambda: residents.room if me.leaving is None else 0,
        )  # fmt: skip
        custody = Custody(clock, committer, residents)
        tx = self.transactions = Transactions(
            storage, clock, inboxes, delivery, committer, metrics, max_transactions, lease, lambda: exits.reload, around
        )
        runs = clock, max_activities, retry, state, inboxes, told, metrics, tx, emissions, around, links
        activities = self.activities = Activities(*runs)
        inquest = self.inquest = Inquest(clock, max_activities, inboxes, custody, activities)
        timers = self.timers = Timers(clock, loader.fire, self._to_refresh.set, timer_window, metrics)
        exits = self.exits = Exits(
            clock, residents, loader, committer, inquest, activities, timers, endings, told, metrics,
            build + storage.keys, on_freed=self._freed,
        )  # fmt: skip
        replays = Replays(clock, told, watchdog)
        revival = self.revival = Revival(
            registry, state, inboxes, loader, committer, custody, inquest, timers, exits, replays,
            Recollection(storage, outage), Unplaced(clock, committer, loader, self._to_admit.set), metrics, around,
        )  # fmt: skip
        children = self._children = Children(clock, registry, inboxes, committer, exits, revival, storage, outage)
        followup = self._followup = Followup(
            clock, me, inboxes, loader, committer, inquest, activities, timers, exits, revival, children, told, metrics
        )
        scheduler = self.scheduler = Scheduler(
            clock, inboxes, committer, delivery, inquest, exits, children, followup, watchdog, told,
            lambda queue, instance: self._admissions.successor(queue, instance),
        )  # fmt: skip
        self._make_background(announcement, outage, retention, build)

    def _make_lease(self, outage: Outage, lease: int, worker: bool, describe: Callable[[], str]) -> Lease:
        return Lease(
            self.storage, self.registry, self._announcement, outage, lease, worker, describe,
            lambda: self.activities.active, self._look_around, self._lost, self._retired,
        )  # fmt: skip

    def _make_background(self, announcement: Announcement, outage: Outage, retention: Retention, build: str) -> None:
        """Connect the parts that look for work."""
        storage, clock, registry, me = self.storage, self.clock, self.registry, self.lease
        residents, loader, timers = self.residents, self.loader, self.timers
        self._waiting_room = WaitingRoom(storage, clock)
        balancing = self.balancing = Balancing(
            storage, clock, registry, me, residents, loader, self.committer, timers, self.exits, self._look_around
        )
        self.sweep = Sweep(
            storage, clock, registry, me, residents, loader, self.revival, self.inquest, timers, balancing,
            self.endings, UnfitInstances(storage, clock, registry, residents, loader, build + storage.keys),
            self._to_sweep.set, self._to_refresh.set,
        )  # fmt: skip
        self._admissions = Admissions(
            storage, clock, registry, me, residents, loader, self.metrics, self.hooks,
            kick=self._to_admit.set, claim=self._to_sweep.set, answer_lost=self.sweep.answer_lost,
        )  # fmt: skip
        self.refresh = TimerRefresh(storage, clock, me, timers, self._to_refresh.set)
        self._make_duties(announcement, retention, outage)

    def _make_duties(self, announcement: Announcement, retention: Retention, outage: Outage) -> None:
        """Connect what is done in rounds."""
        storage, clock, registry, metrics = self.storage, self.clock, self.registry, self.metrics
        self._renewal = Duty("lease", self.lease.round, outage)
        self._balance = Duty("balance", self.balancing.round, outage)
        self._sweep = Duty("sweep", self._sweep_round, outage, self._to_sweep)
        self._admission = Duty("admission", self._admit, outage, self._to_admit)
        self._has_looked_for_lost_queues = False
        self._refreshing = Duty("timers", self.refresh.round, outage, self._to_refresh)
        self.counting = MinuteCounts(storage, clock, metrics)
        self._counting = Duty("minutes", self.counting.round, outage)
        pruner = Pruner(storage, clock, registry, retention, metrics, self._relays.names)
        self._pruning = Duty("retention", pruner.round, outage)
        self._mover = Mover(storage, clock, announcement, self.delivery, metrics, self.hooks, self._to_sweep.set)
        self._moving = Duty("inbox", self._mover.round, outage)
        self._tidying = (self._pruning, self._balance, self._counting)
        self._scheduling = self._make_scheduling(outage)

    def _make_scheduling(self, outage: Outage) -> Duty:
        """Connect the parts that start instances by schedules."""
        to_schedule = asyncio.Event()
        timetable = self.timetable = Timetable(self.storage, self.clock, self.registry, self.schedule)
        own, started, kick = (self.storage, self.clock, self.registry), self._to_sweep.set, to_schedule.set
        known = self.lease, self.residents, self.loader, self.endings, timetable
        report = TickReport(self.clock, self.hooks, self.metrics)
        self._schedules = SchedulesDuty(*own, *known, self.cancel, started, kick, report)
        return Duty("schedules", self._schedules.round, outage, to_schedule)

    def __repr__(self) -> str:
        return f"<Engine {self.worker_id} {self.scheduler!r} {self.committer!r} {self.activities!r} {self.timers!r}>"

    @property
    def changes(self) -> ChangeFeed:
        """What watchers can follow."""
        return self.committer.changes

    @property
    def is_worker(self) -> bool:
        return self.lease.is_worker

    @property
    def worker_id(self) -> str | None:
        return self.lease.worker

    @property
    def outdated(self) -> Outdated | None:
        """Why this process stopped writing, if the schema is no longer the one it was written for."""
        return self.lease.outdated

    # --- life -------------------------------------------------------------------------------------------------------
    async def start(self) -> None:
        arrived = self._moving.kick if self.is_worker else lambda: None
        self.storage.watch(self._foreign_change, arrived, self.schedule)
        if self.is_worker:
            await self._declare_schedules()  # first: if this is cancelled, nothing runs yet
        await self._relays.declare()
        await self.lease.begin()
        if self.is_worker:
            self._relays.start()
            self.scheduler.watchdog.start()
            for duty in self._tidying:
                duty.start()
            self._moving.start()
            self._refreshing.start()
            self._scheduling.start()
            self._admission.start()
        self._renewal.start()
        self._sweep.start()

    async def _declare_schedules(self) -> None:
        """Store the schedules of the code, so that they can be listed. If that fails now, the duty does it later."""
        try:
            await self.timetable.declare()
        except TransientError as error:
            _logger.debug("schedules are not stored yet: %s", error)

    async def stop(self) -> None:
        """Finish running work within the grace period or hand it back, store everything, release the instances."""
        try:
            await self._stop()
        except BaseException:
            await self.crash()  # cancelled or failed: leave nothing running
            raise

    async def _stop(self) -> None:
        self.lease.leave()
        self._schedules.stop()
        self._admissions.stop()
        for duty in (self._moving, self._sweep, *self._tidying, self._scheduling, self._admission):
            await duty.stop()
        self.timers.stop()
        await self._relays.stop(self._grace)
        await self.activities.stop(self._grace)
        await self._flushed()
        self.committer.close()
        self.storage.stop_waiting()
        await self._renewal.stop()
        self._announcement.stop()
        await self._refreshing.stop()
        self.scheduler.watchdog.stop()
        if self.worker_id is not None:
            await self.counting.finish()
        await self.lease.release()
        self.inboxes.close()
        self._drop_all()
        await self.hooks.finish(self._grace)
        self.endings.fail_all(AppNotRunning("the app was stopped before the instance ended; the instance continues"))

    async def crash(self) -> None:
        """For tests: stop as if killed. Nothing is finished, stored or released."""
        self.lease.close()
        self._schedules.stop()
        self._admissions.stop()
        tidying = (*self._tidying, self._renewal)
        for duty in (self._moving, self._sweep, *tidying, self._refreshing, self._scheduling, self._admission):
            await duty.stop()
        await self._relays.crash()
        self._announcement.stop()
        self.timers.stop()
        self.committer.abandon()
        self.inboxes.close()
        self.scheduler.watchdog.stop()
        self._drop_all()
        self.endings.fail_all(AppNotRunning("the app crashed"))
        await self.activities.stop(0)

    async def _flushed(self) -> None:
        """Wait until everything is stored. During an outage that may be impossible within the grace period."""
        try:
            async with asyncio.timeout(max(self._grace, 1.0)):
                self.revival.stop()
                parts = (self._children, self.emissions, self.committer, self.inboxes)
                while not all(part.is_idle for part in parts):
                    await self._children.found()
                    await self.emissions.drained()  # a step that emits is submitted once its numbers are read
                    await self.committer.drained()
                    await asyncio.sleep(0)  # ready instances are fed in the next turn of the loop
        except TimeoutError:
            _logger.error("stopping with steps not stored; they will be repeated")

    def _lost(self) -> None:
        self._drop_all()
        self._renewal.kick()

    def _retired(self, error: Outdated) -> None:
        self.committer.refuse(error)
        self._announcement.stop()
        self._schedules.stop()
        self._admissions.stop()
        for duty in (self._moving, self._sweep, *self._tidying, self._scheduling, self._admission):
            duty.retire()
        self._relays.retire()
        self.timers.stop()
        self.inboxes.close()
        self._drop_all()
        self.endings.fail_all(error)

    def _drop_all(self) -> None:
        for resident in self.residents.values():
            self.exits.drop(resident)
        self.revival.stop()
        self._children.stop()
        self.inquest.quarantine.clear()
        self.inboxes.ready.clear()
        self.timers.clear()

    # --- what others ask --------------------------------------------------------------------------------------------
    def describe(self) -> None:
        """Store what this worker says about itself, because workflows were registered."""
        if self.worker_id is not None:
            self._renewal.kick()

    def schedule(self) -> None:
        """Look at the schedules, because they have changed, or workflows were registered."""
        if self.is_worker:
            self._scheduling.kick()

    def relay(self) -> None:
        """Look for events to pass on to sinks, because some were made due."""
        self._relays.kick()

    def kick(self) -> None:
        """Look for changes in the database that this worker may have to act on."""
        self.changes.elsewhere()
        self._to_sweep.set()

    def _foreign_change(self) -> None:
        self.changes.elsewhere()
        self.sweep.notice()
        self._relays.kick()

    def _answered(self, answer: BatchResult) -> None:
        self._followup.answered(answer)
        if answer.admitted:
            self._admissions.admitted(answer.admitted)

    def _look_around(self) -> None:
        """Read timers and mail, because this worker may own more waiting instances now."""
        self._to_refresh.set()
        self._to_sweep.set()

    async def _sweep_round(self) -> float:
        """Whatever leads to a sweep may also have filled a queue, or given back a slot, in another process."""
        if self.registry.queues:
            self._to_admit.set()
        return await self.sweep.round()

    def _freed(self, queue: str, instance: str) -> None:
        self._admissions.freed(queue, instance)

    async def _admit(self) -> float:
        if not self._has_looked_for_lost_queues:
            await warn_of_lost_queues(self.storage.queues, self.registry)
            self._has_looked_for_lost_queues = True
        return await self._admissions.round() if self.registry.queues else NO_QUEUES

    async def start_queued(self, start: Start, queue: Queue, *, may_exist: bool) -> StartAnswer:
        """Start an instance that waits in a queue. Raise `QueueFull` if no more can wait, unless it exists already."""
        async with self._waiting_room.entering(queue) as has_room:
            if not has_room and not (may_exist and await self.storage.existing([start.id])):
                raise QueueFull(queue=queue.name, max_waiting=queue.max_waiting)
            answer = await self.committer.start(start, self.revival.begin)
        if answer.created:
            self._to_admit.set()
        return answer

    async def start_instance(self, start: Start) -> StartAnswer:
        known = self.worker_id is not None and self.registry.get(start.workflow) is not None
        start.mine = known and self.residents.reserve()
        try:
            answer = await self.committer.start(start, self.revival.begin)
        finally:
            if start.mine:
                self.residents.unreserve()
        if answer.created and not answer.owned:
            self._to_sweep.set()
        return answer

    async def prune(self) -> None:
        """For tests: delete everything that is due to be deleted."""
        while await self._pruning.round() < REST:
            pass

    def accept(self, event: Event) -> asyncio.Future[Accepted]:
        """Store an event, and check its data against the waits it matched, as far as their models are known here."""
        if self._announcement.is_made and self.committer.has_room:
            return self.committer.accept_judged(self.delivery.prepare(event), self.delivery.judge)
        return self.loop.create_task(self._accept_later(event))

    async def _accept_later(self, event: Event) -> Accepted:
        if not self._announcement.is_made:
            await self._announcement.wait()
        item = self.delivery.prepare(event)
        return self.delivery.judge(item, await self.committer.accept(item))

    async def accept_all(self, events: Sequence[Event]) -> list[Accepted]:
        """Store several events together: all of them or, if one can't be stored, none."""
        if not self._announcement.is_made:
            await self._announcement.wait()
        items = [self.delivery.prepare(event) for event in events]
        answers = await self.committer.accept_all(items)
        return [self.delivery.judge(item, answer) for item, answer in zip(items, answers, strict=True)]

    async def cancel(self, instance: str, reason: str | None, who: str | None = None) -> RequestAnswer:
        now = self.clock.now()
        answer = await self.committer.request(Request(instance, CANCEL, (reason or "").encode(), now, who))
        if answer.owner is None or answer.owner != self.worker_id:
            self._to_sweep.set()
        elif answer.id:
            self.loader.wake(instance, CancelAsked(answer.id, reason or ""))
            await self.residents.seen_to(instance)
        return answer

    async def retry_now(self, instance: str, who: str | None = None) -> RequestAnswer:
        """Ask an instance to begin the attempts that wait. `took`: there is one."""
        answer = await self.committer.request(Request(instance, HASTEN, b"", self.clock.now(), who))
        if answer.id and answer.owner is not None and answer.owner == self.worker_id:
            self.loader.wake(instance, Hastened(answer.id))
        elif answer.took:
            self._to_sweep.set()
        return answer

    async def ending(self, instance: str, seconds: float | None = None) -> Outcome:
        """Wait for an instance to end, up to `seconds`. Raise `InstanceNotFound` if it does not exist."""
        if self.outdated is not None:
            raise self.outdated
        if instance in self.residents:
            return await self.endings.ending(instance, seconds, is_here=True)
        return await self.found(lambda: self.endings.ending(instance, seconds, is_here=False))

    async def found(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read an instance. If it is not found, take in what callers left, and read again: it may have been there."""
        try:
            return await read()
        except InstanceNotFound:
            await self.take_in()
            return await read()

    async def take_in(self) -> None:
        """Move what callers left in the inbox: an instance that was not found may be there."""
        await self._mover.move()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in progress: instances only wait."""
        return not self.activities.running and self.is_idle_but_for_activities

    @property
    def is_idle_but_for_activities(self) -> bool:
        known = self._announcement.is_made and not self.lease.is_pending and not self.refresh.is_behind
        idle = self.hooks.is_idle and self.inboxes.is_idle and self.committer.is_idle and self.emissions.is_idle
        kicked = (self._sweep, self._refreshing, self._moving, self._scheduling, self._admission)
        duties = all(d.is_idle for d in kicked) and self._relays.is_idle
        return known and idle and duties and self._children.is_idle and not self.is_undeclared

    @property
    def only_schedules(self) -> bool:
        """Whether no timer is set, so that only schedules can make anything happen."""
        return self._schedules.is_armed and self.timers.next_due() is None and not self.activities.running

    @property
    def is_undeclared(self) -> bool:
        """Whether code was registered whose schedules are not stored yet."""
        return self.is_worker and self.timetable.is_behind
