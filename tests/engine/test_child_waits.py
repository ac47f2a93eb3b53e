"""Waits for children, as lists show them."""

import asyncio
from typing import Any

import pytest

from romancy import InvalidInput, WorkflowContext, sleep, start_workflow, wait_event, workflow
from romancy.testing import Environment


@workflow
async def waiter(ctx: WorkflowContext) -> Any:
    return (await wait_event(ctx, "go")).data


@workflow
async def several(ctx: WorkflowContext, n: int) -> None:
    await asyncio.gather(*(waiter(ctx) for _ in range(n)), sleep(ctx, 3600, timer_id="nap"), wait_event(ctx, "stop"))


@workflow
async def leaver(ctx: WorkflowContext) -> None:
    await start_workflow(ctx, waiter)


async def test_unfinished_children_are_waits_of_their_parent(env: Environment) -> None:
    env.app.register(several, waiter)
    await env.app.start_workflow(several, 3, instance_id="p")
    await env.settle()
    await env.send_event("go", "test", to="p/waiter:2")
    waits = {wait.wait_id: wait for wait in (await env.app.get_instance("p")).waits}
    assert waits.keys() == {"nap", "stop:1", "waiter:1", "waiter:3"}
    wait = waits["waiter:3"]
    assert (wait.kind, wait.child, wait.instance_id, wait.workflow) == ("child", "p/waiter:3", "p", "several")
    assert wait.since == (await env.app.get_instance("p/waiter:3")).started_at
    assert (wait.due_at, wait.types, wait.error) == (None, (), None)
    assert waits["nap"].child is None
    assert [w.kind for w in (await env.app.get_instance("p/waiter:1")).waits] == ["event"]


async def test_they_come_after_the_other_waits_page_by_page(env: Environment) -> None:
    env.app.register(several, waiter)
    await env.app.start_workflow(several, 5, instance_id="p")
    await env.settle()
    for limit in (1, 2, 3, 7):
        found, cursor = list[str](), None
        while True:
            page = await env.app.list_waits(instance_id="p", limit=limit, cursor=cursor)
            assert len(page.items) <= limit
            assert len(found) < 7, "the cursor leads on"
            found += [wait.wait_id for wait in page.items]
            cursor = page.cursor
            if cursor is None:
                break
        assert found == ["nap", "stop:1", *(f"waiter:{n}" for n in range(1, 6))]
    assert [w.wait_id for w in (await env.app.list_waits(instance_id="p", type="stop")).items] == ["stop:1"]
    assert "child" not in {wait.kind for wait in (await env.app.list_waits()).items}
    with pytest.raises(InvalidInput, match="is not a cursor"):
        await env.app.list_waits(instance_id="p", cursor="00")


async def test_an_instance_that_has_ended_waits_for_nothing(env: Environment) -> None:
    env.app.register(leaver, waiter)
    handle = await env.app.start_workflow(leaver, instance_id="p")
    await handle.result()
    await env.settle()
    assert (await env.app.get_instance("p/waiter:1")).status == "waiting_for_event"
    assert (await env.app.get_instance("p")).waits == []
    assert (await env.app.list_waits(instance_id="p")).items == []


async def test_children_are_listed_by_parent_and_by_status(env: Environment) -> None:
    env.app.register(several, waiter)
    await env.app.start_workflow(several, 4, instance_id="p")
    await env.settle()
    await env.send_event("go", "test", to="p/waiter:2")
    app = env.app

    async def ids(**which: Any) -> list[str]:
        return [found.instance_id[-1] for found in (await app.list_instances(**which)).items]

    assert await ids(parent="p") == ["4", "3", "2", "1"]
    assert await ids(parent="p", status="completed") == ["2"]
    assert await ids(parent="p", status=["completed", "waiting_for_event"], limit=2) == ["4", "3"]
    assert await ids(parent="p", workflow="several") == []
    assert await ids(parent="p/waiter:1") == []
    first = await app.list_instances(parent="p", limit=3)
    assert [found.instance_id for found in (await app.list_instances(parent="p", cursor=first.cursor)).items] == [
        "p/waiter:1"
    ]
    assert await app.count_instances(parent="p") == 4
    assert await app.count_instances(parent="p", status="waiting_for_event") == 3
