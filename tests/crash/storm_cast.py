"""The workflows of the storm, and the observer that their activities report to.

A plan is `{"name": ..., "steps": [...]}`, and a step is one of

    ["book" | "book_in_thread", seconds, undo]   something to undo; `undo` is "well", "shaky" (fails twice) or "stuck"
    ["repairable", thing]                        fails for good until the thing is repaired
    ["nap", seconds] ["go", seconds]             a sleep; an event that all of a family get, or none
    ["together", steps] ["hasty", seconds, steps]
    ["block", steps, "raise" | "go on"]          a saga block, whose exception is handled
    ["called", plans, seconds | None, "strict" | "lenient"]
    ["free", plans, "awaited" | "left alone"]
    ["raise"]

An effect is a line in the observer's file, appended at once, with the idempotency key of its call: no death of a
process loses it, and repeating it changes nothing. A file has an order, so what came first is known, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import suppress
from typing import Any

from romancy import (
    NO_RETRY,
    ActivityContext,
    RetryPolicy,
    WaitTimeout,
    WorkflowCancelled,
    WorkflowContext,
    WorkflowFailed,
    activity,
    events,
    saga,
    sleep,
    start_workflow,
    wait_event,
    workflow,
)

_SOON = RetryPolicy(max_attempts=None, initial=0.05, maximum=0.3)
_FEW = RetryPolicy(max_attempts=6, initial=0.02, maximum=0.1)


class Observer:
    """What really happened, in order, and which things are repaired."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file = os.open(os.path.join(folder, "seen"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, what: str, **line: Any) -> None:
        os.write(self._file, (json.dumps({"what": what, "at": time.time(), **line}) + "\n").encode())

    def see(self, what: str, ctx: ActivityContext, **more: Any) -> None:
        about = {"instance": ctx.instance_id, "op": ctx.activity_id, "key": ctx.idempotency_key, "attempt": ctx.attempt}
        self.note(what, **about, pid=os.getpid(), **more)

    def lines(self) -> list[dict[str, Any]]:
        with open(os.path.join(self._folder, "seen")) as seen:
            return [json.loads(line) for line in seen]

    def repair(self, thing: str) -> None:
        open(self._place(thing), "w").close()

    def is_repaired(self, thing: str) -> bool:
        return os.path.exists(self._place(thing))

    def _place(self, thing: str) -> str:
        return os.path.join(self._folder, "repaired " + thing.replace("/", " "))


class Off(Exception):
    """How a plan fails."""


# --- activities -------------------------------------------------------------------------------------------------------
@activity(retry=_SOON)
async def book(ctx: ActivityContext, seconds: float, undo: str) -> str:
    await asyncio.sleep(seconds)
    ctx.state.see("did", ctx)
    return ctx.idempotency_key


@activity(retry=_SOON)
def book_in_thread(ctx: ActivityContext, seconds: float, undo: str) -> str:
    if ctx.attempt == 1 and undo == "shaky":
        raise ConnectionError("once more")
    time.sleep(seconds)
    ctx.state.see("did", ctx)
    return ctx.idempotency_key


@book.compensate
@book_in_thread.compensate
@activity(retry=_FEW)
async def unbook(ctx: ActivityContext, booking: str, seconds: float, undo: str) -> None:
    is_first = ctx.activity_id.endswith(":1")
    if (undo == "shaky" and ctx.attempt < 3) or (undo == "stuck" and is_first):
        raise ConnectionError("not now")
    await asyncio.sleep(seconds / 2)
    ctx.state.see("undid", ctx, of=booking)


@activity(retry=NO_RETRY)
async def repairable(ctx: ActivityContext, thing: str) -> str:
    await asyncio.sleep(0.01)
    if not ctx.state.is_repaired(thing):
        raise ConnectionError(f"{thing} is broken")
    ctx.state.see("used", ctx, thing=thing)
    return ctx.idempotency_key


@activity(retry=_SOON)
async def take(ctx: ActivityContext, n: int) -> int:
    await asyncio.sleep(0.01)
    ctx.state.see("took", ctx, n=n)
    return n


