"""Forking instances: a copy begins with a part of the history, and goes on by itself."""

from typing import Any

import pytest

from romancy import InstanceExists, WorkflowContext, activity, send_event, wait_event, workflow
from romancy.api.context import ActivityContext
from romancy.errors import InstanceNotFound
from romancy.testing import Environment, replay
from tests.engine.test_retried import do, failed, retried, sequence, world


@pytest.fixture(autouse=True)
def _anew() -> None:
    world.__init__()


async def test_a_fork_begins_with_the_entries_that_are_copied(env: Environment) -> None:
    env.app.register(sequence)
    assert await (await env.start(sequence, instance_id="i")).result() == "ABC"
    fork = await env.app.fork_workflow("i", at=2, new_id="f")
    assert (fork.instance_id, fork.created) == ("f", True)
    assert await fork.result() == "ABC"
    assert world.runs == {"a": 1, "b": 1, "c": 2}
    assert world.keys["c"] == ["i/do:3", "f/do:3"]
    history = await env.app.get_history("f")
    assert [e.kind for e in history] == [
        "started",
        "activity_completed",
        "activity_completed",
        "retried",
        "activity_completed",
    ]
    assert history[3].input == {"dropped": [], "origin": "i"}
    assert ((await env.app.get_instance("f")).forked_from, (await env.app.get_instance("i")).forked_from) == ("i", None)
    assert replay(sequence, history) == "completed"


async def test_a_fork_at_the_beginning_starts_again(env: Environment) -> None:
    env.app.register(sequence)
    await failed(env, sequence, "b")
    fork = await env.app.fork_workflow("i")
    assert await fork.result() == "ABC"
    assert world.runs == {"a": 2, "b": 2, "c": 1}
    assert (await env.app.get_instance("i")).status == "failed"
    found = await env.app.get_instance(fork.instance_id)
    assert (found.workflow, found.forked_from) == ("sequence", "i")
    again = await env.app.fork_workflow(fork.instance_id)
    assert (await env.app.get_instance(again.instance_id)).forked_from == fork.instance_id


@activity
async def keep(ctx: ActivityContext, what: str) -> str:
    world.runs["keep"] += 1
    return what


@workflow
async def random_ones(ctx: WorkflowContext, n: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(n):
        value = await keep(ctx, str(ctx.uuid4()))
        await send_event(ctx, "kept", "test", value)
        found.append(value)
    found.append((await wait_event(ctx, "go")).data)
    return [*found, str(ctx.uuid4())]


async def sent(env: Environment) -> list[str]:
    return sorted(e.event.id for e in (await env.app.list_events(type="kept")).items)


async def test_what_was_random_and_sent_in_the_copied_part_stays(env: Environment) -> None:
    env.app.register(random_ones)
    await env.start(random_ones, 4, instance_id="i")
    kept = [e for e in await env.app.get_history("i") if e.kind == "activity_completed"]
    await env.app.fork_workflow("i", at=kept[1].n, new_id="f")
    await env.settle()
    later = [e for e in await env.app.get_history("f") if e.kind == "activity_completed"]
    await env.app.fork_workflow("f", at=later[2].n, new_id="g")
    await env.settle()
    await env.send_event("go", "test", 7)
    results = {id: await env.app.handle(id).result() for id in "ifg"}
    assert results["i"][:2] == results["f"][:2] == results["g"][:2]
    assert results["f"][2] == results["g"][2] != results["i"][2]
    assert len({results[id][n] for id in "ifg" for n in (3, 5)}) == 6
    # The third event was sent before the second fork, the last one of the copied part after each.
    assert [id for id in await sent(env) if id[0] != "i"] == [
        "f/send kept:2",
        "f/send kept:3",
        "f/send kept:4",
        "g/send kept:3",
        "g/send kept:4",
    ]
    for id in "ifg":
        assert replay(random_ones, await env.app.get_history(id)) == "completed"
    await env.restart()
    assert (await env.app.get_instance("g")).status == "completed"


@workflow
async def receiver(ctx: WorkflowContext) -> list[Any]:
    first = await wait_event(ctx, "go")
    await do(ctx, "a")
    second = await wait_event(ctx, "go")
    return [first.data, second.data]


async def test_a_fork_has_received_what_is_copied_and_receives_the_rest(env: Environment) -> None:
    env.app.register(receiver)
    handle = await env.start(receiver, instance_id="i")
    for n in range(2):
        await env.send_event("go", "test", n)
    assert await handle.result() == [0, 1]
    for at in (0, 1, 2):
        fork = await env.app.fork_workflow("i", at=at)
        assert await fork.result() == [0, 1]
        assert replay(receiver, await env.app.get_history(fork.instance_id)) == "completed"


async def test_a_fork_of_a_retried_instance(env: Environment) -> None:
    env.app.register(sequence)
    await failed(env, sequence, "b")
    assert await retried(env) == "ABC"
    numbers = [e.n for e in await env.app.get_history("i")]
    for at in numbers:
        fork = await env.app.fork_workflow("i", at=at)
        assert await fork.result() == "ABC"
        assert replay(sequence, await env.app.get_history(fork.instance_id)) == "completed"


@workflow
async def laps(ctx: WorkflowContext, n: int) -> str:
    a = await do(ctx, f"a{n}")
    if n < 2:
        laps.continue_as_new(ctx, n + 1)
    return a + await do(ctx, "b")


async def test_a_fork_of_a_later_run(env: Environment) -> None:
    env.app.register(laps)
    await (await env.start(laps, 1, instance_id="i")).result()
    [first, *_] = [e.n for e in (await env.app.get_history("i"))[1:]]
    fork = await env.app.fork_workflow("i", at=first)
    assert await fork.result() == "A2B"
    assert world.runs == {"a1": 1, "a2": 1, "b": 2}
    again = await env.app.fork_workflow("i")
    assert await again.result() == "A2B"
    assert (await env.app.get_instance(again.instance_id)).run_number == 1
    once_more = await env.app.fork_workflow(fork.instance_id, at=first)
    assert (await env.app.get_instance(once_more.instance_id)).forked_from == fork.instance_id, "the last of two"
    with pytest.raises(ValueError, match="has entries 2 to 3, and no entry 1"):
        await env.app.fork_workflow("i", at=1)


async def test_what_can_not_be_forked(env: Environment) -> None:
    env.app.register(sequence)
    await (await env.start(sequence, instance_id="i")).result()
    with pytest.raises(InstanceNotFound):
        await env.app.fork_workflow("nobody")
    with pytest.raises(InstanceExists, match="use another new_id"):
        await env.app.fork_workflow("i", new_id="i")
    for wrong in (-1, 17, True, "1"):
        with pytest.raises(ValueError, match="entr"):
            await env.app.fork_workflow("i", at=wrong)  # type: ignore[arg-type]


async def test_a_cancelled_instance_can_be_forked_as_well(env: Environment) -> None:
    env.app.register(receiver)
    handle = await env.start(receiver, instance_id="i")
    await env.cancel(handle)
    fork = await env.app.fork_workflow("i", at=1)
    await env.settle()
    assert await fork.status() == "waiting_for_event"
