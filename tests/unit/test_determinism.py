"""The same history, the same run: in other processes, under other hash seeds, with the collector at work in between.

The histories are recorded here with the testing kit; this file, run as a script, replays them.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from romancy import (
    NO_RETRY,
    ActivityContext,
    ActivityError,
    App,
    WorkflowContext,
    WorkflowFailed,
    activity,
    saga,
    send_event,
    sleep,
    testing,
    wait_event,
    workflow,
)
from romancy.core.instance import Instance

# --- workflows whose order could depend on memory addresses or hashes ------------------------------------------------


@activity
async def note(ctx: ActivityContext, what: str) -> str:
    return what


@activity(retry=NO_RETRY)
async def bad(ctx: ActivityContext) -> str:
    raise ValueError("bad")


@workflow
async def aborting_group(ctx: WorkflowContext) -> list[str]:
    """A TaskGroup cancels its children by walking over a set; each then cleans up with an activity."""
    seen: list[str] = []

    async def child(n: int) -> None:
        try:
            await wait_event(ctx, f"never.{n}")
        finally:
            seen.append(await note(ctx, f"undo {n}"))

    async def fails() -> None:
        await bad(ctx)

    try:
        async with asyncio.TaskGroup() as group:
            for n in range(12):
                group.create_task(child(n))
            group.create_task(fails())
    except* ActivityError:
        pass
    return seen


@workflow
async def aborting_anyio_group(ctx: WorkflowContext) -> list[str]:
    """anyio keeps the scopes of a group's tasks in a set, and cancels by walking over it."""
    seen: list[str] = []

    async def child(n: int) -> None:
        try:
            with anyio.move_on_after(1000 + n):
                await wait_event(ctx, f"never.{n}")
        finally:
            with anyio.CancelScope(shield=True):
                seen.append(await note(ctx, f"undo {n}"))

    async def fails() -> None:
        await bad(ctx)

    try:
        async with anyio.create_task_group() as group:
            with anyio.CancelScope():
                for n in range(12):
                    group.start_soon(child, n)
                await anyio.sleep(1)
            group.start_soon(fails)
    except* ActivityError:
        pass
    return seen


