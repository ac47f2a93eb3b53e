"""Workflow code that never waits is stopped, and neither the worker nor the other instances suffer."""

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from romancy import ActivityContext, WorkflowContext, activity, send_event, sleep, wait_event, workflow
from romancy.core import budget, eviction, loop
from romancy.testing import Environment, environment

Body = Callable[[WorkflowContext], Awaitable[None]]


@pytest.fixture(autouse=True)
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_COMMANDS", 500)
    monkeypatch.setattr(budget, "MAX_CALLS", 2_000)
    monkeypatch.setattr(budget, "MAX_TASKS", 1_000)
    monkeypatch.setattr(loop, "MAX_CALLBACKS", 20_000)


@activity
async def work(ctx: ActivityContext) -> None:
    return


async def sends(ctx: WorkflowContext) -> None:
    while True:
        await send_event(ctx, "noise", "test")


async def waits_and_gives_up(ctx: WorkflowContext) -> None:
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await wait_event(ctx, "never")


async def cancels_its_waits(ctx: WorkflowContext) -> None:
    while True:
        waiting = asyncio.create_task(wait_event(ctx, "never"))
        await asyncio.sleep(0)
        waiting.cancel()


async def cancels_its_sleeps(ctx: WorkflowContext) -> None:
    while True:
        handle = asyncio.get_running_loop().call_later(60, print)
        handle.cancel()


async def cancels_its_activities(ctx: WorkflowContext) -> None:
    while True:
        running = asyncio.create_task(work(ctx))
        await asyncio.sleep(0)
        running.cancel()


async def draws_ids(ctx: WorkflowContext) -> None:
    while True:
        ctx.uuid4()


async def looks_at_the_clock(ctx: WorkflowContext) -> None:
    while ctx.now() < ctx.started_at + timedelta(minutes=1):
        pass


async def describes(ctx: WorkflowContext) -> None:
    while True:
        ctx.describe("still here")


async def makes_tasks(ctx: WorkflowContext) -> None:
    tasks: list[Any] = []
    while True:
        tasks.append(asyncio.create_task(asyncio.sleep(1)))


ENDLESS = [
    sends,
    waits_and_gives_up,
    cancels_its_waits,
    cancels_its_sleeps,
    cancels_its_activities,
    draws_ids,
    looks_at_the_clock,
    describes,
    makes_tasks,
]


@pytest.mark.sqlite  # what it is about happens before anything is stored; the others run on both
@pytest.mark.parametrize("body", ENDLESS)
@pytest.mark.parametrize("later", [False, True], ids=["at once", "after an event"])
async def test_code_that_never_waits_fails_and_the_worker_lives_on(body: Body, later: bool) -> None:
    cleaned: list[str] = []

    @workflow
    async def endless(ctx: WorkflowContext) -> None:
        if later:
            await wait_event(ctx, "begin")
        try:
            await body(ctx)
        finally:
            await work(ctx)
            cleaned.append("an activity ran")

    @workflow
    async def quiet(ctx: WorkflowContext) -> str:
        await sleep(ctx, 60)
        return "fine"

    async with environment(workflows=[endless, quiet]) as env:
        bystander = await env.start(quiet)
        handle = await env.start(endless.options(instance_id="one"))
        await env.send_event("begin", "test")
        instance = await env.app.get_instance("one")
        assert (instance.status, instance.error["type"]) == ("failed", "WorkflowStuck")
        said = instance.error["message"]
        assert "without waiting for anything" in said
        if "steps" not in said:
            assert "'one'" in said
            is_bare_task = body in (cancels_its_waits, cancels_its_activities)
            assert is_bare_task or "test_runaways.py" in said, "the line that loops"
        assert [e.kind for e in await env.app.get_history("one")] == ["started", *(["event_received"] if later else [])]
        assert not [r for r in (await env.app.list_events()).items if r.event.type == "noise"], "nothing of it leaves"
        assert not await env.waits(handle)
        assert cleaned == []
        assert await bystander.result() == "fine"


async def test_catching_everything_does_not_help(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    @workflow
    async def endless(ctx: WorkflowContext) -> None:
        while True:
            with suppress(BaseException):
                await send_event(ctx, "noise", "test")

    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    assert await (await env.start(endless)).status() == "failed"
    for kept in vars(eviction).values():  # as when the interpreter exits: it empties the modules
        if isinstance(kept, list):
            kept.clear()  # pyright: ignore[reportUnknownMemberType]
    gc.collect()
    assert not ignored, "Python would print that an exception was ignored"


async def test_what_was_stored_before_stays(env: Environment) -> None:
    @workflow
    async def endless(ctx: WorkflowContext) -> None:
        await send_event(ctx, "hello", "test")
        await sleep(ctx, 1)
        await sends(ctx)

    handle = await env.start(endless)
    await env.advance(1)
    assert await handle.status() == "failed"
    assert [r.event.type for r in (await env.app.list_events()).items] == ["hello"]


async def test_much_but_not_endless_is_fine(env: Environment) -> None:
    """The bound is for one activation: waiting for anything begins a new one."""

    @workflow
    async def busy(ctx: WorkflowContext) -> int:
        for _ in range(3):
            for _ in range(400):
                await send_event(ctx, "noise", "test")
                ctx.uuid4()
            await sleep(ctx, 1)
        return len(await asyncio.gather(*(work(ctx) for _ in range(400))))

    handle = await env.start(busy)
    assert await handle.result() == 400
    await env.restart()
    assert await handle.status() == "completed"


async def test_the_data_of_one_activation_is_bounded(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_BYTES", 1_000_000)

    @activity
    async def store(ctx: ActivityContext, text: str) -> None: ...

    @workflow
    async def large(ctx: WorkflowContext, by: str) -> None:
        text, calls = "x" * 100_000, list[Any]()
        while True:
            if by == "events":
                await send_event(ctx, "noise", "test", text)
            else:
                calls.append(asyncio.create_task(store(ctx, text)))
                await asyncio.sleep(0)

    for by in ("events", "arguments"):
        handle = await env.start(large, by)
        instance = await env.app.get_instance(handle.instance_id)
        assert instance.error["type"] == "WorkflowStuck"
        assert "1,000,000 bytes" in instance.error["message"]


@pytest.mark.sqlite
async def test_the_memory_it_takes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_COMMANDS", 10_000)

    @workflow
    async def endless(ctx: WorkflowContext) -> None:
        await sends(ctx)

    async with environment(workflows=[endless]) as env:
        tracemalloc.start()
        try:
            handle = await env.start(endless)
            now, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert await handle.status() == "failed"
        assert most < 40 * 1024 * 1024, f"{most:,} bytes at most"
        assert now < most / 4, f"{now:,} of {most:,} bytes are still held"
