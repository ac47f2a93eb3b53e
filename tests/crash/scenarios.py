"""Small plays that between them use every primitive. Each is a set of workflows and a script of what befalls them."""

from __future__ import annotations

import asyncio
import random
import re
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from romancy import (
    ActivityContext,
    ActivityError,
    ReceivedEvent,
    RetryPolicy,
    WaitTimeout,
    Workflow,
    WorkflowContext,
    WorkflowFailed,
    activity,
    compensate,
    events,
    saga,
    send_event,
    sleep,
    sleep_until,
    start_workflow,
    step,
    wait_event,
    workflow,
)
from romancy.storage.rows import triggered_id
from tests.crash.stage import Stage, hanging

Script = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True)
class Scenario:
    """`ends`: what each instance returns, or the message of its error.

    `ordered`: the order of history entries is part of the outcome (false where threads decide it).
    `timely`: so are their times (false where a repeated attempt takes its time again).
    `movable`: it ends in the same way if its database is moved to PostgreSQL half way.
    `steady`: the number of commits is always the same (false where several instances may share a commit).
    """

    name: str
    workflows: Sequence[Workflow[..., Any]]
    script: Script
    ends: dict[str, Any]
    ordered: bool = True
    timely: bool = True
    steady: bool = True
    movable: bool = True

    def normal(self, outcome: dict[str, Any]) -> dict[str, Any]:
        """An outcome without what may differ from run to run."""
        history = [(*entry, _without_place(payload)) for *entry, payload in outcome["history"]]
        if not self.timely:
            history = [(instance, kind, op, payload) for instance, kind, op, _, payload in history]
        return {**outcome, "history": history if self.ordered else sorted(history, key=lambda entry: entry[:3])}


def _without_place(payload: Any) -> Any:
    """Where PostgreSQL found an event depends on its transactions."""
    return re.sub(rb', "place": "[^"]+"', b"", bytes(payload)) if isinstance(payload, bytes | memoryview) else payload


SCENARIOS: list[Scenario] = []


def scenario(
    *workflows: Workflow[..., Any],
    ends: dict[str, Any],
    ordered: bool = True,
    timely: bool = True,
    steady: bool = True,
    movable: bool = True,
) -> Callable[[Script], Script]:
    def add(script: Script) -> Script:
        SCENARIOS.append(Scenario(script.__name__, workflows, script, ends, ordered, timely, steady, movable))
        return script

    return add


@dataclass
class Payment:
    order: int
    amount: float


class Declined(Exception):
    pass


# --- activities ------------------------------------------------------------------------------------------------------
@activity
async def double(ctx: ActivityContext, n: int) -> int:
    return 2 * n


@activity
def triple(ctx: ActivityContext, n: int) -> int:
    return 3 * n


@activity
async def flaky(ctx: ActivityContext, failures: int) -> list[Any]:
    if ctx.attempt <= failures:
        ctx.progress({"reached": ctx.attempt})
        raise ConnectionError(f"attempt {ctx.attempt}")
    return [ctx.attempt, ctx.last_progress]


@activity(raises=[Declined])
async def charge(ctx: ActivityContext, card: str) -> str:
    raise Declined(card, 402)


@activity(timeout=5)
async def hang(ctx: ActivityContext) -> None:
    with hanging():
        await asyncio.get_running_loop().create_future()


@activity
async def announce(ctx: ActivityContext, what: str) -> None:
    await send_event(ctx, "announced", "activity", {"what": what})
    await send_event(ctx, "announced", "activity", {"what": what, "again": True}, to="listener")


@activity
def announce_from_thread(ctx: ActivityContext, what: str) -> None:
    if ctx.attempt == 1:
        ctx.send_event("announced", "thread", {"what": "never"}, id="never")
        raise ConnectionError
    ctx.send_event("announced", "thread", {"what": what})


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


# --- undoing ---------------------------------------------------------------------------------------------------------
@activity
async def book(ctx: ActivityContext, what: str) -> str:
    return what.upper()


@book.compensate
async def unbook(ctx: ActivityContext, booking: str, what: str) -> None:
    if what == "flaky" and ctx.attempt <= 2:
        raise ConnectionError(f"attempt {ctx.attempt}")
    await send_event(ctx, "unbooked", "undo", [booking, what])


