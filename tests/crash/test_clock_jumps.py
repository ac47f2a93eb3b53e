"""The clock of the machine is set while workers share a SQLite file: nothing is lost, nothing is early."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from romancy import ActivityContext, App, WorkflowContext, activity, sleep, wait_event, workflow
from romancy.core.clock import SystemClock
from romancy.core.model import SECOND
from romancy.engine.sweep import STRAYS
from romancy.storage.sqlite import SQLiteStorage
from romancy.testing import ManualClock, environment
from tests.storage.conftest import BEGINNING, LEASE, Database

HOUR = 3600 * SECOND


class Settable(SystemClock):
    """A machine's clock that somebody sets."""

    ahead = 0

    def now(self) -> int:
        return super().now() + self.ahead


@activity
async def slow(ctx: ActivityContext, n: int) -> int:
    ctx.state.append(ctx.instance_id)
    await asyncio.sleep(0.3)
    return n


@workflow
async def job(ctx: WorkflowContext, n: int) -> list[int]:
    first = await slow(ctx, n)
    return [first, (await wait_event(ctx, "go", where={"n": n})).data["n"], await slow(ctx, n)]


@pytest.mark.parametrize("by", [HOUR, -HOUR])
async def test_workers_leave_each_other_in_peace(tmp_path: Path, by: int) -> None:
    """All leases seem to have ended an hour ago, or to end in an hour."""
    clock, runs = Settable(), list[str]()
    apps = [App(tmp_path / "romancy.db", workflows=[job], state=runs) for _ in range(2)]
    for app in apps:
        app._runtime.clock = clock
    async with apps[0], apps[1]:
        handles = [await apps[n % 2].start_workflow(job, n, instance_id=f"i{n}") for n in range(6)]
        async with asyncio.timeout(30):
            while len(runs) < 6:  # noqa: ASYNC110 - until all are in the middle of an activity
                await asyncio.sleep(0.005)
        clock.ahead = by
        for n in range(6):
            await apps[0].send_event("go", "test", {"n": n}, id=f"e{n}")
        workers = [app._runtime.engine.worker_id for app in apps]
        assert [await handle.result(60) for handle in handles] == [[n] * 3 for n in range(6)]
        assert [app._runtime.engine.worker_id for app in apps] == workers, "nobody was taken over"
        assert len(runs) == 12, "nothing ran twice"
        for app in apps:
            assert not (await app.list_instances(status="blocked")).items


async def storages(path: Path, clock: Settable, *names: str) -> list[SQLiteStorage]:
    """A process each, so to speak, with a worker in it."""
    found = [SQLiteStorage(str(path / "romancy.db"), clock=clock) for _ in names]
    for name, storage in zip(names, found, strict=True):
        await storage.open()
        await storage.register(name, SHORT, [], ["wf"])
    return found


SHORT = SECOND // 2


async def test_a_worker_that_starts_after_the_clock_was_set_takes_over_nobody_who_renews(tmp_path: Path) -> None:
    clock = Settable()
    [old] = await storages(tmp_path, clock, "old")
    clock.ahead = HOUR
    [new] = await storages(tmp_path, clock, "new")
    assert await new.take_over("new") == []
    assert await old.renew("old", SHORT)
    await asyncio.sleep(0.4)
    assert await new.take_over("new") == []
    for storage in (old, new):
        await storage.close()


@pytest.mark.parametrize("by", [0, HOUR])
async def test_who_does_not_renew_is_taken_over_all_the_same(tmp_path: Path, by: int) -> None:
    clock = Settable()
    paused, heir = await storages(tmp_path, clock, "paused", "heir")
    assert await heir.take_over("heir") == []
    clock.ahead = by
    begun = asyncio.get_running_loop().time()
    async with asyncio.timeout(10):
        while not (gone := await heir.take_over("heir")):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert gone == ["paused"]
    assert 0.25 < asyncio.get_running_loop().time() - begun < 5
    assert not await paused.renew("paused", SHORT)
    for storage in (paused, heir):
        await storage.close()


@workflow
async def nap(ctx: WorkflowContext) -> int:
    await sleep(ctx, 60)
    return 1


async def test_a_clock_set_back_does_not_hide_a_death(tmp_path: Path) -> None:
    """The lease lies an hour ahead, but the lock is free."""
    clock = ManualClock(BEGINNING)
    dead, heir = [SQLiteStorage(str(tmp_path / "romancy.db"), clock=clock) for _ in range(2)]
    await dead.open()
    await heir.open()
    await dead.register("dead", LEASE, [], ["wf"])
    await Database(dead, clock).start("a", "dead")
    await dead.close()
    clock.turn_to(BEGINNING - HOUR)
    await heir.register("heir", LEASE, [], ["wf"])
    assert await heir.take_over("heir") == ["dead"]
    assert [claimed.id for claimed in await heir.claim("heir", ["wf"], 10, clock.now())] == ["a"]
    await heir.close()


async def test_timers_go_by_the_clock_as_it_is_now(tmp_path: Path) -> None:
    clock = Settable()
    app = App(tmp_path / "romancy.db", workflows=[nap])
    app._runtime.clock = clock
    async with app:
        handle = await app.start_workflow(nap)
        clock.ahead = -HOUR
        with pytest.raises(TimeoutError):
            await handle.result(1.5)
        clock.ahead = 61 * SECOND
        assert await handle.result(30) == 1


async def test_lost_instances_are_looked_for_after_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with environment(workflows=[nap]) as env:
        engine, looks = env.app._runtime.engine, list[int]()
        unloaded = engine.storage.unloaded

        async def count(worker: str) -> list[str]:
            looks.append(env.clock.now())
            return await unloaded(worker)

        monkeypatch.setattr(engine.storage, "unloaded", count)
        for by, looked in ((0, 1), (0, 1), (-HOUR, 2), (STRAYS // 2, 2), (STRAYS, 3)):
            env.clock.turn_to(env.clock.now() + by)
            engine.kick()
            await env.settle()
            assert len(looks) == looked
