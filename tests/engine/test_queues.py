"""Queues: limits hold, keys take turns, and a slot belongs to its instance."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest

from romancy import (
    NO_RETRY,
    ActivityContext,
    App,
    InvalidInput,
    Queue,
    QueueFull,
    Rate,
    ReceivedEvent,
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
from tests.engine.helpers import down, outsider

two = Queue("two", max_concurrent=2)


@workflow(queue=two)
async def job(ctx: WorkflowContext, n: int) -> int:
    await wait_event(ctx, f"go.{n}")
    return n


one_each = Queue("one each", max_concurrent_per_key=1)


@workflow(queue=one_each, key="customer")
async def per_key(ctx: WorkflowContext, customer: str, n: int = 0) -> str:
    await wait_event(ctx, "go", where={"customer": customer})
    return customer


begun: list[str] = []
single = Queue("single", max_concurrent=1)


@workflow(queue=single, key="customer")
async def in_turn(ctx: WorkflowContext, customer: str, n: int) -> None:
    begun.append(f"{customer}{n}")
    await sleep(ctx, 10)


hourly = Queue("hourly", rate=Rate(2, timedelta(hours=1)))


@workflow(queue=hourly)
async def rated(ctx: WorkflowContext) -> None: ...


hourly_each = Queue("hourly each", rate_per_key=Rate(1, timedelta(hours=1)))


@workflow(queue=hourly_each, key="customer")
async def rated_each(ctx: WorkflowContext, customer: str) -> None: ...


async def statuses(app: App, *ids: str) -> list[str]:
    return [(await app.get_instance(id)).status for id in ids]


async def status(env: Environment, id: str) -> str:
    return (await env.app.get_instance(id)).status


async def start(env: Environment, wf: Any, id: str, *args: Any) -> Any:
    env.app.register(wf)
    return await env.app.start_workflow(wf.options(instance_id=id), *args)


async def test_no_more_instances_run_than_the_limit_allows(env: Environment) -> None:
    handles = [await start(env, job, f"j{n}", n) for n in range(5)]
    await env.settle()
    ids = [h.instance_id for h in handles]
    assert await statuses(env.app, *ids) == ["waiting_for_event"] * 2 + ["queued"] * 3
    await env.app.send_event("go.1", "test")
    assert await handles[1].result() == 1
    await env.settle()
    after = ["waiting_for_event", "completed", "waiting_for_event", "queued", "queued"]
    assert await statuses(env.app, *ids) == after


async def test_a_queued_instance_says_where_it_waits(env: Environment) -> None:
    for n in range(3):
        await start(env, job, f"j{n}", n)
    await env.settle()
    found = await env.app.get_instance("j2")
    assert (found.queue, found.key, found.priority) == ("two", None, 0)
    assert [(wait.kind, wait.wait_id) for wait in found.waits] == [("queue", "two")]
    [queue] = await env.app.list_queues()
    assert (queue.name, queue.running, queue.waiting, queue.oldest_at) == ("two", 2, 1, found.started_at)
    page = await env.app.list_instances(queue="two", status="queued")
    assert [item.instance_id for item in page.items] == ["j2"]
    assert await env.app.count_instances(queue="two") == 3
    assert await env.app.count_instances(queue="other") == 0


async def test_each_key_has_a_limit_of_its_own(env: Environment) -> None:
    for id, customer in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        await start(env, per_key, id, customer)
    await env.settle()
    assert await statuses(env.app, "a1", "a2", "b1") == ["waiting_for_event", "queued", "waiting_for_event"]
    assert (await env.app.get_instance("a2")).key == "a"
    await env.send_event("go", "test", {"customer": "a"})
    await env.settle()
    assert await status(env, "a2") in ("waiting_for_event", "completed")


async def test_keys_take_turns(env: Environment) -> None:
    begun.clear()
    for n in range(3):
        await start(env, in_turn, f"a{n}", "a", n)
    for n in range(2):
        await start(env, in_turn, f"b{n}", "b", n)
    for _ in range(6):
        await env.advance(timedelta(seconds=10))
    assert begun == ["a0", "b0", "a1", "b1", "a2"]


async def test_a_higher_priority_comes_first_within_a_key(env: Environment) -> None:
    begun.clear()
    env.app.register(in_turn)
    await env.app.start_workflow(in_turn, "x", 0)
    await env.settle()
    for n, priority in ((1, 0), (2, 5), (3, -1), (4, 5)):
        await env.app.start_workflow(in_turn.options(instance_id=f"x{n}", priority=priority), "x", n)
    for _ in range(5):
        await env.advance(timedelta(seconds=10))
    assert begun == ["x0", "x2", "x4", "x1", "x3"]


async def test_a_start_can_have_its_own_key(env: Environment) -> None:
    env.app.register(per_key)
    first = await env.app.start_workflow(per_key.options(key="vip"), "a")
    await env.settle()
    second = await env.app.start_workflow(per_key.options(key="vip", priority=3), "b")
    await env.settle()
    assert await statuses(env.app, first.instance_id, second.instance_id) == ["waiting_for_event", "queued"]
    found = await env.app.get_instance(second.instance_id)
    assert (found.key, found.priority) == ("vip", 3)


@pytest.mark.parametrize(("key", "stored"), [(5, "5"), (True, "true"), (None, "a"), ("", None)])
async def test_the_key_of_a_start_is_read_like_one_of_the_arguments(env: Environment, key: Any, stored: Any) -> None:
    env.app.register(per_key)
    handle = await env.app.start_workflow(per_key.options(key=key), "a")
    assert (await env.app.get_instance(handle.instance_id)).key == stored


async def test_a_rate_spreads_the_beginnings(env: Environment) -> None:
    ids = [f"r{n}" for n in range(5)]
    for id in ids:
        await start(env, rated, id)
    await env.settle()
    assert Counter(await statuses(env.app, *ids)) == {"completed": 2, "queued": 3}
    await env.advance(timedelta(minutes=29))
    assert Counter(await statuses(env.app, *ids)) == {"completed": 2, "queued": 3}
    await env.advance(timedelta(minutes=1))
    assert Counter(await statuses(env.app, *ids)) == {"completed": 3, "queued": 2}
    await env.advance(timedelta(minutes=60))
    assert Counter(await statuses(env.app, *ids)) == {"completed": 5}


async def test_each_key_has_a_rate_of_its_own(env: Environment) -> None:
    for id in ("a1", "a2", "b1"):
        await start(env, rated_each, id, id[0])
    await env.settle()
    assert await statuses(env.app, "a1", "a2", "b1") == ["completed", "queued", "completed"]
    await env.advance(timedelta(hours=1))
    assert await status(env, "a2") == "completed"


async def test_a_slot_survives_the_death_of_the_worker(env: Environment) -> None:
    for n in range(3):
        await start(env, job, f"j{n}", n)
    await env.settle()
    async with down(env):
        pass
    await env.settle()
    assert await statuses(env.app, "j0", "j1", "j2") == ["waiting_for_event", "waiting_for_event", "queued"]
    await env.app.send_event("go.0", "test")
    await env.settle()
    assert await statuses(env.app, "j0", "j2") == ["completed", "waiting_for_event"]


async def test_a_queued_instance_is_cancelled_at_once(env: Environment) -> None:
    for n in range(4):
        handle = await start(env, job, f"j{n}", n)
    await env.settle()
    assert await env.app.cancel_workflow("j3", reason="not needed")
    assert await status(env, "j3") == "cancelled"
    with pytest.raises(WorkflowCancelled, match="not needed"):
        await handle.result()
    assert await statuses(env.app, "j0", "j1", "j2") == ["waiting_for_event", "waiting_for_event", "queued"]


async def test_a_full_queue_refuses_starts(env: Environment) -> None:
    narrow = Queue("narrow", max_concurrent=1, max_waiting=2)

    @workflow(queue=narrow)
    async def few(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "go")

    await start(env, few, "f0")
    await env.settle()
    await start(env, few, "f1")
    await start(env, few, "f2")
    with pytest.raises(QueueFull, match="'narrow' is full: 2 instances wait") as refused:
        await start(env, few, "f3")
    assert refused.value.queue == "narrow"
    assert not (await start(env, few, "f1")).created, "it is there: nothing new would wait"
    await env.app.cancel_workflow("f2")
    await start(env, few, "f3")
    results = await asyncio.gather(*(start(env, few, f"g{n}") for n in range(5)), return_exceptions=True)
    assert all(isinstance(result, QueueFull) for result in results)


async def test_instances_that_will_be_admitted_at_once_do_not_count_as_waiting(env: Environment) -> None:
    wide = Queue("wide", max_concurrent=5, max_waiting=1)

    @workflow(queue=wide)
    async def many(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "go")

    engine = env.app._runtime.engine
    with patch.object(engine._admissions, "round", AsyncMock(return_value=0.0)):  # it comes later than all starts
        for n in range(6):
            await start(env, many, f"m{n}")
        with pytest.raises(QueueFull, match="'wide' is full: 1 instance waits"):
            await start(env, many, "m6")
    engine._to_admit.set()
    await env.settle()
    assert Counter(await statuses(env.app, *(f"m{n}" for n in range(6)))) == {"waiting_for_event": 5, "queued": 1}
    with pytest.raises(QueueFull):
        await start(env, many, "m6")
    results = await asyncio.gather(*(start(env, many, f"o{n}") for n in range(9)), return_exceptions=True)
    assert all(isinstance(result, QueueFull) for result in results)


async def test_instances_held_by_a_rate_count_as_waiting(env: Environment) -> None:
    slow = Queue("slow", max_concurrent=50, rate=Rate(2, timedelta(hours=1)), max_waiting=1)

    @workflow(queue=slow)
    async def dripping(ctx: WorkflowContext) -> None: ...

    for n in range(3):
        await start(env, dripping, f"d{n}")
    with pytest.raises(QueueFull):
        await start(env, dripping, "d3")
    await env.settle()
    with pytest.raises(QueueFull):
        await start(env, dripping, "d3")
    await env.advance(timedelta(minutes=30))
    await start(env, dripping, "d3")


async def test_time_limits_run_from_the_admission(env: Environment) -> None:
    narrow = Queue("limited", max_concurrent=1)

    @workflow(queue=narrow, timeout=100)
    async def limited(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "never")

    await start(env, limited, "l0")
    await start(env, limited, "l1")
    await env.advance(timedelta(seconds=99))
    assert await statuses(env.app, "l0", "l1") == ["waiting_for_event", "queued"]
    await env.advance(timedelta(seconds=1))
    assert await statuses(env.app, "l0", "l1") == ["failed", "waiting_for_event"]
    await env.advance(timedelta(seconds=99))
    assert await status(env, "l1") == "waiting_for_event"
    await env.advance(timedelta(seconds=1))
    assert await status(env, "l1") == "failed"


async def test_the_time_in_the_queue_does_not_count_as_slept(env: Environment) -> None:
    """For the code of an instance, its first moment is that of the admission; after a restart, too."""
    narrow, first = Queue("narrow", max_concurrent=1), env.now

    @workflow(queue=narrow)
    async def patient(ctx: WorkflowContext) -> float:
        began = ctx.now()
        await sleep(ctx, 60)
        return (began - first).total_seconds()

    handles = [await start(env, patient, f"p{n}") for n in range(3)]
    ended: list[int] = []
    for _ in range(3):
        await env.advance(59)
        await env.restart()
        await env.advance(1)
        ended.append((await statuses(env.app, "p0", "p1", "p2")).count("completed"))
    assert ended == [1, 2, 3]
    assert sorted([await handle.result() for handle in handles]) == [0.0, 60.0, 120.0]


async def test_children_wait_in_queues(env: Environment) -> None:
    @workflow
    async def parent(ctx: WorkflowContext) -> list[int]:
        return await asyncio.gather(*(job(ctx, n) for n in range(4)))

    env.app.register(job)
    handle = await start(env, parent, "p")
    await env.settle()
    children = (await env.app.list_instances(parent="p")).items
    assert Counter(child.status for child in children) == {"waiting_for_event": 2, "queued": 2}
    for n in range(4):
        await env.app.send_event(f"go.{n}", "test")
    assert await handle.result() == [0, 1, 2, 3]


async def test_a_child_that_waits_is_cancelled_with_its_parent(env: Environment) -> None:
    @workflow
    async def parent(ctx: WorkflowContext) -> int:
        return await job(ctx, 9)

    env.app.register(job)
    await start(env, job, "j0", 0)
    await start(env, job, "j1", 1)
    await start(env, parent, "p")
    await env.settle()
    [child] = (await env.app.list_instances(parent="p")).items
    assert child.status == "queued"
    await env.app.cancel_workflow("p")
    await env.settle()
    assert await statuses(env.app, "p", child.instance_id) == ["cancelled", "cancelled"]


async def test_a_free_child_of_a_parent_that_ends_at_once_waits(env: Environment) -> None:
    @workflow
    async def parent(ctx: WorkflowContext) -> str:
        child = await start_workflow(ctx, per_key.options(key="late", priority=2), "z")
        return child.instance_id

    env.app.register(per_key)
    await start(env, per_key.options(key="late"), "first", "z")
    await env.settle()
    child = await (await start(env, parent, "p")).result()
    await env.settle()
    found = await env.app.get_instance(child)
    assert (found.status, found.key, found.priority) == ("queued", "late", 2)


async def test_instances_started_by_events_wait(env: Environment) -> None:
    on_order = Queue("orders", max_concurrent_per_key=1)

    @workflow(on_event="order", queue=on_order, key="event.data.customer")
    async def ordered(ctx: WorkflowContext, event: ReceivedEvent[dict[str, str]]) -> None:
        await wait_event(ctx, "go")

    env.app.register(ordered)
    await env.settle()
    for customer in ("a", "a", "b"):
        await env.send_event("order", "shop", {"customer": customer})
    await env.settle()
    found = (await env.app.list_instances(workflow="ordered")).items
    assert Counter((item.key, item.status) for item in found) == {
        ("a", "waiting_for_event"): 1,
        ("a", "queued"): 1,
        ("b", "waiting_for_event"): 1,
    }
    await env.send_event("go", "test")
    await env.settle()
    assert await env.app.count_instances(workflow="ordered", status="queued") == 0


async def test_a_process_without_the_code_can_start_them(db: str) -> None:
    async with environment(database=db, workflows=[per_key]) as env:
        async with outsider(env) as app:
            for n in range(2):
                await app.start_workflow("per_key", "c", instance_id=f"o{n}")
        env.app._runtime.engine.kick()
        await env.settle()
        found = [await env.app.get_instance(f"o{n}") for n in range(2)]
        assert sorted(item.status for item in found) == ["queued", "waiting_for_event"]
        assert {item.key for item in found} == {"c"}


async def test_a_run_that_continues_as_new_keeps_its_slot(env: Environment) -> None:
    narrow = Queue("long", max_concurrent=1)

    @workflow(queue=narrow)
    async def long(ctx: WorkflowContext, n: int) -> int:
        await wait_event(ctx, "next")
        if n == 0:
            return ctx.run_number
        long.continue_as_new(ctx, n - 1)

    handle = await start(env, long, "l0", 1)
    await start(env, long, "l1", 0)
    await env.send_event("next", "test")
    await env.settle()
    assert await statuses(env.app, "l0", "l1") == ["waiting_for_event", "queued"]
    await env.send_event("next", "test")
    assert await handle.result() == 2
    await env.settle()
    assert await status(env, "l1") != "queued"


async def test_a_retried_instance_waits_for_a_slot_again(env: Environment) -> None:
    narrow, broken = Queue("retried", max_concurrent=1), [True]

    @activity(retry=NO_RETRY)
    async def check(ctx: ActivityContext) -> str:
        if broken[0]:
            raise ValueError("broken")
        return "fine"

    @workflow(queue=narrow)
    async def checked(ctx: WorkflowContext, waits: bool) -> str:
        if waits:
            await wait_event(ctx, "go")
        return await check(ctx)

    handle = await start(env, checked, "c0", False)
    with pytest.raises(WorkflowFailed):
        await handle.result()
    blocker = await start(env, checked, "c1", True)
    await env.settle()
    broken[0] = False
    await env.app.retry_workflow("c0")
    await env.settle()
    assert await statuses(env.app, "c0", "c1") == ["queued", "waiting_for_event"]
    await env.send_event("go", "test")
    assert await blocker.result() == "fine"
    assert await env.app.handle("c0").result() == "fine"


async def test_a_fork_waits_for_a_slot(env: Environment) -> None:
    for n in range(2):
        await start(env, job, f"j{n}", n)
    await env.settle()
    fork = await env.app.fork_workflow("j0", new_id="fork")
    await env.settle()
    assert await status(env, fork.instance_id) == "queued"
    await env.app.send_event("go.1", "test")
    await env.settle()
    assert await status(env, fork.instance_id) == "waiting_for_event"


async def test_a_lower_limit_holds_for_those_that_come_later(env: Environment) -> None:
    for n in range(3):
        await start(env, job, f"j{n}", n)
    await env.settle()
    env.app._runtime.registry.queues["two"] = Queue("two", max_concurrent=1)
    await env.app.send_event("go.0", "test")
    await env.settle()
    assert await statuses(env.app, "j0", "j1", "j2") == ["completed", "waiting_for_event", "queued"]
    await env.app.send_event("go.1", "test")
    await env.settle()
    assert await status(env, "j2") == "waiting_for_event"


async def test_many_keys_at_their_limits_do_not_hide_the_others(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("romancy.engine.admission.KEYS", 3)
    for key in range(8):
        await start(env, per_key, f"a{key}", f"k{key}")
        await start(env, per_key, f"b{key}", f"k{key}")
    await env.settle()
    await start(env, per_key, "late", "k99")
    await env.settle()
    found = await statuses(env.app, *(f"a{key}" for key in range(8)), "late")
    assert found == ["waiting_for_event"] * 9
    assert await env.app.count_instances(status="queued") == 8


def test_what_a_workflow_can_declare() -> None:
    with pytest.raises(TypeError, match="has no queue"):
        workflow(key="n")(job.fn)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="takes a Queue"):
        workflow(queue="mail")(job.fn)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="path into the arguments"):
        workflow(queue=two, key="a b")(job.fn)
    with pytest.raises(TypeError, match="not one of its parameters"):
        App(":memory:", workflows=[workflow(queue=two, key="m", name="other")(job.fn)])
    with pytest.raises(ValueError, match="different queue 'two'"):
        App(":memory:", workflows=[job, workflow(queue=Queue("two", max_concurrent=3), name="other")(job.fn)])
    with pytest.raises(TypeError, match="has no queue"):
        workflow(name="plain")(job.fn).options(key="x")
    with pytest.raises(InvalidInput, match="priority"):
        job.options(priority=True)
    with pytest.raises(InvalidInput, match="key"):
        job.options(key="x\0")
    with pytest.raises(InvalidInput, match=r"or an integer, got 1\.5"):
        job.options(key=1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "3"])
def test_limits_are_whole_numbers(wrong: Any) -> None:
    for name in ("max_concurrent", "max_concurrent_per_key", "max_waiting"):
        with pytest.raises(ValueError, match=name):
            Queue("q", **{name: wrong})
    with pytest.raises(ValueError, match="count"):
        Rate(wrong, 60)
    with pytest.raises(TypeError, match="Rate"):
        Queue("q", rate=wrong)


async def test_a_queue_that_was_replaced_is_emptied_as_long_as_a_workflow_has_it(db: str) -> None:
    old, new = Queue("replaced", max_concurrent=1), Queue("new", max_concurrent=1)

    async def moved(ctx: WorkflowContext, n: int) -> int:
        return (await wait_event(ctx, "go")).data + n

    async def keeps_the_old_queue(ctx: WorkflowContext) -> None: ...

    async with App(db, workflows=[workflow(queue=old)(moved)]) as before:
        ids = [(await before.start_workflow("moved", n)).instance_id for n in range(3)]
    both = [workflow(queue=new)(moved), workflow(queue=old)(keeps_the_old_queue)]
    async with App(db, workflows=both) as after:
        for n, id in enumerate(ids):
            await after.send_event("go", "test", 10, to=id)
            assert await after.handle(id).result(10) == 10 + n
