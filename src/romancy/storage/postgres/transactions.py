"""Transactions in which activities run, each on a connection of its own.

    BEGIN; statements of the activity; the group commit of one instance; COMMIT

Most results are so small that their group commit, the COMMIT and a reset of the session are one message: endings.py.

The group commit checks the fence, and locks the row of the instance. So a connection that is lost during COMMIT leaves
no doubt: wait for that lock on another connection, then read the token. (One message may be on its way even then. It is
refused, or what was decided without it: both need the same version, or the same place in the history.) If this process
is paused between the last two, the server ends the session soon, so that other workers can take over.
"""

from __future__ import annotations

import asyncio
from typing import Any

from romancy.core.model import SECOND
from romancy.errors import TerminalError
from romancy.storage.batch import Batch, BatchResult
from romancy.storage.errors import TransientError
from romancy.storage.postgres.batches import BatchWriter
from romancy.storage.postgres.connection import Connections
from romancy.storage.postgres.driver import FAILED, LOST
from romancy.storage.postgres.endings import ending_of, refused
from romancy.storage.postgres.errors import STATEMENT_TIMEOUT
from romancy.storage.postgres.guest import Guest, lend, take_back

_LONGEST_PAUSE = 2.0


class Transactions:
    """Begins transactions, and keeps their connections for later ones."""

    def __init__(self, connections: Connections, writer: BatchWriter) -> None:
        self._connections, self._writer = connections, writer
        self._free: list[Any] = []
        self._lent: set[Any] = set()

    def __repr__(self) -> str:
        return f"<Transactions open={len(self._lent)} free={len(self._free)}>"

    async def begin(self, lease: int) -> PostgresTransaction:
        try:
            guest = await self._take()
            self._lent.add(guest)
            try:
                inner = guest.transaction()
                await inner.start()
            except BaseException:
                self._lent.discard(guest)
                guest.terminate()
                raise
        except (*FAILED, ValueError) as error:
            raise self._connections.explain(error) from error
        guest.is_reset = False
        return PostgresTransaction(self, self._connections, self._writer, guest, inner, lease)

    async def _take(self) -> Any:
        if not self._connections.is_open:
            raise TransientError(f"the database {self._connections.name} is not open")
        while self._free:
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
        guest._pool_release_ctr += 1  # cursors and prepared statements that were kept raise an error
        try:
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
        for guest in (*self._lent, *self._free):
            guest.terminate()
        self._free.clear()


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

    async def commit(self, batch: Batch) -> BatchResult:
        guest, self._is_over = self._guest, True
        take_back(guest, self.connection)
        try:
            if not guest.is_in_transaction():
                raise TerminalError("the activity ended its transaction itself; Romancy commits it with its result")
            if guest.timeline != self._connections.timeline:
                raise TransientError(f"{self._connections.name} was replaced meanwhile")
            row = await self._write(batch)
        except BaseException as error:
            self._home.drop(guest)
            raise self._explain(error) from error
        if not row["applied"]:
            self._home.drop(guest)
            return BatchResult(fenced=not row["alive"], commits=[False])
        try:
            async with asyncio.timeout(STATEMENT_TIMEOUT):
                await self._inner.commit()
        except BaseException as error:
            is_unknown = _is_unknown(error) or (guest.is_reset and not guest.is_in_transaction())  # the reset failed?
            self._home.drop(guest)
            if (refusal := refused(error)) is not None:
                return refusal
            if not is_unknown or not await self._was_committed(batch):
                raise self._explain(error) from error
        else:
            await self._home.give_back(guest)
        return await self._follow_up(batch, row)

    async def _write(self, batch: Batch) -> Any:
        """Write the result, unless that can be done together with the COMMIT. Return the answer."""
        guest = self._guest
        ending = await ending_of(guest, batch, self._connections.statements)
        if ending is not None:
            guest.ending, guest.is_reset = ending, True
            return {"applied": True, "alive": True}
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
