"""A scenario: workflows, and a script of what befalls them. With the activities that scenarios share."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from romancy import (
    ActivityContext,
    Workflow,
    activity,
    send_event,
)
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
    return re.sub(rb', ?"place": ?"[^"]+"', b"", bytes(payload)) if isinstance(payload, bytes | memoryview) else payload


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


# --- what scenarios share --------------------------------------------------------------------------------------------
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
