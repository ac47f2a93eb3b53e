"""Scenarios of single instances: activities, waits, time, asyncio, sending, cancelling, steps and streams."""

from __future__ import annotations

import asyncio
import random
import uuid
from datetime import timedelta
from typing import Any

from romancy import (
    ActivityContext,
    ActivityError,
    Queue,
    ReceivedEvent,
    WaitTimeout,
    WorkflowContext,
    activity,
    compensate,
    events,
    send_event,
    sleep,
    sleep_until,
    step,
    wait_event,
    workflow,
)
from romancy.storage.rows import triggered_id
from tests.crash.scenario import (
    Declined,
    Payment,
    announce,
    announce_from_thread,
    charge,
    double,
    flaky,
    hang,
    scenario,
    triple,
)
from tests.crash.stage import Stage


# --- activities ------------------------------------------------------------------------------------------------------
@workflow
async def steps(ctx: WorkflowContext, n: int) -> list[Any]:
    n = await double(ctx, n)
    n = await triple(ctx, n)
    again = ctx.uuid4() == uuid.UUID(int=random.Random(f"romancy:{ctx.instance_id}").getrandbits(128), version=4)
    return [n, await flaky(ctx, 2), again, ctx.now().isoformat()]


@scenario(steps, ends={"a": [42, [3, {"reached": 2}], True, "2027-01-15T08:00:03+00:00"]})
async def activities_and_retries(play: Stage) -> None:
    await play.start(steps, 7, id="a")
    await play.advance(1)
    await play.advance(2)


@activity
async def undo(ctx: ActivityContext) -> None:
    if ctx.attempt == 1:
        raise ConnectionError


@workflow
async def impatient(ctx: WorkflowContext) -> list[Any]:
    first = await asyncio.gather(flaky(ctx, 1), flaky(ctx, 1), double(ctx, 1))
    await wait_event(ctx, "go on")
    return [*first, await flaky(ctx, 1), ctx.now().isoformat()]


@workflow
async def undone(ctx: WorkflowContext) -> None:
    compensate(ctx, undo)
    raise ValueError("no")


@scenario(
    impatient,
    undone,
    ends={
        "a": [[2, {"reached": 1}], [2, {"reached": 1}], 2, [2, {"reached": 1}], "2027-01-15T08:00:00+00:00"],
        "b": "no",
    },
)
async def attempts_that_begin_at_once(play: Stage) -> None:
    """No step lets time pass. If one is played again, nothing waits any more."""
    await play.start(impatient, id="a")
    await play.retry_now("a")
    await play.send("go on", id="go on")
    await play.retry_now("a")
    await play.start(undone, id="b")
    await play.retry_now("b")


@workflow
async def answers(ctx: WorkflowContext) -> list[Any]:
    said: list[Any] = []
    try:
        await charge(ctx, "4242")
    except Declined as error:
        said.append(list(error.args))
    try:
        await flaky(ctx, 99)
    except ActivityError as error:
        said += [error.error_type, error.message, error.attempts]
    return said


@workflow
async def fails(ctx: WorkflowContext) -> None:
    await double(ctx, 1)
    await charge(ctx, "0000")


@scenario(answers, fails, ends={"a": [["4242", 402], "ConnectionError", "attempt 4", 4], "b": "('0000', 402)"})
async def failures_are_recorded(play: Stage) -> None:
    await play.start_together((answers, (), "a"), (fails, (), "b"))
    for _ in range(3):
        await play.advance(8)


@workflow
async def times_out(ctx: WorkflowContext) -> str:
    ctx.describe("waits for a hanging service")
    try:
        await hang(ctx)
    except ActivityError as error:
        return f"{type(error).__name__} {error.attempts}"
    return "?"


@scenario(times_out, ends={"a": "ActivityTimeout 4"}, timely=False)
async def attempts_out_of_time(play: Stage) -> None:
    await play.start(times_out, id="a")
    for _ in range(5):
        await play.advance(9)


# --- waits -----------------------------------------------------------------------------------------------------------
@workflow
async def options(ctx: WorkflowContext) -> list[Any]:
    got: list[Any] = []

    def took(event: ReceivedEvent[Any]) -> None:
        got.append([event.id, event.type, event.data if not isinstance(event.data, Payment) else event.data.amount])

    took(await wait_event(ctx, "plain"))
    took(await wait_event(ctx, "paid", subject="S", source="shop", where={"order.id": 7}, wait_id="the-payment"))
    took(await wait_event(ctx, "paid", model=Payment, where={"order": 1}))
    took(await wait_event(ctx, "yes", "no", model=(int, str)))
    took(await wait_event(ctx, "paid"))
    took(await wait_event(ctx, "plain", since="now"))
    took(await wait_event(ctx, "plain", since=ctx.started_at))
    try:
        await wait_event(ctx, "never", timeout=timedelta(minutes=1))
    except WaitTimeout as error:
        got.append([error.wait_id, list(error.types)])
    try:
        await wait_event(ctx, "never", timeout=0)
    except WaitTimeout:
        got.append("nothing there")
    took(await wait_event(ctx, "plain", timeout=0))
    return got


