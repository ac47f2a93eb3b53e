"""Verbs of the app in a transactional activity: on SQLite, those that write would wait for its transaction."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from romancy import (
    ActivityError,
    App,
    Event,
    RetryPolicy,
    TransactionContext,
    WorkflowContext,
    activity,
    wait_event,
    workflow,
)
from romancy.sync import App as SyncApp

ONE, OFTEN = RetryPolicy(max_attempts=1), RetryPolicy(max_attempts=9)


@workflow
async def other(ctx: WorkflowContext) -> Any:
    return (await wait_event(ctx, "go")).data


Verb = Callable[[App], Awaitable[Any]]
WRITES: dict[str, Verb] = {
    "start_workflow": lambda app: app.start_workflow(other),
    "send_event": lambda app: app.send_event("go", "here"),
    "send_events": lambda app: app.send_events([Event("go", "here")]),
    "cancel_workflow": lambda app: app.cancel_workflow("o"),
    "resume_workflow": lambda app: app.resume_workflow("o"),
    "retry_workflow": lambda app: app.retry_workflow("o"),
    "fork_workflow": lambda app: app.fork_workflow("o"),
    "cancel_workflows": lambda app: app.cancel_workflows(workflow="other"),
    "resume_workflows": lambda app: app.resume_workflows(workflow="other"),
    "retry_workflows": lambda app: app.retry_workflows(workflow="other"),
    "set_schedule": lambda app: app.set_schedule("daily", "0 9 * * *", other),
    "pause_schedule": lambda app: app.pause_schedule("daily"),
    "resume_schedule": lambda app: app.resume_schedule("daily"),
    "trigger_schedule": lambda app: app.trigger_schedule("daily"),
    "delete_schedule": lambda app: app.delete_schedule("daily"),
    "forget_refused": lambda app: app.forget_refused(1),
    "answer_question": lambda app: app.answer_question("o", "ann", True),
    "retry_now": lambda app: app.retry_now("o"),
    "retry_dead_letters": lambda app: app.retry_dead_letters("crm"),
}
NO_WRITES = {"get_instance", "get_history", "handle", "within", "register", "start", "stop", "run", "serve"}


def test_every_verb_is_considered() -> None:
    verbs = {name for name, _ in inspect.getmembers(App, inspect.iscoroutinefunction) if not name.startswith("_")}
    reads = {name for name in verbs if name.startswith(("list_", "count_"))}
    assert verbs - reads - NO_WRITES == set(WRITES)


@activity(transactional=True, retry=OFTEN)
async def write(ctx: TransactionContext[Any], verb: str) -> str:
    ctx.state.tries += 1
    try:
        await WRITES[verb](ctx.state.app)
    except Exception:
        if ctx.state.is_sqlite:
            raise
    return (await ctx.state.app.get_instance(ctx.instance_id)).status


@workflow
async def writes(ctx: WorkflowContext, verb: str) -> str:
    try:
        return await write(ctx, verb)
    except ActivityError as error:
        return f"{error.error_type}: {error}"


class State:
    app: App
    tries = 0

    def __init__(self, is_sqlite: bool) -> None:
        self.is_sqlite = is_sqlite


@pytest.mark.parametrize("verb", WRITES)
async def test_one_that_writes_fails_at_once(db: str, backend: str, verb: str) -> None:
    state = State(backend == "sqlite")
    async with App(db, workflows=[writes, other], state=state) as app:
        state.app = app
        async with asyncio.timeout(4):  # less than the time limit of a transaction
            said = await (await app.start_workflow(writes, verb)).result()
        assert state.tries == 1
        if state.is_sqlite:
            assert said.startswith("TerminalError: ")
            assert "Use ctx.send_event(...) or app.within(ctx.connection)" in said
        else:
            assert said == "running"


@activity(transactional=True, retry=ONE)
async def leave(ctx: TransactionContext[Any]) -> None:
    await ctx.state.app.within(ctx.connection).start_workflow(other, instance_id="left")
    await ctx.state.app.get_instance(ctx.instance_id)


@activity(transactional=True, retry=ONE)
async def send_elsewhere(ctx: TransactionContext[Any]) -> None:
    await ctx.state.elsewhere.send_event("go", "here", 7, to="o")


@activity(transactional=True, retry=ONE)
async def send_later(ctx: TransactionContext[Any]) -> None:
    async def send() -> None:
        await ctx.state.is_over.wait()
        await ctx.state.app.send_event("go", "here", 8, to="left")

    ctx.state.task = asyncio.create_task(send())


@workflow
async def leaves(ctx: WorkflowContext) -> None:
    await leave(ctx)
    await send_elsewhere(ctx)
    await send_later(ctx)


async def test_what_does_not_wait_for_it_is_allowed(db: str, backend: str) -> None:
    """Rows in its own transaction, reads, another database, and tasks that outlive it."""
    state: Any = State(backend == "sqlite")
    state.is_over = asyncio.Event()
    async with App(":memory:", workflows=[other]) as elsewhere, App(db, workflows=[leaves, other], state=state) as app:
        state.app, state.elsewhere = app, elsewhere
        there = await elsewhere.start_workflow(other, instance_id="o")
        await (await app.start_workflow(leaves)).result(timeout=10)
        assert await there.result(timeout=10) == 7
        assert (await app.get_instance("left")).workflow == "other"
        state.is_over.set()
        await state.task
        assert await app.handle("left").result(timeout=10) == 8


@activity(transactional=True, retry=OFTEN)
def write_in_thread(ctx: TransactionContext[Any]) -> None:
    ctx.state.tries += 1
    ctx.state.app.send_event("go", "here")


@workflow
async def writes_in_thread(ctx: WorkflowContext) -> str:
    try:
        await write_in_thread(ctx)
    except ActivityError as error:
        return error.error_type
    return ""


def test_in_a_thread(tmp_path: Any, backend: str) -> None:
    if backend != "sqlite":
        pytest.skip("transactional activities on PostgreSQL are `async def`")
    state: Any = State(True)
    with SyncApp(str(tmp_path / "romancy.db"), workflows=[writes_in_thread], state=state) as app:
        state.app = app
        assert app.start_workflow(writes_in_thread).result(timeout=4) == "TerminalError"
    assert state.tries == 1
