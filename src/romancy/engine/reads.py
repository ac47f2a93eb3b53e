"""Reads instances from the database, many at a time: while some are being read, those wanted next gather."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from romancy.engine.outage import Outage
from romancy.storage.errors import TookTooLong, TransientError
from romancy.storage.protocol import Storage
from romancy.storage.records import Snapshot

_logger = logging.getLogger("romancy")
MOST = 200
"""Instances that are read together."""
_PAUSE, _LONGEST_PAUSE, _LONGEST_ALONE = 0.1, 2.0, 30.0
"""Seconds between two tries during an outage. What is wanted meanwhile waits as well, except for a read alone."""


@dataclass(slots=True, eq=False)
class Read:
    """A read that is under way. `is_asked_again`: what it finds may be older than what it was last asked for."""

    instance: str
    crashed: bool
    is_asked_again: bool = False


class Reads:
    """All reads under way. `arrived` is called with what was found; not inside a task, because it runs user code."""

    def __init__(self, storage: Storage, outage: Outage, arrived: Callable[[Read, Snapshot | None], None]) -> None:
        self._storage, self._outage, self._arrived = storage, outage, arrived
        self._wanted: list[Read] = []
        self._together: asyncio.Task[None] | None = None
        self._alone: set[asyncio.Task[None]] = set()
        self._unreadable: set[str] = set()

    def __repr__(self) -> str:
        return f"<Reads wanted={len(self._wanted)} alone={len(self._alone)}>"

    def add(self, read: Read) -> None:
        self._wanted.append(read)
        if self._together is None or self._together.done():
            self._together = asyncio.create_task(self._read_together(), name="romancy-loads")

    def stop(self) -> None:
        for task in (*self._alone, self._together):
            if task is not None:
                task.cancel()
        self._together = None  # it ends later, and what is wanted by then is for the next one
        self._wanted.clear()

    async def _read_together(self) -> None:
        try:
            await self._read_wanted()
        finally:
            self._outage.left("load instances")

    async def _read_wanted(self) -> None:
        pause = _PAUSE
        while self._wanted:
            batch, self._wanted = self._wanted[:MOST], self._wanted[MOST:]
            ids = [read.instance for read in batch]
            try:
                found = await self._storage.load_many(ids)
                self._outage.over("load instances")
            except TookTooLong:
                found = dict[str, Snapshot | None]()  # some may be too large, and must not hold up the others
            except TransientError as error:
                self._outage.noticed("load instances", error)
                self._wanted = batch + self._wanted
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            except Exception:
                found = dict[str, Snapshot | None]()  # one of them can't be read: find out which
            pause = _PAUSE
            self._pass_on([(read, found[read.instance]) for read in batch if read.instance in found])
            for read in batch:
                if read.instance not in found:
                    self._read_alone(read)

    def _read_alone(self, read: Read) -> None:
        task = asyncio.create_task(self._read_one(read))
        self._alone.add(task)
        task.add_done_callback(self._alone.discard)

    async def _read_one(self, read: Read) -> None:
        try:
            snapshot = await self._load(read.instance)
        finally:
            self._outage.left(f"load {read.instance}")
        self._pass_on([(read, snapshot)])

    async def _load(self, instance: str) -> Snapshot | None:
        pause = _PAUSE
        while True:
            try:
                return await self._storage.load(instance)
            except TransientError as error:
                self._outage.noticed(f"load {instance}", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_ALONE)
            except Exception as error:
                if instance not in self._unreadable:
                    self._unreadable.add(instance)
                    _logger.error("instance %r can't be read (%s); it does not run", instance, error)
                return None

    def _pass_on(self, found: Sequence[tuple[Read, Snapshot | None]]) -> None:
        loop = asyncio.get_running_loop()
        for read, snapshot in found:
            loop.call_soon(self._arrived, read, snapshot)
