"""Middleware that turns errors into results, clears headers, or sets context variables which others must not see."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from romancy import (
    NO_RETRY,
    ActivityContext,
    App,
    Event,
    HooksBase,
    MiddlewareBase,
    StartRequest,
    WorkflowContext,
    activity,
    send_event,
    wait_event,
    workflow,
)
from romancy.hooks import ActivityStartedInfo, WorkflowCompletedInfo
from romancy.testing import environment

pytestmark = [pytest.mark.asyncio, pytest.mark.sqlite]
tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
Next = Callable[[], Awaitable[Any]]


@activity
async def whose(ctx: ActivityContext) -> str:
    await asyncio.sleep(0)
    return tenant.get()


@activity
def whose_in_thread(ctx: ActivityContext) -> str:
    return tenant.get()


@workflow
async def asks(ctx: WorkflowContext) -> list[str]:
    return [await whose(ctx), await whose_in_thread(ctx)]


class Tenants(MiddlewareBase):
    async def around_activity(self, ctx: ActivityContext, call_next: Next) -> Any:
        if ctx.instance_id.startswith("acme"):
            tenant.set("acme")
        return await call_next()


class Curious(HooksBase):
    def __init__(self) -> None:
        self.seen: set[str] = set()

    def on_activity_started(self, info: ActivityStartedInfo) -> None:
        self.seen.add(tenant.get())

    async def on_workflow_completed(self, info: WorkflowCompletedInfo) -> None:
        self.seen.add(tenant.get())


async def test_context_variables_do_not_reach_attempts_of_others() -> None:
    """An attempt often begins where another one has ended. It must not run as that one's tenant."""
    hooks = Curious()
    async with App(":memory:", workflows=[asks], middleware=Tenants(), max_activities=1, hooks=hooks) as app:
        handles = [await app.start_workflow(asks, instance_id=id) for id in ("acme-1", "other-1", "acme-2", "other-2")]
        found = [await handle.result() for handle in handles]
    assert found == [["acme"] * 2, ["nobody"] * 2] * 2
    assert hooks.seen == {"nobody"}


async def test_context_variables_of_a_caller_do_not_reach_activities() -> None:
    async with App(":memory:", workflows=[asks]) as app:

        async def request(name: str) -> list[str]:
            tenant.set(name)
            return await (await app.start_workflow(asks)).result()

        tasks = [asyncio.create_task(request(name)) for name in ("acme", "other")]
        assert await asyncio.gather(*tasks) == [["nobody"] * 2] * 2


async def test_events_pass_middleware_although_an_error_became_a_result() -> None:
    class Lenient(MiddlewareBase):
        def __init__(self) -> None:
            self.sent: list[str] = []

        async def around_activity(self, ctx: ActivityContext, call_next: Next) -> Any:
            try:
                await call_next()
            except ValueError:
                await send_event(ctx, "went.wrong", "x")

        async def around_send(self, event: Event, call_next: Callable[[Event], Awaitable[Any]]) -> Any:
            self.sent.append(event.type)
            return None if event.type == "kept.back" else await call_next(event)

    @activity(retry=NO_RETRY)
    async def fails(ctx: ActivityContext) -> None:
        await send_event(ctx, "kept.back", "x")
        raise ValueError

    @workflow
    async def sends(ctx: WorkflowContext) -> None:
        await fails(ctx)

    around = Lenient()
    async with environment(workflows=[sends], middleware=around) as env:
        await (await env.start(sends)).result()
        assert [record.event.type for record in (await env.app.list_events()).items] == ["went.wrong"]
    assert around.sent == ["kept.back", "went.wrong"]


async def test_headers_that_are_cleared_stay_cleared() -> None:
    class Clearing(MiddlewareBase):
        async def around_start(self, start: StartRequest, call_next: Next) -> Any:
            start.headers["tenant"] = "acme"
            return await call_next()

        def adopt(self, start: StartRequest) -> None:
            start.headers.clear()

    @activity
    async def headers(ctx: ActivityContext) -> list[str]:
        return list(ctx.headers)

    @workflow
    async def again(ctx: WorkflowContext, found: list[str] | None = None) -> list[list[str]]:
        now = await headers(ctx)
        if found is None:
            again.continue_as_new(ctx, now)
        await wait_event(ctx, "go")
        return [found or [], now, await headers(ctx)]

    async with environment(workflows=[again], middleware=Clearing()) as env:
        handle = await env.start(again)
        await env.restart()
        await env.send_event("go", "x")
        assert await handle.result() == [["tenant"], [], []]
