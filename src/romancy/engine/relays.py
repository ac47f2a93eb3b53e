"""The relays of an app: one for each of its sinks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from romancy.core.clock import Clock
from romancy.core.model import Event
from romancy.core.sinks import Outlet
from romancy.engine.background import Duty
from romancy.engine.leases import Lease
from romancy.engine.metrics import Metrics
from romancy.engine.outage import Outage
from romancy.engine.relay import Relay
from romancy.storage.batch import AcceptAnswer
from romancy.storage.errors import TransientError
from romancy.storage.protocol import Storage

_logger = logging.getLogger("romancy")


class Relays:
    """Starts and stops relays, and tells them what was stored."""

    def __init__(
        self,
        outlets: Sequence[Outlet],
        storage: Storage,
        clock: Clock,
        lease: Lease,
        metrics: Metrics,
        outage: Outage,
    ) -> None:
        self._relays = [Relay(outlet, storage, clock, lease, metrics) for outlet in outlets]
        self._duties = [Duty(f"sink {r.outlet.name}", r.round, outage, r.kicked) for r in self._relays]
        self._is_started = False

    def __repr__(self) -> str:
        return f"<Relays {self._relays}>"

    def __bool__(self) -> bool:
        return bool(self._relays)

    @property
    def names(self) -> Sequence[str]:
        return [relay.outlet.name for relay in self._relays]

    @property
    def is_idle(self) -> bool:
        return not self._is_started or all(relay.is_idle for relay in self._relays)

    async def declare(self) -> None:
        """Store which sinks there are, so that they get all events from now on. If that fails, a round does it."""
        try:
            for relay in self._relays:
                await relay.declare()
        except TransientError as error:
            _logger.debug("sinks are not stored yet: %s", error)

    def start(self) -> None:
        self._is_started = True
        for duty in self._duties:
            duty.start()

    def stored(self, event: Event, answer: AcceptAnswer) -> None:
        """Wake the relays that an event is for."""
        for relay in self._relays:
            if not answer.duplicate and relay.takes(event):
                relay.kick(answer.seq)

    def kick(self) -> None:
        """Look for events that others may have stored."""
        for relay in self._relays:
            relay.kick()

    async def stop(self, seconds: float) -> None:
        """Let deliveries under way end, for a while, and stop."""
        for relay in self._relays:
            relay.stop()
        await asyncio.gather(*(relay.finish(seconds) for relay in self._relays))
        await self.crash()

    async def crash(self) -> None:
        """Stop, and let others repeat what is under way."""
        self.retire()
        for duty in self._duties:
            await duty.stop()
        for relay in self._relays:
            await relay.outlet.close()

    def retire(self) -> None:
        """Begin no more rounds."""
        for relay, duty in zip(self._relays, self._duties, strict=True):
            relay.stop()
            duty.retire()
