"""Writes large values outside the database before the items with them are queued, so that no other item waits for that.

Nothing is overtaken by that: an instance is fed nothing while its commit is in progress, and the sender of an event, or
the caller that starts an instance, has no answer yet. If a value can't be written now, the item is queued all the same.
Storing it then fails in the same way, and it is retried as a laggard.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from romancy.engine.items import Item
from romancy.errors import CodecError, StorageError
from romancy.storage.batch import Batch
from romancy.storage.protocol import Storage

_logger = logging.getLogger("romancy")


class Ahead:
    """Items whose values are being written. `ready` is called with each."""

    def __init__(self, storage: Storage, ready: Callable[[Item], None]) -> None:
        self._storage, self._ready = storage, ready
        self.over = storage.over
        """The size above which a value is kept outside the database; None if none is."""
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Ahead {len(self)}>"

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, item: Item, batch: Batch) -> None:
        """Write the values of an item. `batch`: with only this item."""
        task = asyncio.ensure_future(self._write(batch))
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._written(task, item))

    def _written(self, task: asyncio.Task[None], item: Item) -> None:
        self._tasks.discard(task)
        self._ready(item)

    async def _write(self, batch: Batch) -> None:
        try:
            await self._storage.prepare(batch)
        except (StorageError, CodecError) as error:
            _logger.debug("a value can't be written ahead: %s", error)
