"""Verbs and filters for instances that wait in queues, and what is refused."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest

from romancy import (
    App,
    InvalidInput,
    Queue,
    Rate,
    ReceivedEvent,
    Schedule,
    WorkflowContext,
    wait_event,
    workflow,
)
from romancy.testing import Environment

one = Queue("one", max_concurrent=1)


@workflow(queue=one, key="customer.id")
async def job(ctx: WorkflowContext, customer: dict[str, Any]) -> None:
    await wait_event(ctx, "go")


async def start(env: Environment, id: str, customer: Any = "c", **options: Any) -> None:
    await env.app.start_workflow(job.options(instance_id=id, **options), {"id": customer})


async def test_a_thousand_that_wait_are_cancelled_at_once(env: Environment) -> None:
    env.app.register(job)
    await start(env, "runs")
    await env.settle()
    for n in range(1000):
        await start(env, f"j{n}", f"c{n % 10}")
    assert await env.app.count_instances(status="queued") == 1000
    result = await env.app.cancel_workflows(queue="one", key="c3", status="queued", reason="not needed")
    assert result.changed == 100
    assert (await env.app.cancel_workflows(status="queued")).changed == 900
    await env.settle()
    found = Counter([item async for item in statuses(env.app)])
    assert found == {"cancelled": 1000, "waiting_for_event": 1}
    [queue] = await env.app.list_queues()
    assert (queue.running, queue.waiting) == (1, 0)


async def statuses(app: App) -> Any:
    cursor: str | None = None
    while True:
        page = await app.list_instances(queue="one", limit=500, cursor=cursor)
        for item in page.items:
            yield item.status
        cursor = page.cursor
        if cursor is None:
            return


async def test_those_that_were_cancelled_can_be_retried_and_wait_again(env: Environment) -> None:
    env.app.register(job)
    for id in ("runs", "waits", "other"):
        await start(env, id)
        await env.settle()
    await env.app.cancel_workflows(status="queued")
    assert (await env.app.retry_workflows(status="cancelled", queue="one")).changed == 2
    await env.settle()
    assert await env.app.count_instances(status="queued", key="c") == 2
    await env.send_event("go", "test")
    await env.settle()
    assert await env.app.count_instances(status="completed") == 3, "one after the other"


# --- keys that can't be used ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "key"), [(None, None), ("", None), (7, "7"), (True, "true"), ("x" * 255, "x" * 255), ("ü-€", "ü-€")]
)
async def test_keys_in_the_input(env: Environment, given: Any, key: str | None) -> None:
    env.app.register(job)
    await start(env, "j", given)
    assert (await env.app.get_instance("j")).key == key


@pytest.mark.parametrize("given", [1.5, ["a"], {"a": 1}, "x" * 256, "a\nb", "a\0b"])
async def test_keys_that_are_refused(env: Environment, given: Any) -> None:
    env.app.register(job)
    with pytest.raises(InvalidInput, match="key"):
        await start(env, "j", given)
    assert await env.app.count_instances() == 0


async def test_a_key_that_is_not_in_the_input(env: Environment) -> None:
    env.app.register(job)
    with pytest.raises(InvalidInput, match=r"'customer.id' leads nowhere .* pass options\(key=...\)"):
        await env.app.start_workflow(job, {"name": "x"})
    with pytest.raises(InvalidInput, match="leads nowhere"):
        await env.app.set_schedule("s", Schedule(every=60), job, {"name": "x"})
    await env.app.start_workflow(job.options(key="own"), {"name": "x"})


async def test_an_event_without_the_key_starts_an_instance_without_a_key(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    """Events are accepted in any case, and nobody is there to hear of an error."""

    @workflow(on_event="order", queue=one, key="event.data.customer")
    async def ordered(ctx: WorkflowContext, event: ReceivedEvent[dict[str, Any]]) -> None:
        await wait_event(ctx, "go")

    env.app.register(ordered)
    with caplog.at_level(logging.WARNING, "romancy"):
        await env.send_event("order", "shop", {"name": "x"})
        await env.settle()
    [item] = (await env.app.list_instances(queue="one")).items
    assert (item.status, item.key) == ("waiting_for_event", None)
    assert "waits without a key" in caplog.text


@pytest.mark.parametrize("name", ["", "x" * 256, "a\0b", "a\nb", None, 7])
def test_names_of_queues(name: Any) -> None:
    with pytest.raises(ValueError, match="name of a queue"):
        Queue(name)


@pytest.mark.parametrize("wrong", [0, -1, "soon", float("nan")])
def test_periods_of_rates(wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        Rate(1, wrong)


@pytest.mark.parametrize("wrong", [2**31, -(2**31), True, 1.5, "1"])
def test_priorities(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="priority"):
        job.options(priority=wrong)
