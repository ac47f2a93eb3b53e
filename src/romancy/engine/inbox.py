"""Inboxes: the inputs of instances in memory, and which instances are ready to be fed.

State changes only on the event loop, without an await between reading and writing it, so no locks are needed.
Instances run from plain loop callbacks, never inside an asyncio task.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from romancy.core.clock import stopwatch
from romancy.engine.resident import IDLE, READY, EventOffered, Input, Resident
from romancy.engine.residents import Residents

MOMENT = 0.002
"""Seconds for which instances made ready by a commit are fed before the event loop runs anything else."""


class Inboxes:
    """Instances with a non-empty inbox are ready. `feed` is called soon after, and feeds all of them."""

    def __init__(self, residents: Residents, feed: Callable[[], None]) -> None:
        self.residents, self._feed = residents, feed
        self.ready: deque[Resident] = deque()
        self.is_closed = False
        self._draining = self._feeding = False

    def __repr__(self) -> str:
        return f"<Inboxes ready={len(self.ready)} closed={self.is_closed}>"

    @property
    def is_idle(self) -> bool:
        return not self.ready and not self.residents.is_loading

    def admit(self, resident: Resident) -> None:
        """Add an instance to memory."""
        if not self.is_closed:
            self.residents.add(resident)
            self.schedule(resident)

    def post(self, resident: Resident, input: Input) -> None:
        """Put an input into an inbox. It is fed as soon as the instance's last commit is stored."""
        if not resident.is_gone and not self.is_closed:
            resident.inbox.append(input)
            resident.offered = resident.offered or isinstance(input, EventOffered)
            self.schedule(resident)

    def schedule(self, resident: Resident) -> None:
        if resident.state is not IDLE:
            return
        resident.state = READY
        self.residents.rouse(resident)
        self.ready.append(resident)
        if not self._draining:
            self._draining = True
            asyncio.get_running_loop().call_soon(self._drain)

    def hurry(self) -> None:
        """Feed the instances that a stored batch made ready at once, not in the next turn of the loop."""
        if self.ready and not self._feeding:
            self._drain()

    def close(self) -> None:
        """Feed nothing more."""
        self.is_closed = True

    def _drain(self) -> None:
        """Feed all instances that are ready. A plain callback of the loop.

        Commits stored by the time `feed` returns may have made some ready again. For a moment, they are fed without a
        turn of the loop in between.
        """
        until = stopwatch() + MOMENT
        self._feeding = True
        try:
            self._feed()
            while self.ready and stopwatch() < until:
                self._feed()
        finally:
            self._feeding = False
            self._draining = bool(self.ready)
            if self._draining:
                asyncio.get_running_loop().call_soon(self._drain)
