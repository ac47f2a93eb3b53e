"""The sweep: looks in the database for work that this worker was not told about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from romancy.core.clock import Clock, stopwatch
from romancy.core.model import SECOND
from romancy.core.registry import Registry
from romancy.engine.balancing import Balancing
from romancy.engine.endings import LOOKUPS, Endings
from romancy.engine.inquest import Inquest
from romancy.engine.leases import Lease
from romancy.engine.loader import Loader
from romancy.engine.mail import to_input
from romancy.engine.resident import IDLE
from romancy.engine.residents import Residents
from romancy.engine.revival import Revival
from romancy.engine.timers import Timers
from romancy.engine.unfit import UnfitInstances
from romancy.storage.errors import TransientError
from romancy.storage.protocol import Storage
from romancy.storage.records import FIRST_MAIL, Claimed, Mail

CLAIM = 500
"""How many instances are claimed at a time."""
FIRST = 50
"""How many are claimed first. If a thousand are left by a dead worker, some of them run before all are loaded."""
MAIL = 1000
"""How many deliveries and requests are read at a time."""
NOTICE = 0.003
"""Seconds to wait, under load, before looking for changes of another process, so that several gather."""
BUSY = 0.02
"""Notices within this many seconds of each other count as load."""
STRAYS = 15 * SECOND
"""How often to look for instances that were claimed but never loaded."""
SWEEP = 1.0
"""Seconds between regular rounds."""


class Sweep:
    """Reads the mail, takes over from dead workers, claims instances, and checks which ones ended elsewhere."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        registry: Registry,
        lease: Lease,
        residents: Residents,
        loader: Loader,
        revival: Revival,
        inquest: Inquest,
        timers: Timers,
        balancing: Balancing,
        endings: Endings,
        unfit: UnfitInstances,
        kick: Callable[[], None],
        refresh_timers: Callable[[], None],
    ) -> None:
        self._storage, self._clock, self._registry, self._lease = storage, clock, registry, lease
        self._residents, self._loader, self._revival, self._inquest = residents, loader, revival, inquest
        self._timers, self._balancing, self._endings, self._unfit = timers, balancing, endings, unfit
        self._kick, self._refresh_timers = kick, refresh_timers
        self._to_look = 0
        self._noticed, self._noticed_at = False, float("-inf")
        self._strays: set[str] = set()
        self._strays_at = self._lost_answers = 0
        self._read_to = FIRST_MAIL

    def notice(self) -> None:
        """Look for changes of another process: at once or, under load, after a short time to let them gather."""
        if not self._noticed:
            self._noticed = True
            busy = stopwatch() - self._noticed_at < BUSY
            asyncio.get_running_loop().call_later(NOTICE if busy else 0, self._look)

    def _look(self) -> None:
        self._noticed, self._noticed_at = False, stopwatch()
        self._to_look = len(self._endings)
        self._kick()

    async def round(self) -> float:
        worker = self._lease.worker
        if worker is not None:
            await self._read_mail(worker)  # first, because senders wait for its effects
            await self._storage.take_over(worker)
            await self._claim(worker)
            await self._take_back(worker)
            await self._gather_strays(worker)
        await self._see_who_ended()
        return SWEEP

    async def _read_mail(self, worker: str) -> None:
        """Pass on a page of the mail. The next round reads on, because some of it can't be handled for a long time.

        A page that is only for instances that are held does not count.
        """
        has_read = False
        while not has_read:
            mail = await self._storage.mail(worker, MAIL, self._read_to)
            self._read_to = mail.end
            has_read = self._pass_on(mail) or mail.end == FIRST_MAIL

    def _pass_on(self, mail: Mail) -> bool:
        """Pass mail to those of its instances that are not held. Return whether there is one."""
        hints: dict[str, list[int]] = {}
        for instance, event in mail.deliveries:
            hints.setdefault(instance, []).append(event)
        for instance, events in hints.items():
            resident = self._residents.get(instance)
            if resident is None:
                self._loader.load(instance)
            elif resident.state is IDLE:
                self._revival.look_for(resident, events)
        is_held = self._residents.is_held
        letters = [(instance, request) for instance, request in mail.requests if not is_held(instance)]
        for instance, request in letters:
            input = to_input(request.id, request.kind, request.payload, request.op)
            if input is not None:
                self._loader.wake(instance, input)
        return bool(letters) or any(not is_held(instance) for instance in hints)

    # --- claiming ---------------------------------------------------------------------------------------------------
    async def _claim(self, worker: str) -> None:
        limit = FIRST
        while self._residents.has_room:
            due_before = self._clock.now() + self._balancing.look_ahead(self._timers.window)
            try:
                claimed = await self._storage.claim(worker, self._registry.names, limit, due_before)
            except TransientError:
                self.answer_lost()
                raise
            if not claimed:  # a short answer is not the last one: workflows take turns
                return
            await self._take_on(claimed)
            limit = CLAIM
        self._residents.want_room()

    async def _take_back(self, worker: str) -> None:
        try:
            await self._unfit.take_back(worker)
        except TransientError:
            self.answer_lost()
            raise

    async def _take_on(self, claimed: Sequence[Claimed]) -> None:
        """Take on claimed instances, whatever else fails: they are ours. Those that only wait are read when due."""
        trouble = await self._hear_of_deaths() if any(instance.crashed for instance in claimed) else None
        for instance in claimed:
            if instance.waits:
                self._loader.expect(instance.id, crashed=instance.crashed)
            else:
                self._loader.load(instance.id, crashed=instance.crashed)
        if any(instance.waits for instance in claimed):
            self._refresh_timers()
        if trouble is not None:
            raise trouble

    async def _hear_of_deaths(self) -> TransientError | None:
        """Read the deaths of workers. If that fails, the claimed instances are judged by what is known here."""
        try:
            self._inquest.inform(await self._storage.mortality())
        except TransientError as error:
            return error
        return None

    def answer_lost(self) -> None:
        """Look for strays soon: instances may be ours now, and we don't know which."""
        self._strays_at, self._lost_answers = 0, 2
        self._refresh_timers()

    async def _gather_strays(self, worker: str) -> None:
        """Load instances that should be in memory but are not, because an answer was lost. Check rarely: it is rare."""
        now = self._clock.now()
        if now < self._strays_at <= now + STRAYS:  # farther ahead: the clock was set back
            return
        missing = [id for id in await self._storage.unloaded(worker) if not self._residents.knows(id)]
        self._lost_answers = max(0, self._lost_answers - 1)  # it takes two reads to tell which are lost
        self._strays_at = now + (0 if self._lost_answers else STRAYS)
        # Instances that began meanwhile are being loaded. Only those still missing at the second read are lost.
        for instance in self._strays & {id for id in missing if not self._residents.knows(id)}:
            self._loader.load(instance)
        self._strays = set(missing)

    async def _see_who_ended(self) -> None:
        """Check some instances in each round, because there may be very many. After a notice, check all, in rounds."""
        elsewhere = [id for id in self._endings.some(LOOKUPS) if id not in self._residents]
        if elsewhere:
            await self._endings.read(elsewhere)
        self._to_look -= LOOKUPS
        if self._to_look > 0:
            self._kick()
