"""Balancing: a worker that owns clearly more than its share releases waiting instances, and others claim them.

There is no coordinator, and a worker need not know which workflows others have. A released instance is free. A worker
that has its workflow and owns less than its share claims it. While some are free, no more are released, so instances
that no other worker can run stay where they are, but for a few. A worker releases only when well above its share, and
claims only up to it, so instances don't move back and forth. Any worker claims one that gets mail or falls due soon.
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
"""The most instances that move in one round."""
SLACK = 10
"""How many instances above its share, or a quarter of the share if that is more, a worker keeps without releasing."""
URGENT = 5 * SECOND
"""Instances that fall due within this time are not released."""
SOON = 3 * SECOND
"""How far ahead a releasing worker still claims due instances. Less than URGENT, more than a few sweeps."""
GIVING = 10 * SECOND
"""How long after a release SOON applies."""
BRISK, REST, MOST_REST = 0.25, 1.0, 30.0
"""Seconds between rounds: while instances move; otherwise per worker, to limit the counting; and at most."""


class Balancing:
    """Keeps this worker near its share of all owned instances."""

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
        """Return how far ahead to claim due instances. After a release, others get the chance while there is time."""
        return min(window, SOON) if self._clock.now() < self._giving_until else window

    async def round(self) -> float:
        """Count, release or claim a few instances, and return how long to rest."""
        worker = self._lease.worker
        if worker is None:
            return REST
        try:
            shares = await self._storage.shares(self._registry.names, CHUNK)
            moved = await self._balance(worker, shares.owned, shares.free)
        except TransientError:
            return REST  # the sweep reports the outage: it reads far more often
        most = min(REST * max(2, len(shares.owned)), MOST_REST)
        self._rest = BRISK if moved else min(self._rest * 2, most)
        return self._rest

    async def _balance(self, worker: str, owned: dict[str, int], free: int) -> int:
        """Return how many instances moved."""
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
        """Claim free instances. They are not read into memory, but their timers and their mail are."""
        try:
            taken = await self._storage.claim_idle(worker, self._registry.names, limit)
        except TransientError:
            self._adopted()  # the answer is lost: some may be ours now
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
        """Whether the instance, if in memory, only waits there too."""
        resident = self._residents.get(row.id)
        if resident is None:
            return row.id not in self._residents.loading
        return resident.is_evictable and resident.version == row.version

    def _release(self, row: Idle) -> asyncio.Future[bool]:
        """Release with a normal commit. It is refused if anything happened to the instance since the read."""
        residents = self._residents
        resident, inputs = residents.get(row.id), list[Input]()
        if resident is not None:
            resident.state = COMMITTING  # new inputs wait in its inbox
            residents.rouse(resident)
        else:
            residents.loading[row.id] = inputs  # or here: it must not be read, and commit too, at the same time
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        commit = Commit(row.id, row.version, row.status, self._clock.now(), release=True)

        def released(applied: bool, refusal: RefusedValue | None) -> None:
            if resident is not None:
                self._leave(resident, applied)
            elif residents.loading.get(row.id) is inputs:
                del residents.loading[row.id]
                self._pass_on(row.id, inputs, applied)
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

    def _pass_on(self, instance: str, inputs: list[Input], applied: bool) -> None:
        """Handle inputs that came during the release. They are stored for the next owner, perhaps this worker."""
        self._residents.acknowledge(instance)
        if inputs and applied:
            self._residents.on_work()
        elif inputs:
            self._loader.load(instance, *inputs)
