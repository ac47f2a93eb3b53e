"""A worker that kills itself at a point of a transaction: `... DATABASE SCHEMA TABLE POINT NUMBER [PATIENCE]`.

The points: `ran` (the function has returned), `stored` (the result is written, but not committed), `committed` (the
code of the workflow was not fed the result yet). The worker dies when it gets there for the given time. `stop-ran` and
`stop-stored` are the same points, but the worker stops there, until it is told to go on. PATIENCE: seconds after which
it reports that another process has a SQLite file locked.
"""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
from typing import Any

from romancy import (
    ActivityContext,
    App,
    Database,
    TransactionContext,
    WorkerOptions,
    WorkflowContext,
    activity,
    send_event,
    sleep,
    workflow,
)
from romancy.storage.postgres.transactions import PostgresTransaction
from romancy.storage.sqlite import threads, transactions
from romancy.storage.sqlite.transactions import Lender, SQLiteTransaction
from tests.crash.worker import end_here

DATABASE, SCHEMA, TABLE, POINT, NUMBER, PATIENCE = (*sys.argv[1:7], *[""] * 6)[:6]
_seen = [0]


def reach(point: str) -> None:
    if point == POINT.removeprefix("stop-"):
        _seen[0] += 1
        if _seen[0] == int(NUMBER):
            end_here(signal.SIGKILL if point == POINT else signal.SIGSTOP)


@activity(transactional=True)
async def book(ctx: TransactionContext, entry: str) -> str:
    if isinstance(ctx.connection, sqlite3.Connection):
        ctx.connection.execute(f"INSERT INTO {TABLE} VALUES (?)", (entry,))
    else:
        await ctx.connection.execute(f"INSERT INTO {TABLE} VALUES ($1)", entry)
    ctx.send_event("booked", "ledger", {"entry": entry})
    reach("ran")
    return entry


@activity
async def plain(ctx: ActivityContext, n: int) -> int:
    return n + 1


@workflow
async def counts(ctx: WorkflowContext, n: int) -> int:
    """Waits for a moment between two activities that have nothing to do with transactions."""
    first = await plain(ctx, n)
    await sleep(ctx, 1)
    return await plain(ctx, first)


@workflow
async def books(ctx: WorkflowContext, n: int) -> list[str]:
    done: list[str] = []
    for k in range(3):
        done.append(await book(ctx, f"{n}/{k}"))
        await send_event(ctx, "seen", "ledger", {"entry": done[-1]})
    return done


def mine() -> None:
    """Put the points into the storages."""
    commit, write, end = PostgresTransaction.commit, PostgresTransaction._write, SQLiteTransaction.commit

    async def committed(self: Any, *args: Any) -> Any:
        answer = await commit(self, *args)
        reach("committed")
        return answer

    async def written(self: Any, batch: Any) -> Any:
        row = await write(self, batch)
        reach("stored")
        return row

    async def ended(self: Any, *args: Any) -> Any:
        answer = await end(self, *args)
        reach("committed")
        return answer

    def lender(self: Any, *given: Any) -> None:
        make(self, *given)
        apply = self.batches.apply

        def applied(batch: Any) -> Any:
            answer = apply(batch)
            reach("stored")
            return answer

        self.batches.apply = applied

    make = Lender.__init__
    PostgresTransaction.commit, PostgresTransaction._write = committed, written  # type: ignore[method-assign]
    SQLiteTransaction.commit, Lender.__init__ = ended, lender  # type: ignore[method-assign]


async def main() -> None:
    mine()
    if PATIENCE:
        threads._PATIENCE = transactions._PATIENCE = float(PATIENCE)
    options: dict[str, Any] = {"schema": SCHEMA} if SCHEMA else {}
    app = App(Database(DATABASE, **options), workflows=[books, counts], lease=2, worker=WorkerOptions(grace=1))
    async with app:
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
