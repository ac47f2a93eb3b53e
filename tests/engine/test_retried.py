"""Retrying instances that failed or were cancelled: what runs again, and what stays."""

import asyncio
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


# --- what is dropped ------------------------------------------------------------------------------------------------
@workflow
async def wrapped(ctx: WorkflowContext, how: str) -> str:
    a = await do(ctx, "a")
    try:
        return a + await do(ctx, "b")
    except Exception as error:
        if how == "from":
            raise ValueError("wrapped") from error
        if how == "none":
            raise ValueError("wrapped") from None
        raise ValueError("wrapped")  # noqa: B904 - its context is what this is about


@pytest.mark.parametrize("how", ["from", "none", "in"])
async def test_a_wrapped_error_leads_to_its_cause(env: Environment, how: str) -> None:
    env.app.register(wrapped)
    world.broken = {"b"}
    handle = await env.start(wrapped, how, instance_id="i")
    with pytest.raises(WorkflowFailed, match="wrapped"):
        await handle.result()
    world.broken = set()
    assert await retried(env) == "AB"
    assert world.runs == {"a": 1, "b": 2}


@workflow
async def with_fallback(ctx: WorkflowContext) -> str:
    try:
        return await do(ctx, "first")
    except Exception:
        return await do(ctx, "fallback")


async def test_only_the_failure_of_the_fallback_is_dropped(env: Environment) -> None:
    env.app.register(with_fallback)
    await failed(env, with_fallback, "first", "fallback")
    assert await retried(env) == "FALLBACK"
    assert world.runs == {"first": 1, "fallback": 2}


async def test_all_that_failed_can_run_again(env: Environment) -> None:
    env.app.register(with_fallback)
    await failed(env, with_fallback, "first", "fallback")
    assert await retried(env, steps="failed") == "FIRST"
    assert world.runs == {"first": 2, "fallback": 1}
    assert replay(with_fallback, await env.app.get_history("i")) == "completed"


async def test_steps_can_be_named(env: Environment) -> None:
    env.app.register(with_fallback)
    await failed(env, with_fallback, "first", "fallback")
    assert await retried(env, steps=["do:1"]) == "FIRST"


async def test_a_step_that_completed_runs_again_under_another_key(env: Environment) -> None:
    env.app.register(sequence)
    await failed(env, sequence, "c")
    assert await retried(env, steps=["do:2"]) == "ABC"
    assert world.runs == {"a": 1, "b": 2, "c": 2}
    assert world.keys["b"] == ["i/do:2", "i/do:2~1"]
    assert world.keys["c"] == ["i/do:3", "i/do:3"]
    assert replay(sequence, await env.app.get_history("i")) == "completed"


async def test_unknown_steps_are_refused(env: Environment) -> None:
    env.app.register(sequence)
    await failed(env, sequence, "b")
    with pytest.raises(ValueError, match=r"no recorded step 'do:7'; these failed: do:2"):
        await env.app.retry_workflow("i", steps=["do:1", "do:7"])
    with pytest.raises(ValueError, match='"failed" or a list'):
        await env.app.retry_workflow("i", steps="all")  # type: ignore[arg-type]
    assert (await env.app.get_instance("i")).status == "failed"


@workflow
async def fan_out(ctx: WorkflowContext, how: str) -> str:
    if how == "gather":
        return "".join(await asyncio.gather(*(do(ctx, name) for name in "abc")))
    if how == "taskgroup":
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(do(ctx, name)) for name in "abc"]
        return "".join(task.result() for task in tasks)
    found = await asyncio.gather(*(do(ctx, name) for name in "abc"), return_exceptions=True)
    errors = [f for f in found if isinstance(f, Exception)]
    if errors and how == "group":
        raise ExceptionGroup("some failed", errors)
    if errors:
        raise errors[0]
    return "".join(map(str, found))


@pytest.mark.parametrize(
    ("how", "steps", "again"), [("group", None, "ab"), ("first", "failed", "ab"), ("first", ["do:1", "do:2"], "ab")]
)
async def test_only_what_failed_in_a_fan_out_runs_again(env: Environment, how: str, steps: Any, again: str) -> None:
    env.app.register(fan_out)
    world.broken = {"a", "b"}
    handle = await env.start(fan_out, how, instance_id="i")
    with pytest.raises(WorkflowFailed):
        await handle.result()
    world.broken = set()
    assert await retried(env, steps=steps) == "ABC"
    assert world.runs == {"a": 2, "b": 2, "c": 1}
    assert {name: len(set(keys)) for name, keys in world.keys.items()} == {"a": 1, "b": 1, "c": 1}
    assert replay(fan_out, await env.app.get_history("i")) == "completed"


async def test_one_of_many_failures_may_not_be_enough(env: Environment) -> None:
    env.app.register(fan_out)
    world.broken = {"a", "b"}
    handle = await env.start(fan_out, "first", instance_id="i")
    with pytest.raises(WorkflowFailed):
        await handle.result()
    world.broken = set()
    with pytest.raises(WorkflowFailed, match="b is broken"):
        await retried(env)
    assert world.runs == {"a": 2, "b": 1, "c": 1}
    assert await retried(env) == "ABC"
    assert world.runs == {"a": 2, "b": 2, "c": 1}
    assert replay(fan_out, await env.app.get_history("i")) == "completed"


@pytest.mark.parametrize("how", ["gather", "taskgroup"])
async def test_siblings_that_were_given_up_run_again(env: Environment, how: str) -> None:
    env.app.register(fan_out)
    world.broken = {"a"}
    handle = await env.start(fan_out, how, instance_id="i")
    with pytest.raises(WorkflowFailed):
        await handle.result()
    world.broken = set()
    assert await retried(env) == "ABC"
    assert all(len(set(keys)) == 1 for keys in world.keys.values())
    assert replay(fan_out, await env.app.get_history("i")) == "completed"
