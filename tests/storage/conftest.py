"""A database to try everything on. A fourth backend is one more entry in `BACKENDS`."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from romancy.core.filters import Filter
from romancy.core.history import Entry, Kind, pack_event
from romancy.core.model import SECOND, Event
from romancy.storage.batch import Accept, AcceptAnswer, Batch, BatchResult, Commit, Consumption, Start, WaitRow
from romancy.storage.postgres import PostgresStorage
from romancy.storage.protocol import Storage
from romancy.storage.sql import Statement, prefixed
from romancy.storage.sqlite import SQLiteStorage
from romancy.testing import ManualClock
from tests import pg_schemas, pg_server
from tests.helpers import unqualified

BEGINNING = 1_800_000_000 * SECOND
LEASE = 10 * SECOND

BACKENDS = ("file", "memory", "postgres")


async def make(backend: str, folder: Path, clock: ManualClock, stack: AsyncExitStack) -> Storage:
    """A storage on a database of its own."""
    if backend == "postgres":
        another = await stack.enter_async_context(pg_schemas.schemas())
        return PostgresStorage(pg_server.url(), schema=another(), durability="normal", clock=clock)
    path = ":memory:" if backend == "memory" else str(folder / "romancy.db")
    return SQLiteStorage(path, durability="normal", clock=clock)


class Database:
    """A storage, and short ways to say what tests say all the time."""

    def __init__(self, storage: Storage, clock: ManualClock) -> None:
        self.storage, self.clock = storage, clock

    @property
    def now(self) -> int:
        return self.clock.now()

    # --- writing -----------------------------------------------------------------------------------------------------
    def batch(self, worker: str | None = None, *, workflows: tuple[str, ...] = ("wf",), **items: Any) -> Batch:
        return Batch(worker, workflows, os.urandom(16), self.now, **items)

    async def submit(self, batch: Batch) -> BatchResult:
        """As the committer does it: one entry alone on the spot, where that goes."""
        first = batch.commits[0] if len(batch) == len(batch.commits) == 1 else None
        is_alone = first is not None and first.append_only and len(first.entries) == 1
        if first is not None and is_alone and self.storage.append(first, batch.worker):
            return BatchResult(commits=[True])
        future: asyncio.Future[BatchResult] = asyncio.get_running_loop().create_future()

        def answered(answer: BatchResult | None, error: BaseException | None) -> None:
            if future.done():  # whoever asked is gone
                return
            if error is not None:
                future.set_exception(error)
            elif answer is not None:
                future.set_result(answer)

        self.storage.commit(batch, answered)
        return await future

    async def commit(self, worker: str | None = None, **items: Any) -> BatchResult:
        return await self.submit(self.batch(worker, **items))

    async def register(self, *workers: str, workflows: tuple[str, ...] = ("wf",), triggers: Any = ()) -> None:
        for worker in workers:
            await self.storage.register(worker, LEASE, triggers, workflows)

    async def start(self, id: str, worker: str | None = None, workflow: str = "wf") -> None:
        """A new instance, this worker's (or nobody's)."""
        answer = await self.commit(worker, starts=[self.starting(id, workflow, mine=worker is not None)])
        assert answer.starts[0].created

    def starting(self, id: str, workflow: str = "wf", *, input: bytes = b"{}", mine: bool = False) -> Start:
        return Start(id, workflow, input, 0, self.now, mine=mine)

    def event(self, type: str = "go", data: object = None, **fields: Any) -> Accept:
        fields = {"id": os.urandom(8).hex(), "source": "test", "accepted_at": self.now, **fields}
        raw = None if data is None else json.dumps(data).encode()
        event = Event(type=type, data=raw, datacontenttype="application/json", **fields)
        return Accept(event, pack_event(event))

    async def send(self, type: str = "go", data: object = None, **fields: Any) -> AcceptAnswer:
        return (await self.commit(accepts=[self.event(type, data, **fields)])).accepts[0]

    def wait(self, op: str = "w", *types: str, filter: Filter | None = None, **fields: Any) -> WaitRow:
        """A wait for events of these types (default: "go"), or with `due` alone a timer."""
        if not types and "due" in fields and filter is None:
            return WaitRow(op, self.now, **fields)
        types = types or ("go",)
        spec: dict[str, Any] = {"types": types}
        if filter is not None:
            fields["filter"] = filter
            spec["filter"] = filter.to_json()
        return WaitRow(op, self.now, types=types, spec=json.dumps(spec).encode(), **fields)

    async def step(self, instance: str, worker: str, version: int, **fields: Any) -> BatchResult:
        """One commit of one instance that must be applied."""
        fields = {"status": "waiting_for_event", **fields}
        answer = await self.commit(worker, commits=[Commit(instance, version, at=self.now, **fields)])
        assert answer.commits == [True], f"the commit of {instance} at {version} was refused"
        return answer

    async def waiting(self, instance: str, worker: str, *waits: WaitRow) -> BatchResult:
        """A new instance that waits."""
        await self.start(instance, worker)
        return await self.step(instance, worker, 0, opened=waits or [self.wait()])

    async def take(
        self, instance: str, worker: str, version: int, seq: int, wait: WaitRow, **fields: Any
    ) -> BatchResult:
        """The instance takes an event with a wait, which is over thereby."""
        return await self.step(
            instance,
            worker,
            version,
            entries=[Entry(version, Kind.EVENT_RECEIVED, wait.op, self.now, wait.spec, b"{}", seq)],
            consumed=[Consumption(seq, wait.types[0], wait)],
            closed=[wait.op],
            seen_deliveries=[seq],
            **fields,
        )

    # --- reading -----------------------------------------------------------------------------------------------------
    async def look(self, instance: str, worker: str, op: str | None = None) -> list[tuple[str, int]]:
        """What a look offers: (wait, event)."""
        answer = await self.commit(worker, looks=[(instance, op)])
        return [(offer.op, offer.event.seq) for offer in answer.offers]

    async def version(self, instance: str) -> int:
        row = await self.storage.catalog.instance(instance)
        assert row is not None
        return row.version

    async def claim(self, worker: str, *workflows: str, limit: int = 100, within: int = 0) -> dict[str, Any]:
        claimed = await self.storage.claim(worker, workflows or ("wf",), limit, self.now + within)
        return {item.id: item for item in claimed}

    async def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a query finds that names tables as `romancy.waits`."""
        if isinstance(self.storage, PostgresStorage):
            return await self._postgres_rows(unqualified(query), *values)
        return await self.storage._read(lambda c: c.execute(prefixed(query), values).fetchall())  # type: ignore[attr-defined]

    async def cost_of_look(self, instance: str, worker: str) -> int:
        """Rows PostgreSQL reads by its indexes to look for the waits of an instance.

        Tables as small as these it may as well read whole; what it does with large ones is for test_plans. And not
        pages: those of rows long dead are read too while anybody's snapshot, such as autovacuum's, keeps them.
        """
        assert isinstance(self.storage, PostgresStorage)
        statement = self.storage._connections.statements.get("look")
        given = {"instances": [instance], "ops": [None], "whole": [instance], "worker": worker, "at": self.now}
        return await self.rows_read(statement, given)

    async def rows_read(self, statement: Statement, given: Mapping[str, Any]) -> int:
        """Rows a statement reads on PostgreSQL by its indexes. What it writes is undone."""
        connection = await self._postgres()
        try:
            await connection.execute("BEGIN")
            explained = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.sql}"
            raw = await connection.fetchval(explained, *statement.values(given))
            return round(_rows_read(json.loads(raw)[0]["Plan"]))
        finally:
            await connection.close()

    async def analyze(self) -> None:
        for table in ("instances", "waits", "events", "event_keys", "consumed", "marks"):
            await self._postgres_rows(f"ANALYZE {table}")

    async def _postgres_rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        connection = await self._postgres()
        try:
            return [tuple(row) for row in await connection.fetch(query, *values)]
        finally:
            await connection.close()

    async def _postgres(self) -> Any:
        assert isinstance(self.storage, PostgresStorage)
        connection = await asyncpg.connect(self.storage.url)
        await connection.execute(f'SET search_path TO "{self.storage.schema}"; SET enable_seqscan = off')
        await connection.execute("SET enable_bitmapscan = off")  # as the engine's own connections
        return connection


def _rows_read(plan: dict[str, Any]) -> float:
    """What the scans of a plan read, whether it was wanted or not."""
    own = 0.0
    if plan["Node Type"].endswith("Scan"):
        removed = plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
        own = (plan["Actual Rows"] + removed) * plan["Actual Loops"]
    return own + sum(_rows_read(child) for child in plan.get("Plans", ()))


def offers(answer: BatchResult) -> list[tuple[str, str, int]]:
    """(instance, wait, event) of an answer's offers, in order."""
    return sorted((offer.instance, offer.op, offer.event.seq) for offer in answer.offers)


@pytest.fixture(params=BACKENDS)
async def db(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    clock = ManualClock(BEGINNING)
    async with AsyncExitStack() as stack:
        storage = await make(request.param, tmp_path, clock, stack)
        await storage.open()
        database = Database(storage, clock)
        await database.register("me")
        yield database
        await storage.close()
