"""Failed attempts stay in the history: for people to see, never for the code to hear of."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    ActivityError,
    App,
    NonDeterminismError,
    RetryPolicy,
    WorkflowContext,
    activity,
    send_event,
    wait_event,
    workflow,
)
from romancy.client.responses import to_entry
from romancy.core.history import MARKED_ATTEMPTS, Kind
from romancy.core.model import to_us
from romancy.http.serialize import entry_item
from romancy.storage.batch import Batch
from romancy.storage.postgres import PostgresStorage
from romancy.storage.tools.copy import copy
from romancy.testing import Environment, dump, environment, replay
from tests import pg_server
from tests.engine.helpers import down, intercept, kinds

TWO_SECONDS = RetryPolicy(max_attempts=5, initial=2, backoff=1.0, jitter=0.0)
FOR_EVER = RetryPolicy(max_attempts=None, initial=1, backoff=1.0, jitter=0.0)


@activity(retry=TWO_SECONDS)
async def third_time(ctx: ActivityContext, name: str = "") -> int:
    if ctx.attempt < 3:
        raise ValueError(f"no {ctx.attempt}")
    return ctx.attempt


@activity(retry=RetryPolicy(max_attempts=2, initial=2, jitter=0.0))
async def never(ctx: ActivityContext) -> None:
    raise ValueError(f"no {ctx.attempt}")


@workflow
async def patient(ctx: WorkflowContext) -> int:
    return await third_time(ctx)


@workflow
async def chatty(ctx: WorkflowContext) -> int:
    """Sends before, between and after attempts."""
    await send_event(ctx, "before", "test")
    first, _ = await asyncio.gather(third_time(ctx, "a"), third_time(ctx, "b"))
    await send_event(ctx, "after", "test")
    await wait_event(ctx, "go")
    return first + await third_time(ctx, "c")


async def test_each_failed_attempt_is_an_entry(env: Environment) -> None:
    handle = await env.start(patient)
    began = to_us(env.now)
    assert await handle.result() == 3
    _, one, two, done = await env.app.get_history(handle.instance_id)
    assert [(e.n, e.kind, e.operation) for e in (one, two, done)] == [
        (1, "attempt_failed", "third_time:1"),
        (2, "attempt_failed", "third_time:1"),
        (3, "activity_completed", "third_time:1"),
    ]
    assert one.input == {"attempt": 1, "began": began, "next": began + 2_000_000}
    assert two.input == {"attempt": 2, "began": began + 2_000_000, "next": began + 4_000_000}
    assert (to_us(one.at), to_us(two.at), to_us(done.at)) == (began, began + 2_000_000, began + 4_000_000)
    assert (two.error["type"], two.error["message"]) == ("ValueError", "no 2")
    assert "in third_time" in two.error["traceback"]
    assert (one.result, one.event) == (None, None)


async def test_the_last_attempt_is_the_activitys_own_entry(env: Environment) -> None:
    @workflow
    async def gives_up(ctx: WorkflowContext) -> int:
        try:
            await never(ctx)
        except ActivityError as error:
            return error.attempts
        return 0

    handle = await env.start(gives_up)
    assert await handle.result() == 2
    assert await kinds(env, handle.instance_id) == ["started", "attempt_failed", "activity_failed"]


async def test_what_succeeds_at_once_leaves_no_mark(env: Environment) -> None:
    @activity
    async def good(ctx: ActivityContext) -> int:
        ctx.progress(1)
        return 1

    @workflow
    async def easy(ctx: WorkflowContext) -> int:
        return await good(ctx)

    handle = await env.start(easy)
    assert await kinds(env, handle.instance_id) == ["started", "activity_completed"]


async def test_an_activity_that_is_tried_for_ever_leaves_only_so_many(env: Environment) -> None:
    @activity(retry=FOR_EVER)
    async def stubborn(ctx: ActivityContext) -> int:
        if ctx.attempt <= MARKED_ATTEMPTS + 5:
            raise ValueError("no")
        return ctx.attempt

    @workflow
    async def waits_long(ctx: WorkflowContext) -> int:
        return await stubborn(ctx)

    handle = await env.start(waits_long)
    assert await handle.result() == MARKED_ATTEMPTS + 6
    history = await env.app.get_history(handle.instance_id)
    assert [e.input["attempt"] for e in history if e.kind == "attempt_failed"] == list(range(1, MARKED_ATTEMPTS + 1))
    assert [e.n for e in history] == list(range(MARKED_ATTEMPTS + 2))


async def test_the_mark_and_the_retry_are_one_commit(env: Environment) -> None:
    seen: list[tuple[list[int], list[int | None]]] = []

    def decide(batch: Batch, submit: Any) -> None:
        seen.extend(([e.kind for e in c.entries], [a.next_due for a in c.attempts]) for c in batch.commits)
        submit()

    undo = intercept(env, decide)
    await env.start(patient)
    undo()
    assert seen == [([Kind.ATTEMPT_FAILED], [to_us(env.now) + 2_000_000])]


async def test_the_code_never_hears_of_them(env: Environment) -> None:
    """Killed at every stage, the instance replays over its marks and numbers its entries on from them."""
    env.app.register(chatty)
    handle = await env.start(chatty)
    for _ in range(3):
        async with down(env):
            pass
        await env.advance(2)
    await env.restart()
    await env.send_event("go", "test")
    await env.restart()
    assert await handle.result() == 6
    history = await env.app.get_history(handle.instance_id)
    assert [e.n for e in history] == list(range(len(history)))
    marked = [(e.operation, e.input["attempt"]) for e in history if e.kind == "attempt_failed"]
    assert sorted(marked) == [(f"third_time:{call}", n) for call in (1, 2, 3) for n in (1, 2)]
    facts = [e.kind for e in history if e.kind != "attempt_failed"]
    assert facts == [
        "started",
        "event_sent",
        "activity_completed",
        "activity_completed",
        "event_sent",
        "event_received",
        "activity_completed",
    ]
    assert replay(chatty, history) == replay(chatty, dump(history)) == "completed"


async def test_a_worker_that_died_between_attempts_has_begun(env: Environment) -> None:
    """Its history is nothing but a mark: the code is replayed to where it stood, and not begun anew."""
    sent: list[str] = []

    @workflow
    async def says(ctx: WorkflowContext) -> int:
        if not ctx.is_replaying:
            sent.append("live")
        return await third_time(ctx)

    handle = await env.start(says)
    await env.restart()
    assert sent == ["live"]
    assert await handle.result() == 3


async def test_when_an_attempt_began_is_left_out_where_it_is_not_known(env: Environment) -> None:
    """After a crash the attempt was begun by another worker, at a time nobody wrote down."""
    held = asyncio.Event()

    @activity(retry=TWO_SECONDS)
    async def interrupted(ctx: ActivityContext) -> int:
        if not held.is_set():
            held.set()
            await asyncio.sleep(3600)
        if ctx.attempt == 1:
            raise ValueError("no")
        return ctx.attempt

    @workflow
    async def unlucky(ctx: WorkflowContext) -> int:
        return await interrupted(ctx)

    env.app.register(unlucky)
    handle = await env.app.start_workflow(unlucky)
    await held.wait()
    dead = env.app._runtime.engine.worker_id or ""
    await env.app._runtime.crash()
    await env.app.start()
    engine = env.app._runtime.engine
    await engine.storage.take_over(engine.worker_id or "", [dead])
    engine.kick()
    await env.settle()
    assert await env.app.handle(handle.instance_id, unlucky).status() == "running"
    _, mark = await env.app.get_history(handle.instance_id)
    assert mark.input == {"attempt": 1, "next": to_us(env.now) + 2_000_000}


async def test_changed_code_is_still_found_out(env: Environment) -> None:
    handle = await env.start(patient)
    await handle.result()

    @workflow(name="patient")
    async def changed(ctx: WorkflowContext) -> int:
        await wait_event(ctx, "other")
        return await third_time(ctx)

    with pytest.raises(NonDeterminismError) as caught:
        replay(changed, await env.app.get_history(handle.instance_id))
    assert caught.value.recorded.startswith("activity_completed third_time:1")


async def test_code_that_no_longer_makes_the_call_goes_on(env: Environment) -> None:
    """Nothing has come of a call that only failed: as before there were marks, the code may be without it."""
    handle = await env.start(patient)

    @workflow(name="patient")
    async def changed(ctx: WorkflowContext) -> int:
        await wait_event(ctx, "other")
        return 0

    assert replay(changed, await env.app.get_history(handle.instance_id)) == "waiting_for_event"


async def test_a_cancelled_call_keeps_its_marks_and_is_not_tried_again(env: Environment) -> None:
    handle = await env.start(patient)
    await env.cancel(handle)
    await env.advance(timedelta(minutes=1))
    assert await kinds(env, handle.instance_id) == ["started", "attempt_failed", "cancel_requested"]
    assert replay(patient, await env.app.get_history(handle.instance_id)) == "cancelled"


async def test_over_http_they_are_the_same(env: Environment) -> None:
    handle = await env.start(patient)
    _, mark = await env.app.get_history(handle.instance_id)
    there: Any = to_entry(entry_item(mark))
    assert (there.kind, there.operation, there.input, there.error) == (
        "attempt_failed",
        "third_time:1",
        mark.input,
        mark.error,
    )


@pytest.mark.sqlite
async def test_they_go_with_a_copy(db: str) -> None:
    """Copied between two attempts, the instance goes on in the other database where it was."""
    async with environment(database=db, workflows=[patient]) as env:
        handle = await env.start(patient)
        before = await env.app.get_history(handle.instance_id)
        now = env.clock.now()
    async with pg_server.schema() as schema:
        await copy(str(Path(db)), pg_server.url(), schema=schema)
        app = App(worker=True, workflows=[patient])
        app._runtime.storage = PostgresStorage(pg_server.url(), schema=schema)
        await app._runtime.storage.open()
        try:
            async with app:
                assert [e._raw for e in (await app.get_history(handle.instance_id))[:2]] == [e._raw for e in before]
                assert await app.handle(handle.instance_id, patient).result(timeout=20) == 3
        finally:
            await app._runtime.storage.close()
    assert before[-1].input["next"] > now
