"""One step by itself: what is in the inbox goes in, one commit comes out, and what is done once that is in."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from romancy import ActivityContext, WorkflowContext, activity, send_event, wait_event, workflow
from romancy.core.history import Kind
from romancy.core.instance import Instance
from romancy.core.model import SECOND, Event
from romancy.engine.resident import (
    Answered,
    AttemptChanged,
    CancelAsked,
    Due,
    EventOffered,
    Input,
    Looked,
    Resident,
    TimedOut,
)
from romancy.engine.step import Step
from romancy.errors import WaitTimeout
from romancy.storage.attempts import Attempt, Suspicion
from romancy.storage.batch import Accept

T0 = 1_800_000_000 * SECOND


@activity
async def charge(ctx: ActivityContext) -> int:
    raise AssertionError("activities don't run here")


@workflow
async def paying(ctx: WorkflowContext) -> int:
    amount = await charge(ctx)
    await send_event(ctx, "charged", "shop", amount)
    return amount


@workflow
async def twice(ctx: WorkflowContext) -> int:
    return await charge(ctx) + await charge(ctx)


@workflow
async def waiting(ctx: WorkflowContext) -> int:
    try:
        return (await wait_event(ctx, "paid", model=int, timeout=timedelta(seconds=10))).data
    except WaitTimeout:
        return -1


@workflow
async def both(ctx: WorkflowContext) -> int:
    first, second = await asyncio.gather(wait_event(ctx, "paid", model=int), wait_event(ctx, "paid", model=int))
    return first.data + second.data


def resident(wf: Any) -> Resident:
    return Resident(Instance(wf._definition, "one", b"{}", T0), 0)


def feed(resident: Resident, *inputs: Input, at: int = T0, tell: bool = False) -> Step:
    resident.inbox += inputs
    step = Step(resident, at, lambda event: Accept(event, b""), tell)
    step.run()
    resident.status = step.commit.status
    return step


def offer(seq: int, data: bytes = b"5", at: int = T0) -> EventOffered:
    return EventOffered("paid:1", Event(id=f"e{seq}", source="s", type="paid", data=data, seq=seq, accepted_at=at))


def test_it_begins_and_asks_for_an_activity() -> None:
    one = resident(paying)
    step = feed(one)
    assert [op.id for op in step.asked.opened] == ["charge:1"]
    assert not step.commit.opened, "a call has no row"
    assert step.is_empty, "nothing is stored: the row says already that it runs"
    assert one.begun


def test_a_result_leads_to_the_end_and_all_of_it_is_one_commit() -> None:
    one = resident(paying)
    feed(one)
    sent = Event(id="a", source="s", type="sent")
    commit = feed(one, Answered("charge:1", Kind.ACTIVITY_COMPLETED, b"5", [sent], 1)).commit
    assert [entry.kind for entry in commit.entries] == [Kind.ACTIVITY_COMPLETED, Kind.EVENT_SENT]
    assert [item.event.type for item in commit.sent] == ["sent", "charged"]
    assert (commit.status, commit.output, commit.append_only) == ("completed", b"5", False)


def test_one_more_entry_and_nothing_else_may_be_appended() -> None:
    one = resident(twice)
    feed(one)
    step = feed(one, Answered("charge:1", Kind.ACTIVITY_COMPLETED, b"5"))
    assert (step.commit.append_only, step.is_empty) == (True, False)
    assert [op.id for op in step.asked.opened] == ["charge:2"]


def test_what_comes_twice_counts_once() -> None:
    one = resident(twice)
    feed(one)
    done = Answered("charge:1", Kind.ACTIVITY_COMPLETED, b"5")
    assert [entry.op for entry in feed(one, done, done).commit.entries] == ["charge:1"]


def test_an_event_is_taken_with_its_hint() -> None:
    one = resident(waiting)
    assert [row.op for row in feed(one).commit.opened] == ["paid:1"]
    commit = feed(one, offer(7)).commit
    assert ([taken.event for taken in commit.consumed], list(commit.seen_deliveries)) == ([7], [7])
    assert (commit.output, list(commit.closed)) == (b"5", ["paid:1"])


def test_an_event_is_taken_by_one_wait_even_if_it_was_offered_to_two() -> None:
    one = resident(both)
    feed(one)
    first, second = offer(7), EventOffered("paid:2", offer(7).event)
    feed(one, first)
    commit = feed(one, second).commit
    assert (list(commit.consumed), list(commit.looks)) == ([], ["paid:2"]), "there may be a later one for it"


def test_an_event_that_does_not_fit_is_kept_and_there_is_another_look() -> None:
    one = resident(waiting)
    feed(one)
    commit = feed(one, offer(7, b'"five"')).commit
    assert (list(commit.consumed), [misfit.event for misfit in commit.misfits]) == ([], [7])
    assert list(commit.looks) == ["paid:1"]


def test_an_event_that_came_too_late_does_not_count() -> None:
    one = resident(waiting)
    feed(one)
    commit = feed(one, offer(7, at=T0 + 11 * SECOND), at=T0 + 12 * SECOND).commit
    assert [entry.kind for entry in commit.entries] == [Kind.WAIT_TIMED_OUT]
    assert (commit.output, list(commit.consumed)) == (b"-1", [])


def test_a_time_that_has_come_is_confirmed_first() -> None:
    one = resident(waiting)
    feed(one)
    step = feed(one, Due("paid:1"), at=T0 + 10 * SECOND)
    assert (list(step.confirm), step.is_empty) == (["paid:1"], True)
    assert feed(one, TimedOut("paid:1"), at=T0 + 10 * SECOND).commit.output == b"-1"


def test_a_request_is_heard_once() -> None:
    one = resident(twice)
    feed(one)
    commit = feed(one, CancelAsked(3, "enough"), CancelAsked(3, "enough")).commit
    assert [entry.kind for entry in commit.entries] == [Kind.CANCEL_REQUESTED]
    assert (list(commit.requests_done), commit.status) == ([3], "cancelled")


def test_hints_that_were_looked_at_are_stored_even_if_nothing_else_is() -> None:
    one = resident(waiting)
    feed(one)
    step = feed(one, Looked([4, 5]))
    assert (list(step.commit.seen_deliveries), step.is_empty) == ([4, 5], False)


def test_an_attempt_is_stored_and_deleted_when_its_call_is_over() -> None:
    one = resident(twice)
    feed(one)
    attempt = Attempt("charge:1", 1, T0, T0 + SECOND)
    step = feed(one, AttemptChanged(attempt, "ValueError", "no"))
    assert (list(step.commit.attempts), list(step.retries)) == ([attempt], [attempt])
    commit = feed(one, Answered("charge:1", Kind.ACTIVITY_COMPLETED, b"5", [], 2)).commit
    assert (list(commit.attempts_done), one.attempts, commit.append_only) == (["charge:1"], {}, False)


def test_the_result_of_a_suspect_that_is_alone_has_a_step_of_its_own() -> None:
    one = resident(waiting)
    feed(one)
    one.attempts["call"] = Attempt("call", 0, T0, started=True, suspicion=Suspicion(T0, is_alone=True))
    feed(one, Looked([1]), Answered("call", Kind.ACTIVITY_COMPLETED, b"5"), offer(7))
    assert [type(input) for input in one.inbox] == [Answered, EventOffered]
    assert one.offered


@pytest.mark.parametrize("tell", [True, False])
def test_hooks_hear_only_if_there_are_any(tell: bool) -> None:
    one = resident(waiting)
    told = [*feed(one, tell=tell).told, *feed(one, offer(7), tell=tell).told]
    names = ["WorkflowStarted", "WaitStarted", "EventReceived", "WaitCompleted"]
    assert [type(info).__name__.removesuffix("Info") for info in told] == (names if tell else [])


def test_the_clock_may_be_set_back_but_the_instance_stays_where_it_was() -> None:
    one = resident(twice)
    feed(one, at=T0 + SECOND)
    feed(one, Answered("charge:1", Kind.ACTIVITY_COMPLETED, b"5"), at=T0 + 2 * SECOND)
    assert feed(one, Answered("charge:2", Kind.ACTIVITY_COMPLETED, b"5"), at=T0 - SECOND).commit.at == T0 + 2 * SECOND
