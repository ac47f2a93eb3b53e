"""A child gets the events that its parent sends right after it has started it, before anything else is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    App,
    InstanceExists,
    Queue,
    Workflow,
    WorkflowContext,
    WorkflowFailed,
    activity,
    emit,
    send_event,
    sleep,
    start_workflow,
    wait_event,
    workflow,
)
from romancy.storage.batch import Batch
from romancy.testing import Environment, environment
from tests.engine.helpers import down, intercept, outsider, until, watch

began: list[str] = []


@workflow
async def shelf(ctx: WorkflowContext, name: str) -> str:
    return f"{name}: {(await wait_event(ctx, 'book.returned', timeout=60)).data}"


@workflow(queue=Queue("shelves", max_concurrent=5))
async def queued_shelf(ctx: WorkflowContext, name: str) -> str:
    return f"{name}: {(await wait_event(ctx, 'book.returned', timeout=60)).data}"


@workflow
async def library(ctx: WorkflowContext, waits: bool = False, how: str = "free", name: str = "a") -> str:
    """Starts a child and sends it an event, in one step."""
    if waits:
        await wait_event(ctx, "open")
    if how == "awaited":
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(shelf(ctx, name))
            group.create_task(send_event(ctx, "book.returned", "test", 1))
        return reading.result()
    kid = await start_workflow(ctx, queued_shelf if how == "queued" else shelf, name)
    await send_event(ctx, "book.returned", "test", 1, to=kid.instance_id if how == "addressed" else None)
    return await kid.result()


async def runs(env: Environment, workflow: str) -> int:
    return len((await env.app.list_instances(workflow=workflow)).items)


HOW = ["free", "awaited", "queued", "addressed"]


@pytest.mark.parametrize("how", HOW)
async def test_a_parent_that_has_just_begun(env: Environment, how: str) -> None:
    env.app.register(library, shelf, queued_shelf)
    handle = await env.start(library, how=how)
    assert await handle.result() == "a: 1"
    assert len((await env.app.list_instances()).items) == 2


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_parent_that_waited_before(env: Environment, how: str, restarts: bool) -> None:
    """Also if it was read from the database for this step."""
    env.app.register(library, shelf, queued_shelf)
    handle = await env.start(library, True, how=how)
    await env.settle()
    if restarts:
        await env.restart()
    await env.send_event("open", "test")
    assert await handle.result() == "a: 1"
    assert len((await env.app.list_instances()).items) == 2


@pytest.mark.parametrize("how", HOW)
async def test_a_parent_that_another_process_started(db: str, how: str) -> None:
    async with environment(database=db, workflows=[library, shelf, queued_shelf]) as env:
        async with outsider(env) as other:
            await other.start_workflow("library", False, how, instance_id="p")
        env.app._runtime.engine.kick()
        await until_status(env, "p", "completed")
        assert (await env.app.get_instance("p")).output == "a: 1"


def starts_children(batch: Batch) -> bool:
    return any(start.parent is not None for start in batch.starts)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("waits", [False, True])
async def test_the_worker_dies_before_the_child_begins(env: Environment, how: str, waits: bool) -> None:
    """The event is stored; whoever takes over the parent does not start the child too late."""
    env.app.register(library, shelf, queued_shelf)
    handle = await env.start(library, waits, how=how)
    await env.settle()
    cut: list[Batch] = []

    def drop_starts(batch: Batch, submit: Callable[[], None]) -> None:
        if cut or starts_children(batch):
            cut.append(batch)
        else:
            submit()

    if waits:
        undo = intercept(env, drop_starts)
        await env.app.send_event("open", "test")
        await until(lambda: cut)
        async with down(env):
            undo()
    assert await handle.result() == "a: 1"


@workflow
async def orderly(ctx: WorkflowContext) -> str:
    """Starts its child after the event was sent."""
    await send_event(ctx, "book.returned", "test", 1)
    kid = await start_workflow(ctx, shelf, "late")
    await wait_event(ctx, "go on")
    await send_event(ctx, "book.returned", "test", 2)
    return await kid.result()


async def test_a_child_gets_no_event_that_was_sent_before_it_was_started(env: Environment) -> None:
    env.app.register(orderly, shelf)
    handle = await env.start(orderly)
    await env.settle()
    await env.send_event("go on", "test")
    assert await handle.result() == "late: 2"


async def test_only_children_that_were_started_before_the_event_get_it(env: Environment) -> None:
    @workflow
    async def both(ctx: WorkflowContext) -> list[str]:
        first = await start_workflow(ctx, shelf, "first")
        await send_event(ctx, "book.returned", "test", 1)
        second = await start_workflow(ctx, shelf, "second")
        await wait_event(ctx, "go on")
        await send_event(ctx, "book.returned", "test", 2)
        return [await first.result(), await second.result()]

    env.app.register(both, shelf)
    handle = await env.start(both)
    await env.settle()
    await env.send_event("go on", "test")
    assert await handle.result() == ["first: 1", "second: 2"]


async def test_the_id_of_the_child_is_taken(env: Environment) -> None:
    @workflow
    async def refused(ctx: WorkflowContext) -> str:
        kid = await start_workflow(ctx, shelf, "mine", instance_id="taken")
        await send_event(ctx, "book.returned", "test", 1)
        try:
            return await kid.result()
        except InstanceExists as error:
            return f"refused: {error.instance_id}"

    env.app.register(refused, shelf)
    await env.start(shelf, "theirs", instance_id="taken")
    await env.settle()
    assert await (await env.start(refused)).result() == "refused: taken"
    assert await env.handle("taken").result() == "theirs: 1"


async def test_a_child_that_is_cancelled_at_once(env: Environment) -> None:
    @workflow
    async def hasty(ctx: WorkflowContext) -> str:
        kid = await start_workflow(ctx, shelf, "never", instance_id="kid")
        await send_event(ctx, "another", "test", 1)
        await kid.cancel("not needed")
        await wait_event(ctx, "go on")
        return "done"

    env.app.register(hasty, shelf)
    handle = await env.start(hasty)
    await env.settle()
    await env.settle()
    assert (await env.app.get_instance("kid")).status == "cancelled"
    await env.send_event("go on", "test")
    assert await handle.result() == "done"


async def test_a_call_that_is_given_up_in_the_same_step_starts_nothing(env: Environment) -> None:
    @workflow
    async def hasty(ctx: WorkflowContext) -> int:
        reading = asyncio.ensure_future(shelf(ctx, "never"))
        await asyncio.sleep(0)
        await send_event(ctx, "book.returned", "test", 1)
        reading.cancel()
        return (await wait_event(ctx, "go on")).data

    env.app.register(hasty, shelf)
    handle = await env.start(hasty)
    await env.settle()
    assert await runs(env, "shelf") == 0
    await env.send_event("go on", "test", 3)
    assert await handle.result() == 3


# --- versions ---------------------------------------------------------------------------------------------------------
@workflow(name="chapter", version=1)
async def old_chapter(ctx: WorkflowContext) -> str:
    return f"old {(await wait_event(ctx, 'page', timeout=60)).data}"


@workflow(name="chapter", version=2)
async def new_chapter(ctx: WorkflowContext) -> str:
    return f"new {(await wait_event(ctx, 'page', timeout=60)).data}"


@pytest.mark.parametrize("ends", [False, True])
async def test_a_name_means_the_latest_version(env: Environment, ends: bool) -> None:
    """Also if the parent ends with the step that starts the child."""

    @workflow
    async def writer(ctx: WorkflowContext) -> str:
        kid = await start_workflow(ctx, "chapter", instance_id="kid")
        await send_event(ctx, "page", "test", 1)
        return "" if ends else await kid.result()

    env.app.register(writer, old_chapter, new_chapter)
    handle = await env.start(writer)
    assert await handle.result() == ("" if ends else "new 1")
    assert await env.handle("kid").result() == "new 1"


# --- changed code, and retries ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("waits", [False, True])
async def test_changed_code_starts_no_second_child_under_another_id(env: Environment, waits: bool) -> None:
    changed = False

    @workflow
    async def parent(ctx: WorkflowContext) -> str:
        if changed and waits:
            await wait_event(ctx, "first")
        kid = await start_workflow(ctx, shelf, "x", instance_id="new" if changed else "old")
        if changed:
            await send_event(ctx, "book.returned", "test", 1)
        return await kid.result()

    env.app.register(parent, shelf)
    await env.start(parent, instance_id="p")
    await env.settle()
    changed = True
    await env.restart()
    await env.send_event("book.returned", "test", 7)  # its end wakes the parent
    await env.settle()
    if waits:
        await env.restart()
        await env.send_event("first", "test")
        await env.settle()
    assert (await env.app.get_instance("p")).status == "blocked"
    assert {i.instance_id for i in (await env.app.list_instances()).items} == {"p", "old"}


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
async def test_changed_code_finds_its_open_child(env: Environment, ended: bool, restarts: bool) -> None:
    """What it sends now comes too late for a child that has ended, and the parent hears of the end."""
    changed = False

    @workflow
    async def parent(ctx: WorkflowContext) -> str:
        asyncio.ensure_future(wait_event(ctx, "poke"))  # noqa: RUF006 - only to wake it
        await asyncio.sleep(0)
        if changed:
            await wait_event(ctx, "first")
        kid = await start_workflow(ctx, shelf, "x")
        if changed:
            await send_event(ctx, "book.returned", "test", 1)
        return await kid.result()

    env.app.register(parent, shelf)
    handle = await env.start(parent, instance_id="p")
    await env.settle()
    changed = True
    await env.restart()
    if ended:
        await env.send_event("book.returned", "test", 7)
    else:
        await env.send_event("poke", "test")
    await env.settle()
    if restarts:
        await env.restart()
    await env.send_event("first", "test")
    assert await handle.result() == f"x: {7 if ended else 1}"
    assert await runs(env, "shelf") == 1


@workflow
async def clerk(ctx: WorkflowContext, name: str) -> str:
    began.append(name)
    number = (await wait_event(ctx, "book.returned", timeout=60)).data
    if number < 0:
        raise ValueError("a bad book")
    return f"{name} {number}"


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_retried_parent_runs_its_child_once(env: Environment, before: bool, restarts: bool) -> None:
    """`before`: the parent started it before it failed, too."""
    began.clear()
    fails = True

    @workflow
    async def parent(ctx: WorkflowContext) -> str:
        await wait_event(ctx, "open")
        if fails and not before:
            raise ValueError("not yet")
        kid = await start_workflow(ctx, clerk, "c")
        await send_event(ctx, "book.returned", "test", 1)
        if fails:
            await wait_event(ctx, "never", timeout=1000)
            raise ValueError("not yet")
        await wait_event(ctx, "go on")
        return await kid.result()

    env.app.register(parent, clerk)
    await env.start(parent, instance_id="p")
    await env.settle()
    await env.send_event("open", "test")
    await env.settle()
    await env.advance(2000)
    await until_status(env, "p", "failed")
    fails = False
    if restarts:
        await env.restart()
    await env.app.retry_workflow("p")
    await env.settle()
    await env.send_event("go on", "test")
    assert await env.handle("p").result() == "c 1"
    assert began == ["c"] or before


async def until_status(env: Environment, id: str, status: str) -> None:
    async with asyncio.timeout(20):
        while (await env.app.get_instance(id)).status != status:
            await env.settle()


# --- activities -------------------------------------------------------------------------------------------------------
@activity
async def order(ctx: ActivityContext) -> None:
    """Asks somebody outside, who may answer with an event at once."""
    began.append("order")


@workflow
async def asks(ctx: WorkflowContext, waits: bool) -> str:
    if waits:
        await wait_event(ctx, "open")
    kid = await start_workflow(ctx, shelf, "a")
    await order(ctx)
    return await kid.result()


@pytest.mark.parametrize("waits", [False, True])
async def test_an_activity_begins_after_the_children_are_stored(env: Environment, waits: bool) -> None:
    """Somebody whom it tells of them may send them an event at once."""
    began.clear()
    env.app.register(asks, shelf)
    held: list[Callable[[], None]] = []

    def hold(batch: Batch, submit: Callable[[], None]) -> None:
        if starts_children(batch):
            held.append(submit)
        else:
            submit()

    handle = await env.start(asks, waits)
    await env.settle()
    if waits:
        await env.restart()
        began.clear()
        release = intercept(env, hold)
        await env.app.send_event("open", "test")
        await until(lambda: held)
        for _ in range(100):
            await asyncio.sleep(0)
        assert began == []
        release()
        for submit in held:
            submit()
    await until(lambda: began)
    await env.send_event("book.returned", "test", 5)
    assert await handle.result() == "a: 5"


async def test_who_sends_nothing_pays_nothing(env: Environment) -> None:
    """Children are stored by a batch of their own, in which this worker claims them."""

    @workflow
    async def plain(ctx: WorkflowContext) -> str:
        return await (await start_workflow(ctx, shelf, "a")).result()

    env.app.register(plain, shelf)
    batches = watch(env)
    handle = await env.start(plain)
    await env.settle()
    await env.send_event("book.returned", "test", 5)
    assert await handle.result() == "a: 5"
    assert [commit.instance for batch in batches for commit in batch.commits if commit.children] == []
    starts: list[Any] = [start for batch in batches for start in batch.starts if start.parent is not None]
    assert [start.mine for start in starts] == [True]


def helper_of(env: Environment, *workflows: Workflow[..., Any]) -> App:
    """Another worker on the same database and clock."""
    app = App(env.app.database, workflows=workflows)
    app._runtime.clock = env.clock
    return app


async def test_a_retried_parent_whose_child_ends_at_once(db: str) -> None:
    """It ends before its parent has heard that it exists, which does not make it one from before the retry."""
    began.clear()
    fails = True

    @workflow
    async def parent(ctx: WorkflowContext) -> str:
        await wait_event(ctx, "open")
        if fails:
            raise ValueError("not yet")
        await wait_event(ctx, "go on")
        kid = await start_workflow(ctx, clerk, "c")
        await send_event(ctx, "book.returned", "test", -1)
        await sleep(ctx, 1000)
        try:
            return await kid.result()
        except WorkflowFailed as error:
            return str(error)

    async with environment(database=db, workflows=[parent]) as env, helper_of(env, clerk):
        await env.start(parent, instance_id="p")
        await env.settle()
        await env.send_event("open", "test")
        await until_status(env, "p", "failed")
        fails = False
        await env.app.retry_workflow("p")
        await env.settle()
        held: list[Callable[[], None]] = []

        def hold(batch: Batch, submit: Callable[[], None]) -> None:
            if starts_children(batch):
                held.append(submit)
            else:
                submit()

        release = intercept(env, hold)
        await env.app.send_event("go on", "test")
        async with asyncio.timeout(20):
            while not (await env.app.list_instances(workflow="clerk", status="failed")).items:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        release()
        for submit in held:
            submit()
        await env.advance(2000)
        assert await env.handle("p").result() == "instance 'p/clerk:1' failed: ValueError: a bad book"
        assert began == ["c"]


async def test_what_a_workflow_emits_comes_after_its_children_too(env: Environment) -> None:
    """Whoever reads it may send them an event at once."""

    @workflow
    async def tells(ctx: WorkflowContext) -> str:
        kid = await start_workflow(ctx, shelf, "a")
        await emit(ctx, "started")
        return await kid.result()

    env.app.register(tells, shelf)
    batches = watch(env)
    handle = await env.start(tells)
    await env.settle()
    [commit] = [commit for batch in batches for commit in batch.commits if commit.emitted]
    assert [start.parent for start in commit.children] == [handle.instance_id]
    await env.send_event("book.returned", "test", 5)
    assert await handle.result() == "a: 5"


# --- the step is held until its parent's children are looked for ------------------------------------------------------
@workflow
async def pays(ctx: WorkflowContext) -> str:
    await order(ctx)
    kid = await start_workflow(ctx, shelf, "a")
    await send_event(ctx, "another", "test", 1)
    return await kid.result()


async def test_a_worker_that_stops_stores_the_step_first(db: str) -> None:
    """Otherwise the activity whose result the step was fed would run again."""
    began.clear()
    async with environment(database=db, workflows=[pays, shelf]) as env:
        storage: Any = env.app._runtime.engine.storage
        children, asked, gate = storage.children, asyncio.Event(), asyncio.Event()

        async def slow(*args: Any) -> Any:
            asked.set()
            await gate.wait()
            return await children(*args)

        storage.children = slow
        async with outsider(env) as other:
            await other.start_workflow("pays", instance_id="p")
        env.app._runtime.engine.kick()
        await asyncio.wait_for(asked.wait(), 20)
        stopping = asyncio.ensure_future(env.app.stop())
        await asyncio.wait([stopping], timeout=0.3)  # enough for it to stop if it did not wait for the step
        gate.set()
        await stopping
        async with outsider(env) as other:
            kinds = [entry.kind for entry in await other.get_history("p")]
        assert kinds == ["started", "activity_completed", "event_sent"]


async def test_a_blocked_parent_keeps_the_results_that_its_step_was_fed(env: Environment) -> None:
    began.clear()
    version = 1

    @workflow
    async def parent(ctx: WorkflowContext) -> str:
        asyncio.ensure_future(wait_event(ctx, "poke"))  # noqa: RUF006 - only to wake it
        await asyncio.sleep(0)
        if version > 1:
            await order(ctx)
        kid = await start_workflow(ctx, shelf, "x", instance_id="new" if version == 2 else "old")
        if version > 1:
            await send_event(ctx, "another", "test", 1)
        return await kid.result()

    env.app.register(parent, shelf)
    handle = await env.start(parent, instance_id="p")
    version = 2
    await env.restart()
    await env.send_event("poke", "test")
    await until_status(env, "p", "blocked")
    assert {i.instance_id for i in (await env.app.list_instances()).items} == {"p", "old"}
    version = 3
    await env.app.resume_workflow("p")
    await env.settle()
    await env.send_event("book.returned", "test", 7)
    assert await handle.result() == "x: 7"
    assert began == ["order"]


async def test_the_inputs_of_children_count_for_the_size_of_a_batch(env: Environment) -> None:
    @workflow
    async def heavy(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "open")
        await start_workflow(ctx, shelf, "x" * 1_000_000)
        await send_event(ctx, "another", "test", 1)
        await wait_event(ctx, "never")

    env.app.register(heavy, shelf)
    for n in range(20):
        await env.app.start_workflow(heavy, instance_id=f"p{n}")
    await env.settle()
    batches = watch(env)
    await env.app.send_event("open", "test")
    await env.settle()
    sizes = [sum(len(start.input) for commit in batch.commits for start in commit.children) for batch in batches]
    assert sum(sizes) > 20_000_000
    assert max(sizes) < 6_000_000
