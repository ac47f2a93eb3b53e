"""What retention removes and keeps, made long ago, and workers that are killed while they remove it.

`python -m tests.crash.pruning DATABASE SCHEMA` forks workers. Each line of its input names a part of retention, and for
each worker the statement before which it dies (`prune 3 7`). It answers with a line that says how each has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from romancy import App, Database, Retention, WorkflowContext, wait_event, workflow
from romancy.core.clock import SystemClock
from romancy.core.model import FOREVER_US, SECOND, from_us
from romancy.engine import retention
from romancy.service import runtime_of
from romancy.storage import open_storage
from romancy.storage.postgres import PostgresStorage
from romancy.storage.postgres.connection import Connections
from romancy.storage.sqlite import SQLiteStorage
from romancy.testing import ManualClock

DAY = 24 * 3600 * SECOND
KEPT = Retention(instances=timedelta(days=7), failed=timedelta(days=90), events=timedelta(days=60))
CHUNK = 3


@workflow(expects=["news", "wake"])
async def keeper(ctx: WorkflowContext) -> list[str]:
    """Takes all the news that are there when it is woken."""
    count = (await wait_event(ctx, "wake")).data
    return [(await wait_event(ctx, "news")).id for _ in range(count)]


@workflow(expects=["taken", "letter"])
async def taker(ctx: WorkflowContext, n: int) -> None:
    """Takes an event, and leaves one that is addressed to it."""
    await wait_event(ctx, "taken", where={"n": n})


@workflow(expects=["bad"])
async def failure(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "bad")
    raise ValueError("for a retry later")


WORKFLOWS = [keeper, taker, failure]


@asynccontextmanager
async def app_at(url: str, schema: str, days: int) -> AsyncIterator[App]:
    """An app whose clock stands still unless it is turned, some days ago. It removes nothing."""
    clock = ManualClock(SystemClock().now() - days * DAY)
    database = Database(url, schema=schema or None)
    app = App(database, workflows=WORKFLOWS, retention=Retention(instances=None, failed=None, events=None))
    runtime = runtime_of(app)
    runtime.clock, runtime.timer_window = clock, FOREVER_US
    options = {"schema": schema} if schema else {}
    runtime.storage = open_storage(url, durability="normal", clock=clock, **options)
    await runtime.storage.open()
    async with app:
        yield app
    await runtime.storage.close()


def days_ago(days: int) -> str:
    return from_us(SystemClock().now() - days * DAY).isoformat()


async def live(url: str, schema: str, count: int) -> None:
    """All that has happened, from a hundred days ago until yesterday. There is `count` of each kind of thing."""
    async with app_at(url, schema, 100) as app:
        await app.start_workflow(keeper, instance_id="keeper")
        clock: Any = runtime_of(app).clock
        for n in range(count):
            clock.turn_to(clock.now() + SECOND)
            await app.send_event("news", "test", n, id=f"cut-{n}")
    async with app_at(url, schema, 50) as app:
        for n in range(20):
            await app.send_event("news", "test", n, id=f"wanted-{n}")
        await asyncio.gather(*(app.send_event("noise", "test", n, id=f"noise-{n}") for n in range(count)))
        for id, days in (("expired", 40), ("short", 1)):
            until = {"expirytime": days_ago(days)}
            for n in range(10):
                await app.send_event("noise", "test", n, id=f"{id}-{n}", extensions=until)
        handles: list[Any] = [await app.start_workflow(taker, n, instance_id=f"taker-{n}") for n in range(count)]
        broken: Any = await app.start_workflow(failure, instance_id="failure")
        await asyncio.gather(*(app.send_event("taken", "test", {"n": n}, id=f"taken-{n}") for n in range(count)))
        await app.send_event("bad", "test", id="bad")
        for handle in handles:
            await handle.result(60)
            await app.send_event("letter", "test", to=handle.instance_id, id=f"letter-{handle.instance_id}")
        await until_failed(broken)
    async with app_at(url, schema, 1) as app:
        young: Any = await app.start_workflow(taker, -2, instance_id="young")
        await app.send_event("taken", "test", {"n": -2}, id="young")
        await young.result(60)


async def until_failed(handle: Any) -> None:
    async with asyncio.timeout(60):
        while await handle.status() != "failed":  # noqa: ASYNC110
            await asyncio.sleep(0.01)


# --- workers that die -------------------------------------------------------------------------------------------------
class Fate:
    """Kills this process before a statement of a part of retention."""

    def __init__(self, part: str, n: int) -> None:
        self._part, self._left = part, n
        self._is_on = False

    def statement(self, *_: Any) -> None:
        if self._is_on:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def follow(self, kind: Any) -> None:
        """Count the statements of a part."""
        part = getattr(kind, self._part)

        async def followed(storage: Any, *args: Any, **more: Any) -> Any:
            if isinstance(storage, SQLiteStorage):
                assert storage._writer is not None
                storage._writer.connection.set_trace_callback(self.statement)
            self._is_on = True
            try:
                return await part(storage, *args, **more)
            finally:
                self._is_on = False

        setattr(kind, self._part, followed)

    def follow_connections(self) -> None:
        for name in ("do", "ask"):
            setattr(Connections, name, self._followed(getattr(Connections, name)))

    def _followed(self, method: Any) -> Any:
        async def call(connections: Any, name: str, /, **given: Any) -> Any:
            if asyncio.current_task().get_name() == "romancy-retention":  # type: ignore[union-attr]
                self.statement()
            return await method(connections, name, **given)

        return call


async def prune(url: str, schema: str, part: str, n: int) -> None:
    """Do what a worker does, until retention has nothing left to do."""
    logging.getLogger("romancy").setLevel(logging.CRITICAL)
    retention.CHUNK, retention.BRISK = CHUNK, 0.0
    fate, done, round = Fate(part, n), asyncio.Event(), retention.Pruner.round
    fate.follow(SQLiteStorage)
    fate.follow(PostgresStorage)
    fate.follow_connections()

    async def rounds(self: Any) -> float:
        rest = await round(self)
        if rest == retention.REST:
            done.set()
        return rest

    retention.Pruner.round = rounds  # type: ignore[method-assign]
    async with App(Database(url, schema=schema or None), workflows=WORKFLOWS, retention=KEPT, lease=2):
        await done.wait()


def fork(*given: Any) -> int:
    child = os.fork()
    if child:
        return child
    try:
        asyncio.run(prune(*given))
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def main(url: str, schema: str) -> None:
    for line in sys.stdin:
        part, *points = line.split()
        children = [fork(url, schema, part, int(n)) for n in points]
        ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(*ends, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
