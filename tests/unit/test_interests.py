"""What a workflow waits for is found in its source, however it is written. If that can't be known, anything is kept."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from romancy import Workflow, WorkflowContext, workflow
from romancy import wait_event as await_event
from romancy.api.waiting import wait_event
from romancy.core.interests import Interest, read_interest

kind = "a variable of the module"
renamed = wait_event
partial = functools.partial(wait_event)


async def wait_for(ctx: WorkflowContext, kind: str) -> None:
    await wait_event(ctx, kind)


async def wait_paid(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "paid")


async def call(fn: Callable[..., Awaitable[Any]], *args: Any) -> None:
    await fn(*args)


HANDLERS = {"paid": wait_paid}
helper = wait_paid


@workflow
async def imported_as(ctx: WorkflowContext) -> None:
    await await_event(ctx, "paid")


@workflow
async def by_another_name(ctx: WorkflowContext) -> None:
    await renamed(ctx, "paid")


@workflow
async def from_a_table(ctx: WorkflowContext, key: str) -> None:
    await HANDLERS[key](ctx)


@workflow
async def renamed_helper(ctx: WorkflowContext) -> None:
    await helper(ctx)


@workflow
async def of_a_parameter(ctx: WorkflowContext) -> None:
    await wait_for(ctx, "paid")


@workflow
async def of_a_loop(ctx: WorkflowContext) -> None:
    for kind in ("paid", "sent"):
        await wait_event(ctx, kind)


@workflow
async def with_partial(ctx: WorkflowContext) -> None:
    await partial(ctx, "paid")


@workflow
async def passed_on(ctx: WorkflowContext) -> None:
    await call(wait_event, ctx, "paid")


@workflow
async def in_a_variable(ctx: WorkflowContext) -> None:
    wait = wait_event
    await wait(ctx, "paid")


@workflow
async def continues_as_some(ctx: WorkflowContext) -> None:
    chosen: Any = [imported_as][0]
    chosen.continue_as_new(ctx)


@workflow
async def continues_as_itself(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "paid")
    continues_as_itself.continue_as_new(ctx)


def interest(wf: Workflow[..., Any]) -> Interest:
    return read_interest(wf.name, wf.fn, None)


@pytest.mark.parametrize("wf", [imported_as, from_a_table, renamed_helper, continues_as_itself])
def test_a_type_is_found(wf: Workflow[..., Any]) -> None:
    assert interest(wf) == Interest(wf.name, frozenset({"paid"}))


@pytest.mark.parametrize(
    "wf",
    [by_another_name, of_a_parameter, of_a_loop, with_partial, passed_on, in_a_variable, continues_as_some],
    ids=str,
)
def test_anything_is_kept_if_a_type_can_not_be_known(wf: Workflow[..., Any]) -> None:
    assert interest(wf).is_open


@workflow(expects=["sent"])
async def continues_as_another(ctx: WorkflowContext) -> None:
    imported_as.continue_as_new(ctx)


def test_a_workflow_that_declares_its_types_is_also_interested_in_those_of_the_next() -> None:
    found = read_interest("continues_as_another", continues_as_another.fn, ["sent"])
    assert found == Interest("continues_as_another", frozenset({"sent"}), frozenset({"imported_as"}), is_declared=True)