@scenario(
    options,
    ends={
        "a": [
            ["p1", "plain", 1],
            ["right one", "paid", {"order": {"id": 7}}],
            ["fits", "paid", 9.5],
            ["no", "no", "nobody"],
            ["other order", "paid", {"order": {"id": 8}}],
            ["p2", "plain", 2],
            ["before its birth", "plain", 0],
            ["never:1", ["never"]],
            "nothing there",
            ["p3", "plain", 3],
        ]
    },
)
async def every_option_of_wait_event(play: Stage) -> None:
    await play.send("plain", 0, id="before its birth")
    await play.start(options, id="a")
    await play.send("plain", 1, id="p1")
    await play.send("paid", {"order": {"id": 8}}, id="other order", subject="S", source="shop")
    await play.send("paid", {"order": {"id": 7}}, id="right one", subject="S", source="shop")
    await play.send("paid", {"order": 1, "amount": "much"}, id="misfit")
    await play.send("paid", {"order": 1, "amount": 9.5}, id="fits")
    await play.send("yes", "not a number", id="misfit 2")
    await play.send("no", "nobody", id="no")
    await play.send("plain", 2, id="p2")
    await play.send("plain", 3, id="p3")
    await play.send("plain", 4, id="p4")
    await play.advance(61)


@workflow
async def loops(ctx: WorkflowContext, n: int) -> list[str]:
    return [(await wait_event(ctx, "tick")).id for _ in range(n)]


@scenario(loops, ends={"a": ["t0", "t1", "t2", "t3", "t4", "t5"], "b": ["t0", "t1"]})
async def many_events_one_after_the_other(play: Stage) -> None:
    await play.start(loops, 6, id="a")
    await play.start(loops, 2, id="b")
    for n in range(6):
        await play.send("tick", id=f"t{n}")


@workflow
async def alike(ctx: WorkflowContext) -> list[str]:
    """Three waits that nothing tells apart: an event each, oldest first; a fourth is for those that come later."""
    first = asyncio.create_task(wait_event(ctx, "tick"))
    others = await asyncio.gather(
        wait_event(ctx, "tick"), wait_event(ctx, "tick"), wait_event(ctx, "tick", since="now"), return_exceptions=True
    )
    return sorted({(await first).id, *(event.id for event in others if not isinstance(event, BaseException))})


@scenario(alike, ends={"a": ["t0", "t1", "t2", "t3"]})
async def waits_that_are_alike(play: Stage) -> None:
    await play.start(alike, id="a")
    for n in range(6):
        await play.send("tick", id=f"t{n}")


# --- time ------------------------------------------------------------------------------------------------------------
@workflow
async def sleepy(ctx: WorkflowContext) -> list[str]:
    seen = [ctx.now().isoformat()]
    await sleep(ctx, 10, timer_id="nap")
    seen.append(ctx.now().isoformat())
    await sleep_until(ctx, ctx.started_at)
    await sleep_until(ctx, ctx.started_at + timedelta(hours=1))
    seen.append(ctx.now().isoformat())
    await asyncio.sleep(1.5)
    seen.append(ctx.now().isoformat())
    await sleep(ctx, 0)
    return seen


@scenario(
    sleepy,
    ends={
        "a": [
            "2027-01-15T08:00:00+00:00",
            "2027-01-15T08:00:10+00:00",
            "2027-01-15T09:00:00+00:00",
            "2027-01-15T09:00:01.500000+00:00",
        ]
    },
)
async def sleeping(play: Stage) -> None:
    await play.start(sleepy, id="a")
    await play.advance(10)
    await play.advance(timedelta(hours=1))
    await play.advance(2)


@workflow
async def bounded(ctx: WorkflowContext) -> None:
    try:
        await wait_event(ctx, "never")
    finally:
        await double(ctx, 1)


@scenario(bounded, ends={"a": "instance 'a' ran out of time"})
async def a_workflow_out_of_time(play: Stage) -> None:
    await play.start(bounded.options(timeout=30), id="a")
    await play.advance(31)


# --- asyncio ---------------------------------------------------------------------------------------------------------
@workflow
async def all_together(ctx: WorkflowContext) -> list[Any]:
    event = wait_event(ctx, "go", timeout=100)
    numbers, flaked, _, went = await asyncio.gather(
        asyncio.gather(*(double(ctx, n) for n in range(3)), triple(ctx, 5)), flaky(ctx, 1), sleep(ctx, 3), event
    )
    return [numbers, flaked, went.id]


