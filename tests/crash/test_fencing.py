"""A worker that was taken over while it was alive writes nothing more, and begins again under a new name."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from romancy import ActivityContext, WorkflowContext, activity, sleep, workflow
from romancy.testing import Environment, environment
from tests.crash.faults import MortalStorage

pytestmark = pytest.mark.usefixtures("ground")


@activity
async def gate(ctx: ActivityContext) -> int:
    await ctx.state["gate"].wait()
    ctx.state["through"] += 1
    return ctx.state["through"]


@workflow
async def waits_at_the_gate(ctx: WorkflowContext) -> int:
    return await gate(ctx)


@workflow
async def sleeps(ctx: WorkflowContext) -> str:
    await sleep(ctx, 10)
    return "slept"


@pytest.fixture
def state() -> dict[str, Any]:
    return {"gate": asyncio.Event(), "through": 0}


async def bury(env: Environment) -> str:
    """Another worker finds this one dead, wrongly."""
    worker = env.app._runtime.engine.worker_id
    assert worker is not None
    await env.app._runtime.engine.storage.take_over("somebody else", [worker])
    return worker


async def test_a_late_result_is_not_written_and_the_instance_ends_once(state: dict[str, Any]) -> None:
    async with environment(workflows=[waits_at_the_gate, sleeps], state=state) as env:
        handle = await env.start(waits_at_the_gate)
        sleeper = await env.start(sleeps)
        old = await bury(env)
        state["gate"].set()
        assert await handle.result() == 2, "the result of the buried worker was taken"
        assert env.app._runtime.engine.worker_id not in (None, old)
        assert [e.kind for e in await env.app.get_history(handle.instance_id)] == ["started", "activity_completed"]
        await env.advance(10)
        assert await sleeper.result() == "slept", "what it owned while buried is lost"


async def test_a_start_during_the_burial_is_not_lost(state: dict[str, Any]) -> None:
    state["gate"].set()
    async with environment(workflows=[waits_at_the_gate], state=state) as env:
        await bury(env)
        handle = await env.start(waits_at_the_gate)
        assert await handle.result() == 1


class SlowRegister(MortalStorage):
    """Registering takes until it is let go."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.names: list[str] = []
        self.go = asyncio.Event()
        self.go.set()
        self.asked = asyncio.Event()

    async def register(self, worker: str, *args: Any) -> None:
        self.names.append(worker)
        self.asked.set()
        await self.go.wait()
        await self.inner.register(worker, *args)


async def test_the_new_name_is_used_only_when_it_is_registered(state: dict[str, Any]) -> None:
    state["gate"].set()
    async with environment(workflows=[waits_at_the_gate], state=state) as env:
        inner = env.app._runtime.storage
        env.app._runtime.storage = slow = SlowRegister(inner)  # type: ignore[assignment]
        await env.restart()
        await bury(env)
        slow.go.clear()
        slow.asked.clear()
        first = await env.app.start_workflow(waits_at_the_gate)
        await slow.asked.wait()
        second = await env.app.start_workflow(waits_at_the_gate)
        slow.go.set()
        await env.settle()
        assert sorted([await first.result(1), await second.result(1)]) == [1, 2]
        assert len(slow.names) == 2, "it fenced itself"
        env.app._runtime.storage = inner
