"""A primary dies and its standby takes its place.

A synchronous standby has everything. Another one may lack what was written last: that is lost, but what is in memory
must not be put on top of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import asyncpg
import pytest

from romancy import ActivityContext, App, StorageError, WorkflowContext, activity, sleep, wait_event, workflow
from tests.postgres.servers import Breakable, Standby, settings
from tests.postgres.test_trouble import steps

pytestmark = pytest.mark.play

JOBS = 250


@pytest.fixture
def primary() -> Iterator[Breakable]:
    server = Breakable()
    yield server
    server.remove()


@pytest.fixture
def standby(primary: Breakable) -> Iterator[Standby]:
    standby = primary.standby()
    yield standby
    standby.remove()


async def test_a_standby_takes_over_with_everything_that_was_acknowledged(
    primary: Breakable, standby: Standby, caplog: pytest.LogCaptureFixture
) -> None:
    raw = await asyncpg.connect(primary.url)
    await settings(raw, synchronous_standby_names="'standby'")
    async with asyncio.timeout(10):
        while await raw.fetchval("SELECT sync_state FROM pg_stat_replication") != "sync":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await raw.close()
    # The standby comes first: whoever connects must see for themselves who takes writes.
    url = f"postgresql://postgres@/postgres?host={standby.folder},{primary.folder}"
    started: set[str] = set()
    sent: set[str] = set()
    enough, dying, dead = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def one(app: App, n: int) -> int:
        """Half of them while all is well, a quarter while the primary dies, a quarter afterwards."""
        if n >= JOBS // 2:
            await (dead if n >= 3 * JOBS // 4 else dying).wait()
        handle = await app.start_workflow(steps, n, instance_id=f"i{n}")
        started.add(handle.instance_id)
        receipt = await app.send_event("go", "test", {"n": n, "plus": 1}, id=f"e{n}")
        assert not receipt.duplicate, f"e{n} was sent once"
        sent.add(f"e{n}")
        if len(sent) > JOBS // 4:
            enough.set()
        return await handle.result(60)

    with caplog.at_level(logging.WARNING, "romancy"):
        async with App(url, workflows=[steps]) as app:
            loading = asyncio.gather(*(one(app, n) for n in range(JOBS)))
            await enough.wait()
            dying.set()
            await asyncio.to_thread(primary.kill)
            acknowledged = set(started), set(sent)
            dead.set()
            assert 20 < len(acknowledged[1]) < JOBS - 20, "the primary did not die in the middle"
            await asyncio.to_thread(standby.promote)
            await check_acknowledged(standby, *acknowledged)
            assert await loading == [4 * n + 1 for n in range(JOBS)]
            assert {i.status for i in (await app.list_instances(limit=1000)).items} == {"completed"}
            async with asyncio.timeout(10):
                while "the database is back" not in caplog.text:  # noqa: ASYNC110 - told after a moment of calm
                    await asyncio.sleep(0.01)
    raw = await asyncpg.connect(f"postgresql://postgres@/postgres?host={standby.folder}")
    assert await raw.fetchval("SELECT count(*) FROM romancy.consumed") == JOBS
    assert await raw.fetchval("SELECT count(*) FROM romancy.history") == 3 * JOBS
    await raw.close()
    assert caplog.text.count("can't be written") == 1, "an outage is told once"
    assert caplog.text.count("the database is back") == 1


async def check_acknowledged(standby: Standby, started: set[str], sent: set[str]) -> None:
    """Seen from the new primary, before anybody could repeat anything."""
    raw = await asyncpg.connect(f"postgresql://postgres@/postgres?host={standby.folder}")
    assert started <= {id for (id,) in await raw.fetch("SELECT id FROM romancy.instances")}
    assert sent <= {id for (id,) in await raw.fetch("SELECT id FROM romancy.events")}
    await raw.close()


async def test_only_standbys_is_told_at_once(primary: Breakable, standby: Standby) -> None:
    async with App(primary.url, workflows=[steps]):
        pass
    with pytest.raises(StorageError, match="none of its hosts accepts writes"):
        await App(f"postgresql://postgres@/postgres?host={standby.folder}", workflows=[steps]).start()


# --- a standby that is behind ----------------------------------------------------------------------------------------
@activity
async def count(ctx: ActivityContext, n: int) -> int:
    await ctx.state[n].wait()
    return n


@workflow
async def counts(ctx: WorkflowContext) -> list[int]:
    return [await count(ctx, n) for n in range(6)]


@workflow
async def filters(ctx: WorkflowContext) -> Any:
    await count(ctx, 2)
    return (await wait_event(ctx, "go", where={"n": 1})).data


async def until(condition: Callable[[], Awaitable[Any]]) -> None:
    async with asyncio.timeout(20):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def caught_up(raw: Any) -> bool:
    return await raw.fetchval("SELECT replay_lsn >= pg_current_wal_lsn() FROM pg_stat_replication")


async def test_nothing_in_memory_is_put_on_top_of_a_standby_that_was_behind(
    primary: Breakable, standby: Standby, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"postgresql://postgres@/postgres?host={standby.folder},{primary.folder}"
    gates = [asyncio.Event() for _ in range(6)]
    gates[0].set()
    raw = await asyncpg.connect(primary.url)
    async with App(url, workflows=[counts, filters], state=gates) as app:
        counting = await app.start_workflow(counts, instance_id="counting")
        filtering = await app.start_workflow(filters, instance_id="filtering")
        await until(lambda: raw.fetchval("SELECT count(*) = 1 FROM romancy.history WHERE instance = 'counting'"))
        await until(lambda: caught_up(raw))
        await standby.fall_behind()
        for gate in gates[1:4]:
            gate.set()
        # Results, a shape and a wait that only the primary will ever know.
        await until(lambda: raw.fetchval("SELECT count(*) = 4 FROM romancy.history WHERE instance = 'counting'"))
        await until(lambda: raw.fetchval("SELECT ready FROM romancy.shapes"))
        await until(lambda: raw.fetchval("SELECT count(*) = 1 FROM romancy.waits"))
        await asyncio.to_thread(primary.kill)
        await asyncio.to_thread(standby.promote)
        for gate in gates:
            gate.set()
        assert await counting.result(30) == list(range(6))
        raw = await asyncpg.connect(f"postgresql://postgres@/postgres?host={standby.folder}")
        entries = await raw.fetch("SELECT n FROM romancy.history WHERE instance = 'counting' ORDER BY n")
        assert [n for (n,) in entries] == list(range(1, len(entries) + 1)), "there is a hole in the history"
        await until(lambda: raw.fetchval("SELECT count(*) = 1 FROM romancy.waits"))
        await app.send_event("go", "test", {"n": 2})
        await app.send_event("go", "test", {"n": 1})
        assert await filtering.result(30) == {"n": 1}
        await raw.close()
    assert caplog.text.count("was replaced by a standby or a backup") == 1
    assert "no notices" not in caplog.text, "the standby was listened to, and not the primary"


# --- a standby with another clock ------------------------------------------------------------------------------------
CLOCK = """CREATE SCHEMA clock; CREATE FUNCTION clock.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN
RETURN pg_catalog.clock_timestamp() + CASE WHEN pg_walfile_name(pg_current_wal_insert_lsn()) LIKE '00000001%'
  THEN interval '0' ELSE interval '{}' END; END $$"""
"""The server's clock, which is another one after a standby was promoted."""


