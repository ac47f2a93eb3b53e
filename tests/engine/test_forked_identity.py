"""What the code of a fork knows of itself: in the copied part, what it knew when that was recorded."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from romancy import WorkflowContext, sleep, wait_event, workflow
from romancy.testing import Environment
from tests.engine.helpers import down
from tests.engine.test_retried import do, world


@pytest.fixture(autouse=True)
def _anew() -> None:
    world.__init__()


@workflow
async def knows_itself(ctx: WorkflowContext) -> str:
    await do(ctx, ctx.instance_id)
    await wait_event(ctx, "go")
    return "x"


async def test_started_at_of_a_fork_that_continues(env: Environment) -> None:
    @workflow
    async def continued(ctx: WorkflowContext, n: int) -> str:
        await do(ctx, f"a{n}")
        if n == 1:
            await wait_event(ctx, "on")
            await wait_event(ctx, "on")
            continued.continue_as_new(ctx, 2)
        await do(ctx, ctx.started_at.isoformat())
        await wait_event(ctx, "go")
        return "done"

    env.app.register(continued)
    await env.start(continued, 1, instance_id="i")
    await env.advance(timedelta(hours=1))
    await env.send_event("on", "test")
    await env.advance(timedelta(hours=1))
    await env.app.fork_workflow("i", at=2, new_id="f")
    await env.settle()
    await env.advance(timedelta(hours=1))
    await env.send_event("on", "test")
    await env.settle()
    assert (await env.app.get_instance("f")).status == "waiting_for_event"
    async with down(env):
        pass
    await env.send_event("go", "test")
    await env.settle()
    found = await env.app.get_instance("f")
    assert (found.status, found.error) == ("completed", None)


async def test_fork_of_one_that_passes_on_its_own_id(env: Environment) -> None:
    env.app.register(knows_itself)
    await env.start(knows_itself, instance_id="i")
    await env.settle()
    await env.app.fork_workflow("i", at=1, new_id="f")
    await env.settle()
    assert (await env.app.get_instance("f")).status == "waiting_for_event"


async def test_fork_of_a_later_run_that_knows_when_it_started(env: Environment) -> None:
    @workflow
    async def later(ctx: WorkflowContext, n: int) -> str:
        if n == 1:
            await sleep(ctx, 60)
            later.continue_as_new(ctx, 2)
        await do(ctx, ctx.started_at.isoformat())
        await wait_event(ctx, "go")
        return "x"

    env.app.register(later)
    await env.start(later, 1, instance_id="i")
    await env.advance(timedelta(minutes=2))
    [last] = [e.n for e in await env.app.get_history("i") if e.kind == "activity_completed"]
    await env.app.fork_workflow("i", at=last, new_id="f")
    await env.settle()
    assert (await env.app.get_instance("f")).status == "waiting_for_event"


async def test_a_fork_of_one_that_continues_meanwhile_is_refused(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry is of a run that is over by then."""

    @workflow
    async def lapping(ctx: WorkflowContext, n: int) -> str:
        await do(ctx, f"a{n}")
        await wait_event(ctx, "go")
        if n < 3:
            lapping.continue_as_new(ctx, n + 1)
        return str(n)

    env.app.register(lapping)
    await env.start(lapping, 1, instance_id="i")
    catalog: Any = type(env.app._runtime.engine.storage.catalog)
    history = catalog.history

    async def slowly(self: Any, id: str) -> Any:
        found = await history(self, id)
        monkeypatch.undo()
        await env.send_event("go", "test", to="i")
        return found

    monkeypatch.setattr(catalog, "history", slowly)
    with pytest.raises(ValueError, match="no entry 1"):
        await env.app.fork_workflow("i", at=1, new_id="f")
    with pytest.raises(LookupError):
        await env.app.get_instance("f")
