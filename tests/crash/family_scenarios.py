"""Scenarios of sagas and families: undoing, retries, children, runs that follow each other, views."""

from __future__ import annotations

import asyncio

from romancy import (
    ActivityContext,
    RetryPolicy,
    WaitTimeout,
    WorkflowContext,
    WorkflowFailed,
    activity,
    compensate,
    saga,
    send_event,
    sleep,
    start_workflow,
    wait_event,
    workflow,
)
from tests.crash.scenario import Declined, charge, scenario
from tests.crash.stage import Stage


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


@workflow
async def quarrel(ctx: WorkflowContext) -> None:
    await book(ctx, "quarrel")
    await wait_event(ctx, "quarrel")
    raise Declined("quarrel", 402)


@workflow
async def careful_home(ctx: WorkflowContext) -> str:
    try:
        async with saga(ctx):
            compensate(ctx, tell, "called off")
            await asyncio.gather(kid(ctx, "a"), cancelled_flat(ctx), quarrel(ctx))
    except WorkflowFailed:
        await book(ctx, "hotel")
    return (await wait_event(ctx, "home")).id


@scenario(
    careful_home,
    cancelled_flat,
    kid,
    quarrel,
    ends={
        "h": "end",
        "h/quarrel:1": "('quarrel', 402)",
        **dict.fromkeys(["h/kid:1", "h/cancelled_flat:1"], "its parent 'h' no longer waits for it"),
        "h/cancelled_flat:1/kid:1": "its parent 'h' no longer waits for it",
    },
    ordered=False,
    timely=False,
    steady=False,
)
async def a_block_waits_for_its_children(play: Stage) -> None:
    await play.start(careful_home, id="h")
    await play.send("quarrel", id="q")
    await play.advance(1)
    await play.send("home", id="end")


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
