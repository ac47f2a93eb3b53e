"""Balancing: who owns clearly more than others lets go of instances that only wait; who owns less takes them up.

Nobody is told what to do, and nobody needs to know who can run what: what was let go of is free, and a worker that has
the workflow and owns less than its share takes it. While some is still free no more is let go of, so what nobody wants
stays where it is, but for a few. Only who is well above its share gives, and nobody takes beyond it: nothing goes back
and forth. Events and timers find an instance wherever it is: what gets mail, or falls due soon, is claimed by anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from romancy.core.clock import Clock
from romancy.core.model import SECOND
from romancy.core.registry import Registry
from romancy.engine.committer import Committer
from romancy.engine.exits import Exits
from romancy.engine.leases import Lease
from romancy.engine.loader import Loader
from romancy.engine.resident import COMMITTING, IDLE, Input, Resident
from romancy.engine.residents import Residents
from romancy.engine.timers import Timers
from romancy.storage.batch import Commit
from romancy.storage.errors import RefusedValue, TransientError
from romancy.storage.protocol import Storage
from romancy.storage.records import Idle

CHUNK = 200
"""Instances that change hands in one round."""
SLACK = 10
"""So many above its share, or a quarter of it, a worker may own before it lets go of any."""
URGENT = 5 * SECOND
"""What falls due within it stays where it is."""
SOON = 3 * SECOND
"""How far ahead one who lets go still claims what falls due; less than URGENT, more than a few sweeps."""
GIVING = 10 * SECOND
"""For how long after letting go."""
BRISK, REST, MOST_REST = 0.25, 1.0, 30.0
"""Seconds between rounds: while something changes hands; else per worker, so that many don't count all the time."""


class Balancing:
    """Keeps this worker near its share of all that is owned."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        registry: Registry,
        lease: Lease,
        residents: Residents,
        loader: Loader,
        committer: Committer,
        timers: Timers,
        exits: Exits,
        adopted: Callable[[], None],
    ) -> None:
        self._storage, self._clock, self._registry, self._lease = storage, clock, registry, lease
        self._residents, self._loader, self._committer = residents, loader, committer
        self._timers, self._exits, self._adopted = timers, exits, adopted
        self._giving_until = 0
        self._rest = BRISK

    def __repr__(self) -> str:
        return f"<Balancing giving={self._clock.now() < self._giving_until}>"

    def look_ahead(self, window: int) -> int:
        """How far ahead to claim what falls due: who just let go of it leaves it to others as long as there is time."""
        return min(window, SOON) if self._clock.now() < self._giving_until else window

    async def round(self) -> float:
        """Count, and give or take a little; returns how long to rest."""
        worker = self._lease.worker
        if worker is None:
            return REST
        try:
            shares = await self._storage.shares(self._registry.names, CHUNK)
            moved = await self._balance(worker, shares.owned, shares.free)
        except TransientError:
            return REST  # the sweep tells people; it reads far more often
        most = min(REST * max(2, len(shares.owned)), MOST_REST)
        self._rest = BRISK if moved else min(self._rest * 2, most)
        return self._rest

    async def _balance(self, worker: str, owned: dict[str, int], free: int) -> int:
        """How many changed hands."""
        if len(owned) < 2 or worker not in owned:
            return 0
        mine, share = owned[worker], -(-(sum(owned.values()) + free) // len(owned))
        if free and mine < share:
            return await self._take(worker, min(share - mine, CHUNK))
        if not free and mine - share > max(SLACK, share // 4):
            return await self._give(worker, min(mine - share, CHUNK))
        return 0

    # --- taking -----------------------------------------------------------------------------------------------------
    async def _take(self, worker: str, limit: int) -> int:
        """They need not be read into memory: their timers do, and what came for them meanwhile."""
        try:
            taken = await self._storage.claim_idle(worker, self._registry.names, limit)
        except TransientError:
            self._adopted()  # the answer is lost: who knows
            raise
        if taken:
            self._adopted()
        return taken

    # --- giving -----------------------------------------------------------------------------------------------------
    async def _give(self, worker: str, limit: int) -> int:
        now = self._clock.now()
        idle = await self._storage.idle(worker, now + URGENT, limit)
        self._giving_until = now + GIVING
        released = [self._release(row) for row in idle if self._may_leave(row)]
        return sum(await asyncio.gather(*released))

    def _may_leave(self, row: Idle) -> bool:
        """Whether it only waits in memory too, if it is there."""
        resident = self._residents.get(row.id)
        if resident is None:
            return row.id not in self._residents.loading
        return resident.is_evictable and resident.version == row.version

    def _release(self, row: Idle) -> asyncio.Future[bool]:
        """By a commit like any other: refused if anything has happened to the instance since it was seen to be idle."""
        residents = self._residents
        resident, came = residents.get(row.id), list[Input]()
        if resident is not None:
            resident.state = COMMITTING  # what comes for it waits in its inbox
            residents.rouse(resident)
        else:
            residents.loading[row.id] = came  # or here: it must not be read, and commit too, meanwhile
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        commit = Commit(row.id, row.version, row.status, self._clock.now(), release=True)

        def released(applied: bool, refusal: RefusedValue | None) -> None:
            if resident is not None:
                self._leave(resident, applied)
            elif residents.loading.get(row.id) is came:
                del residents.loading[row.id]
                self._pass_on(row.id, came, applied)
            if not done.done():
                done.set_result(applied)

        self._committer.commit(commit, released)
        return done

    def _leave(self, resident: Resident, applied: bool) -> None:
        if resident.is_gone:
            return
        resident.state = IDLE
        if not applied:
            self._exits.reload(resident)
            return
        for op in resident.instance.ops:
            self._timers.discard(resident.instance.id, op)
        self._exits.drop(resident)
        self._pass_on(resident.instance.id, resident.inbox, applied)

    def _pass_on(self, instance: str, came: list[Input], applied: bool) -> None:
        """What came for one on its way out is stored, for whoever claims it: perhaps this worker again."""
        self._residents.acknowledge(instance)
        if came and applied:
            self._residents.on_work()
        elif came:
            self._loader.load(instance, *came)
