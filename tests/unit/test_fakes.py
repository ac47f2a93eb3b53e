"""What `env.replace` takes, and how long an environment waits for activities."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from romancy import NO_RETRY, ActivityContext, WorkflowContext, WorkflowFailed, activity, step, workflow
from romancy.testing import environment


@activity
async def charge(ctx: ActivityContext, amount: int, currency: str = "EUR", *, note: str = "") -> str:
    raise AssertionError("the real one")


@activity
def listed(ctx: ActivityContext, *names: str, **more: int) -> str:
    raise AssertionError("the real one")


@workflow
async def order(ctx: WorkflowContext) -> str:
    return await charge(ctx, 7)


async def refusal(act: Any, fake: Any) -> str:
    async with environment() as env:
        with pytest.raises(TypeError) as refused:
            env.replace(act, fake)
    return str(refused.value)


async def test_only_activities_and_workflows_are_replaced() -> None:
    said = await refusal(charge.fn, lambda: "fake")
    assert said.startswith("env.replace takes an activity or a workflow, not <function charge")
    assert await refusal(order, order) == "the fake for workflow 'order' must be a plain function, not <workflow order>"
    said = await refusal(order, lambda more: "fake")
    assert said.startswith("the fake for workflow 'order' does not fit: missing a required argument: 'more'; ")
    assert await refusal(charge, "fake") == "the fake for activity 'charge' must be a plain function, not 'fake'"
    assert (
        await refusal(charge, charge)
        == "the fake for activity 'charge' must be a plain function, not <activity charge>"
    )


@pytest.mark.parametrize(
    ("fake", "problem"),
    [
        (lambda: "", "too many positional arguments"),
        (lambda ctx, amount, currency, *, note: "", "missing a required argument: 'currency'"),
        (lambda amount, currency: "", "got an unexpected keyword argument 'note'"),
    ],
)
async def test_a_fake_must_take_what_the_activity_takes(fake: Callable[..., str], problem: str) -> None:
    said = await refusal(charge, fake)
    assert f"the fake for activity 'charge' does not fit: {problem}; " in said
    assert "it is called without ctx, as fake(amount, currency, note=...), and its signature is (" in said


@pytest.mark.parametrize(
    "fake",
    [
        lambda amount, currency, note: "fake",
        lambda *args, **kwargs: "fake",
        MagicMock(return_value="fake"),
        AsyncMock(return_value="fake"),
    ],
)
async def test_a_fake_that_fits(fake: Callable[..., str]) -> None:
    async with environment(workflows=[order]) as env:
        env.replace(charge, fake)
        assert await (await env.start(order)).result() == "fake"


async def test_fakes_for_any_number_of_arguments() -> None:
    async with environment() as env:
        env.replace(listed, lambda *names, **more: "")
        env.replace(listed, lambda: "")  # it may never be called with any


# --- steps ------------------------------------------------------------------------------------------------------------
@workflow
async def asks(ctx: WorkflowContext) -> list[str]:
    async def real() -> str:
        raise AssertionError("the real one")

    def plain() -> str:
        raise AssertionError("the real one")

    return [
        await step(ctx, "model", real),
        await step(ctx, "model", plain),
        await step(ctx, "other", lambda: "", result=str),
    ]


async def test_every_step_of_a_name_is_replaced() -> None:
    async def fake() -> str:
        return ActivityContext.current().activity_id

    async with environment() as env:
        env.replace_step("model", fake)
        assert await (await env.start(asks)).result() == ["model:1", "model:2", ""]
        env.replace_step("model", lambda: "plain")
        assert await (await env.start(asks)).result() == ["plain", "plain", ""]
        env.replace_step("other", AsyncMock(return_value="mock"))
        await env.restart()
        assert await (await env.start(asks)).result() == ["plain", "plain", "mock"]


async def test_the_result_of_a_fake_step_must_fit() -> None:
    async with environment(retry=NO_RETRY) as env:
        env.replace_step("model", lambda: 7)
        with pytest.raises(WorkflowFailed, match="the result of step 'model' can't be stored"):
            await (await env.start(asks)).result()


@pytest.mark.parametrize(
    ("name", "fake", "said"),
    [
        (charge, lambda: 1, "env.replace_step takes the name of a step; to replace <activity charge>, use env.replace"),
        ("", lambda: 1, "env.replace_step takes the name of a step, e.g. 'model', not ''"),
        ("model", 7, "the fake for step 'model' must be a plain function, not 7"),
        ("model", lambda prompt: 1, "the fake for step 'model' does not fit: missing a required argument: 'prompt'; "),
    ],
)
async def test_a_fake_step_must_fit(name: Any, fake: Any, said: str) -> None:
    async with environment() as env:
        with pytest.raises(TypeError) as refused:
            env.replace_step(name, fake)
    assert str(refused.value).startswith(said)


@activity
def takes_real_time(ctx: ActivityContext) -> str:
    time.sleep(1.0)
    return "done"


@workflow
async def patient(ctx: WorkflowContext) -> str:
    return await takes_real_time(ctx)


@pytest.mark.parametrize(("patience", "status"), [(0.05, "running"), (60, "completed")])
async def test_the_patience_with_activities_that_take_real_time(patience: float, status: str) -> None:
    async with environment(workflows=[patient], patience=patience) as env:
        handle = await env.start(patient)
        assert (await handle.status()) == status
        assert await handle.result() == "done"


async def test_an_activity_that_ends_while_its_status_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asyncio.Event()

    @activity
    async def waits(ctx: ActivityContext) -> str:
        await gate.wait()
        return "done"

    @workflow
    async def caller(ctx: WorkflowContext) -> str:
        return await waits(ctx)

    async with environment(workflows=[caller], patience=0.05) as env:
        handle = await env.start(caller)
        read = handle.status

        async def status() -> Any:
            found = await read()
            if not gate.is_set():
                gate.set()
                await env.settle()
            return found

        monkeypatch.setattr(handle, "status", status)
        assert await handle.result() == "done"