@activity
async def tell(ctx: ActivityContext, what: str) -> None:
    await send_event(ctx, "unbooked", "by hand", what)


@workflow
async def trips(ctx: WorkflowContext) -> None:
    await asyncio.gather(book(ctx, "a"), book(ctx, "flaky"))
    compensate(ctx, tell, "by hand")
    try:
        async with saga(ctx):
            await book(ctx, "inside")
            await charge(ctx, "1234")
    except Declined:
        await book(ctx, "outside")
    await charge(ctx, "5678")


@scenario(trips, ends={"a": "('5678', 402)"}, ordered=False, timely=False)
async def a_failed_workflow_is_undone(play: Stage) -> None:
    await play.start(trips, id="a")
    for _ in range(3):
        await play.advance(3)


@workflow
async def interrupted(ctx: WorkflowContext) -> None:
    await book(ctx, "flaky")
    async with saga(ctx):
        await book(ctx, "inside")
        await wait_event(ctx, "never")


@scenario(
    interrupted,
    ends={"cancelled": "enough", "out of time": "instance 'out of time' ran out of time"},
    ordered=False,
    timely=False,
)
async def undone_after_a_cancellation_and_a_time_limit(play: Stage) -> None:
    await play.start(interrupted, id="cancelled")
    await play.start(interrupted.options(timeout=2), id="out of time")
    await play.cancel("cancelled", "enough")
    await play.advance(2)
    await play.cancel("cancelled", "again")
    for _ in range(3):
        await play.advance(3)


@activity
async def closed(ctx: ActivityContext, what: str) -> str:
    return what


@closed.compensate
@activity(retry=RetryPolicy(max_attempts=1))
async def open_again(ctx: ActivityContext, what: str) -> None:
    if ctx.activity_id.endswith(":1"):
        raise ConnectionError("not now")


@workflow
async def held(ctx: WorkflowContext) -> None:
    await closed(ctx, "one")
    await book(ctx, "two")
    await charge(ctx, "5678")


@scenario(held, ends={"a": "('5678', 402)"})
async def undos_that_fail_are_tried_again_when_resumed(play: Stage) -> None:
    await play.start(held, id="a")
    await play.resume("a")


# --- retries ----------------------------------------------------------------------------------------------------------
repaired: set[str] = set()


@activity(retry=RetryPolicy(max_attempts=1))
async def fragile(ctx: ActivityContext, what: str) -> str:
    if what not in repaired:
        raise ConnectionError(f"{what} is broken")
    return what.upper()


@workflow
async def fragile_kid(ctx: WorkflowContext) -> str:
    await tell(ctx, "kid")
    return await fragile(ctx, "kid")


@workflow
async def fragile_home(ctx: WorkflowContext) -> list[str]:
    first = (await wait_event(ctx, "go")).id
    calls = fragile(ctx, "one"), fragile(ctx, "two"), fragile_kid(ctx), tell(ctx, "home")
    found = await asyncio.gather(*calls, return_exceptions=True)
    errors = [error for error in found if isinstance(error, Exception)]
    await send_event(ctx, "reported", "test", len(errors))
    if errors:
        raise ExceptionGroup("broken", errors)
    try:
        last = (await wait_event(ctx, "stop", timeout=10)).id
    except WaitTimeout:
        await tell(ctx, "too late")
        raise
    return [first, *map(str, found[:3]), last]


@scenario(
    fragile_home,
    fragile_kid,
    ends={"r": ["g", "ONE", "TWO", "KID", "s"], "r/fragile_kid:1": "KID"},
    ordered=False,
    timely=False,
    steady=False,
    movable=False,
)
async def retries(play: Stage) -> None:
    repaired.clear()
    await play.start(fragile_home, id="r")
    await play.send("go", id="g")
    repaired.update(("one", "two", "kid"))
    await play.retry("r")
    await play.advance(10)
    await play.retry("r")
    await play.advance(9)
    await play.send("stop", id="s")


# --- children and runs ------------------------------------------------------------------------------------------------
@workflow
async def kid(ctx: WorkflowContext, name: str) -> str:
    if name == "naughty":
        raise Declined(name, 402)
    booking = await book(ctx, name)
    return f"{booking} {(await wait_event(ctx, f'go {name}')).id}"


