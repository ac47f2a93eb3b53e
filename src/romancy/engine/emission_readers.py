"""Readers of emissions: they see what is stored, in order, without gaps, until the instance has ended.

What this process stores is handed to its readers. For what others store, one read serves all readers that are behind.
If nobody reads, nothing is listened for, and nothing is looked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from romancy.core.model import FINAL
from romancy.core.outcome import Outcome
from romancy.errors import AppNotRunning, CodecError
from romancy.storage.emissions import EmissionRow, Wanted
from romancy.storage.errors import TransientError
from romancy.storage.protocol import Storage

_logger = logging.getLogger("romancy")
MOST_ROWS = 256
"""Rows that wait for a slow reader. If there are more, it reads them from the database instead."""
PAGE, MOST_AT_ONCE = 1_000, 100
"""Rows of one read, for all readers together, and how many readers share one."""
POLL = 0.25
"""Seconds between looks while no notices arrive."""
BLOCKED = 1.0
"""Seconds between looks whether an instance that was blocked has ended."""


class Reader:
    """One reader: where it is, and the rows that it has not taken yet."""

    __slots__ = ("after", "instance", "is_behind", "news", "rows", "topic")

    def __init__(self, instance: str, topic: str | None, after: int) -> None:
        self.instance, self.topic, self.after = instance, topic, after
        self.rows: deque[EmissionRow] = deque()
        self.is_behind = True
        """There may be more in the database."""
        self.news = asyncio.Event()

    def put(self, row: EmissionRow) -> None:
        if self.is_behind or (self.topic is not None and row.topic != self.topic):
            return
        if len(self.rows) >= MOST_ROWS:
            self.fall_behind()
            return
        self.rows.append(row)
        self.news.set()

    def fall_behind(self) -> None:
        self.rows.clear()
        self.is_behind = True
        self.news.set()

    def take(self) -> list[EmissionRow]:
        """Return the rows that come next. If some are missing, they are in the database."""
        taken: list[EmissionRow] = []
        while self.rows:
            row = self.rows.popleft()
            if row.first(self.topic) > self.after + 1:
                self.fall_behind()
                break
            taken += self.pass_on(row)
        return taken

    def pass_on(self, row: EmissionRow) -> list[EmissionRow]:
        """Return a row unless all of it was read before."""
        if row.end(self.topic) <= self.after:
            return []
        self.after = row.end(self.topic)
        return [row]


class Readers:
    """All readers of this process."""

    def __init__(self, storage: Storage, ending: Callable[[str], Awaitable[Outcome]]) -> None:
        """`ending` waits until an instance has ended, or is blocked."""
        self._storage, self._ending = storage, ending
        self._readers: dict[str, set[Reader]] = {}
        self._asked: dict[Reader, asyncio.Future[list[EmissionRow]]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._polling: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Readers {len(self)}>"

    def __len__(self) -> int:
        return sum(map(len, self._readers.values()))

    def show(self, rows: Sequence[EmissionRow]) -> None:
        """Hand rows that were stored here to their readers."""
        if self._readers:
            for row in rows:
                for reader in self._readers.get(row.instance, ()):
                    reader.put(row)

    def elsewhere(self) -> None:
        """Another process has stored some."""
        for readers in self._readers.values():
            for reader in readers:
                reader.is_behind = True
                reader.news.set()

    async def read(self, instance: str, topic: str | None, after: int) -> AsyncGenerator[list[EmissionRow]]:
        """Yield rows after a number, until the instance has ended. The first one may begin before that."""
        reader = Reader(instance, topic, after)
        self._add(reader)
        ending = asyncio.ensure_future(self._end_of(instance))
        ending.add_done_callback(lambda _: reader.news.set())
        try:
            while True:
                reader.news.clear()
                has_ended = ending.done()  # asked before the last look: what was emitted is there by then
                if has_ended:
                    ending.result()
                    reader.fall_behind()
                if rows := await self._next(reader):
                    yield rows
                elif has_ended:
                    return
                elif not reader.is_behind:
                    await reader.news.wait()
        finally:
            ending.cancel()
            self._remove(reader)

    async def _end_of(self, instance: str) -> None:
        """Wait until the instance has ended. One that is blocked has not: it is resumed some day, or cancelled."""
        while True:
            try:
                if (await self._ending(instance)).status != "blocked":
                    return
            except CodecError:  # how it ended can't be read without the key
                row = await self._storage.catalog.instance(instance)
                if row is None or row.status in FINAL:
                    return
            except TransientError as error:
                _logger.debug("it is unknown whether instance %r has ended: %s", instance, error)
            await asyncio.sleep(BLOCKED)

    async def _next(self, reader: Reader) -> list[EmissionRow]:
        rows = reader.take()
        if rows or not reader.is_behind:
            return rows
        reader.is_behind = False  # before the look: what is stored from now on is handed over
        found = await self._look(reader)
        rows = [row for one in found for row in reader.pass_on(one)]
        if rows:
            reader.is_behind = True  # there may be more
        return rows

    # --- the database -----------------------------------------------------------------------------------------------
    async def _look(self, reader: Reader) -> list[EmissionRow]:
        """Read with all others who look at this time."""
        future = self._asked[reader] = asyncio.get_running_loop().create_future()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_for_all(), name="romancy-emissions-look")
        return await future

    async def _look_for_all(self) -> None:
        while self._asked:
            asked = {reader: self._asked.pop(reader) for reader in list(self._asked)[:MOST_AT_ONCE]}
            wanted = [Wanted(reader.instance, reader.topic, reader.after) for reader in asked]
            try:
                found = await self._storage.emissions.read(wanted, max(10, PAGE // len(wanted)))
            except TransientError as error:
                _logger.debug("emissions can't be read now: %s", error)
                self._asked = {**{r: f for r, f in asked.items() if not f.done()}, **self._asked}
                await asyncio.sleep(POLL)
            except Exception as error:
                for future in asked.values():
                    _settle(future, error)
            else:
                for future, rows in zip(asked.values(), found, strict=True):
                    _settle(future, rows)

    def close(self) -> None:
        """The app stops: readers get an error."""
        for task in (self._looking, self._polling):
            if task is not None:
                task.cancel()
        for future in self._asked.values():
            _settle(future, AppNotRunning("the app was stopped before the instance ended; the instance continues"))

    def _add(self, reader: Reader) -> None:
        self._readers.setdefault(reader.instance, set()).add(reader)
        if self._polling is None:
            self._storage.emissions.listen(self.elsewhere)
            self._polling = asyncio.create_task(self._poll(), name="romancy-emissions-poll")

    def _remove(self, reader: Reader) -> None:
        readers = self._readers[reader.instance]
        readers.discard(reader)
        self._asked.pop(reader, None)
        if not readers:
            del self._readers[reader.instance]
        if not self._readers and self._polling is not None:
            self._polling.cancel()
            self._polling = None
            self._storage.emissions.listen(None)

    async def _poll(self) -> None:
        """Look from time to time, while there are no notices."""
        while True:
            await asyncio.sleep(POLL)
            if not self._storage.emissions.is_heard:
                self.elsewhere()


def _settle(future: asyncio.Future[list[EmissionRow]], outcome: list[EmissionRow] | Exception) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
