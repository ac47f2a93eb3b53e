"""Old and new code on one database: an instance that one build can't follow is tried by the others, once each."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    App,
    HooksBase,
    WorkerOptions,
    Workflow,
    WorkflowContext,
    activity,
    wait_event,
    workflow,
)
from romancy.core.model import FOREVER_US, SECOND
from romancy.hooks import ReplayStartedInfo
from romancy.storage.records import to_builds
from romancy.testing import Environment, ManualClock
from tests.engine.helpers import until


@activity
async def pack(ctx: ActivityContext) -> str:
    return "packed"


@activity
async def wrap(ctx: ActivityContext) -> str:
    return "wrapped"


@activity
async def hang(ctx: ActivityContext) -> str:
    await asyncio.Event().wait()
    return "never"


@workflow(name="ship")
async def ship_old(ctx: WorkflowContext) -> str:
    await wait_event(ctx, "go")
    done = await pack(ctx)
    await wait_event(ctx, "end")
    return f"{done} by old code"


@workflow(name="ship")
async def ship_new(ctx: WorkflowContext) -> str:
    await wait_event(ctx, "go")
    done = await wrap(ctx)
    await wait_event(ctx, "end")
    return f"{done} by new code"


@workflow(name="ship")
async def ship_third(ctx: WorkflowContext) -> str:
    await wait_event(ctx, "go")
    await wait_event(ctx, "other")
    return "by third code"


@workflow(name="ship")
async def ship_hanging(ctx: WorkflowContext) -> str:
    await wait_event(ctx, "go")
    await pack(ctx)
    return await hang(ctx)


@workflow
async def stranger(ctx: WorkflowContext) -> None:
    pass


class Count(HooksBase):
    """How often an instance is loaded."""

    def __init__(self) -> None:
        self.loads = 0

    async def on_replay_started(self, info: ReplayStartedInfo) -> None:
        self.loads += 1


class Place:
    """One database and one clock for several workers."""

    def __init__(self, db: str) -> None:
        self.db, self.clock, self.count = db, ManualClock(), Count()

    @asynccontextmanager
    async def worker(self, build: str, code: Workflow[..., Any]) -> AsyncIterator[Environment]:
        app = App(self.db, workflows=[code], worker=WorkerOptions(build=build, grace=0.1), hooks=[self.count])
        app._runtime.clock, app._runtime.timer_window = self.clock, FOREVER_US
        await app.start()
        env = Environment(app, self.clock)
        await env.settle()
        try:
            yield env
        finally:
            if app._runtime.is_running:
                await app.stop()

    async def sweep(self, *workers: Environment, times: int = 1) -> None:
        """Let each worker look for work, some time later."""
        for _ in range(times):
            self.clock._now += SECOND
            for env in workers:
                env.app._runtime.engine.kick()
                await env.settle()

    async def begin(self, id: str, build: str, code: Workflow[..., Any]) -> None:
        """An instance that this code has led past the point where codes differ."""
        async with self.worker(build, code) as env:
            await env.app.start_workflow(code, instance_id=id)
            await env.settle()
            await env.send_event("go", "test", to=id)
            assert (await env.app.get_instance(id)).status == "waiting_for_event"

    async def block(self, id: str, build: str, code: Workflow[..., Any]) -> None:
        """A worker of this build has to load it, and can't."""
        async with self.worker(build, code) as env:
            await env.send_event("end", "test", to=id)
            await self.sweep(env)
            instance = await env.app.get_instance(id)
            assert (instance.status, instance.builds[-1]) == ("blocked", build)
            self.count.loads = 0


@pytest.fixture
def place(db: str) -> Place:
    return Place(db)


async def builds_of(env: Environment, id: str) -> list[str]:
    """As stored, whatever the status."""
    snapshot = await env.app._runtime.engine.storage.load(id)
    assert snapshot is not None
    return to_builds(snapshot.row.builds)


