"""A process that is killed at a given point: a caller of `app.within`, or a worker that moves what callers left."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from typing import Any, NoReturn

import asyncpg

from romancy import App, Database, WorkflowContext, wait_event, workflow
from romancy.service import runtime_of

CALLER_POINTS = ("before the commit", "after the commit")
MOVER_POINTS = ("before the move", "after the move", "before the dispatch", "before refusals are settled")


@workflow
async def double(ctx: WorkflowContext, n: int) -> int:
    return 2 * n


@workflow
async def listener(ctx: WorkflowContext) -> Any:
    return (await wait_event(ctx, "go")).data


def database(url: str, schema: str) -> Database:
    return Database(url, schema=schema) if schema else Database(url)


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")


async def leave(url: str, schema: str, point: str) -> None:
    """Leave two starts, one of them with an id that is taken, and an event; die around the commit."""
    async with App(database(url, schema), worker=False) as app:
        connection: Any = await asyncpg.connect(url) if schema else sqlite3.connect(url, isolation_level=None)

        async def run(sql: str) -> None:
            done = connection.execute(sql)
            if not isinstance(done, sqlite3.Cursor):
                await done

        await run("BEGIN")
        tx = app.within(connection)
        await tx.start_workflow("double", 21, instance_id="new")
        await tx.start_workflow("double", 1, instance_id="taken")
        await tx.send_event("go", "here", {"n": 1}, id="1")
        if point == "before the commit":
            die()
        await run("COMMIT")
        die()


async def move(url: str, schema: str, point: str) -> None:
    """Work until the point is reached, and die there."""
    app = App(database(url, schema), workflows=[double, listener])
    await app.start()
    storage: Any = runtime_of(app).engine.storage
    real_move = storage.move

    async def dying_move(batch: Any) -> Any:
        if point == "before the move":
            die()
        await real_move(batch)
        die()

    async def dying(*args: Any, **kwargs: Any) -> Any:
        die()

    if point in ("before the move", "after the move"):
        storage.move = dying_move
    elif point == "before the dispatch":
        storage._writer.dispatcher.dispatch = dying
    else:
        real_do = storage._connections.do

        async def do(name: str, /, **given: Any) -> Any:
            if name == "settle_starts":
                die()
            return await real_do(name, **given)

        storage._connections.do = do
    print("works", flush=True)
    await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run({"leave": leave, "move": move}[sys.argv[1]](*sys.argv[2:]))
