"""Children: how they start, end, fail and are cancelled, and that a parent always hears of it."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    App,
    ChildHandle,
    InstanceExists,
    NonDeterminismError,
    WorkerOptions,
    WorkflowCancelled,
    WorkflowContext,
    WorkflowFailed,
    activity,
    sleep,
    start_workflow,
    wait_event,
    workflow,
)
from romancy.storage.batch import CANCEL, Batch, Request
from romancy.testing import Environment, dump, environment, replay
from tests.engine.helpers import down, kinds, until


@activity
async def double(ctx: ActivityContext, n: int) -> int:
    return 2 * n


@workflow
async def kid(ctx: WorkflowContext, n: int) -> int:
    if n < 0:
        raise ValueError(f"no: {n}")
    return await double(ctx, n)


@workflow
async def waiter(ctx: WorkflowContext, name: str = "x") -> Any:
    return (await wait_event(ctx, "go")).data


@workflow
async def parent(ctx: WorkflowContext, *ns: int) -> list[int]:
    return await asyncio.gather(*(kid(ctx, n) for n in ns))


@workflow
async def patient(ctx: WorkflowContext) -> str:
    """Waits for a child, and says how that ended."""
    try:
        return f"got {await waiter(ctx)}"
    except (WorkflowFailed, WorkflowCancelled, InstanceExists) as error:
        return f"{type(error).__name__}: {error}"


async def statuses(env: Environment) -> dict[str, str]:
    await env.settle()
    return {i.instance_id: i.status for i in (await env.app.list_instances(limit=500)).items}


# --- starting and ending ----------------------------------------------------------------------------------------------
async def test_a_child_gives_its_result(env: Environment) -> None:
    env.app.register(parent, kid)
    handle = await env.app.start_workflow(parent, 1, 2, 3, instance_id="p")
    assert await handle.result() == [2, 4, 6]
    assert await statuses(env) == {"p": "completed", **{f"p/kid:{n}": "completed" for n in (1, 2, 3)}}
    child = await env.app.get_instance("p/kid:2")
    assert (child.parent, child.input, child.output) == ("p", {"n": 2}, 4)
    assert (await env.app.get_instance("p")).parent is None
    assert await kinds(env, "p") == ["started", *["child_completed"] * 3]


async def test_a_parent_waits_for_its_child_and_costs_nothing(env: Environment) -> None:
    env.app.register(patient, waiter)
    handle = await env.app.start_workflow(patient, instance_id="p")
    assert await statuses(env) == {"p": "waiting_for_child", "p/waiter:1": "waiting_for_event"}
    await env.send_event("go", "test", 7)
    assert await handle.result() == "got 7"


async def test_a_child_that_fails_raises_in_its_parent(env: Environment) -> None:
    @workflow
    async def careful(ctx: WorkflowContext) -> list[str]:
        try:
            await kid(ctx, -1)
        except WorkflowFailed as error:
            return [error.instance_id, error.error_type, error.message, "kid" if "kid" in error.traceback else ""]
        return []

    env.app.register(careful, kid)
    handle = await env.app.start_workflow(careful, instance_id="p")
    assert await handle.result() == ["p/kid:1", "ValueError", "no: -1", "kid"]


async def test_a_child_that_somebody_cancels_raises_in_its_parent(env: Environment) -> None:
    env.app.register(patient, waiter)
    handle = await env.app.start_workflow(patient, instance_id="p")
    await env.app.cancel_workflow("p/waiter:1", reason="enough")
    assert await handle.result() == "WorkflowCancelled: instance 'p/waiter:1' was cancelled: enough"


async def test_a_child_that_is_not_registered_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "romancy")
    async with environment(workflows=[parent]) as env:
        handle = await env.start(parent.options(instance_id="p"), 1, 2)
        assert await handle.status() == "waiting_for_child"
    [record] = [r for r in caplog.records if "workflows=[...]" in r.getMessage()]
    assert record.getMessage().startswith("workflow 'kid' is not in workflows=[...] of this app, so instance 'p/kid:1'")


async def test_the_context_is_asked_for(env: Environment) -> None:
    with pytest.raises(TypeError, match="the workflow's ctx must be the first argument, got 1"):
        await kid(1)  # type: ignore[arg-type,call-arg]  # pyright: ignore
    with pytest.raises(TypeError, match="the workflow's ctx must be the first argument, got <workflow kid>"):
        await start_workflow(kid, 1)  # type: ignore  # pyright: ignore


@workflow
async def forgets_to_await(ctx: WorkflowContext, nested: bool) -> Any:
    return {"n": [double(ctx, 1)]} if nested else double(ctx, 1)


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("nested", [True, False])
async def test_a_missing_await_is_named(env: Environment, nested: bool) -> None:
    handle = await env.start(forgets_to_await, nested)
    with pytest.raises(WorkflowFailed, match="is a coroutine: an await is missing"):
        await handle.result()
    gc.collect()  # the warning about the coroutine belongs to this test, not to one that comes later


async def test_an_id_of_its_own(env: Environment) -> None:
    @workflow
    async def naming(ctx: WorkflowContext) -> Any:
        return await waiter.options(instance_id="mine")(ctx, "y")

    env.app.register(naming, waiter)
    handle = await env.app.start_workflow(naming, instance_id="p")
    await env.settle()
    assert (await env.app.get_instance("mine")).parent == "p"
    await env.send_event("go", "test", 1)
    assert await handle.result() == 1


async def test_an_id_that_belongs_to_another(env: Environment) -> None:
    env.app.register(patient, waiter)
    await env.app.start_workflow(waiter, instance_id="p/waiter:1")
    handle = await env.app.start_workflow(patient, instance_id="p")
    assert (await handle.result()).startswith("InstanceExists: instance 'p/waiter:1' exists already")
    assert (await env.app.get_instance("p/waiter:1")).status == "waiting_for_event"


async def test_a_long_id_is_shortened_and_stays_unique(env: Environment) -> None:
    @workflow
    async def nested(ctx: WorkflowContext, depth: int) -> str:
        return ctx.instance_id if depth == 0 else await nested(ctx, depth - 1)

    env.app.register(nested)
    handle = await env.app.start_workflow(nested, 40, instance_id="x" * 200)
    deepest = await handle.result()
    assert len(deepest) <= 255
    assert len((await env.app.list_instances(limit=100)).items) == 41


async def test_a_child_by_name_which_another_service_has(db: str) -> None:
    @workflow
    async def caller(ctx: WorkflowContext) -> Any:
        return await (await start_workflow(ctx, "kid", 4)).result()

    async with App(db, workflows=[caller]) as one:
        handle = await one.start_workflow(caller)
        async with App(db, workflows=[kid]):
            assert await handle.result(timeout=30) == 8


# --- cancelling -------------------------------------------------------------------------------------------------------
async def test_cancelling_a_parent_cancels_its_children_and_theirs(env: Environment) -> None:
    @workflow
    async def family(ctx: WorkflowContext, depth: int) -> Any:
        return await (waiter(ctx) if depth == 0 else family(ctx, depth - 1))

    env.app.register(family, waiter)
    handle = await env.app.start_workflow(family, 3, instance_id="p")
    await env.settle()
    await handle.cancel("all of you")
    await env.settle()
    assert set((await statuses(env)).values()) == {"cancelled"}
    assert len(await statuses(env)) == 5


async def test_a_time_limit_round_a_child_cancels_it_and_the_parent_goes_on(env: Environment) -> None:
    @workflow
    async def hasty(ctx: WorkflowContext) -> str:
        try:
            async with asyncio.timeout(10):
                await waiter(ctx)
        except TimeoutError:
            await sleep(ctx, 5)
            return "on time"
        return "too late"

    env.app.register(hasty, waiter)
    handle = await env.app.start_workflow(hasty, instance_id="p")
    await env.advance(10)
    assert (await env.app.get_instance("p/waiter:1")).status == "cancelled"
    assert await handle.status() == "waiting_for_timer"
    await env.advance(5)
    assert await handle.result() == "on time"
    assert (await kinds(env, "p")).count("child_cancelled") == 1


async def test_a_group_that_fails_cancels_the_other_children(env: Environment) -> None:
    @workflow
    async def group(ctx: WorkflowContext) -> str:
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(50):
                    tasks.create_task(waiter(ctx))
                await sleep(ctx, 1)
                tasks.create_task(kid(ctx, -1))
        except* WorkflowFailed:
            pass
        return "done"

    env.app.register(group, waiter, kid)
    handle = await env.app.start_workflow(group, instance_id="p")
    await env.advance(1)
    assert await handle.result() == "done"
    await env.settle()
    found = await statuses(env)
    assert sorted(found.values()) == ["cancelled"] * 50 + ["completed", "failed"]


async def test_a_parent_that_ends_cancels_children_it_does_not_wait_for(env: Environment) -> None:
    @workflow
    async def leaving(ctx: WorkflowContext) -> str:
        left = asyncio.create_task(waiter(ctx))
        await sleep(ctx, 1)
        del left
        return "bye"

    env.app.register(leaving, waiter)
    handle = await env.app.start_workflow(leaving, instance_id="p")
    await env.advance(1)
    assert await handle.result() == "bye"
    await env.settle()
    assert (await env.app.get_instance("p/waiter:1")).status == "cancelled"


async def test_a_child_cleans_up_and_a_second_request_of_its_parent_does_not_end_it(env: Environment) -> None:
    @workflow
    async def tidy(ctx: WorkflowContext) -> str:
        try:
            await wait_event(ctx, "go")
        finally:
            await wait_event(ctx, "cleaned up")
        return ""

    @workflow
    async def mother(ctx: WorkflowContext) -> str:
        return await tidy(ctx)

    env.app.register(mother, tidy)
    handle = await env.app.start_workflow(mother, instance_id="p")
    await env.settle()
    await handle.cancel()
    with pytest.raises(WorkflowCancelled):
        await handle.result()
    await env.settle()
    assert (await env.app.get_instance("p/tidy:1")).status == "waiting_for_event"
    await env.send_event("cleaned up", "test")
    await env.settle()
    assert (await env.app.get_instance("p/tidy:1")).status == "cancelled"


@workflow
async def of_another(ctx: WorkflowContext) -> str:
    return await never_here(ctx)


@workflow
async def never_here(ctx: WorkflowContext) -> str:
    return "unreachable"


async def test_a_child_that_never_started_is_cancelled_at_once(env: Environment) -> None:
    env.app.register(of_another)
    handle = await env.app.start_workflow(of_another, instance_id="p")
    assert await statuses(env) == {"p": "waiting_for_child", "p/never_here:1": "running"}
    await env.app.cancel_workflow("p/never_here:1")
    with pytest.raises(WorkflowFailed, match="was cancelled"):
        await handle.result()


async def test_cancelling_a_parent_cancels_a_child_that_never_started(env: Environment) -> None:
    env.app.register(of_another)
    handle = await env.app.start_workflow(of_another, instance_id="p")
    await handle.cancel()
    await env.settle()
    assert await statuses(env) == {"p": "cancelled", "p/never_here:1": "cancelled"}


# --- free children ----------------------------------------------------------------------------------------------------
async def test_a_free_child_outlives_its_parent(env: Environment) -> None:
    @workflow
    async def starter(ctx: WorkflowContext) -> str:
        child: ChildHandle[Any] = await start_workflow(ctx, waiter, "y", instance_id="free")
        return child.instance_id

    env.app.register(starter, waiter)
    assert await (await env.app.start_workflow(starter)).result() == "free"
    await env.settle()
    assert (await env.app.get_instance("free")).status == "waiting_for_event"
    await env.send_event("go", "test", 5)
    assert await env.app.handle("free").result() == 5


async def test_the_result_of_a_free_child_can_be_awaited_later_and_twice(env: Environment) -> None:
    @workflow
    async def later(ctx: WorkflowContext) -> list[Any]:
        child = await start_workflow(ctx, kid, 3)
        failing = await start_workflow(ctx, kid, -3)
        await wait_event(ctx, "later")
        try:
            await failing.result()
        except WorkflowFailed as error:
            return [await child.result(), await child.result(), error.error_type]
        return []

    env.app.register(later, kid)
    handle = await env.app.start_workflow(later)
    await env.settle()
    assert await handle.status() == "waiting_for_event"
    await env.send_event("later", "test")
    assert await handle.result() == [6, 6, "ValueError"]


async def test_a_free_child_is_cancelled_only_when_asked(env: Environment) -> None:
    @workflow
    async def mother(ctx: WorkflowContext) -> str:
        child = await start_workflow(ctx, waiter)
        try:
            await child.result(timeout=5)
        except TimeoutError:
            await wait_event(ctx, "stop")
        await child.cancel("changed my mind")
        try:
            await child.result()
        except WorkflowCancelled as error:
            return str(error.reason)
        return ""

    env.app.register(mother, waiter)
    handle = await env.app.start_workflow(mother, instance_id="p")
    await env.advance(5)
    assert await statuses(env) == {"p": "waiting_for_event", "p/waiter:1": "waiting_for_event"}
    await env.send_event("stop", "test")
    assert await handle.result() == "changed my mind"


# --- crashes, memory, many --------------------------------------------------------------------------------------------
async def test_a_parent_that_is_not_in_memory_hears_of_its_child() -> None:
    async with environment(worker=WorkerOptions(max_resident=1)) as env:
        env.app.register(patient, waiter)
        handles = [await env.app.start_workflow(patient, instance_id=f"p{n}") for n in range(5)]
        while "running" in (await statuses(env)).values():  # noqa: ASYNC110 - they are claimed one by one
            await asyncio.sleep(0.01)
        await env.send_event("go", "test", 1)
        assert [await handle.result() for handle in handles] == ["got 1"] * 5


@pytest.mark.parametrize("sent_while", ["up", "down"])
async def test_a_crash_while_it_waits(env: Environment, sent_while: str) -> None:
    env.app.register(patient, waiter)
    handle = await env.app.start_workflow(patient, instance_id="p")
    async with down(env):
        pass
    await env.send_event("go", "test", 2)
    assert await handle.result() == "got 2"


async def test_a_crash_before_the_child_is_stored(env: Environment) -> None:
    """The parent counts as running until its children exist, so the next worker starts them."""
    env.app.register(patient, waiter)
    storage: Any = env.app._runtime.engine.storage
    commit, held = storage.commit, []
    storage.append = lambda *_: False
    storage.commit = lambda batch, *answered: (
        held.append(batch) if any(s.parent for s in batch.starts) else commit(batch, *answered)
    )
    starting = asyncio.create_task(env.app.start_workflow(patient, instance_id="p"))
    await until(lambda: held)
    await starting
    storage.commit = commit
    async with down(env):
        pass
    assert await statuses(env) == {"p": "waiting_for_child", "p/waiter:1": "waiting_for_event"}
    await env.send_event("go", "test", 3)
    assert await env.app.handle("p").result() == "got 3"


async def test_a_thousand_children(env: Environment) -> None:
    env.app.register(parent, kid)
    handle = await env.app.start_workflow(parent, *range(1000), instance_id="p")
    assert await handle.result(timeout=120) == [2 * n for n in range(1000)]


async def test_a_history_with_children_replays(env: Environment) -> None:
    env.app.register(parent, kid)
    handle = await env.app.start_workflow(parent, 1, 2, instance_id="p")
    await handle.result()
    assert replay(parent, dump(await env.app.get_history("p"))) == "completed"


async def test_a_child_continues_as_new_and_tells_its_parent_in_the_end(env: Environment) -> None:
    @workflow
    async def runner(ctx: WorkflowContext, left: int) -> int:
        await double(ctx, left)
        if left:
            runner.continue_as_new(ctx, left - 1)
        return ctx.run_number

    @workflow
    async def mother(ctx: WorkflowContext) -> int:
        return await runner(ctx, 3)

    env.app.register(mother, runner)
    assert await (await env.app.start_workflow(mother)).result() == 4


async def test_a_parent_that_continues_as_new_leaves_its_children(env: Environment) -> None:
    @workflow
    async def endless(ctx: WorkflowContext, runs: int) -> list[str]:
        child = asyncio.create_task(waiter(ctx))
        free = await start_workflow(ctx, waiter)
        await sleep(ctx, 1)
        del child
        if ctx.run_number < runs:
            endless.continue_as_new(ctx, runs)
        return [free.instance_id]

    env.app.register(endless, waiter)
    handle = await env.app.start_workflow(endless, 2, instance_id="p")
    await env.advance(1)
    await env.advance(1)
    assert await handle.result() == ["p/waiter:1@2"]
    found = await statuses(env)
    assert {id for id, status in found.items() if status == "cancelled"} == {"p/waiter:2", "p/waiter:2@2"}
    assert found["p/waiter:1"] == found["p/waiter:1@2"] == "waiting_for_event"


@pytest.mark.parametrize("dies", [False, True])
async def test_an_id_that_belongs_to_a_child_of_a_former_run(env: Environment, dies: bool) -> None:
    """`dies`: the worker, after the parent asked for the child, and before that is started."""

    @workflow
    async def endless(ctx: WorkflowContext) -> str:
        try:
            free = await start_workflow(ctx, waiter, instance_id="kid")
            if ctx.run_number == 1:
                await wait_event(ctx, "on")
                endless.continue_as_new(ctx)
            return str(await free.result())
        except InstanceExists as error:
            return str(error)

    env.app.register(endless, waiter)
    handle = await env.app.start_workflow(endless, instance_id="p")
    await env.settle()
    storage: Any = env.app._runtime.engine.storage
    commit, held = storage.commit, []
    if dies:
        storage.append = lambda *_: False
        storage.commit = lambda batch, *answered: (
            held.append(batch) if any(s.parent for s in batch.starts) else commit(batch, *answered)
        )
    sending = asyncio.create_task(env.app.send_event("on", "test"))
    if dies:
        await until(lambda: held)
        storage.commit = commit
        async with down(env):
            pass
    await sending
    await env.settle()
    assert await handle.result(timeout=20) == "instance 'kid' exists already, and is not a child of 'p'"


async def test_a_blocked_child_is_waited_for(env: Environment) -> None:
    env.app.register(patient, waiter)
    handle = await env.app.start_workflow(patient, instance_id="p")
    await env.settle()
    engine = env.app._runtime.engine
    resident = engine.residents["p/waiter:1"]
    engine.exits.block(resident, RuntimeError("set aside for the test"))
    await env.settle()
    assert await statuses(env) == {"p": "waiting_for_child", "p/waiter:1": "blocked"}
    await env.app.resume_workflow("p/waiter:1")
    await env.send_event("go", "test", 9)
    assert await handle.result() == "got 9"


async def cancel_from_outside(env: Environment, id: str, reason: str) -> None:
    """As another process does it, on the same storage."""
    storage: Any = env.app._runtime.storage
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    now = env.clock.now()
    batch = Batch(None, (), b"t" * 16, now, requests=[Request(id, CANCEL, reason.encode(), now)])
    storage.commit(batch, lambda answer, error: future.set_result(None))
    await future


@workflow
async def family(ctx: WorkflowContext) -> None:
    await start_workflow(ctx, waiter, "free")
    await asyncio.gather(*(waiter(ctx, str(n)) for n in range(2)))


@pytest.mark.parametrize("stopped", [False, True])
async def test_cancelling_a_blocked_parent_cancels_the_children_it_awaits(env: Environment, stopped: bool) -> None:
    env.app.register(family, waiter)
    await env.app.start_workflow(family, instance_id="p")
    await env.settle()
    engine = env.app._runtime.engine
    engine.exits.block(engine.residents["p"], RuntimeError("set aside for the test"))
    await env.settle()
    if stopped:
        async with down(env):
            await cancel_from_outside(env, "p", "enough")
    else:
        await env.cancel("p", "enough")
    expected = {
        "p": "cancelled",
        "p/waiter:1": "waiting_for_event",
        "p/waiter:2": "cancelled",
        "p/waiter:3": "cancelled",
    }
    assert await statuses(env) == expected
    assert (await env.app.get_instance("p/waiter:2")).error["message"] == "enough"


async def test_cancelling_a_blocked_child_tells_its_parent(env: Environment) -> None:
    env.app.register(patient, waiter)
    handle = await env.app.start_workflow(patient, instance_id="p")
    await env.settle()
    engine = env.app._runtime.engine
    engine.exits.block(engine.residents["p/waiter:1"], RuntimeError("set aside for the test"))
    await env.settle()
    await env.app.cancel_workflow("p/waiter:1", reason="given up")
    assert "was cancelled: given up" in await handle.result()


@pytest.mark.parametrize("by_name", [False, True])
async def test_replay_compares_the_id_that_a_child_was_given(env: Environment, by_name: bool) -> None:
    which: list[str | None] = ["mine"]

    @workflow
    async def caller(ctx: WorkflowContext) -> int:
        if by_name:
            return await (await start_workflow(ctx, "kid", 1, instance_id=which[0])).result()
        return await (kid if which[0] is None else kid.options(instance_id=which[0]))(ctx, 1)

    env.app.register(caller, kid)
    handle = await env.start(caller)
    assert await handle.result() == 2
    history = dump(await env.app.get_history(handle.instance_id))
    assert replay(caller, history) == "completed"
    for other in ("another", None):
        which[0] = other
        with pytest.raises(NonDeterminismError) as caught:
            replay(caller, history)
        assert '"instance_id":"mine"' in caught.value.recorded
    which[0] = None
    handle = await env.app.start_workflow(caller)
    await env.settle()
    history = dump(await env.app.get_history(handle.instance_id))
    assert replay(caller, history) == "completed"
    which[0] = "mine"
    with pytest.raises(NonDeterminismError, match="instance_id"):
        replay(caller, history)


@pytest.mark.parametrize(("first", "then"), [("mine", "another"), ("mine", None), (None, "mine")])
@pytest.mark.parametrize("is_free", [False, True])
@pytest.mark.parametrize("works", [False, True])
async def test_an_open_child_whose_id_was_changed_is_not_started_twice(
    env: Environment, first: str | None, then: str | None, is_free: bool, works: bool
) -> None:
    """The history does not have the id yet. `works`: the parent has something else to do, too."""
    which, gate = [first], asyncio.Event()

    @activity
    async def long(ctx: ActivityContext) -> int:
        await gate.wait()
        return 1

    async def call(ctx: WorkflowContext) -> Any:
        if is_free:
            return await (await start_workflow(ctx, "waiter", instance_id=which[0])).result()
        return await (waiter if which[0] is None else waiter.options(instance_id=which[0]))(ctx)

    @workflow
    async def caller(ctx: WorkflowContext) -> Any:
        return (await asyncio.gather(call(ctx), *([long(ctx)] if works else [])))[0]

    env.app.register(caller, waiter)
    child = first or "p/waiter:1"
    await env.app.start_workflow(caller, instance_id="p")
    await until_stored(env, child)
    which[0] = then
    async with down(env) if works else restarted(env):
        gate.set()
    await env.advance(60)  # out of quarantine
    await env.send_event("go", "test", 7)
    assert {id for id in await statuses(env) if id != "p"} == {child}
    found = await env.app.get_instance("p")
    assert found.status == "blocked"
    assert f"recorded: child waiter:1 was started with the id {child!r}" in found.error["message"]
    which[0] = first
    await env.app.resume_workflow("p")
    assert await env.app.handle("p").result() == 7


async def test_a_child_whose_workflow_was_replaced_under_its_id_is_not_waited_for_in_vain(env: Environment) -> None:
    """Its end would be told to the operation that started it, and the changed code does not have that."""
    which: list[Any] = [waiter]

    @workflow
    async def other(ctx: WorkflowContext) -> Any:
        return (await wait_event(ctx, "go")).data

    @workflow
    async def caller(ctx: WorkflowContext) -> Any:
        return await which[0].options(instance_id="kid")(ctx)

    env.app.register(caller, waiter, other)
    await env.app.start_workflow(caller, instance_id="p")
    await until_stored(env, "kid")
    which[0] = other
    await env.restart()
    await env.send_event("go", "test", 7)
    found = await env.app.get_instance("p")
    assert found.status == "blocked"
    assert "recorded: child 'kid' was started by waiter:1" in found.error["message"]
    which[0] = waiter
    await env.app.resume_workflow("p")
    assert await env.app.handle("p").result() == 7


@pytest.mark.parametrize("own_id", [None, "kid"])
@pytest.mark.parametrize("is_free", [False, True])
@pytest.mark.parametrize("is_recorded", [False, True])
async def test_a_child_keeps_its_version_and_its_parent_hears_of_it(
    env: Environment, own_id: str | None, is_free: bool, is_recorded: bool
) -> None:
    @workflow(name="child")
    async def one(ctx: WorkflowContext) -> str:
        await wait_event(ctx, "go")
        return "one"

    @workflow(name="child", version=2)
    async def two(ctx: WorkflowContext) -> str:
        await wait_event(ctx, "go")
        return "two"

    current: list[Any] = [one]

    @workflow
    async def caller(ctx: WorkflowContext) -> list[str]:
        found = list[str]()
        for id in (own_id, None):
            if is_free:
                found.append(await (await start_workflow(ctx, current[0], instance_id=id)).result())
            else:
                found.append(await (current[0] if id is None else current[0].options(instance_id=id))(ctx))
            await wait_event(ctx, "next")
        return found

    env.app.register(caller, one, two)
    child = own_id or "p/child:1"
    await env.app.start_workflow(caller, instance_id="p")
    await until_stored(env, child)
    if is_recorded:
        await env.send_event("go", "test")
    current[0] = two
    async with down(env):
        pass
    if not is_recorded:
        await env.send_event("go", "test")
    await env.send_event("next", "test")
    await until_stored(env, "p/child:2")
    await env.send_event("go", "test")
    await env.send_event("next", "test")
    assert await env.app.handle("p").result() == ["one", "two"]
    assert {id: (await env.app.get_instance(id)).version for id in (child, "p/child:2")} == {child: 1, "p/child:2": 2}
    assert len(await statuses(env)) == 3


async def until_stored(env: Environment, id: str) -> None:
    async with asyncio.timeout(20):
        while (  # noqa: ASYNC110 - what is waited for is in the database
            await env.app.list_instances(text=id, status="waiting_for_event")
        ).items == []:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def restarted(env: Environment) -> AsyncIterator[None]:
    yield
    await env.restart()


async def test_a_default_can_be_added_to_a_child_with_an_id_of_its_own(env: Environment) -> None:
    @workflow(name="plain")
    async def plain(ctx: WorkflowContext) -> int:
        return 1

    @workflow(name="plain")
    async def grown(ctx: WorkflowContext, n: int = 1) -> int:
        return n

    code: list[Any] = [plain]

    @workflow
    async def caller(ctx: WorkflowContext) -> int:
        return await code[0].options(instance_id="mine")(ctx)

    env.app.register(caller, plain)
    handle = await env.start(caller)
    assert await handle.result() == 1
    code[0] = grown
    assert replay(caller, await env.app.get_history(handle.instance_id)) == "completed"
