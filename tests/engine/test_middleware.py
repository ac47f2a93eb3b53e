"""Middleware: around attempts, starts and sent events; and the headers that travel with instances."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from romancy import (
    NO_RETRY,
    ActivityContext,
    ActivityError,
    App,
    Event,
    InvalidInput,
    MiddlewareBase,
    RetryPolicy,
    StartRequest,
    TerminalError,
    WorkflowContext,
    WorkflowFailed,
    activity,
    send_event,
    sleep,
    wait_event,
    workflow,
)
from romancy.hooks import WorkflowCompletedInfo
from romancy.service import runtime_of
from romancy.testing import environment

pytestmark = pytest.mark.asyncio
tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
Next = Callable[[], Awaitable[Any]]


class Noted(MiddlewareBase):
    def __init__(self, name: str, seen: list[Any]) -> None:
        self.name, self.seen = name, seen

    async def around_activity(self, ctx: ActivityContext, call_next: Next) -> Any:
        self.seen.append((self.name, "in", ctx.activity_id))
        try:
            result = await call_next()
        except BaseException as error:
            self.seen.append((self.name, type(error).__name__))
            raise
        self.seen.append((self.name, "out", result))
        return result


@activity
async def double(ctx: ActivityContext, n: int) -> int:
    return 2 * n


@activity
def halve(ctx: ActivityContext, n: int) -> int:
    assert threading.current_thread() is not threading.main_thread()
    return n // 2


@activity
async def who(ctx: ActivityContext) -> str:
    return tenant.get()


@activity
def who_in_thread(ctx: ActivityContext) -> str:
    return tenant.get()


@workflow
async def both(ctx: WorkflowContext, n: int) -> int:
    return await halve(ctx, await double(ctx, n))


async def test_the_first_is_the_outermost() -> None:
    seen: list[Any] = []
    async with environment(workflows=[both], middleware=[Noted("a", seen), Noted("b", seen)]) as env:
        assert await (await env.start(both, 4)).result() == 4
    assert seen[:4] == [("a", "in", "double:1"), ("b", "in", "double:1"), ("b", "out", 8), ("a", "out", 8)]
    assert seen[4:] == [("a", "in", "halve:1"), ("b", "in", "halve:1"), ("b", "out", 4), ("a", "out", 4)]


async def test_it_never_runs_on_replay(db: str) -> None:
    @workflow
    async def waits(ctx: WorkflowContext) -> int:
        n = await double(ctx, 1)
        await wait_event(ctx, "go")
        return await double(ctx, n)

    seen: list[Any] = []
    async with environment(workflows=[waits], database=db, middleware=[Noted("a", seen)]) as env:
        handle = await env.start(waits)
        await env.settle()
        await env.restart()
        await env.send_event("go", "x")
        assert await handle.result() == 4
    assert [entry for entry in seen if entry[1] == "in"] == [("a", "in", "double:1"), ("a", "in", "double:2")]


@workflow
async def asks(ctx: WorkflowContext) -> list[str]:
    return [await who(ctx), await who_in_thread(ctx)]


async def test_context_variables_reach_the_task_and_the_thread() -> None:
    class Tenant(MiddlewareBase):
        async def around_activity(self, ctx: ActivityContext, call_next: Next) -> Any:
            tenant.set(f"of {ctx.instance_id}")
            return await call_next()

    async with environment(workflows=[asks], middleware=Tenant()) as env:
        handle = await env.start(asks)
        assert await handle.result() == [f"of {handle.instance_id}"] * 2
    assert tenant.get() == "nobody"


async def test_it_can_map_errors_and_replace_results() -> None:
    class Mapped(MiddlewareBase):
        async def around_activity(self, ctx: ActivityContext, call_next: Next) -> Any:
            try:
                return await call_next() + 1
            except KeyError as error:
                raise TerminalError("no such order") from error

    tried: list[int] = []

    @activity(retry=RetryPolicy(max_attempts=5))
    async def find(ctx: ActivityContext, n: int) -> int:
        tried.append(n)
        if n < 0:
            raise KeyError(n)
        return n

    @workflow
    async def finds(ctx: WorkflowContext, n: int) -> int:
        return await find(ctx, n)

    async with environment(workflows=[finds], middleware=Mapped()) as env:
        assert await (await env.start(finds, 1)).result() == 2
        handle = await env.start(finds, -1)
        with pytest.raises(WorkflowFailed, match="no such order"):
            await handle.result()
    assert tried == [1, -1]


async def test_it_can_answer_without_the_activity() -> None:
    class Cached(MiddlewareBase):
        async def around_activity(self, ctx: ActivityContext, call_next: Next) -> Any:
            return 40

    async with environment(workflows=[both], middleware=Cached()) as env:
        assert await (await env.start(both, 1)).result() == 40


async def test_a_result_of_another_type_fails_the_activity() -> None:
    class Wrong(MiddlewareBase):
        async def around_activity(self, ctx: ActivityContext, call_next: Next) -> Any:
            await call_next()
            return object()

    async with environment(workflows=[both], middleware=Wrong()) as env:
        handle = await env.start(both, 1)
        with pytest.raises(WorkflowFailed, match="double"):
            await handle.result()


async def test_call_next_can_be_called_only_once() -> None:
    class Twice(MiddlewareBase):
        async def around_activity(self, ctx: ActivityContext, call_next: Next) -> Any:
            await call_next()
            return await call_next()

    async with environment(workflows=[both], middleware=Twice(), retry=NO_RETRY) as env:
        handle = await env.start(both, 1)
        with pytest.raises(WorkflowFailed, match=r"Twice.around_activity called call_next\(\) twice"):
            await handle.result()


class Recorded(MiddlewareBase):
    def __init__(self) -> None:
        self.errors: list[str] = []
        self.was_cancelled: list[bool] = []

    async def around_activity(self, ctx: ActivityContext, call_next: Next) -> Any:
        try:
            return await call_next()
        except BaseException as error:
            self.errors.append(type(error).__name__)
            self.was_cancelled.append(ctx.is_cancelled)
            raise


async def test_a_time_out_reaches_it_also_from_a_thread(db: str) -> None:
    release = threading.Event()

    @activity(timeout=0.1, retry=NO_RETRY)
    def slow(ctx: ActivityContext) -> str:
        release.wait(5)
        return "late"

    @activity(timeout=0.1, retry=NO_RETRY)
    async def sleepy(ctx: ActivityContext) -> None:
        await asyncio.sleep(60)

    @workflow
    async def hurried(ctx: WorkflowContext) -> list[str]:
        found: list[str] = []
        for call in (slow, sleepy):
            try:
                await call(ctx)
            except ActivityError as error:
                found.append(error.error_type)
        return found

    around = Recorded()
    async with App(db, workflows=[hurried], middleware=around) as app:
        handle = await app.start_workflow(hurried)
        assert await handle.result(timeout=10) == ["TimeoutError", "TimeoutError"]
        assert around.errors == ["CancelledError"]  # of the task; the thread is still at work
        release.set()
    assert around.errors == ["CancelledError", "TimeoutError"]
    assert around.was_cancelled == [True, True]


async def test_slow_middleware_counts_against_the_time_limit_and_can_be_cancelled(db: str) -> None:
    begun: list[str] = []

    class Slow(MiddlewareBase):
        async def around_activity(self, ctx: ActivityContext, call_next: Next) -> Any:
            await asyncio.sleep(60)
            return await call_next()

    @activity(timeout=0.1, retry=NO_RETRY)
    def quick(ctx: ActivityContext) -> None:
        begun.append("quick")

    @workflow
    async def waits(ctx: WorkflowContext) -> str:
        try:
            await quick(ctx)
        except ActivityError as error:
            return error.error_type
        return "done"

    async with App(db, workflows=[waits], middleware=Slow()) as app:
        assert await (await app.start_workflow(waits)).result(timeout=10) == "TimeoutError"
    assert begun == []


async def test_middleware_that_ignores_its_cancellation_begins_nothing(db: str) -> None:
    begun: list[str] = []

    class Deaf(MiddlewareBase):
        async def around_activity(self, ctx: ActivityContext, call_next: Next) -> Any:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            return await call_next()

    @activity(timeout=0.1, retry=NO_RETRY)
    async def quick(ctx: ActivityContext) -> None:
        begun.append("async")

    @activity(timeout=0.1, retry=NO_RETRY)
    def quick_too(ctx: ActivityContext) -> None:
        begun.append("def")

    @workflow
    async def waits(ctx: WorkflowContext) -> list[str]:
        found: list[str] = []
        for call in (quick, quick_too):
            with pytest.raises(ActivityError) as raised:
                await call(ctx)
            found.append(raised.value.error_type)
        return found

    async with App(db, workflows=[waits], middleware=Deaf()) as app:
        assert await (await app.start_workflow(waits)).result(timeout=10) == ["TimeoutError"] * 2
    assert begun == []


async def test_fakes_run_inside_it() -> None:
    seen: list[Any] = []
    async with environment(workflows=[both], middleware=Noted("a", seen)) as env:
        env.replace(double, lambda n: 100)
        assert await (await env.start(both, 1)).result() == 50
    assert ("a", "out", 100) in seen


async def test_its_hooks_are_called() -> None:
    ended: list[WorkflowCompletedInfo] = []

    class Both(MiddlewareBase):
        def on_workflow_completed(self, info: WorkflowCompletedInfo) -> None:
            ended.append(info)

    async with environment(workflows=[both], middleware=Both()) as env:
        handle = await env.start(both, 1)
        await handle.result()
        [info] = ended
        assert info.started_at == (await env.app.get_instance(handle.instance_id)).started_at


# --- starts and headers ---------------------------------------------------------------------------------------------
class Tenants(MiddlewareBase):
    def __init__(self) -> None:
        self.starts: list[StartRequest] = []

    async def around_start(self, start: StartRequest, call_next: Next) -> Any:
        self.starts.append(start)
        if start.arguments.get("n") == 13:
            raise PermissionError("13 is not allowed")
        start.headers["tenant"] = tenant.get()
        return await call_next()


@activity
async def tell(ctx: ActivityContext) -> str:
    return ctx.headers.get("tenant", "none")


@workflow
async def grandchild(ctx: WorkflowContext, n: int) -> str:
    return await tell(ctx)


@workflow
async def family(ctx: WorkflowContext, n: int) -> list[str]:
    own = await tell(ctx)
    await sleep(ctx, timedelta(hours=1))
    again = await tell(ctx)
    return [own, again, await grandchild(ctx, n)]


async def test_headers_are_stored_and_passed_on_to_children(db: str) -> None:
    around = Tenants()
    tenant.set("acme")
    async with environment(workflows=[family, grandchild], database=db, middleware=around) as env:
        handle = await env.start(family, 7)
        await env.settle()
        assert (await env.app.get_instance(handle.instance_id)).headers == {"tenant": "acme"}
        await env.restart()
        await env.advance(timedelta(hours=2))
        assert await handle.result() == ["acme"] * 3
    assert [(s.workflow, s.instance_id, dict(s.arguments)) for s in around.starts] == [
        ("family", handle.instance_id, {"n": 7})
    ]


@workflow
async def nosy(ctx: WorkflowContext) -> str:
    return ctx.headers["tenant"]  # type: ignore[attr-defined]  # pyright: ignore


async def test_workflow_code_learns_where_to_read_headers(db: str) -> None:
    async with environment(workflows=[nosy], database=db) as env:
        handle = await env.start(nosy)
        with pytest.raises(WorkflowFailed, match=r"read ctx\.headers in an activity"):
            await handle.result()


async def test_a_fork_has_the_headers_of_its_original(db: str) -> None:
    tenant.set("acme")
    async with environment(workflows=[grandchild], database=db, middleware=Tenants()) as env:
        await (await env.start(grandchild, 1)).result()
        [original] = await env.app.list_instances()
        fork = await env.app.fork_workflow(original.instance_id)
        assert await fork.result(timeout=10) == "acme"


async def test_headers_are_removed_with_their_instance(db: str) -> None:
    async with environment(workflows=[grandchild], database=db, middleware=Tenants()) as env:
        handle = await env.start(grandchild, 1)
        await handle.result()
        storage = runtime_of(env.app).engine.storage
        snapshot = await storage.load(handle.instance_id)
        assert snapshot is not None
        assert snapshot.headers == {"tenant": "nobody"}
        await env.advance(timedelta(days=30))
        await runtime_of(env.app).engine.prune()
    async with App(db, workflows=[grandchild]) as app:
        await (await app.start_workflow(grandchild, 1, instance_id=handle.instance_id)).result(timeout=10)
        snapshot = await runtime_of(app).engine.storage.load(handle.instance_id)
        assert snapshot is not None
        assert snapshot.headers is None


async def test_a_start_can_be_refused(db: str) -> None:
    async with App(db, workflows=[grandchild], middleware=Tenants()) as app:
        with pytest.raises(PermissionError, match="13 is not allowed"):
            await app.start_workflow(grandchild, 13, instance_id="x")
        assert await app.count_instances() == 0


@pytest.mark.parametrize("header", [("a", 1), (1, "a"), ("a", "\0"), ("a", "\ud800"), ("a", "x" * 5000)])
async def test_bad_headers_are_refused(db: str, header: tuple[Any, Any]) -> None:
    class Bad(MiddlewareBase):
        async def around_start(self, start: StartRequest, call_next: Next) -> Any:
            start.headers[header[0]] = header[1]
            return await call_next()

    async with App(db, workflows=[grandchild], middleware=Bad()) as app:
        with pytest.raises(InvalidInput, match="headers"):
            await app.start_workflow(grandchild, 1)
        assert await app.count_instances() == 0


async def test_the_handle_must_be_returned(db: str) -> None:
    class Forgetful(MiddlewareBase):
        async def around_start(self, start: StartRequest, call_next: Next) -> Any:
            await call_next()

    async with App(db, workflows=[grandchild], middleware=Forgetful()) as app:
        with pytest.raises(TypeError, match="must return what call_next"):
            await app.start_workflow(grandchild, 1)


class Adopting(MiddlewareBase):
    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []

    def adopt(self, start: StartRequest) -> None:
        self.asked.append((start.workflow, dict(start.headers)))
        start.headers.setdefault("tenant", "adopted")


async def test_an_instance_without_headers_is_adopted_once(db: str) -> None:
    async with App(db, workflows=[family, grandchild], worker=False) as app:
        await app.start_workflow(family, 1, instance_id="f")
    around = Adopting()
    async with environment(workflows=[family, grandchild], database=db, middleware=around) as env:
        await env.settle()
        await env.restart()
        await env.advance(timedelta(hours=2))
        assert await env.app.handle("f", family).result() == ["adopted"] * 3
    assert around.asked == [("family", {})]


async def test_an_event_brings_its_trace_to_the_instance_it_starts(db: str) -> None:
    @workflow(on_event="order.placed")
    async def fulfil(ctx: WorkflowContext, event: Any) -> str:
        return await tell(ctx)

    around = Adopting()
    async with environment(workflows=[fulfil], database=db, middleware=around) as env:
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        await env.send_event("order.placed", "shop", {}, extensions={"traceparent": parent, "other": "x"})
        await env.settle()
    assert around.asked == [("fulfil", {"traceparent": parent})]


async def test_a_failing_adoption_stops_nothing(db: str, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(MiddlewareBase):
        def adopt(self, start: StartRequest) -> None:
            raise RuntimeError("oh")

    async with environment(workflows=[grandchild], database=db, middleware=Failing()) as env:
        assert await (await env.start(grandchild, 1)).result() == "none"
    assert "failed to adopt" in caplog.text


async def test_a_workflow_sends_with_the_trace_of_its_instance(db: str) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    class Traced(MiddlewareBase):
        async def around_start(self, start: StartRequest, call_next: Next) -> Any:
            start.headers.update(traceparent=parent, tenant="acme")
            return await call_next()

    @workflow
    async def sends(ctx: WorkflowContext) -> None:
        await send_event(ctx, "done", "shop", {}, extensions={"mine": "x"})
        await send_event(ctx, "traced", "shop", {}, extensions={"traceparent": "own"})

    async with environment(workflows=[sends], database=db, middleware=Traced()) as env:
        await (await env.start(sends)).result()
        page = await env.app.list_events()
    found = {record.event.type: dict(record.event.extensions) for record in page.items}
    assert found == {"done": {"mine": "x", "traceparent": parent}, "traced": {"traceparent": "own"}}


# --- sends ----------------------------------------------------------------------------------------------------------
class Stamped(MiddlewareBase):
    def __init__(self) -> None:
        self.receipts: list[Any] = []

    async def around_send(self, event: Event, call_next: Callable[[Event], Awaitable[Any]]) -> Any:
        if event.type == "kept.back":
            return None
        if event.type == "refused":
            raise PermissionError("not this one")
        receipt = await call_next(replace(event, extensions={**(event.extensions or {}), "by": tenant.get()}))
        self.receipts.append(receipt)
        return receipt


async def sent(app: App) -> list[tuple[str, Any, Any]]:
    page = await app.list_events()
    return [(r.event.type, r.event.data, r.event.extensions.get("by")) for r in reversed(page.items)]


async def test_events_of_the_app_are_stamped(db: str) -> None:
    tenant.set("acme")
    around = Stamped()
    async with App(db, middleware=around) as app:
        receipt = await app.send_event("one", "x", {"n": 1}, id="1")
        assert around.receipts == [receipt]
        receipts = await app.send_events([Event("two", "x"), Event("three", "x", b"raw")])
        assert around.receipts[1:] == receipts
        assert await sent(app) == [("one", b'{"n":1}', "acme"), ("two", None, "acme"), ("three", b"raw", "acme")]
        assert (await app.send_event("one", "x", {"n": 1}, id="1")).duplicate


async def test_of_several_events_all_or_none_are_stored(db: str) -> None:
    async with App(db, middleware=Stamped()) as app:
        with pytest.raises(PermissionError, match="not this one"):
            await app.send_events([Event("two", "x"), Event("refused", "x"), Event("three", "x")])
        assert await sent(app) == []
        assert await app.send_events([Event("two", "x"), Event("kept.back", "x")]) != []
        assert [type for type, *_ in await sent(app)] == ["two"]


async def test_events_of_activities_are_stamped_in_the_context_of_the_attempt(db: str) -> None:
    class Tenant(MiddlewareBase):
        async def around_activity(self, ctx: ActivityContext, call_next: Next) -> Any:
            tenant.set("of the attempt")
            return await call_next()

    @activity
    def announce(ctx: ActivityContext) -> None:
        ctx.send_event("one", "x", {"n": 1})
        ctx.send_event("kept.back", "x")

    @activity
    async def announce_too(ctx: ActivityContext) -> None:
        await send_event(ctx, "two", "x", b"raw")

    @workflow
    async def announces(ctx: WorkflowContext) -> None:
        await announce(ctx)
        await announce_too(ctx)

    async with environment(workflows=[announces], database=db, middleware=[Tenant(), Stamped()]) as env:
        await (await env.start(announces)).result()
        assert await sent(env.app) == [("one", b'{"n":1}', "of the attempt"), ("two", b"raw", "of the attempt")]


async def test_only_middleware_is_accepted() -> None:
    with pytest.raises(TypeError, match="pass an object of it"):
        App(":memory:", middleware=[Stamped])  # type: ignore[list-item]
