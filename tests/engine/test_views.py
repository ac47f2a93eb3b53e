"""What an instance shows of itself while it runs, after it ended, and after a crash: `ctx.set_view`."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from romancy import (
    ActivityContext,
    InstanceNotFound,
    NotStorable,
    WorkflowContext,
    WorkflowFailed,
    activity,
    sleep,
    step,
    wait_event,
    workflow,
)
from romancy.storage.batch import Batch
from romancy.storage.errors import TransientError
from romancy.testing import Environment, environment
from tests.engine.helpers import down, intercept, watch


@dataclass
class Progress:
    done: int
    total: int
    at: datetime | None = None


class Report(BaseModel):
    title: str
    progress: Progress


@activity
async def work(ctx: ActivityContext, n: int) -> int:
    return n


@workflow
async def working(ctx: WorkflowContext, total: int) -> int:
    for n in range(total):
        ctx.set_view(Progress(n, total))
        await work(ctx, n)
        await wait_event(ctx, "go")
    ctx.set_view(Progress(total, total))
    return total


@pytest.fixture
async def batches(env: Environment) -> list[Batch]:
    return watch(env)


def published(batches: list[Batch]) -> list[Any]:
    return [c.publication for batch in batches for c in batch.commits if c.publication is not None]


async def test_a_view_changes_while_the_code_goes_on_and_stays_after_the_end(env: Environment) -> None:
    handle = await env.start(working, 2)
    assert await handle.view(Progress) == Progress(0, 2)
    assert await handle.view() == {"done": 0, "total": 2, "at": None}
    await env.send_event("go", "test")
    assert (await env.app.get_instance(handle.instance_id)).view == {"done": 1, "total": 2, "at": None}
    await env.send_event("go", "test")
    assert await handle.status() == "completed"
    assert await handle.view(Progress) == Progress(2, 2)
    assert [item.view for item in (await env.app.list_instances()).items] == [{"done": 2, "total": 2, "at": None}]


async def test_a_view_with_models_and_times_comes_back_as_it_was(env: Environment) -> None:
    report = Report(title="ä", progress=Progress(1, 2, datetime(2026, 1, 2, tzinfo=UTC)))

    @workflow
    async def reporting(ctx: WorkflowContext) -> None:
        ctx.set_view(report)

    handle = await env.start(reporting)
    assert await handle.view(Report) == report


async def test_there_is_no_view_before_one_is_set(env: Environment) -> None:
    @workflow
    async def silent(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "go")
        ctx.set_view(None)

    handle = await env.start(silent)
    assert await handle.view() is None
    assert await handle.view(Progress) is None
    await env.send_event("go", "test")
    assert await handle.view(Progress) is None
    with pytest.raises(InstanceNotFound, match="nobody"):
        await env.app.handle("nobody").view()


async def test_a_view_survives_a_crash_and_goes_on_changing(env: Environment) -> None:
    handle = await env.start(working, 3)
    await env.send_event("go", "test")
    async with down(env):
        pass
    assert await handle.view(Progress) == Progress(1, 3)
    await env.send_event("go", "test")
    assert await handle.view(Progress) == Progress(2, 3)


async def test_a_view_whose_commit_was_lost_is_set_again(env: Environment) -> None:
    """The process dies before the step that sets the view is stored: the step runs again, and so is its view set."""
    handle = await env.start(working, 2)
    undo = intercept(env, lambda batch, submit: None if batch.commits else submit())
    await env.app.send_event("go", "test")
    async with down(env):
        undo()
    assert await handle.view(Progress) == Progress(1, 2)


async def test_an_equal_view_is_not_written_again(env: Environment, batches: list[Batch]) -> None:
    @workflow
    async def repeating(ctx: WorkflowContext) -> None:
        for n in range(6):
            ctx.set_view({"half": n // 3})
            await work(ctx, n)

    handle = await env.start(repeating)
    assert await handle.status() == "completed"
    assert [p.view for p in published(batches)] == [b'{"half":0}', b'{"half":1}']
    plain = [c for batch in batches for c in batch.commits if c.append_only]
    assert len(plain) == 4, "the others are as cheap as without a view"


async def test_only_the_last_view_of_a_step_is_written(env: Environment, batches: list[Batch]) -> None:
    @workflow
    async def hasty(ctx: WorkflowContext) -> None:
        for n in range(3):
            ctx.set_view(n)
        await wait_event(ctx, "go")
        ctx.set_view(3)
        ctx.set_view(2)
        await wait_event(ctx, "go")

    await env.start(hasty)
    await env.send_event("go", "test")
    assert [p.view for p in published(batches)] == [b"2"]


async def test_a_view_is_not_written_again_after_a_replay(env: Environment) -> None:
    @workflow
    async def steady(ctx: WorkflowContext) -> None:
        while True:
            ctx.set_view("steady")
            await wait_event(ctx, "go")

    handle = await env.start(steady)
    await env.send_event("go", "test")
    await env.restart()
    seen = watch(env)
    await env.send_event("go", "test")
    assert len(seen) > 0
    assert published(seen) == []
    assert await handle.view() == "steady"


async def test_a_view_that_changed_code_sets_where_it_has_passed(env: Environment) -> None:
    """It is stored with the next commit, and does not lead to one of its own."""
    words = ["old"]

    @workflow
    async def changing(ctx: WorkflowContext) -> None:
        if words[0]:
            ctx.set_view(words[0])
            ctx.set_attributes({"word": words[0], "old": words[0] == "old" or None})
        await wait_event(ctx, "go")
        await work(ctx, 1)
        await wait_event(ctx, "go")

    async def shown(id: str) -> tuple[Any, Any]:
        found = await env.app.get_instance(id)
        return found.view, dict(found.attributes)

    await env.start(changing.options(instance_id="before"))
    words[0] = ""
    await env.start(changing.options(instance_id="without"))
    words[0] = "new"
    await env.restart()
    assert await shown("before") == ("old", {"word": "old", "old": True})
    assert await shown("without") == (None, {})
    seen = watch(env)
    await env.send_event("go", "test")
    for id in ("before", "without"):
        assert await shown(id) == ("new", {"word": "new"})
    assert len(published(seen)) == 2
    await env.restart()
    seen = watch(env)
    await env.send_event("go", "test")
    assert published(seen) == []
    for id in ("before", "without"):
        assert await env.app.handle(id).status() == "completed"
        assert await shown(id) == ("new", {"word": "new"})


async def test_what_code_no_longer_sets_stays_shown(env: Environment) -> None:
    words = ["old"]

    @workflow
    async def changing(ctx: WorkflowContext) -> None:
        if words[0]:
            ctx.set_view(words[0])
        await wait_event(ctx, "go")

    handle = await env.start(changing)
    words[0] = ""
    await env.restart()
    await env.send_event("go", "test")
    assert await handle.status() == "completed"
    assert await env.app.handle(handle.instance_id).view() == "old"


async def test_a_step_that_only_sets_a_view_is_stored(env: Environment, batches: list[Batch]) -> None:
    """Without the view, the first step of this workflow stores nothing: its activity is still running."""

    @workflow
    async def first(ctx: WorkflowContext) -> None:
        ctx.set_view("begun")
        await step(ctx, "look", look, result=str)

    seen: list[Any] = []

    async def look() -> str:
        seen.append(await env.app.handle("f").view())
        return "looked"

    await env.start(first.options(instance_id="f"))
    assert seen == ["begun"], "an activity starts after everything before it is stored"


async def test_a_view_is_kept_by_the_next_run(env: Environment, batches: list[Batch]) -> None:
    handle = await env.start(lapping, 1)
    await env.send_event("go", "test")
    await env.send_event("go", "test")
    instance = await env.app.get_instance(handle.instance_id)
    assert (instance.run_number, instance.view) == (3, "first")
    assert [p.view for p in published(batches)] == [b'"first"']
    await env.restart()
    assert await handle.view() == "first"
    await env.send_event("go", "test")
    assert await handle.view() == "last"


@workflow
async def lapping(ctx: WorkflowContext, lap: int) -> None:
    if lap == 1 or lap == 2:
        ctx.set_view("first")
    await wait_event(ctx, "go")
    if lap == 3:
        ctx.set_view("last")
        return
    lapping.continue_as_new(ctx, lap + 1)


async def test_a_view_of_a_failed_instance_stays(env: Environment) -> None:
    @workflow
    async def failing(ctx: WorkflowContext) -> None:
        ctx.set_view("on the way")
        raise ValueError("no")

    handle = await env.start(failing)
    with pytest.raises(WorkflowFailed):
        await handle.result()
    assert await handle.view() == "on the way"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("x" * 65_536, "a view of workflow 'showing' is 65,538 bytes, more than the 65,536 allowed"),
        ({"a": object()}, "a view of workflow 'showing' can't be stored"),
        ({"at": datetime(2026, 1, 1)}, "a view of workflow 'showing' can't be stored"),
        (object(), "a view of workflow 'showing' is annotated object, which can't be stored|can't be stored"),
    ],
)
async def test_what_cannot_be_shown_is_an_error_of_the_code(env: Environment, value: Any, problem: str) -> None:
    caught: list[BaseException] = []

    @workflow
    async def showing(ctx: WorkflowContext) -> None:
        ctx.set_view("before")
        try:
            ctx.set_view(value)
        except (NotStorable, TypeError) as error:
            caught.append(error)
        await sleep(ctx, 1)

    handle = await env.start(showing)
    [error] = caught
    assert re.search(problem, str(error))
    assert await handle.view() == "before"


async def test_the_context_can_be_used_only_in_the_code_of_the_workflow(env: Environment) -> None:
    kept: list[WorkflowContext] = []

    @workflow
    async def leaking(ctx: WorkflowContext) -> None:
        kept.append(ctx)
        await wait_event(ctx, "go")

    await env.start(leaking)
    with pytest.raises(RuntimeError, match="outside its workflow function"):
        kept[0].set_view("from outside")


async def test_another_process_without_the_code_reads_the_view(db: str) -> None:
    async with environment(database=db) as env:
        handle = await env.start(working.options(instance_id="w"), 2)
        assert await handle.view(Progress) == Progress(0, 2)
    async with environment(database=db, worker=False) as env:
        assert await env.app.handle("w").view() == {"done": 0, "total": 2, "at": None}


async def test_what_is_shown_is_read_again_after_an_outage(
    env: Environment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handle = await env.start(working, 3)
    catalog = env.app._runtime.engine.storage.catalog
    shown, tries = type(catalog).shown, list[int]()

    async def flaky(self: Any, ids: Any) -> Any:
        tries.append(len(ids))
        if len(tries) == 1:
            raise TransientError("away")
        if len(tries) == 3:
            raise ValueError("damaged")
        return await shown(self, ids)

    monkeypatch.setattr(type(catalog), "shown", flaky)
    async with down(env):
        pass
    await env.send_event("go", "test")
    assert tries == [1, 1]
    await env.restart()
    await env.send_event("go", "test")
    assert tries == [1, 1, 1]
    assert "what 1 instances show can't be read (damaged); they go on without" in caplog.text
    monkeypatch.undo()
    await env.send_event("go", "test")
    assert await handle.status() == "completed"
    assert await handle.view(Progress) == Progress(3, 3)


async def test_an_app_stops_while_what_is_shown_is_read(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = await env.start(working, 1)
    catalog = env.app._runtime.engine.storage.catalog
    asked = asyncio.Event()

    async def never(self: Any, ids: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    await env.app.stop()
    monkeypatch.setattr(type(catalog), "shown", never)
    await env.app.start()
    await env.app.send_event("go", "test")
    async with asyncio.timeout(10):
        await asked.wait()
    await env.app.stop()
    monkeypatch.undo()
    await env.app.start()
    assert await handle.result() == 1
