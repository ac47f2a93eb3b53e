"""Queues, whatever starts an instance."""

from __future__ import annotations

from typing import Any

from romancy import App, Queue, WorkflowContext, wait_event, workflow
from romancy.service import runtime_of
from tests.engine.test_within import caller

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
