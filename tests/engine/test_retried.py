"""Retrying instances that failed or were cancelled: what runs again, and what stays."""

from collections import Counter
from typing import Any

import pytest

from romancy import ActivityContext, RetryPolicy, WorkflowContext, WorkflowFailed, activity, workflow
from romancy.testing import Environment, replay
from tests.engine.helpers import kinds

ONCE = RetryPolicy(max_attempts=1)


class World:
    """What activities do outside: how often each ran, under which keys, and which are broken."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        self.keys: dict[str, list[str]] = {}
        self.broken: set[str] = set()


world = World()


@pytest.fixture(autouse=True)
def _anew() -> None:
    world.__init__()


@activity(retry=ONCE)
async def do(ctx: ActivityContext, name: str) -> str:
    world.runs[name] += 1
    world.keys.setdefault(name, []).append(ctx.idempotency_key)
    if name in world.broken:
        raise RuntimeError(f"{name} is broken")
    return name.upper()


@workflow
async def sequence(ctx: WorkflowContext) -> str:
    return await do(ctx, "a") + await do(ctx, "b") + await do(ctx, "c")


async def failed(env: Environment, wf: Any, *broken: str, id: str = "i") -> Any:
    """Start an instance, and return its handle once it has failed."""
    world.broken = set(broken)
    handle = await env.start(wf, instance_id=id)
    with pytest.raises(WorkflowFailed):
        await handle.result()
    world.broken = set()
    return handle


async def retried(env: Environment, **how: Any) -> Any:
    """Retry the instance, and return its result."""
    handle = await env.app.retry_workflow("i", **how)
    return await handle.result()


async def test_only_what_failed_and_what_comes_after_it_runs_again(env: Environment) -> None:
    env.app.register(sequence)
    await failed(env, sequence, "b")
    assert await retried(env) == "ABC"
    assert world.runs == {"a": 1, "b": 2, "c": 1}
    assert world.keys["b"] == ["i/do:2", "i/do:2"]
    assert await kinds(env, "i") == [
        "started",
        "activity_completed",
        "activity_failed",
        "retried",
        "activity_completed",
        "activity_completed",
    ]
    assert replay(sequence, await env.app.get_history("i")) == "completed"
    assert (await env.app.get_instance("i")).error is None


async def test_a_retry_that_fails_can_be_retried(env: Environment) -> None:
    env.app.register(sequence)
    await failed(env, sequence, "b")
    for _ in range(2):
        world.broken = {"b"}
        with pytest.raises(WorkflowFailed):
            await retried(env)
    world.broken = set()
    assert await retried(env) == "ABC"
    assert world.runs == {"a": 1, "b": 4, "c": 1}
    assert set(world.keys["b"]) == {"i/do:2"}
    assert replay(sequence, await env.app.get_history("i")) == "completed"
