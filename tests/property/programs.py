"""Random workflows: a small language of nested lists, and the one workflow that runs it.

A node is `[name, ...]`; every leaf answers with a plain value, so that the whole output can be compared:

    ["act", how, ...]        an activity: "ok", "thread", "fail" (for good), "flaky" (twice, then ok), "raises" (an
                             answer that is an exception), "hang" (until its timeout); "sends" and "thread_sends" take
                             a type, a key and a target, and send when they succeed
    ["wait", {...}]          types, where, model, since, timeout, and perhaps subject and source
    ["sleep", s] ["asleep", s] ["until", s]   `sleep(ctx, ...)`, `asyncio.sleep`, `sleep_until` (from the start on)
    ["send", type, k, to]
    ["seq", [...]] ["loop", n, node]
    ["all", "gather" | "group", [...]]    all branches
    ["race", [...]]          the first branch; the others are cancelled
    ["limit", s, node]       `asyncio.timeout`
    ["finally", node]        an activity afterwards, also when cancelled

A program is `{"body": node, "swallow": bool}`, with `"fails": True` if it raises in the end.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from hypothesis import strategies as st

from romancy import (
    NO_RETRY,
    Activity,
    ActivityContext,
    ActivityError,
    ActivityTimeout,
    ReceivedEvent,
    RetryPolicy,
    WaitTimeout,
    WorkflowContext,
    activity,
    send_event,
    sleep,
    sleep_until,
    wait_event,
    workflow,
)

PAST = 30
"""Seconds before its own start that a wait with `since: "past"` looks back."""
FLAKY_FAILS = 2
_TWICE = RetryPolicy(max_attempts=2, initial=2, jitter=0.0)
_PATIENT = RetryPolicy(max_attempts=5, initial=2, backoff=1.0, jitter=0.0)


@dataclass
class Fitting:
    """Data with an `n` that is an integer fits."""

    k: int
    n: int


class Declined(Exception):
    """An answer."""


class Failed(Exception):
    """How a program fails."""


class Watch(Protocol):
    """Whoever wants to know of attempts, and how long they are to take: the app's `state`, if it has one."""

    def begins(self, ctx: ActivityContext) -> float:
        """Seconds it takes."""
        ...

    def begins_in_thread(self, ctx: ActivityContext) -> None: ...


async def _begin(ctx: ActivityContext) -> None:
    watch: Watch | None = ctx.state
    if watch is not None:
        await asyncio.sleep(watch.begins(ctx))


def _begin_in_thread(ctx: ActivityContext) -> None:
    watch: Watch | None = ctx.state
    if watch is not None:
        watch.begins_in_thread(ctx)


@activity
async def plain(ctx: ActivityContext, path: str) -> str:
    await _begin(ctx)
    return path


@activity
def in_thread(ctx: ActivityContext, path: str) -> str:
    _begin_in_thread(ctx)
    return path


@activity(retry=_TWICE)
async def failing(ctx: ActivityContext, path: str) -> str:
    await _begin(ctx)
    raise ValueError(path)


@activity(retry=_PATIENT)
async def flaky(ctx: ActivityContext, path: str) -> str:
    await _begin(ctx)
    if ctx.attempt <= FLAKY_FAILS:
        raise ValueError(path)
    return path


@activity(raises=[Declined])
async def declining(ctx: ActivityContext, path: str) -> str:
    await _begin(ctx)
    raise Declined(path)


@activity(retry=_TWICE, timeout=3)
async def hanging(ctx: ActivityContext, path: str) -> str:
    await _begin(ctx)
    await asyncio.get_running_loop().create_future()
    return path


@activity
async def sending(ctx: ActivityContext, path: str, type: str, k: int, to: str | None) -> str:
    await _begin(ctx)
    await send_event(ctx, type, "program", {"k": k, "n": 1}, id=ctx.idempotency_key, to=to)
    return path


