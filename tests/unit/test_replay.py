"""A history through today's code: where it leads, when things began, and where the code leaves it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from romancy import WorkflowContext, sleep, wait_event, workflow
from romancy.core.history import Entry, Kind
from romancy.core.instance import Instance
from romancy.core.replay import Opened, Replay, replay
from romancy.errors import NonDeterminismError

S = 1_000_000
WOKEN = [Entry(1, Kind.TIMER_FIRED, "sleep:1", 5 * S)]


def through(
    code: Callable[[WorkflowContext], Awaitable[None]], entries: list[Entry], *, observe: bool = True
) -> Replay:
    return replay(Instance(workflow(code)._definition, "i", b"{}", 0, deadline=100 * S), entries, observe=observe)


async def waits(ctx: WorkflowContext) -> None:
    await sleep(ctx, 5)
    await wait_event(ctx, "paid", timeout=3)


async def ends(ctx: WorkflowContext) -> None:
    await sleep(ctx, 5)


async def leaves(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "paid")


def test_where_it_waits_and_since_when() -> None:
    found = through(waits, WOKEN)
    assert (found.error, found.outcome, found.status) == (None, None, "waiting_for_event")
    assert [op.id for op in found.waiting] == ["(workflow timeout)", "paid:1"]
    assert found.opened == {"sleep:1": Opened("timer", 0, 5 * S), "paid:1": Opened("event", 5 * S)}
    assert list(found.event_waits) == ["paid:1"]


def test_it_leads_to_the_same_without_being_observed() -> None:
    found, observed = through(waits, WOKEN, observe=False), through(waits, WOKEN)
    assert (found.error, found.outcome, found.status) == (observed.error, observed.outcome, observed.status)
    assert [op.id for op in found.waiting] == [op.id for op in observed.waiting]
    assert (found.opened, found.event_waits) == ({}, {})


def test_how_it_ends() -> None:
    found = through(ends, WOKEN)
    assert found.status == "completed"
    assert found.outcome is not None
    assert found.outcome.output == b"null"
    assert not found.waiting


def test_what_is_known_of_code_that_leaves_its_history() -> None:
    found = through(leaves, WOKEN)
    assert isinstance(found.error, NonDeterminismError)
    assert found.opened == {"paid:1": Opened("event", 0)}
