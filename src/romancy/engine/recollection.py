"""Recollection: after a replay, reads what an instance shows of itself (`ctx.set_view`, `ctx.set_attributes`).

That is not in its history, and code that was changed may show something else where it has already passed. Instances
that show nothing are not held up. The others wait here, still not resident, as during their replay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import islice

from romancy.engine.outage import Outage
from romancy.engine.resident import GONE, Resident
from romancy.storage.catalog import Shown
from romancy.storage.errors import TransientError
from romancy.storage.protocol import Storage

_logger = logging.getLogger("romancy")
MOST = 500
"""Instances that are read together."""
_WHAT = "what instances show"
Case = tuple[Resident, Callable[[], None]]


class Recollection:
    """Reads for instances that were replayed. `done` is called then, but not if they were dropped."""

    def __init__(self, storage: Storage, outage: Outage) -> None:
        self._storage, self._outage = storage, outage
        self._cases: dict[str, Case] = {}
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Recollection under_way={len(self._cases)}>"

    def begin(self, resident: Resident, done: Callable[[], None]) -> None:
        """Compare what is stored with what the code set. One that begins, or is retried, stores everything anew."""
        is_anew = resident.retrial is not None or not resident.begun
        if is_anew or resident.instance.published is None:
            done()
            return
        self._cases[resident.instance.id] = resident, done
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read(), name="romancy-recollection")

    def drop_all(self) -> None:
        """Drop the instances. Their code must not act any more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        cases, self._cases = list(self._cases.values()), {}
        for resident, _ in cases:
            resident.state = GONE
            resident.instance.evict()

    async def _read(self) -> None:
        try:
            await self._read_all()
        finally:
            self._outage.left(_WHAT)

    async def _read_all(self) -> None:
        pause = 0.1
        while self._cases:
            batch = dict(islice(self._cases.items(), MOST))
            shown: dict[str, Shown] | None = None
            try:
                shown = await self._storage.catalog.shown(list(batch))
                self._outage.over(_WHAT)
            except TransientError as error:
                self._outage.noticed(_WHAT, error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 30.0)
                continue
            except Exception as error:
                _logger.error("what %d instances show can't be read (%s); they go on without", len(batch), error)
            loop, ended = asyncio.get_running_loop(), asyncio.Event()
            # What follows may run user code, which must not happen inside a task.
            loop.call_soon(self._end, batch, shown, ended)
            await ended.wait()
            pause = 0.1

    def _end(self, batch: dict[str, Case], shown: dict[str, Shown] | None, ended: asyncio.Event) -> None:
        try:
            for id, (resident, done) in batch.items():
                if self._cases.pop(id, None) is None:
                    continue  # dropped meanwhile
                if shown is not None and resident.instance.published is not None:
                    stored = shown.get(id) or Shown()
                    resident.instance.published.compare(stored.view, stored.attributes)
                done()
        finally:
            ended.set()