@activity(retry=_PATIENT)
def sending_in_thread(ctx: ActivityContext, path: str, type: str, k: int, to: str | None) -> str:
    _begin_in_thread(ctx)
    if ctx.attempt == 1:
        ctx.send_event(type, "program", {"k": k, "n": 1}, id=f"{ctx.idempotency_key}/never")
        raise ValueError(path)
    ctx.send_event(type, "program", {"k": k, "n": 1}, id=ctx.idempotency_key, to=to)
    return path


ACTIVITIES: dict[str, Activity[..., str]] = {
    "ok": plain,
    "thread": in_thread,
    "fail": failing,
    "flaky": flaky,
    "raises": declining,
    "hang": hanging,
    "sends": sending,
    "thread_sends": sending_in_thread,
}


@workflow
async def program(ctx: WorkflowContext, code: Any) -> Any:
    return await _run_code(ctx, code)


@workflow(on_event="go")
async def reaction(ctx: WorkflowContext, event: ReceivedEvent[Any]) -> Any:
    """A program that an event brings."""
    return await _run_code(ctx, event.data["code"])


async def _run_code(ctx: WorkflowContext, code: Any) -> Any:
    try:
        output = await _run(ctx, code["body"], "r", "r")
    except asyncio.CancelledError:
        if code["swallow"]:
            return "swallowed"
        raise
    if code.get("fails"):
        raise Failed("in the end")
    return output


async def _run(ctx: WorkflowContext, node: Any, path: str, trail: str) -> Any:
    """`path` names the node, `trail` also the rounds of the loops around it."""
    match node:
        case ["act", how, *arguments]:
            return await _act(ctx, how, path, arguments)
        case ["wait", spec]:
            return await _wait(ctx, spec, path)
        case ["sleep", seconds]:
            await sleep(ctx, seconds, timer_id=path)
            return "slept"
        case ["asleep", seconds]:
            await asyncio.sleep(seconds)
            return "slept"
        case ["until", seconds]:
            await sleep_until(ctx, ctx.started_at + timedelta(seconds=seconds), timer_id=path)
            return "slept"
        case ["send", type, k, to]:
            await send_event(ctx, type, "program", {"k": k, "n": 1}, id=f"{ctx.instance_id}/{trail}", to=to)
            return "sent"
        case ["seq", nodes]:
            return [await _run(ctx, n, f"{path}.{i}", f"{trail}.{i}") for i, n in enumerate(nodes)]
        case ["loop", times, body]:
            return [await _run(ctx, body, f"{path}.0", f"{trail}.{i}") for i in range(times)]
        case ["all", how, nodes]:
            return await _all(how, [_run(ctx, n, f"{path}.{i}", f"{trail}.{i}") for i, n in enumerate(nodes)])
        case ["race", nodes]:
            return await _race([_run(ctx, n, f"{path}.{i}", f"{trail}.{i}") for i, n in enumerate(nodes)])
        case ["limit", seconds, body]:
            try:
                async with asyncio.timeout(seconds):
                    return await _run(ctx, body, f"{path}.0", f"{trail}.0")
            except TimeoutError:
                return "limit"
        case ["finally", body]:
            try:
                return await _run(ctx, body, f"{path}.0", f"{trail}.0")
            finally:
                await plain.options(activity_id=f"{path}/clean", retry=NO_RETRY)(ctx, path)
    raise AssertionError(f"no such node: {node!r}")


async def _act(ctx: WorkflowContext, how: str, path: str, arguments: list[Any]) -> Any:
    try:
        return ["ok", await ACTIVITIES[how].options(activity_id=path)(ctx, path, *arguments)]
    except Declined as error:
        return ["declined", *error.args]
    except ActivityTimeout as error:
        return ["timed out", error.attempts]
    except ActivityError as error:
        return ["failed", error.attempts]


