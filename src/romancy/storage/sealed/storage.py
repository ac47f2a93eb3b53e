"""A storage whose values are sealed: seals what is written, opens what is read, and passes everything else on."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from romancy.core.model import MAGIC, Event
from romancy.core.versions import bare_name
from romancy.errors import CodecError
from romancy.storage.batch import Batch, BatchResult, Commit, Start, StartAnswer
from romancy.storage.errors import Unreachable, Unsealable
from romancy.storage.forks import Fork
from romancy.storage.guests import Inbox
from romancy.storage.inbox_items import InboxItem
from romancy.storage.protocol import Answered, Storage, Transaction
from romancy.storage.records import FIRST_MAIL, Finished, Mail, MailPlace, Snapshot
from romancy.storage.sealed.catalog import SealedCatalog, SealedDesk, SealedSchedules, SealedSinks
from romancy.storage.sealed.emissions import SealedEmissions
from romancy.storage.sealed.queues import SealedQueues
from romancy.storage.sealed.reads import Reader
from romancy.storage.sealed.sweep import sweep
from romancy.storage.sealed.vault import NEEDED, MustWait, Vault, event_place
from romancy.storage.sealed.writes import Sealer

T = TypeVar("T")
_logger = logging.getLogger("romancy")
SHORT = 500
"""The number of history entries up to which they are opened on the event loop."""
INDEX = "index"
"""The place of the index key."""


class SealedStorage:
    """Wraps a storage. What is not defined here is the same."""

    def __init__(self, inner: Any, vault: Vault) -> None:
        self._inner, self._vault = inner, vault
        self._sealer, self._patient, self._reader = Sealer(vault), Sealer(vault, may_wait=True), Reader(vault)
        self._tasks: set[asyncio.Task[None]] = set()
        """What has to wait before a batch is submitted or answered."""
        self.catalog = SealedCatalog(inner.catalog, vault)
        self.desk = SealedDesk(inner.desk, vault)
        self.sinks = SealedSinks(inner.sinks, vault)
        self.schedules = SealedSchedules(inner.schedules, vault)
        self.queues = SealedQueues(inner.queues, vault)
        self.emissions = SealedEmissions(inner.emissions, vault)

    def __repr__(self) -> str:
        return f"<SealedStorage {self._inner!r} {self._vault!r}>"

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)

    @property
    def keys(self) -> str:
        """Added to the name of a build, and stored with it: see `build_name`."""
        names = getattr(self._vault.codec, "key_names", ())
        return f" with {'key' if len(names) == 1 else 'keys'} {', '.join(names)}" if names else " with a codec"

    # --- opening ---------------------------------------------------------------------------------------------------
    async def open(self) -> None:
        await self._inner.open()
        try:
            await self._prepare()
        except BaseException:
            await self._inner.close()
            raise

    async def _prepare(self) -> None:
        """Read the index key, or make one: what was stored before is filed anew, in one transaction."""
        if self._vault.is_closed:
            return
        self._vault.check()
        stored: bytes = await self._inner.index_key() or await self._make_index()
        if not stored.startswith(MAGIC):
            raise CodecError("the index key in the database is not sealed: it was changed")
        try:
            self._vault.index_key = self._vault.open(stored, INDEX)
        except CodecError as error:
            problem = f"this database can't be opened with the codec of this app: {error.__cause__ or error}"
            raise CodecError(problem, missing=error.missing) from error
        self._vault.folder = await self._inner.folder()
        if not self._vault.is_current(stored):  # the first key is another one by now
            await self._inner.change_index(stored, self._vault.seal(self._vault.index_key, INDEX))

    async def _make_index(self) -> bytes:
        made = self._vault.index_key = os.urandom(32)
        return await self._inner.make_index(self._vault.seal(made, INDEX), self._vault.key)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._inner.close()

    # --- writes ----------------------------------------------------------------------------------------------------
    def append(self, commit: Commit, worker: str | None) -> bool:
        try:
            sealed = self._sealer.commit(commit, {})
        except (CodecError, MustWait):
            return False  # `commit` refuses it, or waits
        return self._inner.append(sealed, worker)

    def commit(self, batch: Batch, answered: Answered) -> None:
        known: dict[bytes, bytes] = {}

        def opened(result: BatchResult | None, error: BaseException | None) -> None:
            if result is None:
                answered(None, error)
            elif self._unread(result, known):
                self._later(self._read_then_open(batch, result, known, answered))
            else:
                self._open(batch, result, known, answered)

        try:
            sealed = self._sealer.batch(batch, known)
        except MustWait:
            self._later(self._write_then_commit(batch, known, opened))
        except CodecError as problem:
            asyncio.get_running_loop().call_soon(answered, None, Unsealable(str(problem)))
        else:
            self._inner.commit(sealed, opened)

    def _open(self, batch: Batch, result: BatchResult, known: dict[bytes, bytes], answered: Answered) -> None:
        result = self._reader.result(result, known)
        doubtful = _doubtful(batch, result)
        if doubtful:
            self._later(self._compare_then(doubtful, result, answered))
        else:
            answered(result, None)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _compare_then(
        self, doubtful: Sequence[tuple[Start, StartAnswer]], result: BatchResult, answered: Answered
    ) -> None:
        try:
            await self._compare(doubtful)
        except Exception as error:
            _soon(answered, None, error)
        else:
            _soon(answered, result, None)

    async def _compare(self, doubtful: Sequence[tuple[Start, StartAnswer]]) -> None:
        """Compare inputs as they were given: the same input looks different if it was sealed with another key."""
        for start, answer in doubtful:
            try:
                row = await self.catalog.exact.instance(start.id)
            except CodecError as error:
                answer.unread = str(error)
            else:
                answer.same = row is not None and row.input == start.input

    # --- values outside the database ---------------------------------------------------------------------------------
    @property
    def over(self) -> int | None:
        outside = self._vault.outside
        return None if outside is None else outside.over

    async def prepare(self, batch: Batch) -> None:
        await asyncio.to_thread(self._patient.batch, batch, {})

    async def sweep(self) -> int:
        return await sweep(self._vault, self._inner.catalog)

    async def _write_then_commit(self, batch: Batch, known: dict[bytes, bytes], opened: Answered) -> None:
        try:
            sealed = await asyncio.to_thread(self._patient.batch, batch, known)
        except CodecError as error:
            _soon(opened, None, Unsealable(str(error)))
        except Exception as error:
            _soon(opened, None, error)
        else:
            asyncio.get_running_loop().call_soon(self._inner.commit, sealed, opened)

    def _unread(self, result: BatchResult, known: dict[bytes, bytes]) -> list[Event]:
        """Return events that were found, and whose data has to be read from outside the database."""
        if self._vault.outside is None:
            return []
        found = [offer.event for offer in result.offers]
        return [one for one in found if one.data not in known and self._vault.is_outside(one.data)]

    async def _read_then_open(
        self, batch: Batch, result: BatchResult, known: dict[bytes, bytes], answered: Answered
    ) -> None:
        await self._read(result, known)
        asyncio.get_running_loop().call_soon(self._open, batch, result, known, answered)

    async def _read(self, result: BatchResult, known: dict[bytes, bytes]) -> None:
        """Read the data of events that were found. The batch is stored, so this must not fail, however long it takes.

        A value that is gone is noted when it is opened.
        """
        for event in self._unread(result, known):
            assert event.data is not None
            try:
                known[event.data] = await self._read_patiently(event.data, event_place(event))
            except CodecError:
                continue

    async def _read_patiently(self, raw: bytes, place: str) -> bytes:
        pause = 0.1
        while True:
            try:
                return await asyncio.to_thread(self._vault.open, raw, place)
            except Unreachable as error:
                _logger.error("%s; work pauses until it can", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 30.0)

    async def begin(self, lease: int, since: float = math.inf) -> Transaction:
        return SealedTransaction(await self._inner.begin(lease, since), self)

    async def move(self, batch: Batch) -> BatchResult | None:
        known: dict[bytes, bytes] = {}
        result = await self._inner.move(await self.sealed(batch, known))
        return None if result is None else await self.opened(result, known)

    async def sealed(self, batch: Batch, known: dict[bytes, bytes]) -> Batch:
        return await self._in_thread(self._patient.batch, batch, known)

    async def opened(self, result: BatchResult, known: dict[bytes, bytes]) -> BatchResult:
        await self._read(result, known)
        return self._reader.result(result, known)

    async def refuse_arrival(self, number: int, reason: str) -> None:
        await self._inner.refuse_arrival(number, self._vault.seal_text(reason, "inbox"))

    async def fork(self, fork: Fork) -> bool:
        origin = await self.catalog.exact.instance(fork.origin)
        if origin is None or origin.generation != fork.generation:
            return False
        return await self._inner.fork(await self._in_thread(self._patient.fork, fork, origin.input))

    async def _in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function, in a thread if it may write values outside the database."""
        return function(*args) if self._vault.outside is None else await asyncio.to_thread(function, *args)

    @property
    def inbox(self) -> Inbox:
        if self._vault.is_closed:
            raise CodecError(NEEDED)
        return replace(self._inner.inbox, seal=self._sealer.inbox_row)

    # --- reads -----------------------------------------------------------------------------------------------------
    async def load(self, instance: str) -> Snapshot | None:
        snapshot: Snapshot | None = await self._inner.load(instance)
        if snapshot is None:
            return None
        if len(snapshot.history) > SHORT or self._has_files(snapshot):  # it takes a while: the event loop goes on
            return await asyncio.get_running_loop().run_in_executor(None, self._reader.snapshot, snapshot)
        return self._reader.snapshot(snapshot)

    async def load_many(self, instances: Sequence[str]) -> dict[str, Snapshot | None]:
        found: dict[str, Snapshot | None] = await self._inner.load_many(instances)
        if any(snapshot is not None and self._has_files(snapshot) for snapshot in found.values()):
            return await asyncio.to_thread(self._reader.snapshots, found)
        return self._reader.snapshots(found)

    def _has_files(self, snapshot: Snapshot) -> bool:
        """Return whether values of an instance are kept outside the database."""
        if self._vault.outside is None:
            return False
        values = (value for entry in snapshot.history for value in (entry.input, entry.payload))
        return any(map(self._vault.is_outside, (snapshot.row.input, snapshot.row.output, *values)))

    async def finished(self, instances: Collection[str]) -> list[Finished]:
        rows: list[Finished] = await self._inner.finished(instances)
        if any(self._vault.is_outside(row.output) for row in rows):
            return await asyncio.to_thread(lambda: list(map(self._reader.finished, rows)))
        return list(map(self._reader.finished, rows))

    async def mail(self, worker: str, limit: int, after: MailPlace = FIRST_MAIL) -> Mail:
        return self._reader.mail(await self._inner.mail(worker, limit, after))

    async def arrivals(self, limit: int, bytes: int, after: int = 0) -> list[InboxItem]:
        return list(map(self._reader.arrival, await self._inner.arrivals(limit, bytes, after)))


