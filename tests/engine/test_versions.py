"""`@workflow(version=2)`: two versions of a workflow side by side, in one process and in two."""

from __future__ import annotations

from typing import Any

import pytest

from romancy import App, ReceivedEvent, WorkflowContext, wait_event, workflow
from romancy.core.registry import Registry
from romancy.core.versions import highest_versions, split_name, stored_name
from romancy.errors import InstanceExists
from romancy.storage.rows import triggered_id
from romancy.testing import environment


@workflow(name="payment")
async def first(ctx: WorkflowContext, order: str) -> str:
    await wait_event(ctx, "go")
    return f"{order}: 1"


@workflow(name="payment", version=2)
async def second(ctx: WorkflowContext, order: str) -> str:
    await wait_event(ctx, "go")
    return f"{order}: 2"


@workflow(name="payment", version=10)
async def tenth(ctx: WorkflowContext, order: str) -> str:
    return f"{order}: 10"


@workflow(name="payments")
async def another(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "go")


def test_names() -> None:
    assert (first.name, second.name) == ("payment", "payment@2")
    assert stored_name("a", 1) == "a"
    for stored in ("a", "a@2", "a@10", "a@b", "a@02", "@2x", "a@"):
        assert stored_name(*split_name(stored)) == stored
    assert split_name("a@1") == ("a", 1)
    assert highest_versions([("a", 1), ("b@3", None), ("a@10", 2), ("a@9", 3)]) == [("a@10", 2), ("b@3", None)]
    assert triggered_id("a@2", "s", "i") == triggered_id("a", "s", "i")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "pay@2"}, "must not contain '@'"),
        ({"version": 0}, "a whole number from 1 on, got 0"),
        ({"version": "2"}, "a whole number from 1 on"),
        ({"version": True}, "a whole number from 1 on"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    async def code(ctx: WorkflowContext) -> None: ...

    with pytest.raises(TypeError, match=message):
        workflow(**options)(code)


def test_two_functions_may_not_be_the_same_version() -> None:
    @workflow(name="payment", version=2)
    async def twin(ctx: WorkflowContext) -> None: ...

    registry = Registry()
    registry.add(second._definition)
    with pytest.raises(ValueError, match=r"two different workflows are named 'payment@2' .*version="):
        registry.add(twin._definition)


@pytest.mark.parametrize("order", [[first, second, tenth], [tenth, second, first]])
async def test_a_start_by_name_means_the_highest(order: list[Any]) -> None:
    async with environment(workflows=order) as env:
        assert await (await env.app.start_workflow("payment", "a")).result(10) == "a: 10"
        for name in ("payment@2", "payment@1"):
            await env.app.start_workflow(name, "b", instance_id=name)
        await env.settle()
        found = [await env.app.get_instance(name) for name in ("payment@2", "payment@1")]
        assert [(instance.workflow, instance.version) for instance in found] == [("payment", 2), ("payment", 1)]


async def test_an_object_means_itself() -> None:
    async with environment(workflows=[first, second]) as env:
        one, two = await env.start(first, "a"), await env.start(second, "a")
        await env.restart()
        await env.send_event("go", "test")
        assert (await one.result(), await two.result()) == ("a: 1", "a: 2")


async def test_lists_find_all_versions_by_the_bare_name() -> None:
    async with environment(workflows=[first, second, another]) as env:
        await env.start(first.options(instance_id="one"), "a")
        await env.start(second.options(instance_id="two"), "a")
        await env.start(another.options(instance_id="another"))

        async def found(name: str) -> set[str]:
            return {item.instance_id for item in (await env.app.list_instances(workflow=name)).items}

        assert await found("payment") == {"one", "two"}
        assert await found("payment@2") == {"two"}
        assert await found("payment@1") == {"one"}
        assert await found("payments") == {"another"}
        assert await found("payment@") == set()


async def test_a_start_is_the_same_after_a_new_version_was_deployed(db: str) -> None:
    async with environment(database=db, workflows=[first]) as env:
        await env.app.start_workflow("payment", "a", instance_id="one")
        await env.settle()
    async with environment(database=db, workflows=[first, second]) as env:
        again = await env.app.start_workflow("payment", "a", instance_id="one")
        assert not again.created
        with pytest.raises(InstanceExists, match="a different input"):
            await env.app.start_workflow("payment", "b", instance_id="one")
        await env.send_event("go", "test")
        assert await again.result(10) == "a: 1"


async def test_a_worker_without_a_version_leaves_its_instances_alone(db: str) -> None:
    async with App(db, workflows=[first, second]) as app:
        await app.start_workflow(second.options(instance_id="two"), "a")
    async with environment(database=db, workflows=[first]) as env:
        await env.send_event("go", "test")
        await env.advance(60)
        assert (await env.app.get_instance("two")).status != "completed"
    async with environment(database=db, workflows=[second]) as env:
        await env.advance(60)
        assert await env.app.handle("two").result(10) == "a: 2"


# --- started by events ------------------------------------------------------------------------------------------------
@workflow(name="on_order", on_event="order")
async def on_order(ctx: WorkflowContext, event: ReceivedEvent[Any]) -> int:
    return 1


@workflow(name="on_order", on_event="order", version=2)
async def on_order_2(ctx: WorkflowContext, event: ReceivedEvent[Any]) -> int:
    return 2


@workflow(name="on_order", version=3)
async def by_hand(ctx: WorkflowContext) -> int:
    return 3


async def test_an_event_starts_the_highest_version() -> None:
    async with environment(workflows=[on_order_2, on_order]) as env:
        receipt = await env.send_event("order", "test", id="e")
        assert receipt.started == 1
        (instance,) = (await env.app.list_instances()).items
        assert (instance.instance_id, instance.output) == (triggered_id("on_order", "test", "e"), 2)
        assert (instance.workflow, instance.version) == ("on_order", 2)


async def test_a_version_without_events_ends_that_of_the_one_before() -> None:
    async with environment(workflows=[on_order, by_hand]) as env:
        assert (await env.send_event("order", "test")).started == 0


@pytest.mark.parametrize("newer_first", [False, True])
async def test_one_event_starts_one_instance_while_two_versions_are_deployed(db: str, newer_first: bool) -> None:
    """The last worker to announce its triggers decides which version it is."""
    old, both = App(db, workflows=[on_order]), App(db, workflows=[on_order, on_order_2])
    one, two = (both, old) if newer_first else (old, both)
    async with one, two:
        receipts = [await app.send_event("order", "test", id="e") for app in (one, two)]
        assert [receipt.duplicate for receipt in receipts] == [False, True]
        (instance,) = (await one.list_instances()).items
        assert await one.handle(instance.instance_id).result(30) == (1 if newer_first else 2)


async def test_two_announcements_at_the_same_moment_start_one_instance(db: str) -> None:
    """Each may miss the other's triggers, so both versions may be stored for a type."""
    async with App(db, workflows=[on_order, on_order_2]) as app:
        storage: Any = app._runtime.engine.storage
        await storage.announce([("order", "on_order", None), ("order", "on_order@2", None)], ["on_order"])
        receipt = await app.send_event("order", "test", id="e")
        assert receipt.started == 1
        (instance,) = (await app.list_instances()).items
        assert await app.handle(instance.instance_id).result(30) == 2
        assert await app.handle(instance.instance_id).status() == "completed"