async def test_a_worker_of_another_build_takes_it(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    await place.begin("x", "old", ship_old)
    await place.block("x", "new", ship_new)
    with caplog.at_level(logging.INFO, "romancy"):
        async with place.worker("old", ship_old) as env:  # its first sweep looks
            assert await env.app.handle("x").result() == "packed by old code"
            assert (await env.app.get_instance("x")).builds == ()
    taken = "instance 'x' (workflow ship), which build new could not follow, is tried by build old"
    assert [r.getMessage() for r in caplog.records if "is tried by" in r.getMessage()] == [taken]
    assert place.count.loads == 1


async def test_two_builds_side_by_side_each_with_what_the_other_cannot_follow(place: Place) -> None:
    await place.begin("x", "old", ship_old)
    await place.begin("y", "new", ship_new)
    await place.block("x", "new", ship_new)
    await place.block("y", "old", ship_old)  # and takes x
    async with place.worker("old", ship_old) as old, place.worker("new", ship_new) as new:
        await place.sweep(old, new, times=2)
        assert await old.app.handle("x").result() == "packed by old code"
        assert await new.app.handle("y").result() == "wrapped by new code"


async def test_no_build_follows_it(place: Place) -> None:
    await place.begin("x", "old", ship_old)
    await place.block("x", "new", ship_new)
    async with place.worker("third", ship_third) as third, place.worker("new", ship_new) as new:
        await place.sweep(third, new, times=5)
        instance = await third.app.get_instance("x")
        assert (instance.status, instance.builds) == ("blocked", ("new", "third"))
        assert "other" in instance.error["message"]  # the newest error
        assert place.count.loads == 1
        async with place.worker("fourth", ship_new) as fourth:
            await place.sweep(third, new, fourth, times=3)
            assert await builds_of(fourth, "x") == ["new", "third", "fourth"]
        assert place.count.loads == 2


async def test_two_workers_of_one_build_try_it_once(place: Place) -> None:
    await place.begin("x", "old", ship_old)
    await place.block("x", "new", ship_new)
    async with place.worker("third", ship_third) as one, place.worker("third", ship_third) as two:
        await place.sweep(one, two, times=3)
        assert await builds_of(one, "x") == ["new", "third"]
    assert place.count.loads == 1


async def test_a_resume_clears_the_list(place: Place) -> None:
    await place.begin("x", "old", ship_old)
    await place.block("x", "new", ship_new)
    async with place.worker("new", ship_new) as new:
        await place.sweep(new, times=2)
        assert place.count.loads == 0
        await new.app._runtime.engine.storage.resume("x")
        assert await builds_of(new, "x") == []
        await place.sweep(new)
        assert place.count.loads == 1  # that is what was asked for
        assert await builds_of(new, "x") == ["new"]
        assert await new.app.cancel_workflow("x")
        assert await builds_of(new, "x") == []


async def test_the_first_commit_clears_the_list_even_if_the_status_stays(place: Place, impatient: None) -> None:
    await place.begin("x", "old", ship_old)
    await place.block("x", "new", ship_new)
    async with place.worker("hanging", ship_hanging) as env:
        await until(lambda: env.app._runtime.engine.activities.running)
        await env.settle()
        assert (await env.app.get_instance("x")).status == "running"
        assert await builds_of(env, "x") == []


async def test_a_worker_that_dies_while_it_tries(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    await place.begin("x", "old", ship_old)
    await place.block("x", "new", ship_new)
    async with place.worker("new", ship_new) as new:
        async with place.worker("old", stranger) as dying:
            engine = dying.app._runtime.engine
            monkeypatch.setattr(engine.loader, "load", lambda *_, **__: None)  # taken, but never replayed
            dying.app.register(ship_old)
            await place.sweep(dying)
            assert await builds_of(new, "x") == ["new"]  # not tried yet, so the next of its kind may
            assert (await new.app.get_instance("x")).status == "running"
            dead = engine.worker_id or ""
            await dying.app._runtime.crash()
            await new.app._runtime.engine.storage.take_over("", [dead])
        await place.sweep(new, times=3)
        assert (await new.app.get_instance("x")).builds == ("new",)
        loads = place.count.loads
        async with place.worker("old", ship_old) as old:
            await place.sweep(new, old, times=2)
            assert await old.app.handle("x").result() == "packed by old code"
        assert place.count.loads == loads + 1 <= 2


async def test_a_worker_without_the_workflow_leaves_it(place: Place) -> None:
    await place.begin("x", "old", ship_old)
    await place.block("x", "new", ship_new)
    async with place.worker("other", stranger) as env:
        await place.sweep(env, times=2)
        instance = await env.app.get_instance("x")
        assert (instance.status, instance.builds) == ("blocked", ("new",))


async def test_one_that_is_blocked_for_another_reason_is_left_alone(place: Place) -> None:
    async with place.worker("old", ship_old) as env:
        await env.app.start_workflow(ship_old, instance_id="x")
        await env.send_event("go", "test", to="x")
        engine = env.app._runtime.engine
        engine.exits.block(engine.residents["x"], ValueError("damaged"))
        await env.settle()
    async with place.worker("new", ship_old) as env:
        await place.sweep(env, times=2)
        instance = await env.app.get_instance("x")
        assert (instance.status, instance.builds) == ("blocked", ())


async def test_many_are_taken_in_pages(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romancy.engine.unfit.PAGE", 3)
    ids = [f"i{n}" for n in range(8)]
    async with place.worker("old", ship_old) as env:
        for id in ids:
            await env.app.start_workflow(ship_old, instance_id=id)
        await env.send_event("go", "test")
    async with place.worker("new", ship_new) as env:
        await env.send_event("end", "test")
        await place.sweep(env, times=4)
        assert {i.status for i in (await env.app.list_instances()).items} == {"blocked"}
    async with place.worker("old", ship_old) as env:
        await place.sweep(env)
        assert {i.status for i in (await env.app.list_instances()).items} == {"completed"}
