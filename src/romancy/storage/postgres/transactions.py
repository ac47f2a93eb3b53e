"""Transactions in which activities run, each on a connection of its own.

    BEGIN; statements of the activity; the group commit of one instance; COMMIT

Most results are so small that their group commit, the COMMIT and a reset of the session are one message: endings.py. If
others wait for a transaction, this message also begins the next one.

The group commit checks the fence, and locks the row of the instance. So a connection that is lost during COMMIT leaves
no doubt: wait for that lock on another connection, then read the token. (One message may be on its way even then. It is
refused, or what was decided without it: both need the same version, or the same place in the history.) If this process
is paused between the last two, the server ends the session soon, so that other workers can take over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from romancy.core.clock import stopwatch
from romancy.core.model import SECOND
from romancy.errors import TerminalError
from romancy.storage.batch import Batch, BatchResult
from romancy.storage.errors import TransientError
from romancy.storage.postgres.batches import BatchWriter
from romancy.storage.postgres.connection import Connections
from romancy.storage.postgres.driver import FAILED, LOST
from romancy.storage.postgres.endings import ending_of, refused
from romancy.storage.postgres.errors import STATEMENT_TIMEOUT
from romancy.storage.postgres.guest import Guest, begun, end, forget_user, lend, take_back

_LONGEST_PAUSE = 2.0
_UNUSED = 0.1
"""Seconds after which a transaction that was begun for another activity is rolled back, or half of them."""


class Transactions:
    """Begins transactions, and keeps their connections for later ones."""

    def __init__(self, connections: Connections, writer: BatchWriter) -> None:
        self._connections, self._writer = connections, writer
        self._free: list[Any] = []
        self._lent: set[Any] = set()
        self._begun: deque[tuple[Any, float]] = deque()
        """Connections on which the next transaction has begun already, and since when they wait for it."""
        self._promised = 0
        """How many of them there are, or will be when a message is answered."""
        self._alarm: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Transactions open={len(self._lent)} free={len(self._free)}>"

    async def begin(self, lease: int, since: float) -> PostgresTransaction:
        try:
            guest = await self._take()
            self._lent.add(guest)
            try:
                inner = await self._begin(guest, since)
            except BaseException:
                self.drop(guest)
                raise
        except (*FAILED, ValueError) as error:
            raise self._connections.explain(error) from error
        guest.is_reset = False
        return PostgresTransaction(self, self._connections, self._writer, guest, inner, lease)

    async def _begin(self, guest: Any, since: float) -> Any:
        """Begin a transaction, unless one has begun since: `now()` is the time of the activity."""
        begun_at, guest.begun_at = guest.begun_at, None
        if begun_at is None:
            inner = guest.transaction()
            await inner.start()
            return inner
        if begun_at < since:
            await guest.execute("ROLLBACK; BEGIN", timeout=STATEMENT_TIMEOUT)
        return begun(guest)

    # --- transactions that begin with the end of others -------------------------------------------------------------
    def promise(self, guest: Any, waiting: int) -> None:
        """Have the end of a transaction begin another one, if more wait for one than were promised one."""
        if waiting > self._promised and guest.is_kept:
            self._promised += 1
            guest.begun_at = stopwatch()

    def break_promise(self, guest: Any) -> None:
        if guest.begun_at is not None:
            self._promised -= 1
            guest.begun_at = None

    def keep_promise(self, guest: Any) -> None:
        """Keep a connection on which another transaction has begun, for one that waits."""
        self._lent.discard(guest)
        forget_user(guest)
        self._begun.append((guest, stopwatch()))
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(_UNUSED, self._end_unused)

    def _end_unused(self) -> None:
        """Roll back transactions that were begun in vain: the attempts that waited for them were cancelled."""
        loop, before = asyncio.get_running_loop(), stopwatch() - _UNUSED / 2
        while self._begun and self._begun[0][1] <= before:
            guest, _ = self._begun.popleft()
            self._lent.add(guest)
            self.break_promise(guest)
            task = loop.create_task(self._roll_back(guest))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._alarm = loop.call_later(_UNUSED, self._end_unused) if self._begun else None

    async def _roll_back(self, guest: Any) -> None:
        try:
            await guest.execute("ROLLBACK", timeout=STATEMENT_TIMEOUT)
        except FAILED:
            self.drop(guest)
        else:
            await self.give_back(guest)

    # --- connections ------------------------------------------------------------------------------------------------
    async def _take(self) -> Any:
        if not self._connections.is_open:
            raise TransientError(f"the database {self._connections.name} is not open")
        while self._begun or self._free:
            if self._begun:
                guest, _ = self._begun.pop()
                self._promised -= 1
            else:
                guest = self._free.pop()
            if not guest.is_closed() and guest.timeline == self._connections.timeline:
                return guest
            guest.terminate()
        guest = await self._connections.connect(Guest)
        guest.timeline = self._connections.timeline
        return guest

    async def give_back(self, guest: Any) -> None:
        """Keep a connection, without the settings, locks and listeners that the activity left."""
        self._lent.discard(guest)
        forget_user(guest)
        try:
            if not guest.is_reset:
                await guest.reset(timeout=STATEMENT_TIMEOUT)
        except BaseException as error:
            guest.terminate()
            if not isinstance(error, FAILED):
                raise
        else:
            if self._connections.is_open and guest.is_kept:
                self._free.append(guest)
            else:
                guest.terminate()

    def drop(self, guest: Any) -> None:
        """Close a connection at once. The server rolls its transaction back."""
        self._lent.discard(guest)
        guest.terminate()

    async def close(self) -> None:
        for guest in (*self._lent, *self._free, *(guest for guest, _ in self._begun)):
            guest.terminate()
        self._free.clear()
        self._begun.clear()
        if self._alarm is not None:
            self._alarm.cancel()


class PostgresTransaction:
    """An open transaction."""

    def __init__(
        self,
        home: Transactions,
        connections: Connections,
        writer: BatchWriter,
        guest: Any,
        inner: Any,
        lease: int,
    ) -> None:
        self._home, self._connections, self._writer, self._guest = home, connections, writer, guest
        self._inner, self._lease, self._is_over = inner, lease, False
        self.connection: Any = lend(guest)

    async def commit(self, batch: Batch, waiting: int = 0) -> BatchResult:
        guest, self._is_over = self._guest, True
        take_back(guest, self.connection)
        try:
            if guest.is_closed():
                raise TransientError(f"the connection to {self._connections.name} was lost during the activity")
            if not guest.is_in_transaction():
                raise TerminalError("the activity ended its transaction itself; Romancy commits it with its result")
            if guest.timeline != self._connections.timeline:
                raise TransientError(f"{self._connections.name} was replaced meanwhile")
            self._home.promise(guest, waiting)
            row = await self._write(batch)
        except BaseException as error:
            self._home.break_promise(guest)
            self._home.drop(guest)
            raise self._explain(error) from error
        if not row["applied"]:
            self._home.drop(guest)
            return BatchResult(fenced=not row["alive"], commits=[False])
        try:
            await self._end()
        except BaseException as error:
            # If the reset failed, the result is stored.
            is_unknown = _is_unknown(error) or (guest.is_reset and (guest.begun_at or not guest.is_in_transaction()))
            self._home.break_promise(guest)
            self._home.drop(guest)
            if (refusal := refused(error)) is not None:
                return refusal
            if not is_unknown or not await self._was_committed(batch):
                raise self._explain(error) from error
        else:
            if guest.begun_at is None:
                await self._home.give_back(guest)
            else:
                self._home.keep_promise(guest)
        return await self._follow_up(batch, row)

    async def _end(self) -> None:
        if self._guest.ending is None:
            async with asyncio.timeout(STATEMENT_TIMEOUT):
                await self._inner.commit()
        else:
            await end(self._guest, STATEMENT_TIMEOUT)

    async def _write(self, batch: Batch) -> Any:
        """Write the result, unless that can be done together with the COMMIT. Return the answer."""
        guest = self._guest
        ending = await ending_of(guest, batch, self._connections.statements)
        if ending is not None:
            guest.ending, guest.is_reset = ending, True
            return {"applied": True, "alive": True}
        self._home.break_promise(guest)
        columns = self._writer.columns(batch)
        statement = self._connections.statements.write([*columns.pieces, "bounded"])
        idle = str(max(self._lease * 1000 // SECOND // 4, 1))
        values = statement.values({**columns.given, "idle": idle})
        [row] = await self._guest.fetch(statement.sql, *values, timeout=STATEMENT_TIMEOUT)
        return row

    def _explain(self, error: BaseException) -> BaseException:
        """Return an error of the attempt. Errors of the server stay as they are: their codes say what to do."""
        return self._connections.explain(error) if isinstance(error, LOST) else error

    async def _was_committed(self, batch: Batch) -> bool:
        """Find out what became of a COMMIT whose answer was lost. During an outage, wait."""
        pause, [commit] = 0.05, batch.commits
        while True:
            try:
                await self._connections.do("await_commit", id=commit.instance)
                return bool(await self._connections.do("resolve_commits", ids=[commit.instance], token=batch.token))
            except TransientError:
                if not self._connections.is_open:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _follow_up(self, batch: Batch, row: Any) -> BatchResult:
        """Dispatch the events that were sent. If that fails, another worker does it soon."""
        if not batch.commits[0].sent:
            return BatchResult(commits=[True])
        try:
            return await self._writer.conclude(batch, row)
        except TransientError:
            return BatchResult(commits=[True])

    async def abandon(self) -> None:
        if self._is_over:
            return
        guest, self._is_over = self._guest, True
        take_back(guest, self.connection)
        try:
            await asyncio.wait_for(self._inner.rollback(), STATEMENT_TIMEOUT)
        except BaseException:
            self._home.drop(guest)
            raise
        await self._home.give_back(guest)


def _is_unknown(error: BaseException) -> bool:
    """Whether a COMMIT that failed with this error may have been carried out."""
    return isinstance(error, (*LOST, TimeoutError)) or not isinstance(error, Exception)
