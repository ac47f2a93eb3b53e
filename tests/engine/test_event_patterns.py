"""Workflows that events of many types start: `on_event="order.*"`."""

from __future__ import annotations

from typing import Any

import pytest

from romancy import App, InvalidEvent, ReceivedEvent, WorkflowContext, send_event, wait_event, workflow
from romancy.core.patterns import MOST_LEVELS, Patterns, patterns_of
from romancy.testing import Environment


@workflow(on_event="order.*")
async def orders(ctx: WorkflowContext, event: ReceivedEvent[Any]) -> str:
    return event.type


@workflow(on_event="*")
async def everything(ctx: WorkflowContext, event: ReceivedEvent[Any]) -> str:
    return event.type


@workflow(on_event=["order.paid", "order.*", "*"])
async def thrice(ctx: WorkflowContext, event: ReceivedEvent[Any]) -> str:
    return event.type


@workflow(on_event="order.paid")
async def paid(ctx: WorkflowContext, event: ReceivedEvent[Any]) -> str:
    return event.type


async def started(app: App) -> list[tuple[str, str]]:
    return sorted((i.workflow, i.output) for i in (await app.list_instances(status="completed")).items)


async def test_what_a_pattern_means(env: Environment) -> None:
    env.app.register(orders, paid)
    receipts = [await env.send_event(type, "x") for type in ("order.paid", "order.paid.eu", "order", "orders.paid")]
    assert [receipt.started for receipt in receipts] == [2, 1, 0, 0]
    assert await started(env.app) == [("orders", "order.paid"), ("orders", "order.paid.eu"), ("paid", "order.paid")]


async def test_an_event_starts_one_instance_however_many_patterns_match(env: Environment) -> None:
    env.app.register(thrice)
    assert (await env.send_event("order.paid", "x", id="1")).started == 1
    assert (await env.send_event("order.paid", "x", id="1")).duplicate
    assert await started(env.app) == [("thrice", "order.paid")]


async def test_a_process_without_the_code_stores_events_for_it(db: str) -> None:
    """Its triggers are in the database: whoever accepts the event starts it."""
    async with App(db, workflows=[everything]):
        pass
    async with App(db, worker=False) as other:
        assert (await other.send_event("a.b.c", "x")).started == 1
    async with App(db, workflows=[everything]) as app:
        [instance] = (await app.list_instances()).items
        assert await app.handle(instance.instance_id).result(10) == "a.b.c"


async def test_a_pattern_that_is_no_longer_there(db: str) -> None:
    async with App(db, workflows=[everything]) as app:
        assert (await app.send_event("a", "x")).started == 1

    @workflow(name="everything", on_event="b")
    async def less(ctx: WorkflowContext, event: ReceivedEvent[Any]) -> None: ...

    async with App(db, workflows=[less]) as app:
        assert (await app.send_event("a", "x")).started == 0


@workflow
async def sender(ctx: WorkflowContext) -> None:
    await send_event(ctx, "order.sent", "shop")


async def test_events_of_workflows_count_too(env: Environment) -> None:
    env.app.register(orders)
    await (await env.start(sender)).result()
    assert ("orders", "order.sent") in await started(env.app)


@workflow
async def literal(ctx: WorkflowContext) -> str:
    return (await wait_event(ctx, "order.*")).id


async def test_waits_take_no_patterns(env: Environment) -> None:
    handle = await env.start(literal)
    assert (await env.send_event("order.paid", "x")).delivered == 0
    assert (await env.send_event("order.*", "x", id="7")).delivered == 1
    assert await handle.result() == "7"


@pytest.mark.parametrize("pattern", ["order*", "*.paid", "order.*.paid", "**", "", "romancy.*", f"{'a.' * 21}*"])
def test_patterns_that_are_none(pattern: str) -> None:
    with pytest.raises(TypeError, match="workflow 'odd'"):

        @workflow(on_event=pattern)
        async def odd(ctx: WorkflowContext, event: ReceivedEvent[Any]) -> None: ...


async def test_events_that_are_romancys_own_are_refused_everywhere(env: Environment) -> None:
    @workflow
    async def forges(ctx: WorkflowContext) -> None:
        await send_event(ctx, "romancy.answered", "shop")

    for type, source in (("romancy.answered", "x"), ("x", "romancy:ask")):
        with pytest.raises(InvalidEvent, match="Romancy's own"):
            await env.app.send_event(type, source)
    handle = await env.start(forges)
    assert (await env.app.get_instance(handle.instance_id)).status == "failed"
    assert not (await env.app.list_events()).items


@pytest.mark.parametrize("type", ["a", "a.b", "a.b.c", "a..b", ".", "a.", "romancy.x", "x.*", "." * 100])
def test_both_ways_to_match_agree(type: str) -> None:
    tried = ["*", "a", "a.*", "a.b", "a.b.*", "a..*", ".*", "b.*", "romancy.x", "x.*", "." * 100]
    tried.append(f"{'.' * MOST_LEVELS}*")
    for pattern in tried:
        assert Patterns([pattern], "types").match(type) is (pattern in patterns_of(type)), pattern
