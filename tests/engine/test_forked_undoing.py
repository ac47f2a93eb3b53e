"""Forks of instances whose code has ended, and that wait until they can undo what they did."""

from __future__ import annotations

import asyncio

import pytest

from romancy import ActivityContext, WorkflowContext, activity, compensate, wait_event, workflow
from romancy.testing import Environment, replay

undone: list[str] = []


@pytest.fixture(autouse=True)
def _anew() -> None:
    undone.clear()


@activity
async def charge(ctx: ActivityContext) -> str:
    return ctx.instance_id


@charge.compensate
async def refund(ctx: ActivityContext, payer: str) -> None:
    undone.append(payer)


@workflow
async def lingers(ctx: WorkflowContext, name: str) -> None:
    """Ends when it is told to, even if it was cancelled before."""
    try:
        await wait_event(ctx, "never")
    finally:
        await wait_event(ctx, f"end {name}")


@workflow
async def fails(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "fail")
    raise ValueError("off")


@workflow
async def family(ctx: WorkflowContext, how: str) -> None:
    if how == "by hand":
        compensate(ctx, refund, ctx.instance_id)
        await wait_event(ctx, "begin")
    else:
        await charge(ctx)
    async with asyncio.TaskGroup() as group:
        group.create_task(fails(ctx))
        group.create_task(lingers(ctx, "one"))
        group.create_task(lingers(ctx, "two"))


# The copied calls are undone by the original. So the fork saw nothing to undo, and did not wait for its children: its
# code had ended before its copied history did.
@pytest.mark.parametrize("how", ["declared", "by hand"])
async def test_a_fork_of_one_that_waits_for_its_children_before_it_undoes(env: Environment, how: str) -> None:
    env.app.register(family, fails, lingers)
    await env.start(family, how, instance_id="i")
    await env.send_event("begin", "test")
    await env.send_event("fail", "test")
    assert (await env.app.get_instance("i")).status == "compensating"
    await env.send_event("end one", "test")
    history = await env.app.get_history("i")
    assert [entry.kind for entry in history[2:]] == ["child_failed", "child_cancelled"]
    await env.app.fork_workflow("i", at=history[-1].n, new_id="f")
    await env.settle()
    await env.send_event("end two", "test")
    await env.settle()
    found = {id: (await env.app.get_instance(id)) for id in ("i", "f")}
    assert {id: instance.status for id, instance in found.items()} == {"i": "failed", "f": "failed"}
    assert undone == ["i"]
    assert replay(family, await env.app.get_history("f")) == "failed"
