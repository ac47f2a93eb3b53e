"""Laggards: items that take too long even alone. They are retried separately, one at a time, while others continue.

Nothing is lost by that: an instance is fed nothing while its commit is in progress, and the sender of an event, or the
caller that starts an instance, has no answer yet. Laggards are retried forever, with longer and longer pauses, because
no value is at fault: sooner or later the lock is released, or the server has less load.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from romancy.engine.items import Item
from romancy.errors import StorageError
from romancy.storage.batch import Batch, BatchResult
from romancy.storage.errors import RefusedValue
from romancy.storage.protocol import Storage

_logger = logging.getLogger("romancy")
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
TOLD_AFTER = 3
"""Tries after which a warning is logged: before that, it may be a general outage."""

Settle = Callable[["Laggard", "BatchResult | None", "BaseException | None"], None]


@dataclass(slots=True, eq=False)
class Laggard:
    """A batch that can't be split any further."""

    batch: Batch
    items: list[Item]
    error: BaseException
    tries: int = 1
    pause: float = FIRST_PAUSE
    overtaken_by: set[str] = field(default_factory=set[str])
    """Instances with other commits during the last try: events it offers to them may already be taken."""
    timer: asyncio.TimerHandle | None = None


class Laggards:
    """All laggards. One at a time is tried."""

    def __init__(self, storage: Storage, settle: Settle) -> None:
        self._storage, self._settle = storage, settle
        self._resting: set[Laggard] = set()
        self._ready: deque[Laggard] = deque()
        self._trying: Laggard | None = None
        self._beside: Batch | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<Laggards {len(self)} trying={self._trying is not None}>"

    def __len__(self) -> int:
        return len(self._resting) + len(self._ready) + (self._trying is not None)

    def add(self, batch: Batch, items: list[Item], error: BaseException) -> None:
        self._rest(Laggard(batch, items, error))

    def hurry(self) -> None:
        """Retry new laggards now, because others are stored again: it may have been a general outage."""
        for laggard in [each for each in self._resting if each.tries == 1]:
            self._wake(laggard)

    def close(self) -> list[Laggard]:
        """Stop trying, and return all laggards but the one that is being tried now."""
        self._closed = True
        left = [*self._resting, *self._ready]
        for laggard in self._resting:
            if laggard.timer is not None:
                laggard.timer.cancel()
        self._resting.clear()
        self._ready.clear()
        return left

    def _rest(self, laggard: Laggard) -> None:
        self._resting.add(laggard)
        laggard.timer = asyncio.get_running_loop().call_later(laggard.pause, self._wake, laggard)
        if laggard.tries >= TOLD_AFTER:
            _logger.warning(
                "%s can't be stored, though others can (%s); it was tried %d times, next try in %g s",
                laggard.items[0],
                laggard.error,
                laggard.tries,
                laggard.pause,
            )

    def _wake(self, laggard: Laggard) -> None:
        if laggard.timer is not None:
            laggard.timer.cancel()
        self._resting.discard(laggard)
        self._ready.append(laggard)
        self._next()

    def watch(self, batch: Batch) -> None:
        """Note the instances of another batch that is being submitted."""
        self._beside = batch
        if self._trying is not None:
            self._trying.overtaken_by.update(commit.instance for commit in batch.commits)

    def _next(self) -> None:
        if self._ready and self._trying is None:
            self._trying = self._ready.popleft()
            beside = self._beside.commits if self._beside is not None else ()
            self._trying.overtaken_by = {commit.instance for commit in beside}
            self._storage.commit(self._trying.batch, self._answered)

    def _answered(self, answer: BatchResult | None, error: BaseException | None) -> None:
        laggard, self._trying = self._trying, None
        assert laggard is not None
        if isinstance(error, StorageError) and not isinstance(error, RefusedValue) and not self._closed:
            laggard.error, laggard.tries = error, laggard.tries + 1
            laggard.pause = min(laggard.pause * 2, LONGEST_PAUSE)
            self._rest(laggard)
        else:
            self._settle(laggard, answer, error)
        self._next()
