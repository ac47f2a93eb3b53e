"""Emissions: stores what activities and workflows emit, in small batches beside the group commit.

What an activity emits is buffered, and stored with the next flush. What the code of a workflow emits is stored with
the commit of its step. Readers are shown what is stored, never what is not: a number that was shown stays. Of one
instance, only one write of emissions is under way at a time, be it a flush or a commit, so its numbers have no gaps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from romancy.core.clock import Clock, stopwatch
from romancy.engine.emission_head import NO_TOPIC, Head, Value
from romancy.engine.emission_readers import Readers
from romancy.engine.items import Done
from romancy.engine.leases import Lease
from romancy.engine.metrics import Metrics
from romancy.engine.outage import Outage
from romancy.errors import Outdated, StorageError
from romancy.storage.batch import Commit
from romancy.storage.emissions import EmissionRow
from romancy.storage.errors import RefusedValue
from romancy.storage.protocol import Storage

T = TypeVar("T")
_logger = logging.getLogger("romancy")
PAUSE = 0.03
"""Seconds between flushes. The first value after a pause is stored at once."""
ROOM, ALL_ROOM = 256 * 1024, 16 * 1024 * 1024
"""Bytes of one instance, and of all, that may wait to be stored. Then those who emit have to wait."""
MOST_UNAWAITED = 4
"""Times as much may wait if nobody awaits `emit`. Then it raises an error."""
Taken = tuple[Head, list[EmissionRow]]
"""The rows of an instance that are to be written."""
PIECE = 1024 * 1024
"""Bytes that are stored in one transaction, so that others need not wait long for it."""


class Emissions:
    """Writes the emissions of this worker's instances, and shows them to the readers of this process."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        lease: Lease,
        outage: Outage,
        metrics: Metrics,
        readers: Readers,
    ) -> None:
        self._storage, self._clock, self._lease, self._outage = storage, clock, lease, outage
        self._metrics, self.readers = metrics, readers
        self.heads: dict[str, Head] = {}
        """By instance, as long as something of it is or may be emitted. Empty if nobody emits."""
        self.pause = PAUSE
        self._dirty: dict[str, Head] = {}
        self._flying: set[Head] = set()
        """Those of the flush under way."""
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._flushed_at = float("-inf")
        self._unstored = 0
        self._cramped: list[asyncio.Future[None]] = []
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Emissions instances={len(self.heads)} unstored={self._unstored}>"

    @property
    def is_idle(self) -> bool:
        return all(head.is_idle for head in self.heads.values())

    # --- activities -------------------------------------------------------------------------------------------------
    def emit(self, instance: str, value: Value, *, is_awaited: bool = False) -> bool:
        """Buffer a value. Return whether there is room for more; else `room` waits for it, which some always do."""
        head = self.heads.get(instance)
        if head is None:
            head = self.heads[instance] = Head(instance)
        problem = head.problems.get(value.author) or (head.check(value.topic) if head.is_known else None)
        if problem is not None:
            raise problem
        if head.size > ROOM * MOST_UNAWAITED and not is_awaited:
            raise RuntimeError(f"instance {instance!r} emits faster than it can be stored; use: await emit(ctx, ...)")
        head.put(value)
        self._unstored += len(value.raw)
        self._go_on(head)
        return self._has_room(head)

    def has_emitted(self, instance: str, op: str) -> bool:
        """Return whether it is known here that an operation has emitted something."""
        head = self.heads.get(instance)
        return head is not None and head.has_emitted(op)

    def begin(self, instance: str, op: str, author: object) -> None:
        """Note that an attempt has begun that emits nothing. If an earlier one did, readers get a `restart`."""
        if self._is_closed:
            return
        head = self.heads.get(instance)
        if head is None:
            head = self.heads[instance] = Head(instance)
        head.put(Value(op, author, NO_TOPIC, b""))
        self._go_on(head)

    def _has_room(self, head: Head | None) -> bool:
        return self._unstored <= ALL_ROOM and (head is None or head.size <= ROOM)

    async def room(self, instance: str, is_wanted: Callable[[], bool]) -> None:
        """Wait for room, as long as that is wanted."""
        while is_wanted() and not self._has_room(self.heads.get(instance)) and not self._is_closed:
            self._hurry.set()
            future = asyncio.get_running_loop().create_future()
            self._cramped.append(future)
            await asyncio.wait([future], timeout=0.25)

    async def settled(self, instance: str, author: object) -> None:
        """Wait until everything that was emitted is stored. Raise an error if something of this author can't be."""
        head = self.heads.get(instance)
        if head is None:
            return
        if head.stored < head.queued:
            stored = asyncio.get_running_loop().create_future()
            head.wait(lambda: None if stored.done() else stored.set_result(None))
            self._hurry.set()
            self._go_on(head)
            await stored
        problem = head.problems.pop(author, None)
        if problem is not None:
            raise problem

    # --- workflows --------------------------------------------------------------------------------------------------
    def submit(self, commit: Commit, done: Done, put: Callable[[Commit, Done], None]) -> None:
        """Put a commit that emits, ends an instance or gives it up, after everything that was emitted before."""
        head = self.heads.get(commit.instance)
        leaves = commit.is_final or commit.release or commit.continuation is not None
        if not commit.emitted and (head is None or not leaves):
            put(commit, done)
            return
        if head is None:
            head = self.heads[commit.instance] = Head(commit.instance)

        def begin() -> None:
            """Nothing else may be written meanwhile: after the end of an instance, nothing of it can appear."""
            if commit.emitted:
                head.number(commit.emitted)
            head.is_busy = True
            put(commit, landed)

        def landed(applied: bool, refusal: RefusedValue | None) -> None:
            if applied:
                self._stored(commit.emitted)
            else:
                head.is_stale = True  # its numbers are not taken
            done(applied, refusal)
            self._land(head)

        head.wait(begin, needs_numbers=bool(commit.emitted))
        self._hurry.set()
        self._go_on(head)

    def forget(self, instance: str) -> None:
        """Give up what waits to be stored: the instance leaves memory."""
        head = self.heads.get(instance)
        if head is None:
            return
        self._unstored -= sum(len(value.raw) for value in head.buffer)
        head.forget()
        self._go_on(head)

    # --- flushing ---------------------------------------------------------------------------------------------------
    def _go_on(self, head: Head) -> None:
        """Call those who waited for what is stored by now, and see to it that the rest is stored."""
        while (call := head.due()) is not None:
            call()
        if head.has_work and not self._is_closed:
            self._dirty[head.instance] = head
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._run(), name="romancy-emissions")
        elif head.is_idle and not head.is_known and not head.problems:
            self.heads.pop(head.instance, None)

    async def _run(self) -> None:
        while self._dirty:
            await self._pace()
            heads, self._dirty = [head for head in self._dirty.values() if head.has_work], {}
            self._hurry.clear()
            self._flushed_at = stopwatch()
            self._flying = set(heads)
            for head in heads:
                head.is_busy = True
            try:
                await self._flush(heads)
            except Exception as error:
                _logger.exception("emissions can't be stored; the attempts that emitted them fail")
                for head in self._flying:
                    head.is_stale = True
                    self._refuse(head, error)
                await asyncio.sleep(1.0)
            finally:
                # Only those whose write has not ended: a commit may be under way for the others by now.
                for head in list(self._flying):
                    self._land(head)

    async def _pace(self) -> None:
        """Let values gather for a moment, unless somebody waits for them."""
        rest = self._flushed_at + self.pause - stopwatch()
        if rest <= 0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(rest):
                await self._hurry.wait()
        except TimeoutError:
            pass

    async def _flush(self, heads: list[Head]) -> None:
        unknown = [head.instance for head in heads if not head.is_known]
        if unknown:
            found = await self._until_answered(lambda: self._storage.emissions.standings(unknown))
            for head in heads:
                if found is not None and not head.is_known and not head.is_stale:
                    head.learn(found[head.instance])
        now = self._clock.now()
        taken = [(head, head.take(now)) for head in heads if head.is_known]
        for piece in _pieces(taken):
            await self._write(piece)

    async def _write(self, piece: list[Taken]) -> None:
        worker = self._lease.worker
        rows = [row for _, taken in piece for row in taken]
        written = None
        if worker is not None and rows:
            try:
                written = await self._until_answered(lambda: self._storage.emissions.write(worker, rows))
            except RefusedValue as error:
                if len(piece) > 1:
                    for one in piece:
                        await self._write([one])
                    return
                self._refuse(piece[0][0], error)
        if written is not None and written.strange:
            _logger.error("the emissions of %s are not as their owner knows them", ", ".join(sorted(written.strange)))
        if written is not None:
            self._stored([row for row in rows if row.instance in written.mine])
        for head, taken in piece:
            if taken and (written is None or head.instance not in written.mine):
                head.is_stale = True
            self._land(head)
        if written is not None and written.is_fenced:
            self._lease.fenced(worker)

    def _refuse(self, head: Head, error: Exception) -> None:
        for author in head.authors.values():
            head.problems[author] = error

    async def _until_answered(self, ask: Callable[[], Any]) -> Any:
        """Ask the same again and again during an outage. None: the app stops, or may not write any more."""
        pause = 0.05
        while not self._is_closed:
            try:
                answer = await ask()
            except Outdated as error:
                self._lease.retire(error)
                return None
            except RefusedValue:
                raise
            except StorageError as error:
                self._outage.noticed("emissions", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2.0)
            else:
                if pause > 0.05:
                    self._outage.over("emissions")
                return answer
        return None

    def _stored(self, rows: Sequence[EmissionRow]) -> None:
        for row in rows:
            self._metrics.emissions += row.count
            self._metrics.emission_bytes += len(row.data)
        if rows:
            self.readers.show(rows)

    def _land(self, head: Head) -> None:
        """Go on after a write: what is not in the buffer was stored, or given up."""
        self._flying.discard(head)
        self._unstored -= head.land()
        self._go_on(head)
        cramped, self._cramped = self._cramped, []
        for future in cramped:
            if not future.done():
                future.set_result(None)

    # --- stopping ---------------------------------------------------------------------------------------------------
    async def drained(self) -> None:
        """Wait until everything is stored."""
        while self._dirty or (self._task is not None and not self._task.done()):
            self._hurry.set()
            await asyncio.sleep(0.001)

    def close(self) -> None:
        """Store nothing more, and show nothing more."""
        self._is_closed = True
        self.readers.close()
        if self._task is not None:
            self._task.cancel()


def _pieces(taken: list[Taken]) -> list[list[Taken]]:
    pieces: list[list[Taken]] = []
    size = 0
    for one in taken:
        weight = sum(len(row.data) for row in one[1])
        if not pieces or size + weight > PIECE:
            pieces.append([])
            size = 0
        pieces[-1].append(one)
        size += weight
    return pieces
