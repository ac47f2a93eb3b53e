"""Admission: lets queued instances run as soon as the limits of their queues allow it.

Every worker that has a queue in its code does it; there is no leader. Two that admit at the same time don't add up: the
write of the second one is refused, and it reads again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from romancy.core.admission import (
    Admission,
    Glance,
    KeyState,
    QueueState,
    admission,
    opens_at,
    room,
    room_of_key,
    take_turns,
)
from romancy.core.clock import Alarm, Clock
from romancy.core.model import SECOND, from_us
from romancy.core.queues import Queue
from romancy.core.registry import Registry
from romancy.engine.foresight import Foresight
from romancy.engine.hook_runner import HookRunner
from romancy.engine.leases import Lease
from romancy.engine.loader import Loader
from romancy.engine.metrics import Metrics
from romancy.engine.residents import Residents
from romancy.engine.set_backs import SetBacks
from romancy.hooks import WorkflowAdmittedInfo
from romancy.storage.errors import TransientError
from romancy.storage.instances import Admitted
from romancy.storage.protocol import Storage
from romancy.storage.records import Snapshot

SWEEP = 1.0
"""Seconds between regular rounds, for slots that other processes gave back."""
KEYS = 200
"""How many keys are looked at together."""
SKIPPED = 10
"""How often that many keys can be skipped in one round, because they are at their limits."""
FORGET = 60 * SECOND
"""How often the rates of keys that are no longer used up are deleted."""


class Admissions:
    """Admits instances to the queues that this worker has in its code. `claim` runs those it does not own itself."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        registry: Registry,
        lease: Lease,
        residents: Residents,
        loader: Loader,
        metrics: Metrics,
        hooks: HookRunner,
        kick: Callable[[], None],
        claim: Callable[[], None],
        answer_lost: Callable[[], None],
    ) -> None:
        self._storage, self._clock, self._registry, self._lease = storage, clock, registry, lease
        self._residents, self._loader, self._metrics, self._hooks = residents, loader, metrics, hooks
        self._kick, self._claim, self._answer_lost = kick, claim, answer_lost
        self._alarm: Alarm | None = None
        self._foresight = Foresight()
        self._holders: dict[str, dict[str, str]] = {}
        """By queue: instances of this worker that hold slots, with their keys."""
        self._forgotten_at = 0
        self._set_backs = SetBacks()

    def __repr__(self) -> str:
        return f"<Admissions queues={len(self._registry.queues)}>"

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    async def round(self) -> float:
        worker = self._lease.worker
        if worker is None:
            return SWEEP
        opening: list[int] = []
        for queue in list(self._registry.queues.values()):
            at = await self._admit_all(queue, worker)
            if at is not None:
                opening.append(at)
        self._wake_at(min(opening, default=None))
        await self._forget_keys()
        return SWEEP

    def _wake_at(self, at: int | None) -> None:
        """Do the next round when a rate allows the next instance."""
        self.stop()
        self._alarm = None if at is None else self._clock.call_at(at, self._kick)

    async def _forget_keys(self) -> None:
        now = self._clock.now()
        if any(queue.rate_per_key is not None for queue in self._registry.queues.values()) and not (
            self._forgotten_at <= now < self._forgotten_at + FORGET
        ):
            await self._storage.queues.forget_keys(now)
            self._forgotten_at = now

    # --- one queue --------------------------------------------------------------------------------------------------
    async def _admit_all(self, queue: Queue, worker: str) -> int | None:
        """Admit instances until no more can be. Return when a rate allows the next one, if a rate is the reason."""
        skipped = 0
        while True:
            foreseen = self._foresight.take(queue.name)
            glance = foreseen or await self._storage.queues.glance(queue)
            state, key = glance.state, glance.key
            if key is None:
                return None
            now = self._clock.now()
            most = room(queue, state, now)
            if await self._correct(queue, state, (key,), worker, now):
                continue
            if most == 0 or (glance.is_only and room_of_key(queue, key, now) == 0):
                if foreseen is None:
                    self._foresee(queue, glance)
                return opens_at(queue, state, (key,), now)
            taken = glance.decides(queue, most, now)
            if taken is not None:
                admitted = await self._store(admission(queue, state, {key.key: key}, taken, now), taken, worker, now)
                if admitted == len(taken) and glance.is_full_with(queue, admitted):
                    await self._look_ahead(queue)
                    return None
                continue
            keys, has_more = await self._keys(queue, state)
            if await self._correct(queue, state, keys, worker, now):
                continue
            free = [key for key in keys if room_of_key(queue, key, now) > 0]
            if free:
                await self._admit(queue, state, free, most, worker, now)
            elif not has_more or skipped == SKIPPED:
                return opens_at(queue, state, keys, now)
            else:
                skipped += 1
                await self._skip(queue, state, keys[-1].key, worker, now)

    async def _correct(self, queue: Queue, state: QueueState, keys: Sequence[KeyState], worker: str, now: int) -> bool:
        """Correct rates that are used up further ahead than they can be. Return whether there were any."""
        if queue.rate is None and queue.rate_per_key is None:
            return False
        made = self._set_backs.correction(queue, state, keys, now)
        if made is not None:
            await self._storage.queues.admit(made, worker, now, ())
        return made is not None

    async def _look_ahead(self, queue: Queue) -> None:
        """Find out who is next while those that were admitted run: the end of a short one lets the next begin."""
        self._foresee(queue, await self._storage.queues.glance(queue))

    def _foresee(self, queue: Queue, glance: Glance) -> None:
        """Keep what was just read about a full queue, for when one of those ends that hold its slots now."""
        holders = self._holders.get(queue.name)
        if holders and glance.is_exact(queue):
            sure = self._holders[queue.name] = {id: key for id, key in holders.items() if self._holds_slot(id)}
            self._foresight.keep(queue.name, glance, dict(sure))  # it also needs those that end later

    def successor(self, queue: Queue, instance: str) -> Admission | None:
        """Return who gets the slot of an instance that ends, if that is known already."""
        queue = self._registry.queues.get(queue.name, queue)  # its limits may be others by now
        return self._foresight.successor(queue, instance, self._clock.now())

    def _holds_slot(self, instance: str) -> bool:
        """Return whether an instance of this worker has not ended, and its end is not being stored."""
        resident = self._residents.get(instance)
        return instance in self._residents.loading if resident is None else resident.instance.outcome is None

    def freed(self, queue: str, instance: str) -> None:
        """An instance that held a slot has ended, which is stored."""
        self._holders.get(queue, {}).pop(instance, None)
        self._foresight.freed(queue, instance)
        if self._foresight.is_succeeded(queue, instance):
            asyncio.get_running_loop().call_soon(self._check_succession, queue, instance)
        else:
            self._kick()

    def _check_succession(self, queue: str, instance: str) -> None:
        """Do a round, unless another instance got the slot together with the end of this one."""
        if self._foresight.is_succeeded(queue, instance):
            for id in self._foresight.forget(queue):
                self._loader.load(id)  # it is ours if only the answer was lost
            self._kick()

    def admitted(self, answer: Sequence[Admitted]) -> None:
        """Run the instances that were admitted together with the ends of others."""
        for one in answer:
            found = self._foresight.admitted(one)
            if found is None:
                self._answer_lost()  # it is found soon
                self._kick()
            elif self._foresight.is_aging(found[0]):
                # Read it even if that is not necessary: meanwhile it holds its slot for certain, and we look ahead.
                self._take_on(replace(one, row=None), *found)
                self._kick()
            else:
                self._take_on(one, *found)

    async def _skip(self, queue: Queue, state: QueueState, key: str, worker: str, now: int) -> None:
        """Begin after this key the next time, because all keys before it are at their limits."""
        await self._storage.queues.admit(Admission(queue.name, state.version, key, state.reserved), worker, now, ())

    async def _keys(self, queue: Queue, state: QueueState) -> tuple[Sequence[KeyState], bool]:
        """Return the keys whose turn is next, and whether there are more."""
        limit, read = queue.max_concurrent_per_key, self._storage.queues.keys
        keys = await read(queue.name, state.turn, KEYS, limit)
        if len(keys) == KEYS or state.turn is None:
            return keys, len(keys) == KEYS
        first = [key for key in await read(queue.name, None, KEYS, limit) if key.key <= state.turn]
        return [*keys, *first][:KEYS], len(keys) + len(first) > KEYS or len(first) == KEYS

    async def _admit(
        self, queue: Queue, state: QueueState, keys: Sequence[KeyState], most: int, worker: str, now: int
    ) -> None:
        known = {key.key: key for key in keys[:most]}
        share = max(1, most // len(known))
        first = await self._storage.queues.first(queue.name, list(known), share)
        waiting = {key: ids[: room_of_key(queue, known[key], now)] for key, ids in first.items()}
        taken = take_turns(waiting, most)
        if taken:  # else they were cancelled meanwhile
            await self._store(admission(queue, state, known, taken, now), taken, worker, now)

    async def _store(self, made: Admission, taken: Sequence[tuple[str, str]], worker: str, now: int) -> int:
        """Admit instances, and run those that this worker owns. Return how many were admitted."""
        mine = self._registry.names if self._residents.has_room else ()
        try:
            admitted = await self._storage.queues.admit(made, worker, now, mine)
        except TransientError:
            self._answer_lost()  # they may be ours now
            raise
        keys = {id: key for key, id in taken}
        for one in admitted or ():
            self._take_on(one, made.queue, keys[one.id])
        return len(admitted or ())

    def _take_on(self, one: Admitted, queue: str, key: str) -> None:
        self._metrics.instances_admitted[queue] += 1
        if self._hooks.wanted:
            about = {"instance_id": one.id, "workflow": one.workflow, "queue": queue}
            self._hooks.tell(WorkflowAdmittedInfo, at=from_us(self._clock.now()), **about)
        if one.is_mine:
            if one.row is None:
                self._loader.load(one.id)
            else:
                self._loader.take_in(Snapshot(one.row, [], {}, [], [], []))
            self._holders.setdefault(queue, {})[one.id] = key
        else:
            self._claim()
