"""Instances that the code of other builds could not follow. This worker tries each of them once."""

from __future__ import annotations

import logging

from romancy.core.clock import Clock
from romancy.core.model import SECOND
from romancy.core.registry import Registry
from romancy.engine.loader import Loader
from romancy.engine.residents import Residents
from romancy.storage.protocol import Storage
from romancy.storage.records import Unfit, build_name, build_names, to_builds

_logger = logging.getLogger("romancy")
LOOK = SECOND // 2
"""The shortest time between two looks. Under load, there are very many sweeps."""
PAGE = 500
"""How many blocked instances are read at a time. If there is none to try among them, the next look continues there."""
BEGINNING = ("", "")


class UnfitInstances:
    """Takes instances that are blocked because other builds could not follow them. If this one can't, it is recorded.

    A build is recorded only after its code has failed. So if this worker dies first, the instance is tried again,
    instead of staying blocked because of a build that would have followed it.
    """

    def __init__(
        self, storage: Storage, clock: Clock, registry: Registry, residents: Residents, loader: Loader, build: str
    ) -> None:
        self._storage, self._clock, self._registry = storage, clock, registry
        self._residents, self._loader, self._build = residents, loader, build
        self._after, self._next_look = BEGINNING, 0

    def __repr__(self) -> str:
        return f"<UnfitInstances build={self._build} after={self._after}>"

    async def take_back(self, worker: str) -> None:
        """Own, and load, blocked instances that no worker of this build has tried yet."""
        now = self._clock.now()
        if now < self._next_look <= now + LOOK:  # farther ahead: the clock was set back
            return
        while self._residents.has_room:
            page = await self._storage.unfit(self._registry.names, self._after, PAGE)
            untried = [one for one in page if self._build not in to_builds(one.builds)]
            taken = await self._storage.claim_unfit(worker, untried) if untried else set[str]()
            for one in untried:
                if one.id in taken:
                    self._try(one)
            is_last = len(page) < PAGE
            self._after = BEGINNING if is_last else page[-1].position
            if is_last or not untried:
                self._next_look = now + LOOK
                return
        self._residents.want_room()

    def _try(self, one: Unfit) -> None:
        _logger.info(
            "instance %r (workflow %s), which build %s could not follow, is tried by build %s",
            one.id,
            one.workflow,
            ", ".join(build_names(one.builds)),
            build_name(self._build),
            extra={"instance_id": one.id, "workflow": one.workflow},
        )
        self._loader.load(one.id)
