"""Queues, whatever starts an instance: a caller's transaction, or a schedule."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from romancy import App, Queue, Schedule, WorkflowContext, wait_event, workflow
from romancy.service import runtime_of
from romancy.testing import Environment
from tests.engine.test_within import caller

HOUR = timedelta(hours=1)
one = Queue("one", max_concurrent=1)


@workflow(queue=one, key="customer", attributes={"customer": "customer"})
async def order(ctx: WorkflowContext, customer: str) -> str:
    return (await wait_event(ctx, "go", where={"customer": customer})).data["customer"]


@workflow
async def plain(ctx: WorkflowContext) -> None: ...


async def places(app: App) -> dict[str, tuple[str, str | None, str | None, int]]:
    """Status, queue, key and priority by id."""
    found = (await app.list_instances(limit=1000)).items
    return {i.instance_id: (i.status, i.queue, i.key, i.priority) for i in found}


# --- app.within -------------------------------------------------------------------------------------------------------
async def test_a_start_in_a_transaction_waits_in_its_queue(db: str) -> None:
    async with App(db, workflows=[order, plain]) as app, caller(app) as me:
        first = await app.start_workflow(order.options(instance_id="first"), "a")
        await me.run("BEGIN")
        within = app.within(me.connection)
        second = await within.start_workflow(order.options(instance_id="second", key="b", priority=7), "a")
        other = await within.start_workflow(plain)
        await me.run("COMMIT")
        await other.handle().result(timeout=10)
        found = await places(app)
        assert found["second"] == ("queued", "one", "b", 7)
        assert found[other.instance_id] == ("completed", None, None, 0)
        await app.send_event("go", "test", {"customer": "a"})
        assert await first.result(timeout=10) == await second.handle().result(timeout=10) == "a"


async def test_it_receives_the_events_that_were_sent_while_it_was_in_the_inbox(db: str) -> None:
    async with App(db, workflows=[order], worker=False) as app, caller(app) as me:
        await me.run("BEGIN")
        pending = await app.within(me.connection).start_workflow(order, "a")
        await me.run("COMMIT")
        await app.send_event("go", "test", {"customer": "a"})
        await runtime_of(app).engine.take_in()
    async with App(db, workflows=[order]) as app:
        assert await app.handle(pending.instance_id).result(timeout=10) == "a"


async def test_it_is_queued_as_soon_as_it_is_there(db: str) -> None:
    async with App(db, workflows=[order], worker=False) as app, caller(app) as me:
        await me.run("BEGIN")
        pending = await app.within(me.connection).start_workflow(order, "a")
        await me.run("COMMIT")
        await runtime_of(app).engine.take_in()  # no worker has seen it
        assert await places(app) == {pending.instance_id: ("queued", "one", "a", 0)}
        assert (await app.get_instance(pending.instance_id)).attributes == {"customer": "a"}
        await me.run("BEGIN")
        again = await app.within(me.connection).start_workflow(order.options(instance_id=pending.instance_id), "a")
        await me.run("COMMIT")
        await runtime_of(app).engine.take_in()
        assert await places(app) == {again.instance_id: ("queued", "one", "a", 0)}
        assert not await runtime_of(app).engine.storage.arrivals(10, 1000)


async def test_nothing_is_moved_that_another_process_has_settled(db: str) -> None:
    async with App(db, workflows=[order], worker=False) as app, caller(app) as me:
        await me.run("BEGIN")
        for n in range(2):
            await app.within(me.connection).start_workflow(order.options(instance_id=f"o{n}"), "a")
        await me.run("COMMIT")
        engine: Any = runtime_of(app).engine
        items = await engine.storage.arrivals(10, 100_000)
        await engine.storage.refuse_arrival(items[0].number, "not wanted")
        assert await engine._mover._move(items) is False
        assert await places(app) == {}
        await engine.take_in()
        assert await places(app) == {"o1": ("queued", "one", "a", 0)}


# --- schedules --------------------------------------------------------------------------------------------------------
async def test_what_a_schedule_starts_waits_in_its_queue(env: Environment) -> None:
    env.app.register(order)
    await env.app.start_workflow(order.options(instance_id="first"), "a")
    await env.settle()
    await env.app.set_schedule("hourly", Schedule(every=HOUR, overlap="allow"), order, "b")
    await env.app.set_schedule("own", Schedule(every=HOUR), order.options(key="mine", priority=3), "c")
    await env.advance(timedelta(minutes=61))
    found = await places(env.app)
    assert found.pop("first")[0] == "waiting_for_event"
    assert sorted(found.values()) == [("queued", "one", "b", 0), ("queued", "one", "mine", 3)]
    [instance] = (await env.app.list_instances(key="b")).items
    assert (instance.schedule, instance.attributes) == ("hourly", {"customer": "b"})
    for customer in "abc":
        await env.send_event("go", "test", {"customer": customer})
        await env.settle()
    assert {status for status, *_ in (await places(env.app)).values()} == {"completed"}


async def test_a_schedule_skips_a_tick_while_its_instance_is_queued(env: Environment) -> None:
    env.app.register(order)
    await env.app.start_workflow(order.options(instance_id="first"), "a")
    await env.app.set_schedule("hourly", Schedule(every=HOUR), order, "b")
    await env.advance(timedelta(hours=3, minutes=1))
    [record] = await env.app.list_schedules()
    assert (record.started, record.skipped) == (1, 2)
    assert len(await places(env.app)) == 2


async def test_a_triggered_schedule_waits_in_its_queue(env: Environment) -> None:
    env.app.register(order)
    await env.app.start_workflow(order.options(instance_id="first"), "a")
    await env.app.set_schedule("hourly", Schedule(every=HOUR), order.options(key="mine"), "b")
    handle = await env.app.trigger_schedule("hourly")
    await env.settle()
    assert (await places(env.app))[handle.instance_id] == ("queued", "one", "mine", 0)
    await env.send_event("go", "test", {"customer": "a"})
    await env.send_event("go", "test", {"customer": "b"})
    assert await handle.result() == "b"


async def test_a_declared_schedule_can_have_a_queue(env: Environment) -> None:
    nightly: Any = workflow(schedule=Schedule(every=HOUR), queue=one, name="nightly")  # type: ignore[call-overload]

    @nightly
    async def fn(ctx: WorkflowContext) -> None: ...

    env.app.register(order, fn)
    await env.app.start_workflow(order.options(instance_id="first"), "a")
    await env.advance(timedelta(minutes=61))
    found = await places(env.app)
    assert found.pop("first")[0] == "waiting_for_event"
    assert list(found.values()) == [("queued", "one", None, 0)]


async def test_a_schedule_goes_on_when_its_workflow_has_no_queue_any_more(env: Environment) -> None:
    """It is the code that says where instances wait, not what the schedule was set with."""
    env.app.register(order)
    await env.app.set_schedule("hourly", Schedule(every=HOUR, overlap="allow"), order.options(key="mine"), "b")
    order._definition.queue = None  # pyright: ignore[reportPrivateUsage]
    try:
        await env.advance(timedelta(minutes=61))
        [(status, queue, _, _)] = (await places(env.app)).values()
        assert (status, queue) == ("waiting_for_event", None)
    finally:
        order._definition.queue = one  # pyright: ignore[reportPrivateUsage]


async def test_a_fork_of_what_a_schedule_started_waits_with_the_same_key(env: Environment) -> None:
    env.app.register(order)
    await env.app.set_schedule("hourly", Schedule(every=HOUR), order.options(key="mine", priority=3), "b")
    first = await env.app.trigger_schedule("hourly")
    await env.settle()
    await env.app.fork_workflow(first.instance_id, new_id="fork")
    await env.settle()
    assert (await places(env.app))["fork"] == ("queued", "one", "mine", 3)
    assert (await env.app.get_instance("fork")).schedule == "hourly"
    await env.send_event("go", "test", {"customer": "b"})
    assert await first.result() == await env.app.handle("fork").result() == "b"