@scenario(all_together, ends={"a": [[0, 2, 4, 15], [2, {"reached": 1}], "go"]}, ordered=False)
async def gathering(play: Stage) -> None:
    await play.start(all_together, id="a")
    await play.send("go", id="go")
    await play.advance(1)
    await play.advance(3)


@workflow
async def group(ctx: WorkflowContext) -> list[Any]:
    log: list[Any] = []

    async def careful(n: int) -> None:
        try:
            await wait_event(ctx, "go", wait_id=f"careful-{n}")
        finally:
            log.append(await double(ctx, n))

    try:
        async with asyncio.TaskGroup() as tasks:
            for n in range(3):
                tasks.create_task(careful(n))
            tasks.create_task(charge(ctx, "1111"))
    except* Declined as errors:
        log.append(len(errors.exceptions))
    log.append((await wait_event(ctx, "go")).id)
    return log


@scenario(group, ends={"a": [0, 2, 4, 1, "go"]})
async def a_task_group_that_fails(play: Stage) -> None:
    await play.start(group, id="a")
    await play.send("go", id="go")


@workflow
async def scopes(ctx: WorkflowContext) -> list[Any]:
    log: list[Any] = []
    try:
        async with asyncio.timeout(5):
            await wait_event(ctx, "late")
    except TimeoutError:
        log.append("timeout")
    log.append((await wait_event(ctx, "late")).id)
    async with asyncio.timeout(5):
        log.append((await wait_event(ctx, "late")).id)
    try:
        await asyncio.wait_for(hang(ctx), 2)
    except TimeoutError:
        log.append("gave up")
    return log


@scenario(scopes, ends={"a": ["timeout", "l1", "l2", "gave up"]})
async def timeouts_of_asyncio(play: Stage) -> None:
    await play.start(scopes, id="a")
    await play.advance(5)
    await play.send("late", id="l1")
    await play.send("late", id="l2")
    await play.advance(3)


@workflow
async def first_of(ctx: WorkflowContext) -> list[Any]:
    log: list[Any] = []
    left = asyncio.create_task(wait_event(ctx, "left"))
    right = asyncio.create_task(wait_event(ctx, "right"))
    timer = asyncio.create_task(sleep(ctx, 60))
    done, losers = await asyncio.wait({left, right, timer}, return_when=asyncio.FIRST_COMPLETED)
    for task in losers:
        task.cancel()
    log.append([len(done), len(losers), (await right).id])
    log.append((await wait_event(ctx, "left")).id)
    return log


@scenario(first_of, ends={"a": [[1, 2, "r"], "l"]})
async def losers_consume_nothing(play: Stage) -> None:
    await play.start(first_of, id="a")
    await play.send("right", id="r")
    await play.send("left", id="l")
    await play.advance(60)


# --- sending ---------------------------------------------------------------------------------------------------------
@workflow
async def sender(ctx: WorkflowContext) -> int:
    await send_event(ctx, "announced", "workflow", {"what": "one"})
    n = await double(ctx, 4)
    await send_event(ctx, "announced", "workflow", {"what": n}, subject="two")
    await send_event(ctx, "announced", "workflow", {"what": "private"}, to="listener")
    await send_event(ctx, "placed", "workflow", {"order": 5, "amount": 1})
    await announce(ctx, "from an activity")
    await announce_from_thread(ctx, "from a thread")
    return n


@workflow
async def listener(ctx: WorkflowContext, n: int) -> list[Any]:
    heard: list[Any] = []
    for _ in range(n):
        event = await wait_event(ctx, "announced")
        heard.append([event.source, event.id, event.subject, event.data])
    return heard


@workflow(on_event="placed")
async def placed(ctx: WorkflowContext, event: ReceivedEvent[Payment]) -> list[Any]:
    other = await wait_event(ctx, "announced", source="activity")
    return [event.data.order, event.id, other.id]


ONE = ["workflow", "sender/send announced:1", None, {"what": "one"}]
TWO = ["workflow", "sender/send announced:2", "two", {"what": 8}]
PRIVATE = ["workflow", "sender/send announced:3", None, {"what": "private"}]
ACTIVITY = ["activity", "sender/announce:1/1", None, {"what": "from an activity"}]
TARGETED = ["activity", "sender/announce:1/2", None, {"what": "from an activity", "again": True}]
THREAD = ["thread", "sender/announce_from_thread:1/1", None, {"what": "from a thread"}]


