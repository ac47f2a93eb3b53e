"""One clock, the database's: leases and times are kept, however wrong the workers' clocks are, or the server's."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    App,
    Database,
    RetryPolicy,
    WaitTimeout,
    WorkflowContext,
    activity,
    sleep,
    wait_event,
    workflow,
)
from romancy.core import clock as clocks
from romancy.core.clock import SystemClock
from romancy.core.model import SECOND
from tests.postgres.conftest import Place

TEN = 600 * SECOND
SKEWS = [TEN, -TEN]
LEASE = 500_000


class Off(SystemClock):
    """The clock of a machine that nobody has set."""

    def __init__(self, by: int) -> None:
        super().__init__()
        self._by = by

    def wall(self) -> int:
        return super().wall() + self._by


class Server:
    """A server with a wrong clock, which can be set: a function of ours stands before its own."""

    def __init__(self, raw: Any, place: Place) -> None:
        self._raw, self.schema = raw, f"{place.schema}_clock"

    async def install(self) -> None:
        await self._raw.execute(
            f"CREATE SCHEMA {self.schema}; CREATE TABLE {self.schema}.ahead AS SELECT interval '0' AS by;"
            f"CREATE FUNCTION {self.schema}.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN "
            f"RETURN pg_catalog.clock_timestamp() + (SELECT by FROM {self.schema}.ahead); END $$"
        )

    async def set(self, ahead: int) -> None:
        await self._raw.execute(f"UPDATE {self.schema}.ahead SET by = $1", timedelta(microseconds=ahead))

    async def now(self) -> int:
        question = f"SELECT (extract(epoch FROM {self.schema}.clock_timestamp()) * 1000000)::bigint"
        return await self._raw.fetchval(question)


@pytest.fixture
async def server(place: Place) -> AsyncIterator[Server]:
    raw = await place.raw()
    server = Server(raw, place)
    await server.install()
    place.url += f"&options=-csearch_path%3D{server.schema}%2Cpg_catalog"
    yield server
    await raw.execute(f"SET client_min_messages = warning; DROP SCHEMA {server.schema} CASCADE")


def worker(place: Place, *workflows: Any, off: int = 0, **options: Any) -> App:
    app = App(Database(place.url, schema=place.schema), workflows=workflows, lease=LEASE / SECOND, **options)
    app._runtime.clock = Off(off)
    return app


# --- leases ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("skew", SKEWS)
async def test_nobody_is_dead_by_a_wrong_clock_and_who_is_dead_is_so_in_time(
    place: Place, server: Server, skew: int
) -> None:
    await server.set(skew)
    slow, fast = [await place.storage(clock=Off(by), listen=False) for by in (-TEN, TEN)]
    for name, storage in (("slow", slow), ("fast", fast)):
        await storage.register(name, LEASE, (), ())
    begun = time.monotonic()
    assert await slow.take_over("slow") == []
    assert await fast.take_over("fast") == []
    await fast.renew("fast", 60 * SECOND)
    async with asyncio.timeout(5):
        while not (gone := await fast.take_over("fast")):  # noqa: ASYNC110 - the dead tell nobody
            await asyncio.sleep(0.02)
    assert gone == ["slow"]
    assert LEASE / SECOND - 0.1 < time.monotonic() - begun < LEASE / SECOND + 3
    assert not await slow.renew("slow", LEASE), "it is told so when it comes back"


@workflow
async def nap(ctx: WorkflowContext, seconds: float) -> str:
    await sleep(ctx, timedelta(seconds=seconds))
    return "rested"


async def test_workers_with_wrong_clocks_leave_each_other_in_peace(
    place: Place, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    await server.set(TEN)
    with caplog.at_level(logging.WARNING, "romancy"):
        async with worker(place, nap, off=-TEN) as slow, worker(place, nap, off=TEN) as fast:
            ids = slow._runtime.engine.worker_id, fast._runtime.engine.worker_id
            handles = [await app.start_workflow(nap, 3 * LEASE / SECOND) for app in (slow, fast)]
            assert [await handle.result(20) for handle in handles] == ["rested"] * 2
            assert (slow._runtime.engine.worker_id, fast._runtime.engine.worker_id) == ids, "nobody was taken over"
    assert "taken over" not in caplog.text


# --- times -----------------------------------------------------------------------------------------------------------
@activity(retry=RetryPolicy(max_attempts=2, initial=timedelta(seconds=1), jitter=0))
async def second_time_lucky(ctx: ActivityContext) -> str:
    if ctx.attempt == 1:
        raise OSError("not yet")
    return "rested"


@workflow
async def retry(ctx: WorkflowContext, seconds: float) -> str:
    return await second_time_lucky(ctx)


@workflow
async def patience(ctx: WorkflowContext, seconds: float) -> str:
    try:
        await wait_event(ctx, "never", timeout=timedelta(seconds=seconds))
    except WaitTimeout:
        return "rested"
    return "woken"


@pytest.mark.parametrize("theirs", SKEWS)
@pytest.mark.parametrize("ours", SKEWS)
async def test_a_sleep_takes_as_long_as_it_should(place: Place, server: Server, theirs: int, ours: int) -> None:
    await server.set(theirs)
    async with worker(place, nap, off=ours) as app:
        begun = time.monotonic()
        handle = await app.start_workflow(nap, 0.5)
        await handle.result(20)
        assert 0.4 < time.monotonic() - begun < 10


@pytest.mark.parametrize("second", SKEWS)
@pytest.mark.parametrize("kind", [nap, patience, retry], ids=["sleep", "timeout", "retry"])
async def test_a_deadline_that_another_worker_set(place: Place, server: Server, kind: Any, second: int) -> None:
    """It stops, one with another clock goes on: neither early nor late."""
    await server.set(second // 2)
    async with worker(place, kind) as first:
        begun = time.monotonic()
        handle = await first.start_workflow(kind, 1.0, instance_id="i")
        async with asyncio.timeout(5):
            while not (waits := (await first.list_waits()).items):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert waits[0].due_at is not None
    async with worker(place, kind, off=second) as heir:
        assert await heir.handle(handle.instance_id, kind).result(10) == "rested"
        assert 0.9 < time.monotonic() - begun < 10


@pytest.mark.parametrize("skew", SKEWS)
async def test_what_is_recorded_bears_the_time_of_the_database(place: Place, server: Server, skew: int) -> None:
    """Also by those who only start and send: retention, the order of an event and a deadline, and people go by it."""
    await server.set(skew)
    async with worker(place, nap), worker(place, nap, off=-skew, worker=False) as sender:
        await sender.send_event("go", "test", id="e")
        handle = await sender.start_workflow(nap, 0)
        await handle.result(20)
        storage, now = sender._runtime.engine.storage, await server.now()
        [stored] = await storage.catalog.events()
        row = await storage.catalog.instance(handle.instance_id)
        assert row is not None
        assert row.finished_at is not None
        for at in (stored.event.accepted_at, row.created_at, row.finished_at):
            assert abs(now - at) < 10 * SECOND


async def test_retention_is_not_in_a_hurry_where_the_clock_is(place: Place, server: Server) -> None:
    async with worker(place, nap) as app:
        await (await app.start_workflow(nap, 0, instance_id="i")).result(20)
    async with worker(place, nap, off=2 * TEN, retention=timedelta(microseconds=TEN)) as fast:
        pruned = fast._runtime.engine._pruning
        async with asyncio.timeout(5):
            while pruned._working or pruned._kicked.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await fast.get_instance("i")).status == "completed"


async def test_a_server_whose_clock_is_set_is_followed(place: Place, server: Server) -> None:
    async with worker(place, nap) as app:
        for by in (TEN, -TEN):
            await server.set(by)
            before = app._runtime.clock.now()
            async with asyncio.timeout(5):  # noticed when the lease is renewed
                while abs(await server.now() - app._runtime.clock.now()) > 0.5 * SECOND:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert (app._runtime.clock.now() > before) == (by > 0)
            begun = time.monotonic()
            await (await app.start_workflow(nap, 1)).result(20)
            assert 0.4 < time.monotonic() - begun < 10, "at most half a second less: the clock may still be behind"


async def test_who_only_sends_follows_it_too(place: Place, server: Server) -> None:
    async with worker(place, worker=False) as sender:
        await server.set(TEN)
        await sender.send_event("go", "test")
        assert abs(await server.now() - sender._runtime.clock.now()) < SECOND


# --- the clock itself ------------------------------------------------------------------------------------------------
class Ticks:
    """The machine's ticks, and a server far ahead of them."""

    def __init__(self, clock: SystemClock) -> None:
        self.now, self.ahead, self._clock = 5 * SECOND, TEN, clock

    def ask(self, there: int, back: int) -> None:
        """A question that takes its time on the way there and back."""
        asked = self.now
        self.now += there
        said = self.now + self.ahead
        self.now += back
        self._clock.follow(said, asked)

    @property
    def early(self) -> int:
        """How much the clock is ahead of the server's; must never be more than 0."""
        return self._clock.now() - (self.now + self.ahead)


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    clock = SystemClock()
    ticks = Ticks(clock)
    monkeypatch.setattr(clocks, "ticks", lambda: ticks.now)
    return ticks


def test_it_is_never_ahead_and_gets_better_with_every_quick_answer(ticks: Ticks) -> None:
    ticks.ask(1000, 9000)
    assert ticks.early == -9000
    ticks.ask(1000, 500_000)
    assert ticks.early == -9000, "a slow answer says nothing new"
    ticks.ask(300, 200)
    assert ticks.early == -200
    ticks.now += 3600 * SECOND
    assert ticks.early == -200, "it goes on by itself"


def test_it_does_not_go_back_when_it_was_a_little_fast(ticks: Ticks) -> None:
    ticks.ask(0, 0)
    before = ticks._clock.now()
    ticks.ahead -= 2000  # our ticks were too quick
    ticks.ask(100, 100)
    assert ticks._clock.now() == before
    ticks.now += 5000
    assert ticks.early == -100


def test_it_goes_back_when_the_server_does(ticks: Ticks) -> None:
    ticks.ask(0, 0)
    assert ticks.early == 0
    ticks.ahead -= TEN
    ticks.ask(100, 100)
    assert ticks.early == -100
