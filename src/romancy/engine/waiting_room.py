"""The waiting room of queues: refuses starts when it is full, and takes instances that were started without a place.

An event starts an instance wherever it is stored, perhaps in a process that does not know the workflow. The first
worker that is about to run the instance knows its queue, and lets it wait there instead. Its code has not run yet.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from romancy.core.admission import MOST_ADMITTED, free_slots
from romancy.core.clock import Clock
from romancy.core.model import SECOND
from romancy.core.places import place_of_stored
from romancy.core.queues import Queue
from romancy.core.registry import WorkflowDefinition
from romancy.engine.committer import Committer
from romancy.engine.loader import Loader
from romancy.storage.batch import Commit, Start, Started
from romancy.storage.errors import RefusedValue
from romancy.storage.instances import InstanceRow
from romancy.storage.protocol import Storage

COUNTED = SECOND // 4
"""How long a count of waiting instances is used."""


class Unplaced:
    """Moves instances that were started without a place into their queues."""

    def __init__(self, clock: Clock, committer: Committer, loader: Loader, kick: Callable[[], None]) -> None:
        self._clock, self._committer, self._loader, self._kick = clock, committer, loader, kick

    def divert(self, definition: WorkflowDefinition, of: Start | Started | InstanceRow, version: int) -> bool:
        """Let an instance that has not begun wait in the queue of its workflow. Return whether it does."""
        place = place_of_stored(definition, of.id, of.input_kind, of.input)
        if place is None:
            return False
        commit = Commit(of.id, version, "queued", self._clock.now(), release=True, place=place)

        def done(applied: bool, refusal: RefusedValue | None) -> None:
            if applied:
                self._kick()
            else:  # another process wrote to it: only the database has its current state
                self._loader.load(of.id)

        self._committer.commit(commit, done)
        return True


class WaitingRoom:
    """Counts how many instances wait in a queue, to refuse further starts.

    Those that free slots are there for don't count: they only wait until a worker admits them. All are counted rarely.
    Between two counts, this process subtracts its own starts.
    """

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage, self._clock = storage, clock
        self._counting = asyncio.Lock()
        self._left: dict[str, tuple[int, int]] = {}
        """(how many more can start, when they were counted), by queue."""
        self._entering: Counter[str] = Counter()
        """Starts that are not stored yet, by queue."""

    @asynccontextmanager
    async def entering(self, queue: Queue) -> AsyncGenerator[bool]:
        """Tell whether there is room for a start, which is stored inside this block."""
        if queue.max_waiting is None:
            yield True
            return
        has_room = await self._has_room(queue, queue.max_waiting)
        self._entering[queue.name] += 1
        try:
            yield has_room
        finally:
            self._entering[queue.name] -= 1

    async def _has_room(self, queue: Queue, max_waiting: int) -> bool:
        async with self._counting:
            left, counted_at = self._left.get(queue.name, (0, 0))
            if left <= 0 or not counted_at <= self._clock.now() < counted_at + COUNTED:
                left, counted_at = await self._count(queue, max_waiting), self._clock.now()
            self._left[queue.name] = left - 1, counted_at
            return left > 0

    async def _count(self, queue: Queue, max_waiting: int) -> int:
        """Return how many more can start: as many as can wait, and one for each free slot."""
        slots = queue.max_concurrent or MOST_ADMITTED
        waiting, running, reserved = await self._storage.queues.crowd(queue, max_waiting + slots)
        free = free_slots(queue, running, reserved, self._clock.now(), slots)
        if queue.max_concurrent is None and queue.rate is None:
            free = 0  # only keys have limits: whether an instance is held depends on its key
        return max_waiting + free - waiting - self._entering[queue.name]