async def _wait(ctx: WorkflowContext, spec: Any, path: str) -> Any:
    since = ctx.started_at - timedelta(seconds=PAST) if spec["since"] == "past" else spec["since"]
    where = None if spec["where"] is None else {"k": spec["where"]}
    model = Fitting if spec["model"] else None
    try:
        event = await wait_event(
            ctx,
            *spec["types"],
            where=where,
            model=model,
            since=since,
            timeout=spec["timeout"],
            wait_id=path,
            subject=spec.get("subject"),
            source=spec.get("source"),
        )
    except WaitTimeout:
        return "timeout"
    return ["event", event.id]


async def _all(how: str, branches: list[Any]) -> Any:
    if how == "gather":
        return await asyncio.gather(*branches, return_exceptions=True)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(branch) for branch in branches]
    return [task.result() for task in tasks]


async def _race(branches: list[Any]) -> Any:
    tasks = [asyncio.create_task(branch) for branch in branches]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return [[i, task.result()] for i, task in enumerate(tasks) if task in done]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# --- drawing programs ------------------------------------------------------------------------------------------------

types = st.sampled_from(["a", "b", "c"])
seconds = st.sampled_from([1, 2.5, 4, 15, 60])
keys = st.integers(0, 1)
waits = st.fixed_dictionaries(
    {
        "types": st.lists(types, min_size=1, max_size=2, unique=True),
        "where": st.none() | keys,
        "model": st.sampled_from([False, False, True]),
        "since": st.sampled_from([None, None, None, "now", "past"]),
        "timeout": st.sampled_from([None, None, None, 0, 3, 20]),
    }
).map(lambda spec: ["wait", spec])
blocking_leaves = st.one_of(
    waits,
    waits,
    waits,
    waits,
    st.sampled_from(["ok", "thread", "fail", "flaky"]).map(lambda how: ["act", how]),
    seconds.map(lambda s: ["sleep", s]),
    seconds.map(lambda s: ["asleep", s]),
)
targets = st.none() | st.sampled_from(["i0", "i1", "i2"])
sends = st.tuples(st.just("send"), types, keys, targets).map(list)


def _grow(nodes: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    # Branches of a race start with something that takes a fact to end: two can't win at once.
    runners = st.one_of(
        blocking_leaves,
        st.builds(lambda leaf, rest: ["seq", [leaf, *rest]], blocking_leaves, st.lists(nodes, max_size=2)),
        st.builds(lambda s, leaf: ["limit", s, leaf], seconds, blocking_leaves),
        blocking_leaves.map(lambda leaf: ["finally", leaf]),
    )
    return st.one_of(
        st.lists(nodes, min_size=1, max_size=3).map(lambda ns: ["seq", ns]),
        st.builds(lambda how, ns: ["all", how, ns], st.sampled_from(["gather", "group"]), _some(nodes)),
        _some(runners).map(lambda ns: ["race", ns]),
        st.builds(lambda s, n: ["limit", s, n], seconds, nodes),
        st.builds(lambda times, n: ["loop", times, n], st.integers(2, 3), nodes),
        nodes.map(lambda n: ["finally", n]),
    )


def _some(nodes: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(nodes, min_size=2, max_size=3)


nodes = st.recursive(blocking_leaves | sends, _grow, max_leaves=8)
# Left alone, hypothesis draws many programs that do next to nothing: most get a few waits.
bodies = st.one_of(
    nodes,
    st.builds(lambda a, b, c: ["seq", [a, b, c]], nodes, waits, nodes),
    st.builds(lambda a, b, c: ["seq", [["race", [a, b]], c]], waits, waits, nodes),
    st.builds(lambda how, a, b, c: ["seq", [["all", how, [a, b]], c]], st.just("group"), waits, waits, waits),
    st.builds(lambda a, b: ["seq", [["loop", 3, a], b]], waits, waits),
)
codes = st.fixed_dictionaries({"body": bodies, "swallow": st.booleans()})