@workflow
async def done_sets(ctx: WorkflowContext) -> list[str]:
    """`asyncio.wait` answers with sets."""

    async def step(n: int) -> str:
        await asyncio.sleep(n // 4)
        return f"task {n}"

    pending = {asyncio.create_task(step(n)) for n in range(12)}
    seen: list[str] = []
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        seen += [await note(ctx, task.result()) for task in done]
    return seen


@workflow
async def cancelled_losers(ctx: WorkflowContext) -> list[str]:
    seen: list[str] = []

    async def runner(n: int) -> None:
        try:
            await sleep(ctx, 5 + n)
        except asyncio.CancelledError:
            seen.append(await note(ctx, f"lost {n}"))
            raise

    tasks = {asyncio.create_task(runner(n)) for n in range(10)}
    _, losers = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in losers:
        task.cancel()
    await asyncio.wait(losers)
    return seen


@workflow
async def chance(ctx: WorkflowContext) -> list[str]:
    seen: list[str] = []
    for _ in range(5):
        seen.append(await note(ctx, str(ctx.uuid4())))
        await sleep(ctx, ctx.random.uniform(0, 10))
        choice = ctx.random.sample(range(1000), 5)
        await asyncio.gather(*(note(ctx, f"{n}") for n in choice))
        await send_event(ctx, "drawn", "test", {"choice": choice})
    return seen


@workflow
async def generators(ctx: WorkflowContext) -> list[str]:
    seen: list[str] = []

    async def naps(name: str) -> Any:
        try:
            while True:
                await asyncio.sleep(1)
                yield name
        finally:
            seen.append(await note(ctx, f"close {name}"))

    for name in ("c", "a", "b"):
        async for _ in naps(name):
            break
    await sleep(ctx, 1)
    return seen


@workflow
async def cancelled(ctx: WorkflowContext) -> None:
    async def child(n: int) -> None:
        try:
            await wait_event(ctx, "never")
        finally:
            await note(ctx, f"undo {n}")

    async with asyncio.TaskGroup() as group:
        tasks = {group.create_task(child(n)) for n in range(8)}
        await asyncio.wait(tasks)


@workflow
async def sets_of_gathers(ctx: WorkflowContext) -> list[str]:
    """What `gather` returns is a future too, and asyncio makes it without asking the loop."""
    seen: list[str] = []

    async def child(n: int) -> None:
        try:
            await wait_event(ctx, f"never.{n}")
        finally:
            seen.append(await note(ctx, f"undo {n}"))

    groups = {asyncio.gather(child(2 * n), child(2 * n + 1), return_exceptions=True) for n in range(10)}
    await sleep(ctx, 1)
    for group in groups:
        group.cancel()
    await asyncio.wait(groups)
    return seen


@activity
async def reserve(ctx: ActivityContext, n: int) -> int:
    await asyncio.sleep(n % 3 / 1000)
    return n


@reserve.compensate
async def release(ctx: ActivityContext, booking: int, n: int) -> None: ...


@workflow
async def undone(ctx: WorkflowContext) -> None:
    """Blocks in branches fail, a group gives up its children, and tasks that are left are cancelled at the end."""

    async def branch(n: int) -> None:
        async with saga(ctx), asyncio.TaskGroup() as group:
            for k in range(4):
                group.create_task(reserve(ctx, 10 * n + k))
            group.create_task(bad(ctx))

    async def left_over(n: int) -> None:
        try:
            await wait_event(ctx, f"never.{n}")
        finally:
            await reserve(ctx, n)

    left = {asyncio.create_task(left_over(n)) for n in range(6)}
    await asyncio.gather(*(branch(n) for n in range(3)), return_exceptions=True)
    await asyncio.gather(*(reserve(ctx, 100 + n) for n in range(4)))
    raise ValueError(f"{len(left)} are left")


WORKFLOWS = [
    aborting_group,
    aborting_anyio_group,
    done_sets,
    cancelled_losers,
    chance,
    generators,
    cancelled,
    sets_of_gathers,
    undone,
]
ENDS = {cancelled: "cancelled", undone: "failed"}
BY_NAME = {wf.name: wf for wf in WORKFLOWS}


async def record(wf: Any) -> str:
    async with testing.environment(workflows=[wf]) as env:
        handle = await env.start(wf)
        if wf is cancelled:
            await env.cancel(handle)
        else:
            with contextlib.suppress(WorkflowFailed):
                await handle.result()
        assert await handle.status() == ENDS.get(wf, "completed")
        return testing.dump(await env.app.get_history(handle.instance_id))


def replay_disturbed(name: str, history: str) -> str:
    """Replay with garbage, collections and holes in memory between activations."""
    junk: list[Any] = []
    noise = random.Random(os.environ.get("PYTHONHASHSEED"))
    feed = Instance.feed

    def disturbed(self: Instance, *args: Any) -> None:
        junk.extend(bytearray(noise.randrange(400)) for _ in range(200))
        noise.shuffle(junk)
        del junk[: len(junk) // 2]
        gc.collect()
        feed(self, *args)

    Instance.feed = disturbed  # type: ignore[method-assign]
    try:
        return testing.replay(BY_NAME[name], history)
    finally:
        Instance.feed = feed  # type: ignore[method-assign]


def replay_elsewhere(histories: dict[str, list[str]], seed: str) -> dict[str, str]:
    """In another process; returns 'ok' or the error for each."""
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-X", "dev", __file__],
        input=json.dumps(histories),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}"},
    )
    assert result.returncode == 0, result.stderr
    assert "was destroyed" not in result.stderr
    return json.loads(result.stdout)


