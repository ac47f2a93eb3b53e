"""Parents, children and runs under fire: crashes, evictions, cancellations and twins at bad moments.

The comment above a test says what once went wrong there.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    InstanceExists,
    RetryPolicy,
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
from romancy.testing import Environment, environment
from tests.engine.helpers import down, until


@workflow
async def waiter(ctx: WorkflowContext, name: str = "x") -> Any:
    return (await wait_event(ctx, "go")).data


@workflow
async def patient(ctx: WorkflowContext) -> Any:
    return await waiter(ctx)


async def statuses(env: Environment) -> dict[str, str]:
    await env.settle()
    return {i.instance_id: i.status for i in (await env.app.list_instances(limit=500)).items}


async def has_status(env: Environment, id: str, status: str) -> bool:
    return (await env.app.get_instance(id)).status == status


async def are_all_waiting(env: Environment) -> bool:
    return "running" not in (await statuses(env)).values()


async def has_ended(env: Environment, id: str) -> bool:
    return (await env.app.get_instance(id)).finished_at is not None


async def until_async(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


# A parent that was read again and is cancelled at once does not tell its child.
async def test_cancel_after_crash(env: Environment) -> None:
    env.app.register(patient, waiter)
    handle = await env.app.start_workflow(patient, instance_id="p")
    await env.settle()
    await env.restart()
    await handle.cancel("enough")
    assert await statuses(env) == {"p": "cancelled", "p/waiter:1": "cancelled"}


async def test_cancel_after_eviction() -> None:
    async with environment(worker=WorkerOptions(max_resident=1, grace=0.1)) as env:
        env.app.register(patient, waiter)
        for n in range(3):
            await env.app.start_workflow(patient, instance_id=f"p{n}")
        await until_async(lambda: are_all_waiting(env))  # they are claimed one by one
        for n in range(3):
            await env.app.cancel_workflow(f"p{n}")
        await env.settle()
        assert set((await statuses(env)).values()) == {"cancelled"}


@activity
async def hang(ctx: ActivityContext) -> None:
    await asyncio.sleep(3600)


@workflow
async def both(ctx: WorkflowContext) -> Any:
    await sleep(ctx, 1)
    return await asyncio.gather(waiter(ctx), hang(ctx))


async def test_cancel_while_down_of_a_parent_that_is_running(env: Environment) -> None:
    """It has history and is stored as running: what it opened is 'newly opened', and not closed, when it ends."""
    env.app.register(both, waiter)
    await env.app.start_workflow(both, instance_id="p")
    await env.advance(1)
    assert (await statuses(env))["p/waiter:1"] == "waiting_for_event"
    storage = env.app._runtime.engine.storage
    from romancy.storage.batch import CANCEL, Batch, Request

    engine = env.app._runtime.engine
    await engine.storage.leave(engine.worker_id)
    async with down(env):
        done = asyncio.get_running_loop().create_future()
        batch = Batch(None, (), b"t" * 16, env.clock.now(), requests=[Request("p", CANCEL, b"enough", env.clock.now())])
        storage.commit(batch, lambda answer, error: done.set_result((answer, error)))
        await done
    found = await statuses(env)
    assert found == {"p": "cancelled", "p/waiter:1": "cancelled"}


# Cancel in the same inbox as the event that makes it continue.
@workflow
async def looper(ctx: WorkflowContext) -> Any:
    await wait_event(ctx, "go")
    looper.continue_as_new(ctx)


async def test_cancel_in_the_same_step_as_continue(env: Environment) -> None:
    env.app.register(looper)
    handle = await env.app.start_workflow(looper, instance_id="c")
    await env.settle()
    engine: Any = env.app._runtime.engine
    resident = engine.residents["c"]
    from romancy.engine.resident import COMMITTING, IDLE

    resident.state = COMMITTING  # as if a commit were in progress: inputs gather
    sending = asyncio.create_task(env.app.send_event("go", "test"))
    await until(lambda: resident.inbox)
    cancelling = asyncio.create_task(handle.cancel("enough"))
    await until(lambda: len(resident.inbox) > 1)
    resident.state = IDLE
    engine.inboxes.schedule(resident) if hasattr(engine, "inboxes") else engine.loader._inboxes.schedule(resident)
    await asyncio.gather(sending, cancelling)
    await env.settle()
    assert (await env.app.get_instance("c")).status == "cancelled"


# Two children of one id in one batch.
@workflow
async def twins(ctx: WorkflowContext) -> list[str]:
    async def one(name: str) -> str:
        try:
            return str(await waiter.options(instance_id="mine")(ctx, name))
        except InstanceExists:
            return "exists"

    return await asyncio.gather(one("a"), one("b"))


async def test_twins(env: Environment) -> None:
    env.app.register(twins, waiter)
    await env.app.start_workflow(twins, instance_id="p")
    await env.send_event("go", "test", 7)
    await env.settle()
    await env.settle()
    assert (await env.app.get_instance("p")).status == "completed"


# A free child is cancelled in the activation that starts it.
async def test_start_and_cancel(env: Environment) -> None:
    @workflow
    async def mother(ctx: WorkflowContext) -> str:
        child = await start_workflow(ctx, waiter)
        await child.cancel("no")
        await wait_event(ctx, "stop")
        return ""

    env.app.register(mother, waiter)
    await env.app.start_workflow(mother, instance_id="p")
    await env.settle()
    assert (await statuses(env))["p/waiter:1"] == "cancelled"


# A parent's id is used again; its old child is kept longer.
async def test_id_reused(db: str) -> None:
    from romancy import Retention
    from tests.engine.test_capacity import prune

    @workflow
    async def failing(ctx: WorkflowContext) -> None:
        raise ValueError("no")

    @workflow
    async def caller(ctx: WorkflowContext) -> str:
        try:
            await failing(ctx)
        except WorkflowFailed:
            return "caught"
        except InstanceExists:
            return "exists"
        return ""

    kept = Retention(instances=timedelta(days=1), failed=timedelta(days=30), events=timedelta(days=2))
    async with environment(database=db, workflows=[caller, failing], retention=kept) as env:
        h = await env.app.start_workflow(caller, instance_id="p")
        await env.settle()
        assert await h.result() == "caught"
        await env.advance(timedelta(days=1, seconds=1))
        await prune(env)
        assert set(await statuses(env)) == {"p/failing:1"}
        h = await env.app.start_workflow(caller, instance_id="p")
        await until_async(lambda: has_ended(env, "p"))
        assert (await env.app.get_instance("p")).status == "completed"


# A child by name, of which only version 2 exists.
async def test_by_name_version(env: Environment) -> None:
    @workflow(name="pay", version=2)
    async def pay(ctx: WorkflowContext) -> int:
        return 2

    @workflow
    async def caller(ctx: WorkflowContext) -> int:
        return await (await start_workflow(ctx, "pay")).result()

    env.app.register(caller, pay)
    assert await (await env.app.start_workflow("pay")).result() == 2
    await env.app.start_workflow(caller, instance_id="p")
    await env.settle()
    assert (await env.app.get_instance("p")).status == "completed"


# A second cancel with an open free child.
async def test_second_cancel_with_free_child(env: Environment) -> None:
    @workflow
    async def stubborn(ctx: WorkflowContext) -> None:
        await start_workflow(ctx, waiter)
        try:
            await wait_event(ctx, "a")
        finally:
            await wait_event(ctx, "b")

    env.app.register(stubborn, waiter)
    handle = await env.app.start_workflow(stubborn, instance_id="p")
    await env.settle()
    await handle.cancel()
    await env.settle()
    await handle.cancel()
    await env.settle()
    assert (await env.app.get_instance("p")).status == "cancelled"


# The deadline of an instance that was started by a process without its workflow.
@pytest.mark.parametrize("restart", [False, True])
async def test_deadline_unbound(db: str, restart: bool) -> None:
    @workflow(name="limited", timeout=timedelta(minutes=10))
    async def limited(ctx: WorkflowContext, run: int = 1) -> None:
        await wait_event(ctx, "go")
        limited.continue_as_new(ctx, run + 1)

    async with environment(database=db) as env:

        async def is_in_second_run() -> bool:
            return (await env.app.get_instance("c")).run_number == 2

        await env.app.start_workflow("limited", instance_id="c")
        await env.settle()
        env.app.register(limited)
        await until_async(lambda: has_status(env, "c", "waiting_for_event"))
        await env.send_event("go", "test")
        await until_async(is_in_second_run)
        if restart:
            await env.restart()
        await until_async(lambda: has_status(env, "c", "waiting_for_event"))
        await env.advance(700)
        await until_async(lambda: has_ended(env, "c"))
        assert (await env.app.get_instance("c")).status == "failed"


# On_workflow_started is told twice.
async def test_hook_twice() -> None:
    from romancy import hooks as h

    heard: list[str] = []

    class Hooks(h.Hooks if hasattr(h, "Hooks") else object):
        def on_workflow_started(self, info: Any) -> None:
            heard.append(info.instance_id)

    async with environment(worker=WorkerOptions(max_resident=1, grace=0.1), hooks=[Hooks()]) as env:
        env.app.register(patient, waiter)
        for n in range(3):
            await env.app.start_workflow(patient, instance_id=f"p{n}")
        await until_async(lambda: are_all_waiting(env))  # they are claimed one by one
        await env.send_event("go", "test", 1)
        await env.settle()
        await env.settle()
        assert set((await statuses(env)).values()) == {"completed"}
        assert sorted(heard) == sorted(set(heard))


# Undoing waits for a free child.
async def test_stuck_with_free_child(env: Environment) -> None:
    undone: list[str] = []

    @activity
    async def charge(ctx: ActivityContext) -> int:
        return 1

    @charge.compensate
    async def refund(ctx: ActivityContext) -> None:
        undone.append("refund")

    @workflow
    async def spins(ctx: WorkflowContext) -> None:
        await charge(ctx)
        await start_workflow(ctx, waiter)
        await sleep(ctx, 1)
        while True:
            ctx.now()

    env.app.register(spins, waiter)
    handle = await env.app.start_workflow(spins, instance_id="p")
    await env.advance(1)
    await env.settle()
    assert await handle.status() == "failed"


# A compatible change of the code opens a child.
@pytest.mark.parametrize("what", ["activity", "child"])
async def test_compatible_change(env: Environment, what: str) -> None:
    new = [False]

    @activity
    async def act(ctx: ActivityContext) -> int:
        return 1

    @workflow
    async def small(ctx: WorkflowContext) -> int:
        return 1

    @workflow
    async def changing(ctx: WorkflowContext) -> list[Any]:
        await sleep(ctx, 1)
        more = (act if what == "activity" else small)(ctx) if new[0] else asyncio.sleep(0)
        await asyncio.gather(wait_event(ctx, "go"), more)
        return []

    env.app.register(changing, small)
    handle = await env.app.start_workflow(changing, instance_id="p")
    await env.advance(1)
    new[0] = True
    await env.restart()
    await env.send_event("go", "test")
    await env.settle()
    await env.settle()
    assert await handle.status() == "completed"


# The same with more children than are looked for one by one.
@pytest.mark.parametrize("taken", [False, True])
async def test_compatible_change_with_many_children(env: Environment, taken: bool) -> None:
    new = [False]

    @workflow
    async def small(ctx: WorkflowContext) -> int:
        return 1

    @workflow
    async def changing(ctx: WorkflowContext) -> str:
        await sleep(ctx, 1)
        many = asyncio.gather(*(waiter(ctx, str(n)) for n in range(101)))
        await wait_event(ctx, "look")
        if new[0]:
            try:
                return str(await small.options(instance_id="other" if taken else "new")(ctx))
            except InstanceExists:
                return "exists"
        await many
        return "old"

    env.app.register(changing, small, waiter)
    if taken:
        await env.app.start_workflow(waiter, instance_id="other")
    handle = await env.app.start_workflow(changing, instance_id="p")
    await env.advance(1)
    await env.send_event("look", "test")
    assert await handle.status() == "waiting_for_child"
    new[0] = True
    await env.restart()
    await env.send_event("go", "test", 1, to="p/waiter:7")
    await until_async(lambda: has_ended(env, "p"))
    assert await handle.result() == ("exists" if taken else "1")
    assert len((await env.app.list_instances(workflow="waiter", limit=500)).items) == 101 + taken


# A second request of the parent ends a child whose undos failed.
async def test_second_ask_gives_up_failed_undos(env: Environment) -> None:
    @activity
    async def charge(ctx: ActivityContext) -> int:
        return 1

    @charge.compensate
    @activity(retry=RetryPolicy(max_attempts=1))
    async def refund(ctx: ActivityContext) -> None:
        raise ValueError("bank is closed")

    @activity
    async def note(ctx: ActivityContext) -> int:
        return 1

    @note.compensate
    async def unnote(ctx: ActivityContext) -> None:
        pass

    @workflow
    async def paying(ctx: WorkflowContext) -> None:
        await charge(ctx)
        await wait_event(ctx, "go")

    @workflow
    async def mother(ctx: WorkflowContext) -> None:
        await note(ctx)
        await paying(ctx)

    env.app.register(mother, paying)
    handle = await env.app.start_workflow(mother, instance_id="p")
    await env.settle()
    await handle.cancel()
    await env.settle()
    assert await statuses(env) == {"p": "compensating", "p/paying:1": "blocked"}
    await env.restart()
    await env.settle()
    assert await statuses(env) == {"p": "compensating", "p/paying:1": "blocked"}


# Undos that failed are not tried again when resumed, because a free child is open: it is looked for first.
async def test_resumed_with_a_free_child(env: Environment) -> None:
    is_open = [False]

    @activity
    async def charge(ctx: ActivityContext) -> int:
        return 1

    @charge.compensate
    @activity(retry=RetryPolicy(max_attempts=1))
    async def refund(ctx: ActivityContext) -> None:
        if not is_open[0]:
            raise ValueError("the bank is closed")

    @workflow
    async def mother(ctx: WorkflowContext) -> None:
        await charge(ctx)
        await start_workflow(ctx, waiter)
        await wait_event(ctx, "stop")

    env.app.register(mother, waiter)
    handle = await env.app.start_workflow(mother, instance_id="p")
    await env.settle()
    await handle.cancel("enough")
    assert await statuses(env) == {"p": "blocked", "p/waiter:1": "waiting_for_event"}
    await env.app.resume_workflow("p")
    assert await statuses(env) == {"p": "blocked", "p/waiter:1": "waiting_for_event"}
    is_open[0] = True
    await env.app.resume_workflow("p")
    assert await statuses(env) == {"p": "cancelled", "p/waiter:1": "waiting_for_event"}


# A start from outside and a child of the same id in one batch.
async def test_start_and_child_of_one_id_in_one_batch(env: Environment) -> None:
    from romancy.storage.batch import Batch, Start

    env.app.register(patient, waiter)
    await env.app.start_workflow(patient, instance_id="p")
    await env.settle()
    engine: Any = env.app._runtime.engine
    now = env.clock.now()
    starts = [
        Start("same", "waiter", b'{"name":"x"}', 0, now, parent="p", parent_op="waiter:7"),
        Start("same", "waiter", b'{"name":"y"}', 0, now),
    ]
    done = asyncio.get_running_loop().create_future()
    engine.storage.commit(
        Batch(engine.worker_id, (), b"u" * 16, now, starts=starts), lambda a, e: done.set_result((a, e))
    )
    answer, _ = await done
    assert [s.created for s in answer.starts] == [True, False]


# A cancelled child that returns something: the parent reads its output as an error.
@pytest.mark.parametrize("how", ["cancel", "timeout"])
async def test_cancelled_child_that_returns(env: Environment, how: str) -> None:
    @workflow
    async def yielding(ctx: WorkflowContext) -> str:
        try:
            await wait_event(ctx, "go")
        except asyncio.CancelledError:
            return "partial"
        return "whole"

    @workflow
    async def mother(ctx: WorkflowContext) -> str:
        try:
            wf = yielding.options(timeout=5) if how == "timeout" else yielding
            return await wf(ctx)
        except (WorkflowCancelled, WorkflowFailed) as error:
            return type(error).__name__ + str(error)

    env.app.register(mother, yielding)
    await env.app.start_workflow(mother, instance_id="p")
    await env.settle()
    if how == "cancel":
        await env.app.cancel_workflow("p/yielding:1", reason="why not")
    else:
        await env.advance(5)
    await env.settle()
    got = await env.app.get_instance("p")
    assert got.status == "completed"
    assert ("why not" if how == "cancel" else "ran out of time") in str(got.output)


# A runaway that starts free children.
async def test_runaway(env: Environment) -> None:
    @workflow
    async def runaway(ctx: WorkflowContext) -> None:
        await sleep(ctx, 1)
        while True:
            await start_workflow(ctx, waiter)

    env.app.register(runaway)
    handle = await env.app.start_workflow(runaway, instance_id="p")
    await env.advance(1)
    await env.settle()
    page = (await env.app.list_instances(limit=500)).items
    assert await handle.status() == "failed"
    assert len(page) == 1


# Letters keep their op when a file moves to PostgreSQL.
def test_copy_columns() -> None:
    from romancy.storage.tools.copy.tables import COLUMNS

    assert "op" in COLUMNS["requests"]


# Parents with many children fill the memory, and nobody runs the children.
async def test_many_children_fill_memory() -> None:
    @workflow
    async def tiny(ctx: WorkflowContext, n: int) -> int:
        return n

    @workflow
    async def fan(ctx: WorkflowContext) -> int:
        return sum(await asyncio.gather(*(tiny(ctx, n) for n in range(101))))

    async with environment(worker=WorkerOptions(max_resident=3, grace=0.1)) as env:
        env.app.register(fan, tiny)
        await asyncio.gather(*(env.app.start_workflow(fan, instance_id=f"p{n}") for n in range(3)))
        for n in range(3):
            await until_async(lambda n=n: has_ended(env, f"p{n}"))
        found = [(await env.app.get_instance(f"p{n}")).status for n in range(3)]
        assert set(found) == {"completed"}


# A call with an undo that ran in a worker that died counts as "given up before it began".
@pytest.mark.parametrize("first", [False, True])
async def test_undoable_first_call_cancelled_while_down(env: Environment, first: bool) -> None:
    from romancy.storage.batch import CANCEL, Batch, Request

    ran: list[str] = []
    gate = asyncio.Event()

    @activity
    async def charge(ctx: ActivityContext) -> int:
        ran.append("charge")
        if len(ran) == 1:
            await gate.wait()
        return 1

    @charge.compensate
    async def refund(ctx: ActivityContext) -> None:
        ran.append("refund")

    @workflow
    async def paying(ctx: WorkflowContext) -> None:
        if not first:
            await sleep(ctx, 1)
        await charge(ctx)

    env.app.register(paying)
    await env.app.start_workflow(paying, instance_id="p")
    await env.advance(1)
    assert ran == ["charge"]
    engine = env.app._runtime.engine
    storage = engine.storage
    await storage.leave(engine.worker_id)
    async with down(env):
        done = asyncio.get_running_loop().create_future()
        batch = Batch(None, (), b"t" * 16, env.clock.now(), requests=[Request("p", CANCEL, b"enough", env.clock.now())])
        storage.commit(batch, lambda answer, error: done.set_result((answer, error)))
        await done
    await env.settle()
    await env.settle()
    assert (await env.app.get_instance("p")).status == "cancelled"
    assert ran[-1] == "refund"


# The second attempt of a call with an undo ran in a worker that was paused; the next worker takes it for resting.
@pytest.mark.parametrize("resting", [False, True])
async def test_undoable_second_attempt_cancelled_while_down(env: Environment, resting: bool) -> None:
    from romancy.storage.batch import CANCEL, Batch, Request

    ran: list[str] = []
    gate = asyncio.Event()

    @activity(retry=RetryPolicy(initial=2, jitter=0.0))
    async def charge(ctx: ActivityContext) -> int:
        ran.append("charge")
        if len(ran) == 1:
            raise ConnectionError("once more")
        if len(ran) == 2:
            await gate.wait()
        return 1

    @charge.compensate
    async def refund(ctx: ActivityContext) -> None:
        ran.append("refund")

    @workflow
    async def paying(ctx: WorkflowContext) -> None:
        await charge(ctx)

    env.app.register(paying)
    await env.app.start_workflow(paying, instance_id="p")
    await env.advance(1 if resting else 2)
    assert ran == ["charge"] if resting else ["charge", "charge"]
    engine = env.app._runtime.engine
    storage = engine.storage
    await storage.leave(engine.worker_id)  # what another worker finds if this one is paused: not a death
    async with down(env):
        done = asyncio.get_running_loop().create_future()
        batch = Batch(None, (), b"t" * 16, env.clock.now(), requests=[Request("p", CANCEL, b"enough", env.clock.now())])
        storage.commit(batch, lambda answer, error: done.set_result((answer, error)))
        await done
    await env.settle()
    await env.settle()
    assert (await env.app.get_instance("p")).status == "cancelled"
    assert ran == (["charge"] if resting else ["charge", "charge", "charge", "refund"])


# Resubmission: everything once.
async def test_resubmitted(env: Environment) -> None:
    from romancy.storage.batch import CHILD_COMPLETED, Ask, Batch, Commit, Ending, Start

    env.app.register()
    engine: Any = env.app._runtime.engine
    storage, me, now = engine.storage, engine.worker_id, env.clock.now()

    async def submit(token: bytes, **items: Any) -> Any:
        done = asyncio.get_running_loop().create_future()
        storage.commit(Batch(me, ("w",), token, now, **items), lambda a, e: done.set_result((a, e)))
        answer, error = await done
        assert error is None, error
        return answer

    await submit(b"1" * 16, starts=[Start("g", "w", b"{}", 0, now, mine=True)])
    await submit(b"2" * 16, starts=[Start("g/c", "w", b"{}", 0, now, mine=True, parent="g", parent_op="c")])
    kids = [Start(f"g/c/k{n}", "w", b"{}", 0, now, mine=n == 0, parent="g/c", parent_op=f"k{n}") for n in (0, 1)]
    await submit(b"3" * 16, starts=kids)
    end = Commit(
        "g/c",
        0,
        "completed",
        now,
        output=b"7",
        ending=Ending("g", "c", CHILD_COMPLETED, b"7"),
        asks=[Ask("g/c/k0", "x"), Ask("g/c/k1", "y"), Ask("g", "not my child")],
        children=[Start("g/c/free", "w", b"{}", 0, now, parent="g/c", parent_op="free")],
    )
    first = await submit(b"4" * 16, commits=[end])
    again = await submit(b"4" * 16, commits=[end])
    assert first.commits == again.commits == [True]
    seen = {}
    for id in ("g", "g/c", "g/c/k0", "g/c/k1", "g/c/free"):
        snap = await storage.load(id)
        seen[id] = snap.row.status, [(r.kind, r.payload, r.op) for r in snap.requests]
    assert seen == {
        "g": ("running", [(3, b"7", "c")]),
        "g/c": ("completed", []),
        "g/c/k0": ("running", [(6, b"x", None)]),
        "g/c/k1": ("cancelled", []),
        "g/c/free": ("running", []),
    }


# A parent that is blocked while its child ends.
async def test_blocked_parent_hears(env: Environment) -> None:
    env.app.register(patient, waiter)
    handle = await env.app.start_workflow(patient, instance_id="p")
    await env.settle()
    engine = env.app._runtime.engine
    engine.exits.block(engine.residents["p"], RuntimeError("set aside"))
    await env.settle()
    await env.send_event("go", "test", 5)
    assert await statuses(env) == {"p": "blocked", "p/waiter:1": "completed"}
    await env.app.resume_workflow("p")
    assert await handle.result() == 5


# The parent stood for ever: whatever is not an outage ended the search, and nobody heard of it.
async def test_children_that_cannot_be_looked_for_are_looked_for_again(
    env: Environment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    env.app.register(patient, waiter)
    parent = await env.app.start_workflow(patient, instance_id="parent")
    await env.settle()
    await env.restart()
    storage = env.app._runtime.engine.storage
    read, failures = storage.children, [ValueError("out of order"), OSError("broken")]

    async def children(*args: Any) -> Any:
        if failures:
            raise failures.pop()
        return await read(*args)

    monkeypatch.setattr(storage, "children", children)
    [child] = [i for i in (await env.app.list_instances()).items if i.instance_id != "parent"]
    await env.app.send_event("go", "test", 7, to=child.instance_id)
    assert await parent.result(30) == 7
    assert not failures, "nobody looked for the child"
    assert [r.getMessage().split(";")[0] for r in caplog.records if "looked for again" in r.getMessage()] == [
        "children of parent can't be read (broken)",
        "children of parent can't be read (out of order)",
    ]
