"""What `env.replace` takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from romancy import ActivityContext, WorkflowContext, activity, workflow
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


async def test_only_activities_are_replaced() -> None:
    said = "env.replace takes an activity, but 'order' is a workflow; replace its activities"
    assert await refusal(order, lambda: "fake") == said
    assert (await refusal(charge.fn, lambda: "fake")).startswith("env.replace takes an activity, not <function charge")
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