# --- sagas and families -----------------------------------------------------------------------------------------------
class _Trip:
    """The steps of a plan: what it holds in the end, what its children answered, and which it left alone."""

    def __init__(self, ctx: WorkflowContext, plan: Any) -> None:
        self.ctx, self.plan = ctx, plan
        self.held: list[str] = []
        self.heard: list[Any] = []
        self.freed: list[str] = []

    async def go(self, steps: list[Any]) -> None:
        for step in steps:
            await self.take(step)

    async def take(self, step: Any) -> None:
        match step:
            case ["book", seconds, undo]:
                self.held.append(await book(self.ctx, seconds, undo))
            case ["book_in_thread", seconds, undo]:
                self.held.append(await book_in_thread(self.ctx, seconds, undo))
            case ["repairable", thing]:
                await repairable(self.ctx, thing)
            case ["nap", seconds]:
                await sleep(self.ctx, seconds)
            case ["go", seconds]:
                with suppress(WaitTimeout):
                    await wait_event(self.ctx, "go", subject=self.plan["name"].partition("/")[0], timeout=seconds)
            case ["together", steps]:
                await asyncio.gather(*map(self.take, steps))
            case ["hasty", seconds, steps]:
                try:
                    async with asyncio.timeout(seconds):
                        await asyncio.gather(*map(self.take, steps))
                except TimeoutError:
                    pass
            case ["block", steps, end]:
                await self.block(steps, end)
            case ["called", plans, seconds, how]:
                await self.call(plans, seconds, how)
            case ["free", plans, how]:
                await self.free(plans, how)
            case ["raise"]:
                raise Off("as planned")
            case _:
                raise AssertionError(f"no such step: {step!r}")

    async def block(self, steps: list[Any], end: str) -> None:
        before = len(self.held)
        try:
            async with saga(self.ctx):
                await self.go(steps)
                if end == "raise":
                    raise Off("in a block")
        except Off:
            del self.held[before:]

    async def call(self, plans: list[Any], seconds: float | None, how: str) -> None:
        async def lenient(plan: Any) -> None:
            try:
                self.heard.append(["completed", await trip(self.ctx, plan)])
            except WorkflowFailed as error:
                self.heard.append(["failed", error.instance_id])
            except WorkflowCancelled as error:
                self.heard.append(["cancelled", error.instance_id])

        async def strict(plan: Any) -> None:
            self.heard.append(["completed", await trip(self.ctx, plan)])

        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for plan in plans:
                    group.create_task((strict if how == "strict" else lenient)(plan))
        except TimeoutError:
            pass

    async def free(self, plans: list[Any], how: str) -> None:
        children = [await start_workflow(self.ctx, trip, {**plan, "free": True}) for plan in plans]
        self.freed += [child.instance_id for child in children]
        for child in children if how == "awaited" else ():
            try:
                self.heard.append(["completed", await child.result()])
            except (WorkflowFailed, WorkflowCancelled) as error:
                self.heard.append(["failed" if isinstance(error, WorkflowFailed) else "cancelled", error.instance_id])


@workflow
async def trip(ctx: WorkflowContext, plan: Any) -> Any:
    found = _Trip(ctx, plan)
    await found.go(plan["steps"])
    return {"id": ctx.instance_id, "held": found.held, "heard": found.heard, "freed": found.freed}


# --- streams ----------------------------------------------------------------------------------------------------------
@workflow
async def reader(ctx: WorkflowContext, plan: Any, seen: int = 0) -> Any:
    """Takes the events of a stream, some in each run, until it has seen the last one."""
    stream = events(ctx, "tick", subject=plan["name"], model=int, limit=plan["per_run"])
    async for event in stream:
        await take(ctx, event.data)
        if plan["booking"]:
            await book(ctx, 0.01, "well")
        if event.data in plan["broken"]:
            await repairable(ctx, f"{plan['name']} {event.data}")
        seen = event.data + 1
        if seen == plan["total"]:
            return seen
    reader.continue_as_new(ctx, plan, seen)


WORKFLOWS = {"trip": trip, "reader": reader}
