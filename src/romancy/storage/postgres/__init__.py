"""PostgreSQL: many workers on one database. The protocol and its proof are at the top of postgres.sql.

batches.py       applies batches
columns.py       converts a batch to the columns of the group commit
dispatch.py      finds waits for an accepted event
event_lookup.py  finds events for a wait
places.py        where a wait begins
shapes.py        indexes of the fields that filters use
leases.py        workers, leases and claims
emissions.py     what instances emit
inbox.py         moves what callers left in their own transactions
retention.py     what is deleted, and which events are kept for whom
reads.py         loads instances into memory
transactions.py  transactions in which activities run
guest.py         the connection that they use
vault.py         the index key of a schema whose values are sealed
endings.py       the message that ends most of them
connection.py    the pool, and recovery when the server goes away
listener.py      LISTEN and NOTIFY
migrations.py    brings a schema up to date
numbers.py       makes up for the transaction numbers of another server
statements.py    statements by name, with typed parameters
errors.py        explains the server's errors
driver.py        asyncpg, untyped
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import Any

from romancy.core.admission import Admission
from romancy.core.clock import Clock, SystemClock, stopwatch
from romancy.core.interests import Interest
from romancy.core.model import Status
from romancy.core.tasks import start_now
from romancy.errors import StorageError
from romancy.storage.batch import Batch, BatchResult, Commit
from romancy.storage.errors import TransientError
from romancy.storage.forks import Fork
from romancy.storage.guests import Inbox
from romancy.storage.instances import Admitted
from romancy.storage.interests import Cut, rows_of
from romancy.storage.opener import PLAIN, Opener
from romancy.storage.postgres import inbox, migrations, numbers, vault
from romancy.storage.postgres.batches import BatchWriter
from romancy.storage.postgres.connection import Connections
from romancy.storage.postgres.emissions import PostgresEmissions
from romancy.storage.postgres.leases import Owning
from romancy.storage.postgres.listener import Announcer, Listener, channel_of
from romancy.storage.postgres.reads import findable, load, load_many
from romancy.storage.postgres.retention import Pruning
from romancy.storage.postgres.statements import Statements
from romancy.storage.postgres.transactions import PostgresTransaction, Transactions
from romancy.storage.protocol import Answered, Trigger
from romancy.storage.reads import Reads
from romancy.storage.records import Claimed, Shares, Snapshot, Unfit
from romancy.storage.urls import check_schema

__all__ = ["PostgresStorage"]

_SWEEP = 0.5
"""Seconds between sweeps for events that a dead process did not dispatch."""


class PostgresStorage(Reads):
    """A PostgreSQL database. Everything is in one schema.

    `notify_url`: a direct URL for LISTEN, if `url` leads to a pooler (PgBouncer in transaction mode). With
    `listen=False` there are no notices: changes by other processes are seen within a second. With `create=False` an
    empty schema is refused.
    """

    is_remote = True
    has_one_writer = False

    def __init__(
        self,
        url: str,
        *,
        schema: str = "romancy",
        notify_url: str | None = None,
        listen: bool = True,
        durability: str = "full",
        create: bool = True,
        clock: Clock | None = None,
        opener: Opener = PLAIN,
    ) -> None:
        if durability not in ("full", "normal"):
            raise ValueError(f'durability must be "full" or "normal", got {durability!r}')
        check_schema(schema)
        self.url, self.schema, self._create, self._opener = url, schema, create, opener
        self._changed: Callable[[], None] = lambda: None
        clock = clock or SystemClock()
        statements = Statements(
            schema, relaxed=durability == "normal", reader=migrations.LIBRARY_VERSION + opener.level
        )
        self._connections = Connections(url, statements, clock, self._replaced)
        do = self._connections.do
        super().__init__(self._find, self._find, do, self._admit, clock, self._schedule, do)
        self._announcer = Announcer(self._connections)
        direct, home = notify_url or url if listen else None, self._connections if notify_url else None
        self._arrived: Callable[[], None] = lambda: None
        self._rescheduled: Callable[[], None] = lambda: None
        calls = lambda: self._changed(), lambda: self._arrived(), lambda: self._rescheduled()
        lost = self._connections.note_trouble
        self._listener = Listener(direct, schema, self._announcer.sender, *calls, home, lost)
        self.emissions = PostgresEmissions(self._connections, self._listener, self._announcer)
        self._inbox: Inbox | StorageError = StorageError(f"the database {self._connections.name} is not open")
        self._writer = BatchWriter(self._connections, self._tell, opener)
        self._transactions = Transactions(self._connections, self._writer)
        self._owning = Owning(self._connections, self._listener, clock, lambda: self._changed(), opener.level)
        self._pruning = Pruning(self._connections, self._keeping, clock)
        self._workflows: Collection[str] = ()
        self._swept = float("-inf")
        self._commits: set[asyncio.Task[BatchResult]] = set()

    def __repr__(self) -> str:
        return f"<PostgresStorage {self._connections.name!r} schema={self.schema!r} {self._listener!r}>"

    async def open(self) -> None:
        await self._connections.open()
        try:
            await migrations.migrate(self._connections, self.schema, create=self._create, level=self._opener.level)
            await numbers.catch_up(self._connections, self.schema)
            await self._connections.do_timed("tell_time")  # before anything asks for the time
            self._inbox = await inbox.inbox_or_error(self._connections, self._listener.inbox)
            await self._listener.open()
        except BaseException:
            await self.close()
            raise

    async def _replaced(self, connection: Any) -> None:
        """Another server, which may lack the latest writes: forget everything and become a new worker.

        Without its row, the worker's commits are refused, so its instances are dropped from memory and read again.
        """
        self._writer.forget()
        await self._owning.step_down(connection)

    async def close(self) -> None:
        """Close everything, even if this call is cancelled."""
        try:
            await self._announcer.close()
            await self._transactions.close()
        finally:
            for task in self._commits:
                task.cancel()
            self._owning.close()
            self._listener.close()
            await self._connections.close()

    async def _find(self, name: str, /, **given: Any) -> list[Any]:
        return await self._connections.ask(name, **{name: findable(value) for name, value in given.items()})

    async def _schedule(self, name: str, /, **given: Any) -> list[Any]:
        rows = await self._connections.do(name, **given)
        if rows and name in ("fire_schedule", "trigger_schedule"):
            self._tell({None}, ended=False)
        elif rows and name != "blame_schedule":
            self._announcer.tell([self._listener.schedules])
        return rows

    # --- notices ----------------------------------------------------------------------------------------------------
    def watch(
        self,
        changed: Callable[[], None],
        arrived: Callable[[], None] = lambda: None,
        rescheduled: Callable[[], None] = lambda: None,
    ) -> None:
        self._changed, self._arrived, self._rescheduled = changed, arrived, rescheduled

    def _tell(self, owners: set[str | None], ended: bool, emitted: bool = False) -> None:
        channels = [self._listener.free if owner is None else channel_of(owner) for owner in owners]
        if emitted:
            channels.append(self._listener.emitted)
        self._announcer.tell([*channels, self._listener.ended] if ended else channels)

    # --- writes -----------------------------------------------------------------------------------------------------
    def append(self, commit: Commit, worker: str | None) -> bool:
        return False  # a round trip always has to wait

    def commit(self, batch: Batch, answered: Answered) -> None:
        task = start_now(asyncio.get_running_loop(), self._writer.apply(batch))
        self._commits.add(task)
        task.add_done_callback(lambda done: self._committed(done, answered))

    def _committed(self, task: asyncio.Task[BatchResult], answered: Answered) -> None:
        self._commits.discard(task)
        if task.cancelled():
            answered(None, TransientError(f"the database {self._connections.name} was closed; the outcome is unknown"))
        else:
            error = task.exception()
            answered(task.result() if error is None else None, error)

    async def begin(self, lease: int, since: float = math.inf) -> PostgresTransaction:
        return await self._transactions.begin(lease, since)

    async def register(
        self, worker: str, lease: int, triggers: Sequence[Trigger], workflows: Collection[str], about: str | None = None
    ) -> None:
        self._workflows = workflows
        await self._owning.register(worker, lease, triggers, workflows, about)

    def stop_waiting(self) -> None:
        """Do nothing: nothing here waits for other processes."""

    def drop_lock(self, worker: str) -> None:
        self._owning.drop_lock(worker)

    async def announce(self, triggers: Sequence[Trigger], workflows: Collection[str]) -> None:
        self._workflows = workflows
        await self._owning.announce(triggers, workflows)

    async def propose(self, triggers: Sequence[Trigger]) -> None:
        await self._owning.propose(triggers)

    async def renew(self, worker: str, lease: int, load: int = 0, about: str | None = None) -> bool:
        return await self._owning.renew(worker, lease, load, about)

    async def check(self) -> None:
        await self._owning.check()

    async def leave(self, worker: str) -> None:
        await self._owning.leave(worker)

    async def release(self, worker: str) -> None:
        await self._owning.release(worker)
        self._tell({None}, ended=False)

    async def take_over(self, worker: str, known_dead: Sequence[str] = ()) -> list[str]:
        """Also dispatch the events that a dead process accepted but did not dispatch."""
        if stopwatch() - self._swept > _SWEEP:
            self._swept = stopwatch()
            outcome = await self._writer.dispatcher.sweep(worker, self._workflows, self._clock.now())
            if outcome is not None:
                self._tell(outcome.owners - {worker}, ended=False)
        return await self._owning.take_over(worker, known_dead)

    async def gone(self, workers: Collection[str]) -> set[str]:
        return await self._owning.gone(workers)

    async def claim(self, worker: str, workflows: Collection[str], limit: int, due_before: int) -> list[Claimed]:
        return await self._owning.claim(worker, workflows, limit, due_before)

    async def claim_idle(self, worker: str, workflows: Collection[str], limit: int) -> int:
        return await self._owning.claim_idle(worker, workflows, limit)

    async def unfit(self, workflows: Collection[str], after: tuple[str, str], limit: int) -> list[Unfit]:
        return await self._owning.unfit(workflows, after, limit)

    async def claim_unfit(self, worker: str, wanted: Sequence[Unfit]) -> set[str]:
        return await self._owning.claim_unfit(worker, wanted)

    async def _admit(
        self, admission: Admission, worker: str, at: int, workflows: Collection[str]
    ) -> list[Admitted] | None:
        admitted = await self._owning.admit(admission, worker, at, workflows)
        if admitted and not all(one.is_mine for one in admitted):
            self._tell({None}, ended=False)
        return admitted

    async def resume(self, instance: str, who: str | None = None) -> Status | None:
        while not await self.resume_all([instance], who):
            row = await self.catalog.instance(instance)
            if row is None or row.status != "blocked":
                return None if row is None else row.status
        return "blocked"

    async def resume_all(self, instances: Collection[str], who: str | None = None) -> set[str]:
        given = {"ids": findable(list(instances)), "who": who, "at": self._clock.now()}
        rows = await self._connections.do("resume_blocked", **given)
        if rows:
            self._tell({None}, ended=False)
        return {id for (id,) in rows}

    async def reopen(self, instances: Collection[str], at: int, head: bytes, who: str | None = None) -> set[str]:
        reopened: set[str] = set()
        ids, given = findable(list(instances)), {"at": at, "head": head, "who": who}
        while ids:
            rows = await self._connections.do("reopen", ids=ids, token=uuid.uuid4().bytes, **given)
            reopened.update(id for id, stale in rows if not stale)
            ids = [id for id, stale in rows if stale]
        if reopened:
            self._tell({None}, ended=False)
        return reopened

    # --- sealed values ----------------------------------------------------------------------------------------------
    async def index_key(self) -> bytes | None:
        return await vault.index_key(self._connections)

    async def folder(self) -> str:
        [row] = await self._connections.ask("folder")
        return row[0]

    async def make_index(self, sealed: bytes, key: Callable[[bytes], bytes]) -> bytes:
        return await vault.make_index(self._connections, self.schema, sealed, key)

    async def change_index(self, stored: bytes, sealed: bytes) -> None:
        await self._connections.do("change_index_key", stored=stored, key=sealed)

    async def fork(self, fork: Fork) -> bool:
        given = {"id": fork.id, "origin": findable(fork.origin), "at": fork.at, "token": fork.token, "seed": fork.seed}
        copied = {"numbers": fork.numbers, "cut": fork.cut, "ask": fork.ask, "generation": fork.generation}
        kept = fork.entries if fork.is_sealed else ()
        copied |= {"input": fork.input, "inputs": [e.input for e in kept], "payloads": [e.payload for e in kept]}
        if not await self._connections.do("fork", who=fork.who, **given, **copied):
            return False
        self._tell({None}, ended=False)
        return True

    async def prune(
        self, finished_before: int, accepted_before: int, limit: int, *, failed_before: int | None = None
    ) -> int:
        await self._writer.shapes.finish(self._clock.now())
        ended = {"before": finished_before, "failed": finished_before if failed_before is None else failed_before}
        return await self._pruning.prune(ended, accepted_before, limit)

    async def cut(self, accepted_before: int, limit: int) -> list[Cut]:
        return await self._pruning.cut(accepted_before, limit)

    async def expect(self, interests: Sequence[Interest]) -> None:
        rows = [row for interest in interests for row in rows_of(interest)]
        if rows:
            await self._writer.interests.store(rows, self._clock.now())

    # --- the inbox ---------------------------------------------------------------------------------------------------
    @property
    def inbox(self) -> Inbox:
        if isinstance(self._inbox, StorageError):
            raise self._inbox
        return self._inbox

    async def move(self, batch: Batch) -> BatchResult | None:
        return await inbox.move(self._connections, self._writer, batch)

    # --- reads ------------------------------------------------------------------------------------------------------
    async def shares(self, workflows: Collection[str], limit: int) -> Shares:
        return await self._owning.shares(workflows, limit)

    async def load(self, instance: str) -> Snapshot | None:
        return await load(self._connections, instance)

    async def load_many(self, instances: Sequence[str]) -> dict[str, Snapshot | None]:
        return await load_many(self._connections, instances)
