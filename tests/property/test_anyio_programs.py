"""Random programs of anyio's task groups and scopes: replays take the same order, whatever the state of memory."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from romancy import ActivityContext, WorkflowContext, WorkflowFailed, activity, sleep, step, wait_event, workflow
from romancy.core.instance import Instance
from romancy.testing import dump, environment, replay


@dataclass(frozen=True)
class Part:
    """One part of a program."""

    kind: str
    seconds: int = 0
    parts: tuple[Part, ...] = ()


LEAVES = st.builds(Part, st.sampled_from(["sleep", "note", "wait", "fail", "guarded"]), st.integers(0, 5))
PARTS = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        Part,
        st.sampled_from(["group", "scope", "shielded", "native"]),
        st.integers(0, 6),
        st.lists(inner, min_size=1, max_size=4).map(tuple),
    ),
    max_leaves=12,
)
programs: list[Part] = []
junk: list[bytearray] = []


@activity
async def note(ctx: ActivityContext, what: str) -> None: ...


class Problem(Exception):
    """Raised by a program."""


async def run(ctx: WorkflowContext, part: Part) -> None:
    junk.append(bytearray(random.randrange(400)))  # other addresses for what comes next
    await getattr(_Runner, part.kind)(ctx, part)


class _Runner:
    async def sleep(ctx: WorkflowContext, part: Part) -> None:  # type: ignore[misc]
        await anyio.sleep(part.seconds)

    async def note(ctx: WorkflowContext, part: Part) -> None:  # type: ignore[misc]
        await note(ctx, "noted")

    async def wait(ctx: WorkflowContext, part: Part) -> None:  # type: ignore[misc]
        with anyio.move_on_after(part.seconds + 1):
            await wait_event(ctx, "never")

    async def fail(ctx: WorkflowContext, part: Part) -> None:  # type: ignore[misc]
        await sleep(ctx, part.seconds)
        raise Problem

    async def guarded(ctx: WorkflowContext, part: Part) -> None:  # type: ignore[misc]
        try:
            await wait_event(ctx, "never", timeout=3)
        finally:
            with anyio.CancelScope(shield=True):
                await step(ctx, f"clean up {part.seconds}", lambda: None, result=type(None))

    async def group(ctx: WorkflowContext, part: Part) -> None:  # type: ignore[misc]
        async with anyio.create_task_group() as group:
            for inner in part.parts:
                group.start_soon(run, ctx, inner)

    async def native(ctx: WorkflowContext, part: Part) -> None:  # type: ignore[misc]
        async with asyncio.TaskGroup() as group:
            for inner in part.parts:
                group.create_task(run(ctx, inner))

    async def scope(ctx: WorkflowContext, part: Part) -> None:  # type: ignore[misc]
        with anyio.move_on_after(part.seconds):
            for inner in part.parts:
                await run(ctx, inner)

    async def shielded(ctx: WorkflowContext, part: Part) -> None:  # type: ignore[misc]
        with anyio.CancelScope(shield=True):
            for inner in part.parts:
                await run(ctx, inner)


@workflow
async def program(ctx: WorkflowContext) -> None:
    await run(ctx, programs[-1])
    await note(ctx, "the end")


async def record(cancelled: bool) -> tuple[str, str]:
    async with environment(workflows=[program]) as env:
        handle: Any = await env.start(program)
        if cancelled:
            await env.cancel(handle)
        with contextlib.suppress(WorkflowFailed, Exception):
            await handle.result()
        return await handle.status(), dump(await env.app.get_history(handle.instance_id))


@settings(max_examples=25)
@given(part=PARTS, cancelled=st.booleans(), seed=st.integers(0, 1000))
def test_a_program_replays_alike(part: Part, cancelled: bool, seed: int) -> None:
    programs.append(part)
    status, history = asyncio.run(record(cancelled))
    assert status in ("completed", "failed", "cancelled")
    noise, feed = random.Random(seed), Instance.feed

    def disturbed(self: Instance, *args: Any) -> None:
        junk.extend(bytearray(noise.randrange(400)) for _ in range(50))
        noise.shuffle(junk)
        del junk[len(junk) // 2 :]
        feed(self, *args)

    Instance.feed = disturbed  # type: ignore[method-assign]
    try:
        assert replay(program, history) == status
    finally:
        Instance.feed = feed  # type: ignore[method-assign]