@workflow
async def home(ctx: WorkflowContext) -> list[str]:
    said: list[str] = [*await asyncio.gather(kid(ctx, "a"), kid(ctx, "b"))]
    try:
        await kid(ctx, "naughty")
    except WorkflowFailed as error:
        said.append(error.message)
    try:
        async with asyncio.timeout(5):
            await kid(ctx, "slow")
    except TimeoutError:
        said.append("too slow")
    free = await start_workflow(ctx, kid, "free")
    await sleep(ctx, 1)
    return [*said, free.instance_id]


@scenario(
    home,
    kid,
    ends={
        "h": ["A ga", "B gb", "('naughty', 402)", "too slow", "h/kid:5"],
        "h/kid:1": "A ga",
        "h/kid:2": "B gb",
        "h/kid:3": "('naughty', 402)",
        "h/kid:4": "its parent 'h' no longer waits for it",
        "h/kid:5": "FREE gf",
    },
    ordered=False,
    timely=False,
    steady=False,
)
async def a_parent_and_its_children(play: Stage) -> None:
    await play.start(home, id="h")
    await play.send("go b", id="gb")
    await play.send("go a", id="ga")
    await play.advance(5)
    await play.advance(1)
    await play.send("go free", id="gf")


@workflow
async def laps(ctx: WorkflowContext, seen: list[str]) -> list[str]:
    for _ in range(2):
        event = await wait_event(ctx, "lap")
        seen.append(f"{event.id} {ctx.run_number}")
    await book(ctx, seen[-1])
    await sleep(ctx, 1)
    if len(seen) == 6:
        return seen
    laps.continue_as_new(ctx, seen)


@scenario(laps, ends={"l": [f"lap{n} {(n + 2) // 2}" for n in range(6)]}, timely=False)
async def runs_that_follow_each_other(play: Stage) -> None:
    await play.start(laps, [], id="l")
    for n in range(6):
        await play.send("lap", id=f"lap{n}")
    for _ in range(3):
        await play.advance(1)


@workflow
async def cancelled_home(ctx: WorkflowContext) -> None:
    await asyncio.gather(kid(ctx, "a"), cancelled_flat(ctx))


@workflow
async def cancelled_flat(ctx: WorkflowContext) -> None:
    await book(ctx, "flat")
    await kid(ctx, "b")


@scenario(
    cancelled_home,
    cancelled_flat,
    kid,
    ends=dict.fromkeys(["h", "h/kid:1", "h/cancelled_flat:1", "h/cancelled_flat:1/kid:1"], "enough"),
    ordered=False,
    timely=False,
    steady=False,
)
async def a_family_that_is_cancelled(play: Stage) -> None:
    await play.start(cancelled_home, id="h")
    await play.cancel("h", "enough")
    await play.advance(1)


@workflow(attributes={"customer": "customer"})
async def showing(ctx: WorkflowContext, customer: str, lap: int = 1) -> int:
    """Shows something new between all its steps, and the same thing again."""
    ctx.set_view({"lap": lap, "at": "the door"})
    first = await book(ctx, f"{customer} {lap}")
    ctx.set_view({"lap": lap, "at": "the desk"})
    ctx.set_attributes({"tier": "gold" if lap == 1 else None, f"lap{lap}": True})
    await wait_event(ctx, "next")
    ctx.set_view({"lap": lap, "at": "the desk"})
    await sleep(ctx, 1)
    ctx.set_attributes({"last": first})
    if lap == 1:
        showing.continue_as_new(ctx, customer.upper(), 2)
    ctx.set_view([lap, first])
    return lap


@workflow
async def host(ctx: WorkflowContext) -> None:
    """Its guest is stored with its own end."""
    ctx.set_view("come in")
    await book(ctx, "a table")
    await start_workflow(ctx, showing, "guest", 2)


@scenario(showing, host, ends={"s": 2, "h": None, "h/showing:1": 2}, timely=False, steady=False)
async def views_and_attributes(play: Stage) -> None:
    await play.start(showing, "ann", id="s")
    await play.start(host, id="h")
    for n in range(2):
        await play.send("next", id=f"n{n}")
        await play.advance(1)