@workflow
async def naps(ctx: WorkflowContext, seconds: float) -> str:
    await sleep(ctx, seconds)
    return "rested"


@pytest.mark.parametrize("ahead", [10, -10], ids=lambda n: f"{n} minutes")
async def test_leases_and_times_go_by_the_clock_of_the_standby(
    primary: Breakable, ahead: int, caplog: pytest.LogCaptureFixture
) -> None:
    raw = await asyncpg.connect(primary.url)
    await raw.execute(CLOCK.format(f"{ahead} minutes"))
    standby = primary.standby()
    url = f"postgresql://postgres@/postgres?host={standby.folder},{primary.folder}"
    url += "&options=-csearch_path%3Dclock%2Cpg_catalog"
    try:
        async with App(url, workflows=[naps], lease=2) as one, App(url, workflows=[naps], lease=2) as two:
            long, short = [await one.start_workflow(naps, s, instance_id=f"{s}") for s in (300, 4.0)]
            await until(lambda: caught_up(raw))
            await raw.close()
            await asyncio.to_thread(primary.kill)
            await asyncio.to_thread(standby.promote)
            now = await is_followed(one, two, ahead)
            workers = [app._runtime.engine.worker_id for app in (one, two)]
            begun = time.monotonic()
            fresh = [await app.start_workflow(naps, 2.5) for app in (one, two)]
            assert [await handle.result(20) for handle in fresh] == ["rested"] * 2
            assert 2.4 < time.monotonic() - begun < 6
            assert [app._runtime.engine.worker_id for app in (one, two)] == workers, "nobody was taken over"
            for handle in (long, short):  # due at a time that the new clock has passed, or reaches in ten minutes
                if ahead > 0:
                    assert await handle.result(20) == "rested"
                else:
                    assert await handle.status() == "waiting_for_timer"
            row = await one._runtime.engine.storage.catalog.instance(fresh[0].instance_id)
            assert row is not None
            assert abs(row.created_at - now) < 30_000_000, "recorded by the new clock"
            assert not (await one.list_instances(status="blocked")).items
    finally:
        standby.remove()


async def is_followed(one: App, two: App, ahead: int) -> int:
    """Both workers are registered again; says what time it is there."""

    async def followed() -> bool:
        return all(
            app._runtime.engine.worker_id is not None
            and app._runtime.engine.committer.outage._noticed_by == set()
            and abs(app._runtime.clock.now() - (time.time() + ahead * 60) * 1e6) < 1e6
            for app in (one, two)
        )

    await until(followed)
    return one._runtime.clock.now()
