"""Transactions: attempts of activities whose own writes, result and events are committed together.

The transaction stores the result; only then is it fed to the code. So a commit that fails, for example because of a
deferred constraint, is a failed attempt like any other.

If the database has one writer, a transaction keeps all other writes waiting, including commits of its own instance. So
the activity gets its turn before the transaction begins. Otherwise it asks for its turn after its function has ended,
and the instance goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from romancy.api.context import TransactionContext, lend, staged_events
from romancy.core.clock import Alarm, Clock, stopwatch
from romancy.core.durations import span
from romancy.core.history import IN_TRANSACTION, Entry, Kind
from romancy.core.model import SECOND
from romancy.core.operations import ActivityCall
from romancy.engine import turns
from romancy.engine.around import NOTHING, Around
from romancy.engine.committer import Committer
from romancy.engine.delivery import Delivery
from romancy.engine.inbox import Inboxes
from romancy.engine.metrics import Metrics
from romancy.engine.resident import Resident, TransactionAsks, Turn
from romancy.errors import TerminalError
from romancy.storage.attempts import Attempt
from romancy.storage.batch import Batch, Commit
from romancy.storage.errors import TransientError
from romancy.storage.protocol import Storage, Transaction

_logger = logging.getLogger("romancy")
LONGEST_ALONE = 5 * SECOND
"""Time limit for a transaction that keeps all other writes waiting, if the activity has none."""
_MOST_REFUSED = 1000
CONFLICTS = ("40001", "40P01")
"""SQLSTATEs of transactions that the database chose to roll back, to be tried again: serialization, deadlock."""


class Tried(Protocol):
    """The attempt that runs in a transaction."""

    resident: Resident
    call: ActivityCall

    alarm: Alarm | None
    limit: int | None
    thread: asyncio.Future[Any] | None
    is_final: bool
    is_on_loop: bool

    @property
    def first_at(self) -> int: ...
    @property
    def is_wanted(self) -> bool: ...
    def begin_thread(
        self, fn: Callable[..., Any], context: TransactionContext[Any], /
    ) -> asyncio.Future[tuple[Any, BaseException | None]]: ...
    def expire(self) -> None: ...


class Transactions:
    """Runs attempts in transactions, at most `limit` at a time. `reload` returns what reads an instance again."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        inboxes: Inboxes,
        delivery: Delivery,
        committer: Committer,
        metrics: Metrics,
        limit: int,
        lease: int,
        reload: Callable[[], Callable[[Resident], None]],
        around: Around = NOTHING,
    ) -> None:
        self._storage, self._clock, self._inboxes, self._delivery = storage, clock, inboxes, delivery
        self._committer, self._lease, self._reload = committer, lease, reload
        self._metrics, self._limit, self._around = metrics, limit, around
        self._room = asyncio.Semaphore(limit)
        self._waiting: dict[Tried, None] = {}
        """Attempts that wait for room, in order."""
        self._open: dict[Tried, tuple[int, float]] = {}
        """When the others began, by the clock and by the stopwatch."""
        self._lent: set[object] = set()
        """The contexts of functions that have a connection now."""
        self._storing = 0
        self._refused: dict[tuple[str, str], int] = {}
        """Calls whose commit was refused for no known reason, and the version of the instance at that time."""

    def __repr__(self) -> str:
        return f"<Transactions storing={self._storing}>"

    def describe(self, tried: Tried) -> str | None:
        """Return what the transaction of an attempt does; None if it has none."""
        if tried in self._open:
            seconds = max(0, self._clock.now() - self._open[tried][0]) / SECOND
            return f"runs in one transaction with its result, since {span(seconds)}"
        if tried in self._waiting:
            ahead = list(self._waiting).index(tried)
            behind = f", and {ahead} {'waits' if ahead == 1 else 'wait'} before it" if ahead else ""
            return f"waits for a transaction: max_transactions={self._limit} are open{behind}"
        return None

    def would_wait_for(self, context: object) -> bool:
        """Return whether a write of the app would wait for the transaction that it is called in."""
        return self._storage.has_one_writer and context in self._lent

    def _time_limit(self, call: ActivityCall) -> int | None:
        """Return how long the function can take. While others wait for it, the lease can't be renewed."""
        if not self._storage.has_one_writer:
            return call.timeout
        return min(LONGEST_ALONE if call.timeout is None else call.timeout, self._lease // 2)

    async def run(
        self,
        tried: Tried,
        fn: Callable[..., Any],
        context: TransactionContext[Any],
        recorded: Callable[[], None],
    ) -> None:
        """Run the function in a transaction and store its result. Call `recorded` once that is done.

        Raises the error of the attempt. In that case everything is rolled back.
        """
        if not (tried.call.activity.is_async or self._storage.has_one_writer):
            raise TerminalError(
                f"activity {tried.call.activity.name!r} is transactional, and the driver of PostgreSQL is "
                "asynchronous; write the activity as `async def`"
            )
        self._waiting[tried], since = None, stopwatch()
        try:
            await self._room.acquire()
        finally:
            del self._waiting[tried]
        self._open[tried] = self._clock.now(), stopwatch()
        is_committed = False
        try:
            transaction, turn, payload = await self._perform(tried, fn, context, since)
            is_committed = await self._store(tried, context, transaction, turn, payload, recorded)
        finally:
            self._room.release()
            _, began = self._open.pop(tried)
            outcome = "committed" if is_committed else "rolled_back"
            self._metrics.transaction_ended(tried.call.activity.name, outcome, stopwatch() - began)

    async def _perform(
        self, tried: Tried, fn: Callable[..., Any], context: TransactionContext[Any], since: float
    ) -> tuple[Transaction, Turn, bytes]:
        """Call the function in a transaction. What it returns can be stored at once."""
        turn = await self._ask(tried) if self._storage.has_one_writer else None
        transaction: Transaction | None = None
        try:
            transaction = await self._begin(since)
            lend(context, transaction.connection)
            self._lent.add(context)
            try:
                payload = await self._call(tried, fn, context)
            finally:
                self._lent.discard(context)
                lend(context, None)
            if turn is None:
                turn = await self._ask(tried)
            await _be_last_to_cancel(tried)
        except BaseException:
            try:
                if transaction is not None:
                    await asyncio.shield(self._abandon(transaction))
            finally:
                if turn is not None:
                    turns.give_back(self._inboxes, tried.resident)
            raise
        return transaction, turn, payload

    async def _call(self, tried: Tried, fn: Callable[..., Any], context: TransactionContext[Any]) -> bytes:
        """Call the function within its time limit, and return its encoded result."""
        activity, tried.limit = tried.call.activity, self._time_limit(tried.call)
        if tried.limit is not None:
            tried.alarm = self._clock.call_at(self._clock.now() + tried.limit, tried.expire)
        try:
            if self._around.has_attempts:
                result = await self._around.attempt(context, lambda: self._invoke(tried, fn, context))
            else:
                result = await self._invoke(tried, fn, context)
        finally:
            if tried.alarm is not None:
                tried.alarm.cancel()
        if not tried.is_wanted:
            raise asyncio.CancelledError  # the function ignored that it was cancelled
        try:
            return activity.encode(result)
        except Exception:
            tried.is_final = True
            raise

    async def _invoke(self, tried: Tried, fn: Callable[..., Any], context: TransactionContext[Any]) -> Any:
        if tried.call.activity.is_async:
            return await tried.call.activity.invoke(fn, context, tried.call.arguments)
        tried.thread = tried.begin_thread(fn, context)
        result, error = await asyncio.shield(tried.thread)
        if error is not None:
            raise error
        return result

    async def _begin(self, since: float) -> Transaction:
        """Begin a transaction. An outage of the database does not count as a failed attempt."""
        pause, outage = 0.05, self._committer.outage
        try:
            while True:
                try:
                    return await self._storage.begin(self._lease, since)
                except TransientError as error:
                    outage.noticed("transaction", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2.0)
        finally:
            outage.left("transaction")

    async def _abandon(self, transaction: Transaction) -> None:
        try:
            await transaction.abandon()
        except Exception as error:
            _logger.warning("a transaction could not be rolled back (%s); its connection is closed", error)

    async def _ask(self, tried: Tried) -> Turn:
        answer: asyncio.Future[Turn | None] = asyncio.get_running_loop().create_future()
        granted = False

        def decide(turn: Turn | None) -> None:
            nonlocal granted
            if not answer.done():
                answer.set_result(turn)
                granted = turn is not None
            elif turn is not None:
                turns.give_back(self._inboxes, tried.resident)

        turns.ask(self._inboxes, tried.resident, TransactionAsks(tried.call.id, decide))
        try:
            turn = await answer
        except asyncio.CancelledError:
            if granted:  # cancelled just after it was granted
                turns.give_back(self._inboxes, tried.resident)
            raise
        if turn is None:
            raise asyncio.CancelledError("the result is no longer needed")
        return turn

    async def _store(
        self,
        tried: Tried,
        context: TransactionContext[Any],
        transaction: Transaction,
        turn: Turn,
        payload: bytes,
        recorded: Callable[[], None],
    ) -> bool:
        """Commit the transaction with the result of the function; return whether that was still possible."""
        resident = tried.resident
        self._storing += 1
        try:
            entry, attempt, batch = self._prepare(tried, context, turn, payload)
            answer = await transaction.commit(batch, len(self._waiting))
            if not (answer.commits[0] or answer.fenced):
                await self._find_reason(resident, tried.call.id, turn, batch.worker)
        except BaseException:
            await self._abandon(transaction)  # unless it has ended already
            turns.give_back(self._inboxes, resident)
            raise
        finally:
            self._storing -= 1
        if answer.commits[0]:
            recorded()
            turns.record(self._inboxes, resident, entry, attempt)
        elif not resident.is_gone:
            self._reload()(resident)
        self._committer.stored_apart(batch, answer)
        return answer.commits[0]

    async def _find_reason(self, resident: Resident, op: str, turn: Turn, worker: str | None) -> None:
        """Raise an error if the commit was refused because of what the activity wrote: it would always be refused.

        Otherwise another process wrote to the instance, which raised its version. Or the activity saw the row as it was
        before: above READ COMMITTED, what it sees is fixed at its beginning. That does not happen twice in a row at one
        version, because an activity that runs again sees the row as it is now.
        """
        id = resident.instance.id
        try:
            snapshot = await self._storage.load(id)
        except TransientError:
            return  # it is read again in any case
        if snapshot is None:
            _logger.error("instance %r was deleted while it ran; what its activity wrote is rolled back", id)
        elif snapshot.row.version != turn.version or snapshot.row.owner != worker:
            return
        elif self._refused.get((id, op)) != turn.version:
            if len(self._refused) >= _MOST_REFUSED:
                self._refused.clear()
            self._refused[id, op] = turn.version
        else:
            raise TerminalError(
                "the activity changed the row of its own instance in Romancy's tables, so that its result can't be "
                "stored; use the app to cancel instances, and write to your own tables only"
            )

    def _prepare(
        self, tried: Tried, context: TransactionContext[Any], turn: Turn, payload: bytes
    ) -> tuple[Entry, Attempt, Batch]:
        resident, op = tried.resident, tried.call.id
        at = max(self._clock.now(), turn.at)
        entry = Entry(turn.n, Kind.ACTIVITY_COMPLETED, op, at, tried.call.input, payload, IN_TRANSACTION)
        commit = Commit(resident.instance.id, turn.version, turn.status, at, same_status=True, entries=[entry])
        commit.sent = [self._delivery.prepare(event) for event in staged_events(context)]
        # Until the code was fed the result, its attempts are recorded: see `Snapshot.unfed`.
        attempt = resident.attempts.get(op) or Attempt(op, 0, tried.first_at, started=True)
        commit.attempts = [] if op in resident.attempts else [attempt]
        commit.attempts_done = resident.fed
        return entry, attempt, self._committer.batch_of(commit)


async def _be_last_to_cancel(tried: Tried) -> None:
    """Make sure that the attempt is not cancelled from here on: the outcome would be unknown."""
    tried.is_on_loop = False  # otherwise the task would be cancelled with it
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        await asyncio.sleep(0)  # raises what is due already


def is_conflict(error: BaseException | None) -> bool:
    """Return whether a transaction failed only because of others at the same time, so that it is tried again."""
    while error is not None:
        if getattr(error, "sqlstate", None) in CONFLICTS:
            return True
        error = error.__cause__
    return False
