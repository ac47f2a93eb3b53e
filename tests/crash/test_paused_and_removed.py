"""A paused worker is no dead one, and a database file that is not in its place takes nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from romancy import ActivityContext, WorkflowContext, activity, wait_event, workflow
from romancy.storage.sqlite import SQLiteStorage
from romancy.testing import ManualClock, environment
from tests.engine.helpers import until
from tests.storage.conftest import BEGINNING, LEASE, Database


# --- paused ---
@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[tuple[Database, Database]]:
    """Two processes, so to speak, on one file: each has its own connections and holds its own locks."""
    clock = ManualClock(BEGINNING)
    storages = [SQLiteStorage(str(tmp_path / "romancy.db"), durability="normal", clock=clock) for _ in range(2)]
    for storage in storages:
        await storage.open()
    yield Database(storages[0], clock), Database(storages[1], clock)
    for storage in storages:
        await storage.close()


async def taken_over(paused: Database, heir: Database) -> dict[str, bool]:
    """What the heir claims after the other's lease ended, and whether each counts as a death."""
    heir.clock.turn_to(heir.now + LEASE + 1)
    await heir.register("heir")
    assert await heir.storage.take_over("heir") == ["me"]
    return {id: item.crashed for id, item in (await heir.claim("heir")).items()}


async def test_a_worker_that_holds_its_lock_is_taken_over_but_not_counted_as_dead(
    two: tuple[Database, Database],
) -> None:
    paused, heir = two
    await paused.register("me")
    await paused.start("a", "me")
    assert await taken_over(paused, heir) == {"a": False}
    assert not await paused.storage.renew("me", LEASE), "fenced it is all the same"


async def test_a_worker_whose_lock_is_free_is_dead(two: tuple[Database, Database]) -> None:
    dead, heir = two
    await dead.register("me")
    await dead.start("a", "me")
    await dead.storage.close()
    assert await taken_over(dead, heir) == {"a": True}


async def test_a_worker_whose_lock_cannot_be_judged_counts_as_dead(
    two: tuple[Database, Database], tmp_path: Path
) -> None:
    elsewhere, heir = two
    await elsewhere.register("me")
    await elsewhere.start("a", "me")
    (tmp_path / "romancy.db.workers" / "me").unlink()  # on another host, there would be none
    assert await taken_over(elsewhere, heir) == {"a": True}


@activity
async def gate(ctx: ActivityContext, name: str) -> str:
    ctx.state["runs"].append(name)
    await ctx.state["gate"].wait()
    return name


@workflow
async def through(ctx: WorkflowContext, name: str) -> str:
    return await gate(ctx, name)


@pytest.fixture
def state() -> dict[str, Any]:
    return {"gate": asyncio.Event(), "runs": []}


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "romancy.db")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For activities that hang on purpose."""
    monkeypatch.setattr(sys.modules["romancy.testing.environment"], "_PATIENCE", 0.02)


async def test_many_pauses_block_no_healthy_activity(db: str, state: dict[str, Any]) -> None:
    async with environment(database=db, workflows=[through], state=state) as env:
        await env.start(through.options(instance_id="one"), "long")
        for pauses in range(2, 7):  # one death too many would be the third
            async with environment(database=db) as other:
                other.clock.turn_to(env.clock.now() + 11_000_000)  # past the lease of 10 s
                buried = await other.app._runtime.engine.storage.take_over(other.app._runtime.engine.worker_id or "")
                assert buried == [env.app._runtime.engine.worker_id]
            old = env.app._runtime.engine.worker_id
            env.app._runtime.engine._renewal.kick()
            await until(lambda old=old: env.app._runtime.engine.worker_id not in (None, old))
            env.app._runtime.engine.kick()
            await until(lambda pauses=pauses: len(state["runs"]) == pauses)
        assert (await env.app.get_instance("one")).status == "running"
        state["gate"].set()
        assert await env.app.handle("one").result(timeout=5) == "long"


# --- removed and replaced ---
def remove(db: str, away: str) -> None:
    os.rename(db, away)


def replace(db: str, away: str) -> None:
    os.rename(db, away)
    shutil.copy(away, db)


@workflow
async def take_one(ctx: WorkflowContext, type: str = "news") -> Any:
    return (await wait_event(ctx, type)).data


@pytest.mark.parametrize("vanish", [remove, replace])
async def test_nothing_is_acknowledged_while_the_file_is_not_in_its_place(
    db: str, vanish: Callable[[str, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "romancy")
    async with environment(database=db, workflows=[take_one]) as env:
        handle = await env.start(take_one)
        away = f"{db}.away"
        vanish(db, away)
        calls = [
            asyncio.ensure_future(env.app.send_event("news", "test", "kept", id="e1")),
            asyncio.ensure_future(env.app.start_workflow(take_one, "other", instance_id="two")),
            asyncio.ensure_future(env.app.cancel_workflow("two")),
        ]
        await until(lambda: "removed or replaced" in caplog.text)
        for _ in range(50):
            await asyncio.sleep(0)
        assert not any(call.done() for call in calls), "acknowledged, and then lost"
        os.rename(away, db)
        async with asyncio.timeout(10):
            await asyncio.gather(*calls)
            await env.settle()
            assert await handle.result() == "kept"
    async with environment(database=db, workflows=[take_one]) as env:
        assert [record.event.id for record in (await env.app.list_events()).items] == ["e1"]
        assert {i.status for i in (await env.app.list_instances()).items} == {"completed", "cancelled"}


async def test_a_worker_that_comes_meanwhile_finds_no_half_truth(db: str, tmp_path: Path) -> None:
    """Somebody starts on a new file under the old name: the two never share a word."""
    async with environment(database=db, workflows=[take_one]) as env:
        await env.start(take_one.options(instance_id="old"))
        away = tmp_path / "away"
        away.mkdir()
        for path in tmp_path.glob("romancy.db*"):
            path.rename(away / path.name)
        async with environment(database=db, workflows=[take_one]) as other:
            sending = asyncio.ensure_future(env.app.send_event("news", "test", "kept"))
            assert (await other.app.list_instances()).items == []
            assert await kept_waiting(sending)
            sending.cancel()


async def kept_waiting(call: asyncio.Future[Any]) -> bool:
    for _ in range(200):
        await asyncio.sleep(0)
    return not call.done()
