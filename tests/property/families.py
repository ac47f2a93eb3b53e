"""Random families: workflows that call each other, owe undos and continue as new. And what must be true of them.

A node is `[name, ...]`:

    ["reserve", "ok" | "slow" | "fail"]   an activity with an undo; "slow" fails twice before it succeeds
    ["wait", type, timeout]               an event
    ["sleep", seconds]
    ["child", code, how]                  "called", "started" (free) or "awaited" (free, and waited for all the same)
    ["seq", [...]] ["all", [...]] ["race", [...]] ["limit", seconds, node]

A code is `{"body": node, "runs": n, "end": "return" | "raise"}`: it continues as new until it is in its n-th run.

Unlike the model of single instances (`model.py`), the judge does not say what must happen next. It says what must never
be seen when everything has come to rest, whatever died meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from romancy import (
    ActivityContext,
    HistoryEntry,
    Instance,
    RetryPolicy,
    RomancyError,
    WorkflowContext,
    activity,
    sleep,
    start_workflow,
    wait_event,
    workflow,
)

_RETRY = RetryPolicy(max_attempts=3, initial=2, backoff=1.0, jitter=0.0)
FINAL = frozenset(("completed", "failed", "cancelled"))
_TOLD = {"completed": "child_completed", "failed": "child_failed", "cancelled": "child_cancelled"}


class Failed(Exception):
    """How a program fails."""


@activity(retry=_RETRY)
async def reserve(ctx: ActivityContext, how: str) -> str:
    if how == "fail" or (how == "slow" and ctx.attempt < 3):
        raise ValueError(how)
    return ctx.idempotency_key


@reserve.compensate
@activity(retry=_RETRY)
async def release(ctx: ActivityContext, reserved: str) -> None:
    if ctx.attempt == 1 and reserved.endswith("2"):
        raise ValueError("once more")


@workflow
async def family(ctx: WorkflowContext, code: Any) -> Any:
    started: list[str] = []
    await _run(ctx, code["body"], started)
    if ctx.run_number < code["runs"]:
        family.continue_as_new(ctx, code)
    if code["end"] == "raise":
        raise Failed("in the end")
    return started


async def _run(ctx: WorkflowContext, node: Any, started: list[str]) -> None:
    match node:
        case ["reserve", how]:
            await reserve(ctx, how)
        case ["wait", type, timeout]:
            await wait_event(ctx, type, timeout=timeout)
        case ["sleep", seconds]:
            await sleep(ctx, seconds)
        case ["child", code, "called"]:
            await family(ctx, code)
        case ["child", code, how]:
            handle = await start_workflow(ctx, family, {**code, "free": True})
            started.append(handle.instance_id)
            if how == "awaited":
                await handle.result()
        case ["seq", nodes]:
            for inner in nodes:
                await _run(ctx, inner, started)
        case ["all", nodes]:
            async with asyncio.TaskGroup() as group:
                for inner in nodes:
                    group.create_task(_run(ctx, inner, started))
        case ["race", nodes]:
            await _race([asyncio.create_task(_run(ctx, inner, started)) for inner in nodes])
        case ["limit", seconds, inner]:
            try:
                async with asyncio.timeout(seconds):
                    await _run(ctx, inner, started)
            except (TimeoutError, RomancyError):
                pass
        case _:
            raise AssertionError(f"no such node: {node!r}")


async def _race(tasks: list[asyncio.Task[None]]) -> None:
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# --- drawing ---------------------------------------------------------------------------------------------------------
leaves = st.one_of(
    st.sampled_from(["ok", "ok", "ok", "slow", "fail"]).map(lambda how: ["reserve", how]),
    st.tuples(st.just("wait"), st.sampled_from(["a", "b", "c"]), st.sampled_from([None, None, 3, 20])).map(list),
    st.sampled_from([1, 4, 15]).map(lambda seconds: ["sleep", seconds]),
)


def _grow(nodes: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(nodes, min_size=2, max_size=3)
    return st.one_of(
        some.map(lambda inner: ["seq", inner]),
        some.map(lambda inner: ["seq", inner]),
        some.map(lambda inner: ["all", inner]),
        some.map(lambda inner: ["race", inner]),
        st.builds(lambda seconds, inner: ["limit", seconds, inner], st.sampled_from([2, 10]), nodes),
        st.builds(lambda code, how: ["child", code, how], _code(nodes), _how),
        st.builds(lambda code, how: ["child", code, how], _code(nodes), _how),
    )


def _code(bodies: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    end = st.sampled_from(["return", "return", "raise"])
    return st.fixed_dictionaries({"body": bodies, "runs": st.sampled_from([1, 1, 1, 2, 3]), "end": end})


_how = st.sampled_from(["called", "called", "started", "awaited"])
_nodes = st.recursive(leaves, _grow, max_leaves=7)
_children = st.builds(lambda code, how: ["child", code, how], _code(_nodes), _how)
codes = _code(
    st.one_of(
        _nodes,
        st.builds(lambda a, b, c: ["seq", [a, b, c]], leaves, _children, _nodes),
        st.builds(lambda a, b, c: ["all", [a, ["seq", [b, c]]]], _children, leaves, _children),
        st.builds(lambda a, b: ["race", [a, b]], _children, _children),
    )
)


# --- judging ---------------------------------------------------------------------------------------------------------
Family = Mapping[str, tuple[Instance, Sequence[HistoryEntry]]]


def judge(family: Family, cuts: Mapping[str, int]) -> None:
    """Check what must be true of all instances at rest, if a worker was there to bring them to it.

    `cuts`: of each fork, the number of the last entry that it has from its original.
    """
    for id, (instance, history) in family.items():
        _check_undos(instance, [e for e in history if not e.dropped and e.n > cuts.get(id, 0)])
        _check_runs(instance)
        if instance.parent is not None:
            _check_child(instance, family)
        if id in cuts:
            continue  # children that it started before the cut are its original's
        for child in instance.output or () if instance.status == "completed" else ():
            assert child in family, f"{id} started {child}, and it was never there"


def has_undone(history: Sequence[HistoryEntry]) -> bool:
    return any(entry.operation.startswith("undo ") for entry in history)


def _check_undos(instance: Instance, history: Sequence[HistoryEntry]) -> None:
    """Check the entries that count and are the instance's own."""
    done = [e.operation for e in history if e.kind == "activity_completed"]
    undos = [op for op in done if op.startswith("undo ")]
    undone = [op.removeprefix("undo ").rpartition(":")[0] for op in undos]
    made = [op for op in done if op not in undos]
    assert len(undone) == len(set(undone)), f"{instance.instance_id} undid {undone}"
    assert set(undone) <= set(made), f"{instance.instance_id} undid {undone}, and only {made} were done"
    if instance.status in ("failed", "cancelled") and history:
        assert undone == made[::-1], f"{instance.instance_id} ({instance.status}) did {made}, and undid {undone}"


