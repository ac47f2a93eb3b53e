"""Reading: instances, waits, events and history, page by page."""

from datetime import timedelta
from typing import Any

import pytest

from romancy import InstanceNotFound, ReceivedEvent, WorkflowContext, ask, sleep, wait_event, workflow
from romancy.testing import Environment


@workflow
async def waiter(ctx: WorkflowContext, n: int = 0) -> Any:
    ctx.describe(f"waiting as number {n}")
    return (await wait_event(ctx, "go")).data


@workflow
async def sleeper(ctx: WorkflowContext) -> None:
    await sleep(ctx, 60)


async def test_an_instance_as_it_stands(env: Environment) -> None:
    began = env.now
    handle = await env.start(waiter.options(instance_id="one"), 7)
    one = await env.app.get_instance("one")
    assert (one.instance_id, one.workflow, one.status, one.input) == ("one", "waiter", "waiting_for_event", {"n": 7})
    assert (one.output, one.error, one.started_at, one.finished_at) == (None, None, began, None)
    assert [w.wait_id for w in one.waits] == ["go:1"]
    assert one.description == "waiting as number 7"
    await env.advance(60)
    await env.send_event("go", "test", {"x": 1})
    one = await env.app.get_instance("one")
    assert (one.status, one.output, one.waits) == ("completed", {"x": 1}, [])
    assert one.finished_at == began + timedelta(seconds=60)
    assert await handle.status() == "completed"


async def test_a_description_changes_and_survives(env: Environment) -> None:
    @workflow
    async def describes(ctx: WorkflowContext) -> None:
        for n in range(2):
            ctx.describe(f"step {n}")
            await sleep(ctx, 60)

    await env.start(describes.options(instance_id="one"))
    assert (await env.app.get_instance("one")).description == "step 0"
    await env.restart()
    await env.advance(60)
    assert (await env.app.get_instance("one")).description == "step 1"


async def test_instances_newest_first_in_pages(env: Environment) -> None:
    for n in range(7):
        await env.start(waiter.options(instance_id=f"w{n}"), n)
        await env.advance(1)
    found: list[str] = []
    cursor = None
    sizes: list[int] = []
    while True:
        page = await env.app.list_instances(limit=3, cursor=cursor)
        found += [i.instance_id for i in page.items]
        sizes.append(len(page.items))
        cursor = page.cursor
        if cursor is None:
            break
        await env.start(waiter.options(instance_id=f"new{len(found)}"))  # newcomers don't shift the pages
    assert found == [f"w{n}" for n in reversed(range(7))]
    assert sizes == [3, 3, 1]


async def test_a_last_page_that_is_just_full_has_no_cursor(env: Environment) -> None:
    for n in range(4):
        await env.start(waiter, n)
    page = await env.app.list_instances(limit=2)
    page = await env.app.list_instances(limit=2, cursor=page.cursor)
    assert (len(page.items), page.cursor) == (2, None)


async def test_filters(env: Environment) -> None:
    await env.start(waiter.options(instance_id="order-1"))
    await env.start(sleeper.options(instance_id="order-2"))
    await env.advance(61)
    later = env.now
    await env.advance(1)
    await env.start(sleeper.options(instance_id="invoice-1"))

    async def ids(**filters: Any) -> list[str]:
        return sorted(i.instance_id for i in (await env.app.list_instances(**filters)).items)

    assert await ids(status="completed") == ["order-2"]
    assert await ids(status=["completed", "waiting_for_timer"]) == ["invoice-1", "order-2"]
    assert await ids(status="failed") == []
    assert await ids(workflow="sleeper") == ["invoice-1", "order-2"]
    assert await ids(text="order") == ["order-1", "order-2"]
    assert await ids(text="%") == []
    assert await ids(started_after=later) == ["invoice-1"]
    assert await ids(workflow="sleeper", status="completed", text="order") == ["order-2"]


