"""Announces through the database which events start which workflows, to every process that accepts events.

Workers replace what was announced for their workflows. A process that runs none, such as a server, only proposes what
is missing: it may be deployed before the workers, and the events that it accepts must not be lost. The workers have the
last word: a proposal replaces no version, and does not bring back a type that a worker has taken back from a workflow.
Whether who proposes such a type is older or newer than that worker can't be seen; only a worker announces it again.
"""

from __future__ import annotations

import asyncio
import logging

from romancy.core.registry import Registry
from romancy.engine.outage import Outage
from romancy.errors import Outdated, StorageError
from romancy.storage.errors import RefusedValue
from romancy.storage.protocol import Storage

_logger = logging.getLogger("romancy")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
"""Seconds between attempts while the database is unavailable."""


class Announcement:
    """Stores the triggers of registered workflows. Events sent in this process wait until that is done."""

    def __init__(
        self, storage: Storage, registry: Registry, outage: Outage, *, is_worker: bool, proposes: bool
    ) -> None:
        """`proposes`: whether to say what is missing if this is no worker. Who only looks says nothing."""
        self._storage, self._registry, self._outage = storage, registry, outage
        self._is_worker, self._proposes = is_worker, proposes
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Announcement under_way={len(self._tasks)}>"

    @property
    def is_made(self) -> bool:
        return not self._tasks

    def begin(self) -> None:
        if not self._is_worker and not (self._proposes and self._registry.triggers):
            return
        task = asyncio.create_task(self._announce(), name="romancy-announcement")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Wait until everything that was announced is stored."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _announce(self) -> None:
        try:
            await self._store()
        finally:
            self._outage.left("triggers")

    async def _store(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                if self._is_worker:
                    await self._storage.announce(self._registry.triggers, self._registry.names)
                else:
                    await self._storage.propose(self._registry.triggers)
                return
            except (RefusedValue, Outdated) as error:
                _logger.error("can't store which events start which workflows: %s", error)
                return
            except StorageError as error:
                self._outage.noticed("triggers", error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
