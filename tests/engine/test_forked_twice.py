"""Forks of forks: what was copied twice was recorded under the id of the first original."""

from __future__ import annotations

import pytest

from romancy import ActivityContext, WorkflowContext, activity, workflow
from romancy.testing import Environment, replay


@activity
async def note(ctx: ActivityContext, what: str) -> str:
    return what


@workflow
async def knows_itself(ctx: WorkflowContext) -> list[str]:
    """Notes its id and a random number, four times."""
    return [await note(ctx, f"{ctx.instance_id} {ctx.random.random()}") for _ in range(4)]


@pytest.mark.parametrize("first", [1, 2, 3])
@pytest.mark.parametrize("second", [1, 2, 3])
@pytest.mark.parametrize("third", [1, 3])
async def test_a_fork_of_a_fork_knows_what_was_known(env: Environment, first: int, second: int, third: int) -> None:
    env.app.register(knows_itself)
    await env.start(knows_itself, instance_id="i")
    origin = "i"
    for new, at in (("f", first), ("g", second), ("h", third)):
        history = await env.app.get_history(origin)
        completed = [entry.n for entry in history if entry.kind == "activity_completed"]
        await env.app.fork_workflow(origin, at=completed[at - 1], new_id=new)
        await env.settle()
        before, after = await env.app.get_instance(origin), await env.app.get_instance(new)
        assert (after.status, after.error) == ("completed", None)
        assert after.output[:at] == before.output[:at]
        assert [said.split()[0] for said in after.output[at:]] == [new] * (4 - at)
        assert replay(knows_itself, await env.app.get_history(new)) == "completed"
        origin = new