def _doubtful(batch: Batch, result: BatchResult) -> list[tuple[Start, StartAnswer]]:
    """Return starts whose ids are taken by the same workflow, with an input that looks different."""
    if all(answer.created or answer.same for answer in result.starts):
        return []
    return [
        (start, answer)
        for start, answer in zip(batch.starts, result.starts, strict=True)
        if not (answer.created or answer.same or answer.lost)
        and start.parent is None
        and bare_name(answer.workflow) == bare_name(start.workflow)
    ]


class SealedTransaction:
    """A transaction of an activity."""

    def __init__(self, inner: Transaction, storage: SealedStorage) -> None:
        self._inner, self._storage = inner, storage

    @property
    def connection(self) -> Any:
        return self._inner.connection

    async def commit(self, batch: Batch, waiting: int = 0) -> BatchResult:
        known: dict[bytes, bytes] = {}
        result = await self._inner.commit(await self._storage.sealed(batch, known), waiting)
        return await self._storage.opened(result, known)

    async def abandon(self) -> None:
        await self._inner.abandon()


def _soon(answered: Answered, result: BatchResult | None, error: BaseException | None) -> None:
    asyncio.get_running_loop().call_soon(answered, result, error)


def sealed(inner: Any, vault: Vault) -> Storage:
    """Return a storage whose values are sealed."""
    made: Any = SealedStorage(inner, vault)
    return made
