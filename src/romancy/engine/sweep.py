"""The sweep: looks in the database for what this worker has to do, and nobody in this process told it."""

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
from romancy.engine.resident import IDLE, CancelAsked
from romancy.engine.residents import Residents
from romancy.engine.revival import Revival
from romancy.engine.timers import Timers
from romancy.storage.batch import CANCEL
from romancy.storage.errors import TransientError
from romancy.storage.protocol import Storage
from romancy.storage.records import Claimed

CLAIM = 500
"""Instances claimed at a time."""
MAIL = 1000
"""Deliveries and requests read at a time."""
NOTICE = 0.003
"""Seconds to gather before looking at what another process wrote, when it writes all the time."""
BUSY = 0.02
"""Notices that come this soon after one another are such a time."""
STRAYS = 15 * SECOND
"""How often to look for instances that got lost between database and memory."""
SWEEP = 1.0
"""Seconds between looks for what nobody announced."""


class Sweep:
    """Reads the mail, takes over from the dead, claims what needs running, sees who ended."""

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
        kick: Callable[[], None],
        refresh_timers: Callable[[], None],
    ) -> None:
        self._storage, self._clock, self._registry, self._lease = storage, clock, registry, lease
        self._residents, self._loader, self._revival, self._inquest = residents, loader, revival, inquest
        self._timers, self._balancing, self._endings = timers, balancing, endings
        self._kick, self._refresh_timers = kick, refresh_timers
        self._to_look = 0
        self._noticed, self._noticed_at = False, float("-inf")
        self._strays: set[str] = set()
        self._strays_at = self._lost_answers = 0

    def notice(self) -> None:
        """Another process wrote: look at once. Under load it does so all the time: then gather a little in between."""
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
            await self._read_mail(worker)  # first: somebody waits for what is in it
            await self._storage.take_over(worker)
            await self._claim(worker)
            await self._gather_strays(worker)
        await self._see_who_ended()
        return SWEEP

    async def _read_mail(self, worker: str) -> None:
        mail = await self._storage.mail(worker, MAIL)
        hints: dict[str, list[int]] = {}
        for instance, event in mail.deliveries:
            hints.setdefault(instance, []).append(event)
        for instance, events in hints.items():
            resident = self._residents.get(instance)
            if resident is None:
                self._loader.load(instance)
            elif resident.state is IDLE:
                self._revival.look_for(resident, events)
        for request, instance, kind, payload in mail.requests:
            if kind == CANCEL:
                self._loader.wake(instance, CancelAsked(request, payload.decode("utf-8", "replace")))

    # --- claiming ---------------------------------------------------------------------------------------------------
    async def _claim(self, worker: str) -> None:
        while self._residents.has_room:
            due_before = self._clock.now() + self._balancing.look_ahead(self._timers.window)
            try:
                claimed = await self._storage.claim(worker, self._registry.names, CLAIM, due_before)
            except TransientError:
                self._answer_lost()
                raise
            if not claimed:  # a claim may be smaller than asked for: workflows take turns
                return
            await self._take_on(claimed)
        self._residents.want_room()

    async def _take_on(self, claimed: Sequence[Claimed]) -> None:
        """They are ours, whatever else goes wrong: those that only wait are read when their time comes."""
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
        """What was claimed is ours whether or not this can be read: then it is judged by what is known here."""
        try:
            self._inquest.inform(await self._storage.mortality())
        except TransientError as error:
            return error
        return None

    def _answer_lost(self) -> None:
        """Instances may be ours now without our knowing which."""
        self._strays_at, self._lost_answers = 0, 2
        self._refresh_timers()

    async def _gather_strays(self, worker: str) -> None:
        """What is ours and ought to be in memory but is not, because an answer was lost: rare, so looked for rarely."""
        now = self._clock.now()
        if now < self._strays_at <= now + STRAYS:  # farther ahead: the clock was set back
            return
        suspects = [id for id in await self._storage.unloaded(worker) if not self._residents.knows(id)]
        self._lost_answers = max(0, self._lost_answers - 1)  # it takes two looks to tell who is lost
        self._strays_at = now + (0 if self._lost_answers else STRAYS)
        # Those that began meanwhile are on their way; only who is still missing after a turn is lost.
        for instance in self._strays & {id for id in suspects if not self._residents.knows(id)}:
            self._loader.load(instance)
        self._strays = set(suspects)

    async def _see_who_ended(self) -> None:
        """Some in each round: very many may be waited for. When others have written, all of them, round after round."""
        elsewhere = [id for id in self._endings.some(LOOKUPS) if id not in self._residents]
        if elsewhere:
            await self._endings.read(elsewhere)
        self._to_look -= LOOKUPS
        if self._to_look > 0:
            self._kick()