async def test_the_librarys_own_events_are_not_unmatched(env: Environment) -> None:
    """The question of an `ask` is an event of the library, and so is its end. No instance takes them."""

    @workflow
    async def asks(ctx: WorkflowContext) -> None:
        await ask(ctx, bool, title="Sure?", people=["ann"])

    env.app.register(asks)
    await env.start(asks)
    await env.send_event("other", "test", id="mine")
    assert {r.event.type for r in (await env.app.list_events()).items} == {"romancy.asked", "other"}
    assert [r.event.id for r in (await env.app.list_events(unmatched=True)).items] == ["mine"]
    named = await env.app.list_events(type="romancy.asked", unmatched=True)
    assert [r.event.type for r in named.items] == ["romancy.asked"]


async def test_events_with_who_received_them(env: Environment) -> None:
    await env.start(waiter.options(instance_id="one"))
    await env.start(waiter.options(instance_id="two"))
    await env.send_event("go", "test", 1, id="taken")
    await env.send_event("go", "test", 2, id="left")
    left, taken = (await env.app.list_events()).items
    assert (taken.event.id, sorted(taken.received_by)) == ("taken", [("one", "go:1"), ("two", "go:1")])
    assert (left.event.id, left.received_by) == ("left", ())
    assert taken.accepted_at == env.now
    assert [r.event.id for r in (await env.app.list_events(unmatched=True)).items] == ["left"]
    assert [r.event.id for r in (await env.app.list_events(instance_id="one")).items] == ["taken"]
    assert (await env.app.list_events(type="other")).items == []


async def test_events_in_pages(env: Environment) -> None:
    for n in range(5):
        await env.send_event("news", "test", n, id=f"e{n}")
    page = await env.app.list_events(limit=2)
    found = [r.event.id for r in page.items]
    while page.cursor:
        page = await env.app.list_events(limit=2, cursor=page.cursor)
        found += [r.event.id for r in page.items]
    assert found == ["e4", "e3", "e2", "e1", "e0"]


async def test_history_is_numbered_and_complete(env: Environment) -> None:
    await env.start(waiter.options(instance_id="one"), 1)
    await env.send_event("go", "test", {"x": 1}, id="e1")
    history = await env.app.get_history("one")
    assert [(e.n, e.kind, e.operation) for e in history] == [(0, "started", "waiter"), (1, "event_received", "go:1")]
    assert history[1].event["id"] == "e1"
    assert history[1].event["data"] == {"x": 1}


async def test_the_unknown_and_the_impossible(env: Environment) -> None:
    for read in (env.app.get_instance, env.app.get_history):
        with pytest.raises(InstanceNotFound, match=r"'nobody'.*list_instances") as error:
            await read("nobody")
        assert isinstance(error.value, LookupError)
        assert error.value.instance_id == "nobody"
    with pytest.raises(ValueError, match=r"'asleep'.*waiting_for_timer"):
        await env.app.list_instances(status="asleep")  # type: ignore[arg-type]
    for limit in (0, -1, 1001):
        with pytest.raises(ValueError, match="limit"):
            await env.app.list_instances(limit=limit)
    for cursor in ("", "zz", "6e6f"):
        for listing in (env.app.list_instances, env.app.list_waits, env.app.list_events):
            with pytest.raises(ValueError, match="cursor"):
                await listing(cursor=cursor)


@workflow(on_event="placed")
async def placed(ctx: WorkflowContext, event: ReceivedEvent[Any]) -> Any:
    return event.data


async def test_an_event_that_starts_a_workflow_is_received_by_it(env: Environment) -> None:
    env.app.register(placed)
    await env.settle()
    assert (await env.send_event("placed", "test", 1, id="started-one")).started == 1
    await env.send_event("other", "test", 2, id="nobody")
    [instance] = (await env.app.list_instances()).items
    [nobody, started] = (await env.app.list_events()).items
    assert started.received_by == ((instance.instance_id, "(start)"),)
    assert nobody.received_by == ()
    assert [r.event.id for r in (await env.app.list_events(unmatched=True)).items] == ["nobody"]
    assert [r.event.id for r in (await env.app.list_events(instance_id=instance.instance_id)).items] == ["started-one"]