@scenario(
    sender,
    listener,
    placed,
    ends={
        "sender": 8,
        "listener": [ONE, TWO, PRIVATE, ACTIVITY, TARGETED, THREAD],
        "bystander": [ONE, TWO, ACTIVITY, THREAD],
        triggered_id("placed", "test", "fit"): [6, "fit", "last"],
        triggered_id("placed", "workflow", "sender/send placed:1"): [5, "sender/send placed:1", "sender/announce:1/1"],
    },
    steady=False,
)
async def sending_from_inside(play: Stage) -> None:
    await play.start(listener, 6, id="listener")
    await play.start(listener, 4, id="bystander")
    await play.start(sender, id="sender")
    await play.advance(1)
    await play.send("placed", {"order": 6, "amount": "?"}, id="unfit")
    await play.send("placed", {"order": 6, "amount": 2}, id="fit")
    await play.send("announced", id="last", source="activity")


# --- cancelling ------------------------------------------------------------------------------------------------------
@workflow
async def careful(ctx: WorkflowContext) -> str:
    try:
        await wait_event(ctx, "never")
    except asyncio.CancelledError as error:
        await send_event(ctx, "cancelled", "workflow", str(error))
        await double(ctx, 1)
        raise
    finally:
        await triple(ctx, 2)
        await sleep(ctx, 5)
    return "unreachable"


@workflow
async def stubborn(ctx: WorkflowContext) -> str:
    try:
        await sleep(ctx, 1000)
    except asyncio.CancelledError:
        await flaky(ctx, 1)
    return "ended all the same"


@workflow
async def in_activity(ctx: WorkflowContext) -> None:
    await asyncio.gather(hang(ctx), wait_event(ctx, "nobody sends this"))


@scenario(
    careful,
    stubborn,
    in_activity,
    ends={"careful": "not needed", "stubborn": "ended all the same", "in activity": "enough"},
)
async def cancelling(play: Stage) -> None:
    await play.start(careful, id="careful")
    await play.start(stubborn, id="stubborn")
    await play.cancel("careful", "not needed")
    await play.cancel("stubborn")
    await play.start(in_activity, id="in activity")
    await play.cancel("in activity", "enough")
    await play.advance(1)
    await play.send("never", id="too late")
    await play.advance(5)
    await play.cancel("careful", "again")
    await play.advance(2000)


@workflow
async def racer(ctx: WorkflowContext) -> str:
    try:
        return (await wait_event(ctx, "goal", timeout=10)).id
    except WaitTimeout:
        return f"{ctx.now().isoformat()} {(await wait_event(ctx, 'goal')).id}"


@scenario(racer, ends={"r0": "g0", "r1": "2027-01-15T08:00:10+00:00 g1", "r2": "cancelled"})
async def one_winner(play: Stage) -> None:
    await play.start_together(*((racer, (), f"r{n}") for n in range(3)))
    await play.send("goal", id="g0", to="r0")
    await play.advance(10)
    await play.send("goal", id="g1", to="r1")
    await play.cancel("r2")
    await play.send("goal", id="g2")


# --- queues ----------------------------------------------------------------------------------------------------------
@workflow(queue=Queue("counter", max_concurrent=1), key="customer")
async def served(ctx: WorkflowContext, customer: str) -> str:
    return f"{customer} {(await wait_event(ctx, 'serve', where={'customer': customer})).id}"


@scenario(served, ends={"a": "x s1", "b": "x s1", "c": "y s2"})
async def one_at_a_time(play: Stage) -> None:
    for id, customer in (("a", "x"), ("b", "x"), ("c", "y")):
        await play.start(served, customer, id=id)
    for n, customer in ((1, "x"), (2, "y")):
        await play.send("serve", {"customer": customer}, id=f"s{n}")


# --- steps and streams -----------------------------------------------------------------------------------------------
@workflow
async def closures_over_a_stream(ctx: WorkflowContext) -> list[Any]:
    got: list[Any] = []
    await wait_event(ctx, "begin")
    async for event in events(ctx, "row", model=int, since="now", until=ctx.now() + timedelta(minutes=1)):

        async def doubled(n: int = event.data) -> int:
            if n == 2 and ActivityContext.current().attempt == 1:
                raise ConnectionError
            return 2 * n

        got.append(await step(ctx, "double", doubled, input=event.data))
    batches = events(ctx, "row", model=int, limit=4)
    while batch := await batches.take(3, window=10):
        got.append([event.id for event in batch])
    return got


# A stream that began "now" goes on by time after a move, and here everything happens in the same microsecond.
@scenario(closures_over_a_stream, ends={"a": [2, 4, 6, ["old", "older"], ["r4", "r5"]]}, movable=False)
async def steps_and_streams(play: Stage) -> None:
    await play.start(closures_over_a_stream, id="a")
    await play.send("row", 8, id="old")
    await play.send("row", 9, id="older")
    await play.send("begin", id="begin")
    for n in (1, 2, 3):
        await play.send("row", n, id=f"r{n}")
    await play.advance(5)
    await play.advance(55)
    await play.advance(20)
    await play.send("row", 4, id="r4")
    await play.send("row", 5, id="r5")
