"""The committer groups everything that is to be stored into one transaction at a time.

While one batch commits, the next gathers. The batch size follows the load, without a timer or a setting. A batch whose
outcome is unknown is submitted again unchanged. A batch with a value the database refuses is split until only that item
is left out. A batch that takes too long is split too; an item that takes too long alone is retried separately.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from romancy.core.clock import Clock, stopwatch
from romancy.core.registry import Registry
from romancy.engine.ahead import Ahead
from romancy.engine.changes import ChangeFeed
from romancy.engine.emissions import Emissions
from romancy.engine.halves import halves
from romancy.engine.items import (
    ANSWERED,
    CALLED,
    CLOSED,
    DEAD,
    IDLE,
    OPEN,
    STORING,
    SUBMITTING,
    ChildItem,
    CommitItem,
    Done,
    EventsItem,
    Item,
    JudgedItem,
    LookItem,
    RequestItem,
    Results,
    StartItem,
    fill,
)
from romancy.engine.laggards import Laggard, Laggards
from romancy.engine.leases import Lease
from romancy.engine.metrics import Metrics
from romancy.engine.outage import Outage
from romancy.errors import AppNotRunning, Outdated, StorageError
from romancy.storage.batch import (
    Accept,
    AcceptAnswer,
    Batch,
    BatchResult,
    Commit,
    Request,
    RequestAnswer,
    Start,
    StartAnswer,
)
from romancy.storage.errors import RefusedValue, TookTooLong
from romancy.storage.protocol import Storage

T = TypeVar("T")
_logger = logging.getLogger("romancy")
MAX_BATCH, WORTH_A_TRIP = 2_000, 25
"""The most items in a batch, and the fewest worth a round trip. A remote database gets half of the queue at a time:
while it stores one half, we follow up on the other.
"""
MAX_WEIGHT = 4 * 1024 * 1024
"""Bytes of results, inputs and data after which a batch is full. The last item can exceed this, up to its own limit."""
MAX_WAITING = 10_000
"""How many starts and events from outside can wait to be stored; further callers wait for their turn."""


class Committer:
    """Takes items to store, and reports when they are stored.

    `on_events` is called with stored events, `on_answer` with the answer to a batch, `on_settled` after the follow-up.
    `room` returns how many more instances this worker can take on; none when it is stopping.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        registry: Registry,
        lease: Lease,
        outage: Outage,
        metrics: Metrics,
        *,
        on_events: Callable[[Batch, BatchResult], None],
        on_answer: Callable[[BatchResult], None],
        on_settled: Callable[[], None],
        room: Callable[[], int],
        emissions: Emissions,
    ) -> None:
        self._storage, self._clock, self._registry, self._lease = storage, clock, registry, lease
        self.outage, self._metrics = outage, metrics
        self._on_events, self._on_answer, self._on_settled = on_events, on_answer, on_settled
        self._room_for_more, self._emissions = room, emissions
        self.changes = ChangeFeed()
        self._submitted = 0.0
        self._queue: deque[Item] = deque()
        self._parts: deque[tuple[Batch, list[Item]]] = deque()
        """The parts of a batch that was too large."""
        self._most = MAX_BATCH
        self._laggards = Laggards(storage, self._settle_late)
        self._ahead = Ahead(storage, self._enqueue)
        self._put = self._enqueue if storage.over is None else self._put_ahead
        self._pump = IDLE
        self._followed_up = 0
        """How many items are followed up while the next batch is in progress."""
        self._life = OPEN
        self._refusal: StorageError | None = None
        self._waiting = 0
        self._room = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._pause = 0.0
        self._salt, self._batches = os.urandom(8), 0

    def __repr__(self) -> str:
        return f"<Committer {self._life.value} {self._pump.value} queued={len(self._queue)}>"

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def is_idle(self) -> bool:
        return self._can_flush and not (self._queue or self._laggards or self._ahead)

    @property
    def _can_flush(self) -> bool:
        return self._pump is IDLE or self._pump is CALLED

    # --- putting in -------------------------------------------------------------------------------------------------
    def commit(self, commit: Commit, done: Done) -> None:
        """Store a commit, then call `done(applied, refusal)`."""
        if commit.emitted or (self._emissions.heads and not commit.append_only):
            self._emissions.submit(commit, done, self._put_commit)
        else:
            self._put(CommitItem(commit, done))

    def _put_commit(self, commit: Commit, done: Done) -> None:
        self._put(CommitItem(commit, done))

    def look(self, instance: str, op: str | None, done: Callable[[], None] | None = None) -> None:
        """Look for events for a wait, or for all waits of an instance. Events that are found arrive as offers."""
        self._put(LookItem(instance, op, done))

    async def start(self, start: Start, begin: Callable[[Start], None]) -> StartAnswer:
        """Store a new instance, and `begin` it if this worker owns it."""
        return await self._ask(lambda future: StartItem(start, begin, future))

    def start_child(
        self, start: Start, begin: Callable[[Start], None], done: Callable[[StartAnswer | Exception], None]
    ) -> None:
        """Store a child, `begin` it if this worker owns it, then call `done(answer)`."""
        self._put(ChildItem(start, begin, done))

    async def accept(self, item: Accept) -> AcceptAnswer:
        return await self._ask(lambda future: EventsItem([item], True, future))

    @property
    def has_room(self) -> bool:
        """Whether callers from outside need not wait for their turn."""
        return self._waiting < MAX_WAITING and self._life is OPEN and self._refusal is None

    def accept_judged(self, item: Accept, judge: Callable[[Accept, AcceptAnswer], T]) -> asyncio.Future[T]:
        """Accept an event, if there is room. The future gets what `judge` makes of the answer."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting += 1
        future.add_done_callback(self._leave)
        self._put(JudgedItem(item, judge, future))
        return future

    def _leave(self, future: asyncio.Future[Any]) -> None:
        self._waiting -= 1
        self._room.set()

    async def accept_all(self, items: Sequence[Accept]) -> list[AcceptAnswer]:
        """Store several events in one transaction: all of them or, if one can't be stored, none."""
        return await self._ask(lambda future: EventsItem(items, False, future))

    async def request(self, request: Request) -> RequestAnswer:
        return await self._ask(lambda future: RequestItem(request, future))

    async def _ask(self, make: Callable[[asyncio.Future[Any]], Item]) -> Any:
        while self._waiting >= MAX_WAITING:
            self._room.clear()
            await self._room.wait()
        if self._refusal is not None:
            raise self._refusal
        if self._life is not OPEN:
            raise AppNotRunning
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting += 1
        try:
            self._put(make(future))
            return await future
        finally:
            self._waiting -= 1
            self._room.set()

    def _put_ahead(self, item: Item) -> None:
        """Queue an item, after its large values were written outside the database."""
        if item.weight <= (self._ahead.over or 0):
            self._enqueue(item)
        else:
            self._idle.clear()
            self._ahead.add(item, self._batch([item]))

    def _enqueue(self, item: Item) -> None:
        if self._life is DEAD:
            self._fail([item], AppNotRunning("the app crashed"))
            return
        if self._refusal is not None:
            self._fail([item], self._refusal)
            return
        self._queue.append(item)
        if self._pump is IDLE:
            self._pump = CALLED
            asyncio.get_running_loop().call_soon(self.flush)

    def gather(self) -> None:
        """Queue items without a flush of their own: the caller adds many, then calls `flush`."""
        if self._pump is IDLE:
            self._pump = CALLED

    def flush(self) -> None:
        """Submit the queued items, unless a batch is in progress."""
        if not self._can_flush:
            return
        self._pump = IDLE
        if self._queue and not self._append():
            self._idle.clear()
            self._next()

    def _append(self) -> bool:
        """Store a single entry at once, if the database supports that. This shortcut serves many small steps."""
        item = self._queue[0]
        if not isinstance(item, CommitItem) or len(self._queue) > 1:
            return False
        commit = item.commit
        if not commit.append_only or len(commit.entries) > 1:
            return False
        begin = stopwatch()
        if not self._storage.append(commit, self._lease.worker):
            return False
        self._queue.popleft()
        self._metrics.commit_items.observe(1)
        self._metrics.commit_seconds.observe(stopwatch() - begin)
        if self.changes.watchers:
            _safely(self.changes.touched, {commit.instance})
        _safely(item.done, True, None)
        return True

    async def drained(self) -> None:
        """Wait until everything that was put in is stored."""
        await self._idle.wait()

    # --- transactions of activities ---------------------------------------------------------------------------------
    def batch_of(self, commit: Commit) -> Batch:
        """Return a batch for a commit that is stored in a transaction of its own."""
        return self._batch([CommitItem(commit, lambda applied, refusal: None)])

    def stored_apart(self, batch: Batch, answer: BatchResult) -> None:
        """Follow up on a batch of `batch_of`, apart from the instance itself."""
        if self._life is DEAD:
            return
        if self.changes.watchers:
            _safely(self.changes.stored, batch, answer)
        if answer.sent:
            _safely(self._on_events, batch, answer)
        if answer.sent or answer.offers:
            _safely(self._on_answer, answer)
        if answer.fenced:
            _safely(self._lease.fenced, batch.worker)

    # --- one batch after the other ----------------------------------------------------------------------------------
    def _next(self) -> None:
        queue = self._queue
        while queue or self._parts:
            self._pump, self._submitted = SUBMITTING, stopwatch()
            if self._parts:
                self._submit(*self._parts.popleft())
            else:
                items = self._some(queue)
                self._submit(self._batch(items), items)
            if self._pump is SUBMITTING:
                self._pump = STORING
            if self._pump is STORING:
                return
        self._pump = IDLE
        if not (self._laggards or self._ahead):
            self._idle.set()

    def _some(self, queue: deque[Item]) -> list[Item]:
        """Return the items of the next batch: as many as the database, and a slow connection, can take at once."""
        items: list[Item] = []
        weight = 0
        half = max((len(queue) + self._followed_up) // 2, WORTH_A_TRIP)
        most = min(half, self._most) if self._storage.is_remote else self._most
        while queue and len(items) < most and weight < MAX_WEIGHT:
            item = queue.popleft()
            items.append(item)
            weight += item.weight
        return items

    def _over(self) -> None:
        """Finish a batch and go on with the next, unless `_next` is running: then it does so itself."""
        if self._pump is SUBMITTING:
            self._pump = ANSWERED
        else:
            self._next()

    def _batch(self, items: list[Item]) -> Batch:
        self._batches += 1
        token = self._salt + self._batches.to_bytes(8, "big")
        batch = Batch(self._lease.worker, self._registry.names, token, self._clock.now(), room=self._room_for_more())
        return fill(batch, items)

    def _submit(self, batch: Batch, items: list[Item]) -> None:
        self._laggards.watch(batch)
        self._storage.commit(batch, lambda answer, error: self._answered(batch, items, answer, error))

    def _answered(
        self, batch: Batch, items: list[Item], answer: BatchResult | None, error: BaseException | None
    ) -> None:
        if self._life is DEAD:
            self._fail(items, AppNotRunning("the app crashed"))
            return
        if isinstance(error, Outdated):
            self._lease.retire(error)
            self._fail(items, error)
            self._over()
            return
        if isinstance(error, TookTooLong):
            self._take_apart(batch, items, error)
            return
        if isinstance(error, StorageError) and not isinstance(error, RefusedValue):
            # A revoked privilege, a missing table: an operator has to fix that. No value is at fault.
            self._retry(batch, items, error)
            return
        if self._pause:
            self.outage.over("commit")
            self._pause = 0.0
            self._laggards.hurry()
        if answer is None:
            # Treat unexpected errors like refused values: an immediate retry would fail again.
            self._bisect(
                items, error if isinstance(error, RefusedValue) else RefusedValue(f"it can't be stored: {error!r}")
            )
        else:
            self._metrics.commit_items.observe(len(items))
            self._metrics.commit_seconds.observe(stopwatch() - self._submitted)
            if self._most < MAX_BATCH and len(items) >= self._most:
                self._most = min(self._most * 2, MAX_BATCH)
            if self.changes.watchers:
                _safely(self.changes.stored, batch, answer)
            if answer.accepts or answer.sent:
                _safely(self._on_events, batch, answer)
            if self._storage.is_remote and self._queue:
                self._followed_up = len(items)
                self._over()  # the database stores the next batch while we follow up on this one
                self._followed_up = 0
                self._settle(items, answer, batch.worker)
            else:
                self._settle(items, answer, batch.worker)
                self._over()
            _safely(self._on_settled)

    def _retry(self, batch: Batch, items: list[Item], error: BaseException | None) -> None:
        """Retry after an outage. The outcome is unknown, so the batch is submitted unchanged, before any other."""
        self.outage.noticed("commit", error)
        self._pause = min(max(self._pause * 2, 0.05), 2.0)
        if self._life is not OPEN or self._refusal is not None:
            self._fail(items, self._refusal or error or AppNotRunning())
            self._over()
        else:
            asyncio.get_running_loop().call_later(self._pause, self._resubmit, batch, items, error)

    def _resubmit(self, batch: Batch, items: list[Item], error: BaseException | None) -> None:
        if self._refusal is not None:
            self._retry(batch, items, error)
        else:
            self._submit(batch, items)

    # --- what takes too long ----------------------------------------------------------------------------------------
    def _take_apart(self, batch: Batch, items: list[Item], error: TookTooLong) -> None:
        """Split the batch. Set an item aside that takes too long alone, and pause before the next batch."""
        self._pause = max(self._pause, 0.05)
        self.outage.noticed("commit", error)
        if self._life is not OPEN:
            self._fail(items, error)
            self._over()
        elif parts := halves(batch, items):
            self._most = max(1, len(items) // 2)
            self._parts.extendleft(reversed(parts))
            self._over()
        else:
            self._laggards.add(batch, items, error)
            asyncio.get_running_loop().call_later(self._pause, self._over)
            self._pause = min(self._pause * 2, 2.0)

    def _settle_late(self, late: Laggard, answer: BatchResult | None, error: BaseException | None) -> None:
        """Handle the outcome of an item that was retried separately."""
        if self._life is DEAD:
            self._fail(late.items, AppNotRunning("the app crashed"))
        elif answer is not None:
            if self.changes.watchers:
                _safely(self.changes.stored, late.batch, answer)
            self._settle(self._look_again(late, answer), answer, late.batch.worker)
            _safely(self._on_settled)
        elif isinstance(error, StorageError) and not isinstance(error, RefusedValue):
            self._fail(late.items, error)
        else:
            self._queue.extendleft(reversed(late.items))  # it is split, and the caller of the refused item is told
        self.flush()
        if self.is_idle:
            self._idle.set()

    def _look_again(self, late: Laggard, answer: BatchResult) -> list[Item]:
        """Look again for instances that committed in the meantime: their offers may be out of date."""
        stale = {offer.instance for offer in answer.offers} & late.overtaken_by
        if not stale:
            return late.items
        answer.offers = [offer for offer in answer.offers if offer.instance not in stale]
        again = [item for item in late.items if isinstance(item, LookItem) and item.instance in stale]
        stale.difference_update(item.instance for item in again)
        self._queue.extend([*again, *(LookItem(instance, None) for instance in sorted(stale))])
        return [item for item in late.items if item not in again]

    def _bisect(self, items: list[Item], error: RefusedValue) -> None:
        """Split the batch until only the item with the refused value fails."""
        if len(items) == 1:
            items[0].refuse(error, self._life)
            self._over()
            return
        middle = len(items) // 2
        self._queue.extendleft(reversed(items[middle:]))
        self._submit(self._batch(items[:middle]), items[:middle])

    def _fail(self, items: Iterable[Item], error: BaseException) -> None:
        for item in items:
            item.fail(error, self._life)

    def _settle(self, items: list[Item], answer: BatchResult, worker: str | None) -> None:
        if len(items) == 1 and isinstance(items[0], CommitItem):  # the most common batch
            _safely(items[0].done, answer.commits[0], None)
        else:
            results = Results(answer)
            for item in items:
                _safely(item.settle, results)
        if answer.accepts or answer.sent or answer.offers or answer.letters or answer.repeated or answer.admitted:
            _safely(self._on_answer, answer)
        # A fenced worker finds nothing because it no longer owns anything. That does not mean there are no events.
        if len(answer.commits) < len(items) and worker is not None and not answer.fenced:
            for item in items:
                if isinstance(item, LookItem):
                    _safely(item.looked)
        if answer.fenced:
            _safely(self._lease.fenced, worker)

    def abandon(self) -> None:
        """For tests: forget everything, as a crash does. Waiting callers get an error."""
        self._life = DEAD
        self._emissions.close()
        late = [item for laggard in self._laggards.close() for item in laggard.items]
        parts = [item for _, items in self._parts for item in items]
        self._fail([*late, *parts, *self._queue], AppNotRunning("the app crashed"))
        self._parts.clear()
        self._queue.clear()
        self._idle.set()

    def refuse(self, error: StorageError) -> None:
        """Store nothing more, and fail queued and new items with this error. The current batch is still answered."""
        self._refusal = error
        queued = list(self._queue)
        self._queue.clear()
        self._fail(queued, error)

    def close(self) -> None:
        """Take nothing more from outside. Queued items are still stored."""
        self._life = CLOSED
        self._emissions.close()
        for laggard in self._laggards.close():
            self._fail(laggard.items, laggard.error)
        self.outage.close()


def _safely(callback: Callable[..., None], *args: Any) -> None:
    """Log an error in the follow-up of one item, so that the other items and the next batch are not affected."""
    try:
        callback(*args)
    except (Exception, asyncio.CancelledError):
        _logger.exception("the follow-up of a commit failed")