def main() -> None:
    outcomes: dict[str, str] = {}
    gc.freeze()  # what was imported is no garbage, and takes long to look through
    for name, (status, history) in json.load(sys.stdin).items():
        try:
            got = replay_disturbed(name, history)
            outcomes[name] = "ok" if got == status else f"ended {got}, not {status}"
        except Exception as error:
            outcomes[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(outcomes))


@pytest.fixture(scope="module")
def histories() -> dict[str, list[str]]:
    return {wf.name: [ENDS.get(wf, "completed"), asyncio.run(record(wf))] for wf in WORKFLOWS}


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_histories_replay_under_other_hash_seeds(histories: dict[str, list[str]], seed: str) -> None:
    assert replay_elsewhere(histories, seed) == dict.fromkeys(histories, "ok")


def test_two_runs_take_the_same_order(histories: dict[str, list[str]]) -> None:
    """Also in one process, where the second run finds memory as the first one left it."""
    for wf in WORKFLOWS:
        if wf not in (chance, undone):  # numbers that follow from the instance's id; activities that take real time
            first, second = (
                [(e["kind"], e["op"], e["input"]) for e in json.loads(h)[1:]] for h in _twice(wf, histories)
            )
            assert first == second


def _twice(wf: Any, histories: dict[str, list[str]]) -> tuple[str, str]:
    junk = [bytearray(n % 300) for n in range(5000)]
    del junk[::2]
    return histories[wf.name][1], asyncio.run(record(wf))


# --- long loops ------------------------------------------------------------------------------------------------------


@workflow
async def looping(ctx: WorkflowContext, times: int, filtered: bool, early: bool) -> int:
    total = 0
    if early:
        await sleep(ctx, 60)
    for _ in range(times):
        event = await wait_event(ctx, "tick", where={"k": 1} if filtered else None)
        total += event.data["n"]
    return total


class Meter:
    """Steps of SQLite's virtual machine: the work of the database, whatever else the machine is doing."""

    EVERY = 100

    def __init__(self, app: App) -> None:
        self.steps = 0
        app._runtime.engine.storage._writer.connection.set_progress_handler(self.count, self.EVERY)  # type: ignore[attr-defined]

    def count(self) -> int:
        self.steps += self.EVERY
        return 0


async def cost_per_event(count: int, *, filtered: bool, early: bool) -> tuple[float, float]:
    """Database steps and CPU seconds for each event of one instance; `early`: all are there before its first wait."""
    async with testing.environment(workflows=[looping]) as env:
        meter, started = Meter(env.app), time.process_time()
        handle = await env.start(looping, count, filtered, early)
        for first in range(0, count, 500):
            await asyncio.gather(
                *(env.app.send_event("tick", "test", {"n": n, "k": 1}) for n in range(first, min(count, first + 500)))
            )
        if early:
            await env.advance(60)
        assert await handle.result() == count * (count - 1) // 2
        return meter.steps / count, (time.process_time() - started) / count


@pytest.mark.parametrize(
    ("few", "many", "filtered", "early"),
    [(300, 3_000, False, False), (200, 2_000, True, False), (200, 2_000, False, True), (200, 2_000, True, True)],
)
@pytest.mark.play
async def test_events_into_one_looping_instance_cost_the_same_each(
    few: int, many: int, filtered: bool, early: bool
) -> None:
    """Quadratic would be ten times as much for each."""
    steps_few, seconds_few = await cost_per_event(few, filtered=filtered, early=early)
    steps_many, seconds_many = await cost_per_event(many, filtered=filtered, early=early)
    assert steps_many < 2 * steps_few, f"{steps_few:.0f} steps per event with {few}, {steps_many:.0f} with {many}"
    assert seconds_many < 4 * seconds_few, f"{seconds_few:.6f} s per event with {few}, {seconds_many:.6f} with {many}"


if __name__ == "__main__":
    main()
