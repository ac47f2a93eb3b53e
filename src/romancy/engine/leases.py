"""The lease: this process registers as a worker, renews its lease, and notices when it is lost."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable

from romancy.core.model import SECOND
from romancy.core.registry import Registry
from romancy.engine.announcement import Announcement
from romancy.engine.outage import Outage
from romancy.errors import Outdated, StorageError
from romancy.storage.errors import TransientError, Unusable
from romancy.storage.protocol import Storage

_logger = logging.getLogger("romancy")
HAND_BACK = 5.0
"""Seconds a stopping worker waits for the database when it releases its lease."""
NEVER = 10.0**9
"""Seconds to rest when there is nothing left to do."""


class Lease:
    """This process as a worker. Calls `held` when a round registers it, `lost` or `retired` when it loses its lease."""

    def __init__(
        self,
        storage: Storage,
        registry: Registry,
        announcement: Announcement,
        outage: Outage,
        duration: int,
        is_worker: bool,
        describe: Callable[[], str],
        load: Callable[[], int],
        held: Callable[[], None],
        lost: Callable[[], None],
        retired: Callable[[Outdated], None],
    ) -> None:
        """`describe`: what this worker says about itself. `load`: how many activities it runs now."""
        self._storage, self._registry, self._outage = storage, registry, outage
        self._describe, self._load = describe, load
        self._about = ""
        self._announcement, self._duration = announcement, duration
        self._held, self._lost, self._retired = held, lost, retired
        self.is_worker = is_worker
        self.worker: str | None = None
        self.outdated: Outdated | None = None
        """Why this process stopped writing, if the schema is no longer the one it was written for."""
        self._is_open = False
        self.leaving: asyncio.Task[None] | None = None
        """Records that this worker is stopping, from when it begins to stop."""

    def __repr__(self) -> str:
        return f"<Lease {self.worker} open={self._is_open} outdated={self.outdated}>"

    @property
    def is_pending(self) -> bool:
        """Whether this worker is not registered yet, or must register again."""
        return self.is_worker and self._is_open and self.worker is None and self.outdated is None

    def is_mine(self, owner: str | None) -> bool:
        return owner is not None and owner == self.worker

    # --- holding it -------------------------------------------------------------------------------------------------
    async def begin(self) -> None:
        """Register this worker. If the database can't be written now, a later round registers it.

        Events may be stored before that, so the triggers are then announced separately. So are those of a process that
        runs no workflows.
        """
        self._is_open = True
        if not self.is_worker:
            self.announce()
            return
        try:
            await self._register()
        except Unusable:
            raise
        except TransientError as error:
            self._outage.noticed("lease", error)
            self.announce()

    async def _register(self) -> None:
        """Register with a new id every time, so that nothing submitted under an earlier one is taken for ours."""
        worker, triggers = uuid.uuid4().hex, self._registry.triggers
        about = self._describe()
        await self._storage.register(worker, self._duration, triggers, self._registry.names, about)
        self.worker, self._about = worker, about  # not earlier: an id without a row must not be used
        if self._registry.triggers != triggers:
            self.announce()

    def announce(self) -> None:
        """Announce workflows registered while running: their triggers must be known before the next event is stored."""
        if self._is_open and self.outdated is None:
            self._announcement.begin()

    async def round(self) -> float:
        """Renew the lease, or register again."""
        try:
            if not self.is_worker:
                await self._storage.check()
            elif self.worker is None:
                await self._register()
                self._held()
            elif not await self._renew(self.worker):
                self.fenced(self.worker)
                return 0.0
        except Outdated as error:
            self.retire(error)
            return NEVER
        return self._duration / SECOND / 3

    async def _renew(self, worker: str) -> bool:
        about = self._describe()
        news = None if about == self._about else about
        is_held = await self._storage.renew(worker, self._duration, self._load(), news)
        self._about = about
        return is_held

    # --- losing it --------------------------------------------------------------------------------------------------
    def fenced(self, worker: str | None) -> None:
        """Handle a takeover: another worker considered this one dead, so the instances in memory are no longer ours."""
        if not self._is_open or worker is None or worker != self.worker:
            return
        _logger.warning("worker %s was taken over by another worker (was it paused?); it registers again", worker)
        self.worker = None
        self._storage.drop_lock(worker)
        self._lost()

    def retire(self, error: Outdated) -> None:
        """Stop writing, because the schema has been migrated. Nothing is handed back: that would be a write, too.

        Other workers take over at once if the migration fenced this one, or when the lease ends. This does not count as
        a death, because nothing that ran here was at fault.
        """
        if self.outdated is not None:
            return
        _logger.error("this %s stops: %s", "worker" if self.is_worker else "app", error)
        self.outdated, self.worker = error, None
        self._retired(error)

    # --- giving it back ---------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Ignore takeovers and register no more."""
        self._is_open = False

    def leave(self) -> None:
        """Record that this worker is stopping. If it is killed because that takes long, that is not a death."""
        self.close()
        if self.worker is not None:
            self.leaving = asyncio.create_task(self._leave(self.worker), name="romancy-leave")

    async def _leave(self, worker: str) -> None:
        try:
            await self._storage.leave(worker)
        except StorageError as error:
            _logger.info("can't record that this worker is stopping (%s)", error)

    async def release(self) -> None:
        """Release all instances, and the lease."""
        if self.leaving is not None:
            self.leaving.cancel()
        if self.worker is None:
            return
        try:
            async with asyncio.timeout(HAND_BACK):
                await self._storage.release(self.worker)
        except (StorageError, TimeoutError) as error:
            why = error if isinstance(error, StorageError) else "the database does not answer"
            _logger.warning("the instances can't be handed back (%s); others take them over when the lease ends", why)
        finally:
            self.worker = None
