"""The engine of one app: composes the parts, keeps its lease, and looks after what other processes leave."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Coroutine, Sequence
from typing import Any

from romancy import hooks as h
from romancy.core.activation import Outcome
from romancy.core.clock import Clock, stopwatch
from romancy.core.model import SECOND, Event, duration_us, from_us
from romancy.core.registry import Registry
from romancy.core.retry import RetryPolicy
from romancy.engine.activities import Activities, Attempting
from romancy.engine.announcement import Announcement
from romancy.engine.background import Duty
from romancy.engine.balancing import Balancing
from romancy.engine.committer import Committer
from romancy.engine.delivery import Accepted, Delivery
from romancy.engine.endings import Endings, Lookups, outcome_of
from romancy.engine.hook_runner import HookRunner
from romancy.engine.loader import Loader
from romancy.engine.metrics import Metrics
from romancy.engine.resident import IDLE, CancelAsked
from romancy.engine.scheduler import Scheduler
from romancy.engine.timers import LIMIT, WINDOW, Timers
from romancy.errors import AppNotRunning, InstanceNotFound, Outdated, StorageError
from romancy.options import Retention
from romancy.storage.batch import CANCEL, Request, RequestAnswer, Start, StartAnswer
from romancy.storage.errors import TransientError, Unusable
from romancy.storage.protocol import Storage
from romancy.storage.records import Claimed

_logger = logging.getLogger("romancy")
CLAIM = 500
"""Instances claimed at a time."""
NOTICE = 0.003
"""Seconds to gather before looking at what another process wrote, when it writes all the time."""
BUSY = 0.02
"""Notices that come this soon after one another are such a time."""
LOOKUPS = 500
"""Instances looked for at a time, to see whether they ended."""
HAND_BACK = 5.0
"""Seconds a worker that stops waits for the database to hear of it."""
STRAYS = 15 * SECOND
"""How often to look for instances that got lost between database and memory."""
NEVER = 10.0**9
"""Seconds to rest when there is nothing left to do."""
SWEEP = 1.0
"""Seconds between looks for what nobody announced."""


class Engine:
    """Runs the workflows of one app on one event loop."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        registry: Registry,
        *,
        worker: bool,
        hooks: Sequence[h.HooksBase],
        retry: RetryPolicy,
        state: Any,
        max_activities: int,
        max_resident: int,
        retention: Retention,
        lease: int,
        grace: float,
        timer_window: int = WINDOW,
    ) -> None:
        self.storage, self.clock, self.registry = storage, clock, registry
        self.is_worker = worker
        self.worker_id: str | None = None
        self.outdated: Outdated | None = None
        """Why this process stopped writing by itself."""
        self._retention, self._lease, self._grace = retention, lease, grace
        self.endings = Endings()
        self._lookups = Lookups(self._first_read, LOOKUPS)
        self._to_look = 0
        self.hooks = HookRunner(hooks)
        self.metrics = Metrics()
        self.committer = Committer(storage, clock, lambda: registry.names, self.metrics)
        self.delivery = Delivery(registry, clock, self.metrics)
        self.scheduler = Scheduler(
            clock, self.committer, self.delivery, self.hooks, self.endings, max_resident, max_activities, self.metrics
        )
        self.loader = Loader(storage, clock, registry, self.scheduler, self.hooks, state, self.metrics)
        self.scheduler.loader = self.loader
        self.activities = Activities(
            clock,
            max_activities,
            retry,
            state,
            self.scheduler.post,
            self._activity_started,
            self._attempt_over,
            self.scheduler.residents.rouse,
            self.metrics,
        )
        self.timers = Timers(clock, self.loader.fire, self._refresh_timers, timer_window, self.metrics)
        self.scheduler.activities, self.scheduler.timers = self.activities, self.timers
        self.committer.on_started = self.loader.begin
        self.committer.on_answer = self.scheduler.answered
        self.committer.on_events = self.delivery.stored
        self.committer.on_fenced = self._fenced
        self.committer.on_outdated = self._retire
        self.committer.on_settled = self.scheduler.settled
        self.scheduler.residents.on_work = self._claim_more
        self.changes = self.committer.changes
        self.balancing = Balancing(storage, clock, self.scheduler, lambda: registry.names, self._adopted)
        self._sweep = Duty("sweep", self._sweep_round, self.committer.outage)
        self._renewal = Duty("lease", self._renew_round, self.committer.outage)
        self._pruning = Duty("retention", self._prune_round, self.committer.outage)
        self._balance = Duty("balance", self.balancing.round, self.committer.outage)
        self._refreshing: set[asyncio.Future[None]] = set()
        self._announcement = Announcement(storage, registry, self.committer.outage)
        self.loop = asyncio.get_running_loop()
        self._running = False
        self._noticed, self._noticed_at = False, float("-inf")
        self._strays_at = 0
        self._lost_answers = 0
        self._strays: set[str] = set()

    def __repr__(self) -> str:
        return f"<Engine {self.worker_id} {self.scheduler!r} {self.committer!r} {self.activities!r} {self.timers!r}>"

    # --- life -------------------------------------------------------------------------------------------------------
    async def start(self) -> None:
        self.storage.on_foreign_change = self._foreign_change
        self._running = True
        if self.is_worker:
            await self._register_first()
            self.scheduler.watchdog.start()
            self._pruning.start()
            self._balance.start()
            self._refresh_timers()
        self._renewal.start()
        self._sweep.start()

    def announce(self) -> None:
        """Workflows were registered while running: their triggers are to be known before the next event is stored."""
        if self.is_worker and self._running and self.outdated is None:
            self._announcement.begin()

    async def _register_first(self) -> None:
        """A database that can't be written just now is an outage like any other: the renewal registers, a little later.

        Events may be stored before that, so the triggers are announced apart from it.
        """
        try:
            await self._register()
        except Unusable:
            raise
        except TransientError as error:
            self.committer.outage.noticed("lease", error)
            self.announce()

    async def _register(self) -> None:
        """A fresh id every time: nothing an older registration left in flight can be taken for ours."""
        worker, triggers = uuid.uuid4().hex, self.registry.triggers
        await self.storage.register(worker, self._lease, triggers, self.registry.names)
        self.worker_id = self.committer.worker = worker  # not before: nobody may know a name that has no row
        if self.registry.triggers != triggers:
            self.announce()

    async def stop(self) -> None:
        """Finish or hand back what runs within the grace, store everything, then let go."""
        try:
            await self._stop()
        except BaseException:
            await self.crash()  # cut short, or worse: leave nothing running
            raise

    async def _stop(self) -> None:
        self._running = False
        if self.worker_id is not None:
            self._begin(self._leave(self.worker_id))
        for duty in (self._sweep, self._pruning, self._balance):
            await duty.stop()
        self.timers.stop()
        await self.activities.stop(self._grace)
        await self._flushed()
        self.committer.close()
        self.storage.stop_waiting()
        await self._renewal.stop()
        self._announcement.stop()
        for task in self._refreshing:
            task.cancel()
        self.scheduler.watchdog.stop()
        if self.worker_id is not None:
            worker, self.worker_id = self.worker_id, None
            await self._release(worker)
        self.scheduler.closed = True
        self.scheduler.drop_all()
        await self.hooks.finish(self._grace)
        self.endings.fail_all(AppNotRunning("the app was stopped while a result was awaited; the instance goes on"))

    async def _leave(self, worker: str) -> None:
        """First of all: to be killed because it takes long to stop is not a death."""
        try:
            await self.storage.leave(worker)
        except StorageError as error:
            _logger.info("that this worker stops can't be stored (%s)", error)

    async def _release(self, worker: str) -> None:
        try:
            async with asyncio.timeout(HAND_BACK):
                await self.storage.release(worker)
        except (StorageError, TimeoutError) as error:
            said = error if isinstance(error, StorageError) else "the database does not answer"
            _logger.warning("the instances can't be handed back (%s); others take them over when the lease ends", said)

    async def crash(self) -> None:
        """For tests: stop as if killed. Nothing is finished, stored or released."""
        self._running = False
        for duty in (self._sweep, self._pruning, self._balance, self._renewal):
            await duty.stop()
        self._announcement.stop()
        self.timers.stop()
        self.committer.abandon()
        self.scheduler.closed = True
        self.scheduler.watchdog.stop()
        self.scheduler.drop_all()
        self.endings.fail_all(AppNotRunning("the app crashed"))
        await self.activities.stop(0)

    async def _flushed(self) -> None:
        """Wait until everything that happened is stored; an outage may make that impossible within the grace."""
        try:
            async with asyncio.timeout(max(self._grace, 1.0)):
                self.loader.stop()
                while not (self.committer.is_idle and self.scheduler.is_idle):
                    await self.committer.drained()
                    await asyncio.sleep(0)  # whoever is ready is fed in the next turn of the loop
        except TimeoutError:
            _logger.error("stopping with steps not stored; they will be repeated")

    def _fenced(self, worker: str | None) -> None:
        """Another worker took over, thinking this one dead: what is in memory is not ours any more."""
        if not self._running or worker is None or worker != self.worker_id:
            return
        _logger.warning("worker %s was taken over by another (was it paused?); it starts afresh", self.worker_id)
        self.worker_id = self.committer.worker = None
        self.storage.drop_lock(worker)
        self.scheduler.drop_all()
        self._renewal.kick()

    # --- what others ask --------------------------------------------------------------------------------------------
    async def start_instance(self, start: Start) -> StartAnswer:
        known = self.worker_id is not None and self.registry.get(start.workflow) is not None
        start.mine = known and self.scheduler.residents.reserve()
        try:
            answer = await self.committer.start(start)
        finally:
            if start.mine:
                self.scheduler.residents.unreserve()
        if answer.created and not answer.owned:
            self._sweep.kick()
        return answer

    async def accept(self, event: Event) -> Accepted:
        """Store an event, and judge its data for the waits it matched, as far as their models are known here."""
        if not self._announcement.is_made:
            await self._announcement.wait()
        item = self.delivery.prepare(event)
        return self.delivery.judge(item, await self.committer.accept(item))

    async def accept_all(self, events: Sequence[Event]) -> list[Accepted]:
        """Store several events together: all or, if one can't be stored, none."""
        if not self._announcement.is_made:
            await self._announcement.wait()
        items = [self.delivery.prepare(event) for event in events]
        answers = await self.committer.accept_all(items)
        return [self.delivery.judge(item, answer) for item, answer in zip(items, answers, strict=True)]

    async def cancel(self, instance: str, reason: str | None) -> RequestAnswer:
        now = self.clock.now()
        answer = await self.committer.request(Request(instance, CANCEL, (reason or "").encode(), now))
        if answer.owner is None or answer.owner != self.worker_id:
            self._sweep.kick()
        elif answer.id:
            self.loader.wake(instance, CancelAsked(answer.id, reason or ""))
            await self.scheduler.residents.seen_to(instance)
        return answer

    async def ending(self, instance: str, seconds: float | None = None) -> Outcome:
        """How an instance ends; waits so long for it, if it is there (else `InstanceNotFound`) and has not ended."""
        if self.outdated is not None:
            raise self.outdated
        future = self.endings.wait(instance)
        try:
            if instance not in self.scheduler.residents:
                await self._lookups.read(instance)
            if seconds is None:
                return await future
            async with asyncio.timeout(seconds):
                return await future
        finally:
            self.endings.forget(instance, future)

    async def _first_read(self, instances: list[str]) -> None:
        """Many at a time: very many may be awaited at once."""
        open_ones = set(instances) - await self._read_endings(instances)
        if open_ones:
            for id in open_ones - await self.storage.existing(open_ones):
                self.endings.fail(id, InstanceNotFound(instance_id=id))

    async def _read_endings(self, instances: list[str]) -> set[str]:
        """Says who ended."""
        rows = await self.storage.finished(instances)
        for row in rows:
            outcome = outcome_of(row)
            if outcome is not None:
                self.endings.announce(row.id, outcome)
        return {row.id for row in rows}

    def kick(self) -> None:
        """Somebody changed something in the database that this worker may have to act on."""
        self.changes.elsewhere()
        self._sweep.kick()

    # --- duties -----------------------------------------------------------------------------------------------------
    def _foreign_change(self) -> None:
        """Another process wrote: look at once. Under load it does so all the time: then gather a little in between."""
        self.changes.elsewhere()
        if self._running and not self._noticed:
            self._noticed = True
            busy = stopwatch() - self._noticed_at < BUSY
            asyncio.get_running_loop().call_later(NOTICE if busy else 0, self._noticing)

    def _noticing(self) -> None:
        self._noticed, self._noticed_at = False, stopwatch()
        self._to_look = len(self.endings)
        self._sweep.kick()

    def _claim_more(self) -> None:
        if self._running:
            self._sweep.kick()

    async def _sweep_round(self) -> float:
        """Read the mail, take over from the dead, claim what needs running, see who ended."""
        worker = self.worker_id
        if worker is not None:
            await self._read_mail(worker)  # first: somebody waits for what is in it
            await self.storage.take_over(worker)
            await self._claim(worker)
            await self._gather_strays(worker)
        await self._see_who_ended()
        return SWEEP

    async def _see_who_ended(self) -> None:
        """Some in each round: very many may be waited for. When others have written, all of them, round after round."""
        mine = self.scheduler.residents
        elsewhere = [id for id in self.endings.some(LOOKUPS) if id not in mine]
        if elsewhere:
            await self._read_endings(elsewhere)
        self._to_look -= LOOKUPS
        if self._to_look > 0:
            self._sweep.kick()

    async def _claim(self, worker: str) -> None:
        while self.scheduler.residents.has_room:
            due_before = self.clock.now() + self.balancing.look_ahead(self.timers.window)
            try:
                claimed = await self.storage.claim(worker, self.registry.names, CLAIM, due_before)
            except TransientError:
                self._answer_lost()
                raise
            if not claimed:  # a claim may be smaller than asked for: workflows take turns
                return
            await self._take_on(claimed)
        self.scheduler.residents.want_room()

    async def _take_on(self, claimed: Sequence[Claimed]) -> None:
        """They are ours, whatever else goes wrong: those that only wait are read when their time comes."""
        trouble = await self._hear_of_deaths() if any(instance.crashed for instance in claimed) else None
        for instance in claimed:
            if instance.waits:
                self.loader.expect(instance.id, crashed=instance.crashed)
            else:
                self.loader.load(instance.id, crashed=instance.crashed)
        if any(instance.waits for instance in claimed):
            self._refresh_timers()
        if trouble is not None:
            raise trouble

    async def _hear_of_deaths(self) -> TransientError | None:
        """What was claimed is ours whether or not this can be read: then it is judged by what is known here."""
        try:
            self.scheduler.inquest.inform(await self.storage.mortality())
        except TransientError as error:
            return error
        return None

    def _answer_lost(self) -> None:
        """Instances may be ours now without our knowing which."""
        self._strays_at, self._lost_answers = 0, 2
        self._refresh_timers()

    def _adopted(self) -> None:
        """Instances that wait are this worker's now: their timers are to be kept, and their mail to be read."""
        self._refresh_timers()
        self._sweep.kick()

    async def _gather_strays(self, worker: str) -> None:
        """What is ours and ought to be in memory but is not, because an answer was lost: rare, so looked for rarely."""
        now = self.clock.now()
        if now < self._strays_at <= now + STRAYS:  # farther ahead: the clock was set back
            return
        suspects = [id for id in await self.storage.unloaded(worker) if not self.scheduler.residents.knows(id)]
        self._lost_answers = max(0, self._lost_answers - 1)  # it takes two looks to tell who is lost
        self._strays_at = now + (0 if self._lost_answers else STRAYS)
        # Those that began meanwhile are on their way; only who is still missing after a turn is lost.
        for instance in self._strays & {id for id in suspects if not self.scheduler.residents.knows(id)}:
            self.loader.load(instance)
        self._strays = set(suspects)

    async def _read_mail(self, worker: str) -> None:
        mail = await self.storage.mail(worker, 1000)
        hints: dict[str, list[int]] = {}
        for instance, event in mail.deliveries:
            hints.setdefault(instance, []).append(event)
        for instance, events in hints.items():
            resident = self.scheduler.residents.get(instance)
            if resident is None:
                self.loader.load(instance)
            elif resident.state is IDLE:
                self.loader.look_for(resident, events)
        for request, instance, kind, payload in mail.requests:
            if kind == CANCEL:
                self.loader.wake(instance, CancelAsked(request, payload.decode("utf-8", "replace")))

    async def _renew_round(self) -> float:
        try:
            if not self.is_worker:
                await self.storage.check()
            elif self.worker_id is None:
                await self._register()
                self._refresh_timers()
                self._sweep.kick()
            elif not await self.storage.renew(self.worker_id, self._lease):
                self._fenced(self.worker_id)
                return 0.0
        except Outdated as error:
            self._retire(error)
            return NEVER
        return self._lease / SECOND / 3

    def _retire(self, error: Outdated) -> None:
        """The schema is not ours to write any more. Nothing is handed back: that would be written, too.

        Other workers take over at once, because the migration fenced this one, or when the lease ends; what ran here
        was running all right, and does not count as a death.
        """
        if self.outdated is not None:
            return
        _logger.error("this %s stops: %s", "worker" if self.is_worker else "app", error)
        self.outdated = error
        self.worker_id = self.committer.worker = None
        self.committer.refuse(error)
        self._announcement.stop()
        for duty in (self._sweep, self._pruning, self._balance):
            duty.retire()
        self.timers.stop()
        self.scheduler.closed = True
        self.scheduler.drop_all()
        self.endings.fail_all(error)

    async def _prune_round(self) -> float:
        now, kept = self.clock.now(), self._retention
        instances, failed, events = (
            0 if time is None else now - duration_us(time) for time in (kept.instances, kept.failed, kept.events)
        )
        pruned = await self.storage.prune(instances, events, 500, failed_before=failed)
        return 0.05 if pruned else 60.0

    # --- timers -----------------------------------------------------------------------------------------------------
    def _refresh_timers(self) -> None:
        self._begin(self._load_timers())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)

    async def _load_timers(self) -> None:
        worker = self.worker_id
        if worker is None:
            return
        # The horizon moves first: what is committed while the read is under way adds itself.
        horizon = self.clock.now() + self.timers.window
        self.timers.extend(horizon)
        try:
            found = await self.storage.due(worker, horizon, LIMIT)
        except StorageError as error:
            self.committer.outage.noticed("timers", error)
            await asyncio.sleep(1)
            self._refresh_timers()
            return
        self.committer.outage.over("timers")
        for timer in found:
            self.timers.add(timer.due, timer.instance, timer.op)
        if len(found) == LIMIT:
            self.clock.call_at(found[-1].due, self._refresh_timers)

    # --- for people -------------------------------------------------------------------------------------------------
    def _activity_started(self, attempting: Attempting) -> None:
        if self.hooks.wanted:
            instance = attempting.resident.instance
            self.hooks.tell(
                h.ActivityStartedInfo,
                instance_id=instance.id,
                workflow=instance.definition.name,
                at=from_us(self.clock.now()),
                activity=attempting.call.activity.name,
                activity_id=attempting.call.id,
                attempt=attempting.attempt,
            )

    def _attempt_over(self, attempting: Attempting) -> None:
        self.scheduler.inquest.quarantine.leave(attempting.resident, attempting.call.id)

    @property
    def is_idle(self) -> bool:
        """Nothing is under way: only waiting is left."""
        return not self.activities.running and self.is_idle_but_for_activities

    @property
    def is_idle_but_for_activities(self) -> bool:
        unregistered = self.is_worker and self._running and self.worker_id is None and self.outdated is None
        busy = self._refreshing or not self._announcement.is_made or unregistered or not self.hooks.is_idle
        return not busy and self.scheduler.is_idle and self.committer.is_idle and self._sweep.is_idle
