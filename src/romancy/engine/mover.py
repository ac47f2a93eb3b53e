"""The mover: takes in what callers left in the inbox, in transactions of their own."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence

from romancy.core.clock import Clock
from romancy.core.model import Event, from_us
from romancy.core.versions import split_name
from romancy.engine.announcement import Announcement
from romancy.engine.delivery import Delivery
from romancy.engine.hook_runner import HookRunner
from romancy.engine.metrics import Metrics
from romancy.hooks import InboxRefusedInfo
from romancy.storage.batch import Batch, BatchResult, Start
from romancy.storage.errors import RefusedValue
from romancy.storage.inbox_items import InboxItem, Unreadable, refusal
from romancy.storage.protocol import Storage

PAGE = 500
"""How much is moved at a time."""
BYTES = 16 * 1024 * 1024
"""A page ends once its data is this long."""
REST = 1.0
"""Seconds between regular rounds, for what no notice was given."""
_logger = logging.getLogger("romancy")


class Mover:
    """Moves starts and events from the inbox to where they take effect, in order. Any process can, several at a time.

    `moved` is called after something was moved: new instances have no owner yet, and events left hints for theirs.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        announcement: Announcement,
        delivery: Delivery,
        metrics: Metrics,
        hooks: HookRunner,
        moved: Callable[[], None],
    ) -> None:
        self._storage, self._clock, self._announcement = storage, clock, announcement
        self._delivery, self._metrics, self._hooks, self._moved = delivery, metrics, hooks, moved
        self._turn = asyncio.Lock()
        self._told: set[int] = set()
        """The numbers of what can't be read, once that was logged."""

    async def round(self) -> float:
        await self.move()
        return REST

    async def move(self) -> None:
        """Move everything that is there now. When this returns, it has been moved, by this process or by another."""
        async with self._turn:
            after = 0
            while items := await self._storage.arrivals(PAGE, BYTES, after):
                if not self._announcement.is_made:
                    await self._announcement.wait()
                readable = [item for item in items if not self._leave(item)]
                page = _page(readable)
                is_done = await self._move(page) if page else True
                if not readable:
                    after = items[-1].number
                if is_done and len(page) == len(readable) and not _may_go_on(items):
                    return

    def _leave(self, item: InboxItem) -> bool:
        """Return whether this version of the library can't read it. A worker with a newer one moves it."""
        if not isinstance(item.content, Unreadable):
            return False
        if item.number not in self._told:
            self._told.add(item.number)
            _logger.warning(
                "number %d in the inbox can't be read by this version of Romancy: %s. It stays there until a worker "
                "with a newer version takes it in; `romancy inbox` lists it",
                item.number,
                item.content.problem,
            )
        return True

    async def _move(self, items: Sequence[InboxItem]) -> bool:
        """Return false if another process moves some of them."""
        try:
            return await self._store(items)
        except RefusedValue as error:
            if len(items) == 1:
                [item] = items
                _logger.error("%s in the inbox is refused: %s", _name(item), error)
                await self._storage.refuse_arrival(item.number, str(error))
                self._refused(item.number, item.content, str(error))
                return True
        # One by one: the others must not wait for it.
        return all([await self._move([item]) for item in items])

    async def _store(self, items: Sequence[InboxItem]) -> bool:
        starts = [(item.number, item.content) for item in items if isinstance(item.content, Start)]
        events = [(i.number, self._delivery.prepare(i.content)) for i in items if isinstance(i.content, Event)]
        batch = Batch(
            None,
            (),
            os.urandom(16),
            self._clock.now(),
            starts=[start for _, start in starts],
            accepts=[accept for _, accept in events],
            moved=[number for number, _ in (*starts, *events)],
        )
        answer = await self._storage.move(batch)
        if answer is not None:
            self._report(batch, answer)
            self._moved()
        return answer is not None

    def _report(self, batch: Batch, answer: BatchResult) -> None:
        self._metrics.moved["start"] += len(batch.starts)
        self._metrics.moved["event"] += len(batch.accepts)
        self._delivery.stored(batch, answer)
        for accept, accepted in zip(batch.accepts, answer.accepts, strict=True):
            self._delivery.judge(accept, accepted)
        for number, start, known in zip(batch.moved[: len(batch.starts)], batch.starts, answer.starts, strict=True):
            if not known.created and not known.same:
                reason = refusal(start, known)
                _logger.error("the start of instance %r is refused: it %s", start.id, reason)
                self._refused(number, start, reason)

    def _refused(self, number: int, content: Start | Event | Unreadable, reason: str) -> None:
        self._metrics.moved["refused"] += 1
        about: dict[str, str] = {}
        if isinstance(content, Start):
            about = {"instance_id": content.id, "workflow": split_name(content.workflow)[0]}
        elif isinstance(content, Event):
            about = {"event_type": content.type, "event_source": content.source, "event_id": content.id}
        self._hooks.tell(InboxRefusedInfo, number=number, at=from_us(self._clock.now()), reason=reason, **about)


def _page(items: Sequence[InboxItem]) -> Sequence[InboxItem]:
    """Return the items before the second start of an instance: the first one must be known by then."""
    seen: set[str] = set()
    for n, item in enumerate(items):
        if isinstance(item.content, Start):
            if item.content.id in seen:
                return items[:n]
            seen.add(item.content.id)
    return items


def _may_go_on(items: Sequence[InboxItem]) -> bool:
    """Return whether there may be more than was read."""
    return len(items) == PAGE or sum(item.size for item in items) >= BYTES


def _name(item: InboxItem) -> str:
    content = item.content
    assert not isinstance(content, Unreadable)
    return f"instance {content.id!r}" if isinstance(content, Start) else f"event {content.id!r}"
