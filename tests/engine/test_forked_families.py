"""Forks and children: a fork has children of its own, even if the code gave those of the original an id."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from romancy import (
    NO_RETRY,
    ActivityContext,
    InstanceExists,
    WorkflowCancelled,
    WorkflowContext,
    WorkflowFailed,
    activity,
    sleep,
    start_workflow,
    wait_event,
    workflow,
)
from romancy.testing import Environment, replay
from tests.engine.helpers import down

noted: list[str] = []


@pytest.fixture(autouse=True)
def _anew() -> None:
    noted.clear()
    BROKEN.clear()


@activity
async def note(ctx: ActivityContext, what: str) -> str:
    noted.append(what)
    return what


@workflow
async def waiter(ctx: WorkflowContext) -> Any:
    return (await wait_event(ctx, "go")).data


@workflow
async def naming(ctx: WorkflowContext, own_id: str | None) -> list[Any]:
    """Starts a child, and notes its id before, at and after the place of a fork."""
    child = await start_workflow(ctx, waiter, instance_id=own_id)
    ids = [await note(ctx, child.instance_id) for _ in range(3)]
    return [*ids, await child.result(), await note(ctx, child.instance_id)]


async def statuses(env: Environment) -> dict[str, str]:
    await env.settle()
    return {i.instance_id: i.status for i in (await env.app.list_instances(limit=500)).items}


async def fork(env: Environment, origin: str, at: int, new_id: str) -> None:
    await env.app.fork_workflow(origin, at=at, new_id=new_id)
    await env.settle()


@pytest.mark.parametrize("own_id", ["mine", None])
@pytest.mark.parametrize("is_restarted", [True, False])
async def test_a_child_that_is_open_at_the_cut(env: Environment, own_id: str | None, is_restarted: bool) -> None:
    env.app.register(naming, waiter)
    await env.start(naming, own_id, instance_id="i")
    first = own_id or "i/waiter:1"
    assert noted == [first] * 3
    await fork(env, "i", 1, "f")
    await fork(env, "f", (await env.app.get_history("f"))[-2].n, "g")
    assert noted == [first] * 3 + ["f/waiter:1"] * 2 + ["g/waiter:1"] * 1
    assert await statuses(env) == {
        **dict.fromkeys(("i", "f", "g"), "waiting_for_child"),
        **dict.fromkeys((first, "f/waiter:1", "g/waiter:1"), "waiting_for_event"),
    }
    assert [(await env.app.get_instance(id)).parent for id in (first, "f/waiter:1", "g/waiter:1")] == ["i", "f", "g"]
    if is_restarted:
        async with down(env):
            pass
    for id, result in ((first, 1), ("f/waiter:1", 2), ("g/waiter:1", 3)):
        await env.send_event("go", "test", result, to=id)
    results = {id: await env.app.handle(id).result() for id in ("i", "f", "g")}
    assert results["i"] == [first, first, first, 1, first]
    assert results["f"] == [first, "f/waiter:1", "f/waiter:1", 2, "f/waiter:1"]
    assert results["g"] == [first, "f/waiter:1", "g/waiter:1", 3, "g/waiter:1"]
    for id in results:
        assert replay(naming, await env.app.get_history(id)) == "completed"


@pytest.mark.parametrize("own_id", ["mine", None])
async def test_a_child_that_has_ended_before_the_cut(env: Environment, own_id: str | None) -> None:
    env.app.register(naming, waiter)
    await env.start(naming, own_id, instance_id="i")
    await env.send_event("go", "test", 1)
    first = own_id or "i/waiter:1"
    assert await env.app.handle("i").result() == [first, first, first, 1, first]
    await fork(env, "i", 4, "f")
    assert await env.app.handle("f").result() == [first, first, first, 1, first]
    assert noted == [first] * 5
    assert set(await statuses(env)) == {"i", "f", first}, "it is the child of the original"


@workflow
async def chosen(ctx: WorkflowContext) -> str:
    await note(ctx, "a")
    try:
        return f"got {await waiter.options(instance_id='mine')(ctx)}"
    except InstanceExists as error:
        return str(error)


async def test_an_id_that_the_code_of_the_fork_chooses_is_taken_as_it_is(env: Environment) -> None:
    """As if it were started with the same input."""
    env.app.register(chosen, waiter)
    await env.start(chosen, instance_id="i")
    for at in (0, 1):
        await fork(env, "i", at, f"f{at}")
        assert "'mine' exists already, and is not a child of 'f" in await env.app.handle(f"f{at}").result()
    await env.send_event("go", "test", 1)
    assert await env.app.handle("i").result() == "got 1"


@workflow
async def leaving(ctx: WorkflowContext) -> str:
    child = await start_workflow(ctx, waiter, instance_id="mine")
    await note(ctx, "a")
    await wait_event(ctx, "leave")
    await child.cancel("enough")
    try:
        return f"got {await child.result()}"
    except WorkflowCancelled as error:
        return error.instance_id


async def test_a_fork_cancels_its_own_child(env: Environment) -> None:
    env.app.register(leaving, waiter)
    await env.start(leaving, instance_id="i")
    await fork(env, "i", 1, "f")
    await env.send_event("leave", "test", to="f")
    assert await env.app.handle("f").result() == "f/waiter:1"
    found = await statuses(env)
    assert (found["mine"], found["f/waiter:1"]) == ("waiting_for_event", "cancelled")


BROKEN: set[str] = set()


@activity
async def book(ctx: ActivityContext) -> str:
    return "booked"


@book.compensate
async def unbook(ctx: ActivityContext, booked: str) -> None:
    noted.append("unbooked")


@workflow
async def booking(ctx: WorkflowContext) -> str:
    await book(ctx)
    event = await wait_event(ctx, "go")
    if event.data in BROKEN:
        raise ValueError("broken")
    return f"booked {event.data}"


@workflow
async def traveller(ctx: WorkflowContext) -> str:
    child = await start_workflow(ctx, booking, instance_id="mine")
    await note(ctx, "a")
    return await child.result() + " by " + child.instance_id


async def test_a_fork_is_retried_whose_child_has_undone_its_steps(env: Environment) -> None:
    env.app.register(traveller, booking)
    await env.start(traveller, instance_id="i")
    await fork(env, "i", 1, "f")
    BROKEN.add("x")
    await env.send_event("go", "test", "x", to="f/booking:1")
    with pytest.raises(WorkflowFailed):
        await env.app.handle("f").result()
    assert noted == ["a", "unbooked"]
    await env.app.retry_workflow("f")
    await env.settle()
    assert set(await statuses(env)) == {"i", "f", "mine", "f/booking:1", "f/booking:1~2"}
    await env.restart()
    await env.send_event("go", "test", "y", to="f/booking:1~2")
    assert await env.app.handle("f").result() == "booked y by f/booking:1~2"
    assert set(await statuses(env)) == {"i", "f", "mine", "f/booking:1", "f/booking:1~2"}
    assert replay(traveller, await env.app.get_history("f")) == "completed"


# --- the entry at the cut is dropped --------------------------------------------------------------------------------
@activity(retry=NO_RETRY)
async def step(ctx: ActivityContext, name: str) -> str:
    if name in BROKEN:
        raise ValueError(name)
    return name


@workflow
async def beside(ctx: WorkflowContext, own_id: str | None) -> Any:
    child = asyncio.ensure_future(waiter.options(instance_id=own_id)(ctx))
    await step(ctx, "a")
    await step(ctx, "b")
    await wait_event(ctx, "next")
    return await child


@pytest.mark.parametrize("own_id", ["mine", None])
@pytest.mark.parametrize("is_restarted", [True, False])
async def test_a_fork_is_retried_without_the_entry_at_the_cut(
    env: Environment, own_id: str | None, is_restarted: bool
) -> None:
    env.app.register(beside, waiter)
    await env.start(beside, own_id, instance_id="i")
    at = next(e.n for e in await env.app.get_history("i") if e.operation == "step:1")
    BROKEN.add("b")
    await fork(env, "i", at, "f")
    assert await env.app.handle("f").status() == "failed"
    BROKEN.clear()
    await env.app.retry_workflow("f", steps=["step:1"])
    await env.settle()
    if is_restarted:
        await env.restart()
    await env.send_event("next", "test", 1, to="f")
    assert await env.app.handle("f").status() == "waiting_for_child"
    await env.send_event("go", "test", 2, to="f/waiter:1")
    assert await env.app.handle("f").result() == 2
    first = own_id or "i/waiter:1"
    assert await statuses(env) == {
        "i": "waiting_for_event", first: "waiting_for_event", "f": "completed", "f/waiter:1": "completed",
    }  # fmt: skip
    assert replay(beside, await env.app.get_history("f")) == "completed"


@workflow
async def hanging(ctx: WorkflowContext) -> Any:
    child = asyncio.ensure_future(waiter(ctx))
    await step(ctx, "a")
    await sleep(ctx, timedelta(hours=1))
    return await child


async def test_a_fork_is_loaded_between_its_retry_and_the_next_entry(env: Environment) -> None:
    env.app.register(hanging, waiter)
    handle = await env.start(hanging, instance_id="i")
    await env.cancel(handle, "enough")
    await env.settle()
    at = next(e.n for e in await env.app.get_history("i") if e.kind == "cancel_requested")
    await fork(env, "i", at, "f")  # a request to cancel is not repeated
    assert await env.app.handle("f").status() == "waiting_for_timer"
    await env.restart()
    await env.advance(timedelta(hours=1))
    assert await env.app.handle("f").status() == "waiting_for_child"
    await env.send_event("go", "test", 2)
    assert await env.app.handle("f").result() == 2
    assert (await statuses(env))["f/waiter:1"] == "completed"
    assert replay(hanging, await env.app.get_history("f")) == "completed"