def _check_runs(instance: Instance) -> None:
    runs = instance.input["code"]["runs"]
    assert instance.run_number <= runs, f"{instance.instance_id} is in run {instance.run_number} of {runs}"
    assert instance.status != "completed" or instance.run_number == runs, f"{instance.instance_id} ended too early"


def _check_child(child: Instance, family: Family) -> None:
    """A parent that is open knows of every end; the children of one that is not have ended, or are asked to."""
    assert child.parent is not None
    parent, history = family[child.parent]
    name = f"{child.instance_id} ({child.status}), child of {parent.instance_id} ({parent.status}),"
    first, replacement = place_of(child.instance_id)
    if any(place[0] == first and place[1] > replacement for place in map(place_of, family)):
        return  # another one was started in its place when its parent was retried
    op = first.removeprefix(f"{parent.instance_id}/")
    is_of_this_run = _run_of(op) == parent.run_number
    told = [e for e in history if e.operation == op and not e.dropped]
    assert len(told) <= 1, f"{name} is told of several times: {told}"
    if told:
        assert told[0].kind == _TOLD[child.status], f"{name} is told of as {told[0]}"
        if child.status == "completed":
            assert told[0].result == child.output, f"{name} returned {child.output}, its parent got {told[0]}"
    elif child.status in FINAL and parent.status not in FINAL:
        assert not is_of_this_run, f"{name} has ended, and its parent does not know"
    if parent.status in FINAL or not is_of_this_run:
        is_free = child.input["code"].get("free", False)
        is_asked = any(e.kind == "cancel_requested" and not e.dropped for e in family[child.instance_id][1])
        assert is_free or is_asked or child.status in FINAL, f"{name} goes on, though nobody waits for it"


def place_of(id: str) -> tuple[str, int]:
    """Return the id of the first child in a place, and the number of a later one, which a retried parent started."""
    first, found, number = id.rpartition("~")
    return (first, int(number)) if found and number.isdecimal() else (id, 0)


def _run_of(op: str) -> int:
    _, found, number = op.rpartition("@")
    return int(number) if found else 1
