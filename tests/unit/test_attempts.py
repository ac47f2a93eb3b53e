"""Attempts of activities by themselves: their stages, and what is told of them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from unittest.mock import Mock

import pytest

from romancy import ActivityContext, RetryPolicy, WorkflowContext, activity, workflow
from romancy.core.failure import Failure
from romancy.core.history import Kind
from romancy.core.instance import Instance
from romancy.core.model import SECOND
from romancy.core.retry import Policies
from romancy.engine.activities import Activities, Stage
from romancy.engine.attempt import Attempting
from romancy.engine.hook_runner import HookRunner
from romancy.engine.metrics import Metrics
from romancy.engine.resident import Answered, AttemptChanged, Resident
from romancy.testing import ManualClock

gate: asyncio.Event
released: threading.Event


@activity
async def passing(ctx: ActivityContext) -> int:
    await gate.wait()
    return 1


@activity
async def giving_up(ctx: ActivityContext) -> int:
    raise asyncio.CancelledError


@activity
def blocking(ctx: ActivityContext) -> int:
    released.wait(10)
    return 1


OVER: Any = None
"""Since Python 3.12 an activity runs at once to its first wait, and may be over when `start` returns."""


class Case:
    def __init__(self, limit: int = 1) -> None:
        self.clock, self.posted = ManualClock(0), list[Any]()
        self.metrics = Metrics()
        inboxes: Any = Mock(post=lambda resident, input: self.posted.append(input))
        retry = RetryPolicy(max_attempts=2, jitter=0)
        self.activities = Activities(
            self.clock,
            limit,
            Policies(retry, retry),
            None,
            inboxes,
            HookRunner([]),
            self.metrics,
            None,
            Mock(heads={}, has_emitted=lambda instance, op: False),
        )

    def start(self, called: Any, id: str = "one", timeout: int | None = None) -> Attempting:
        @workflow
        async def calling(ctx: WorkflowContext) -> None:
            await called(ctx)

        resident = Resident(Instance(calling._definition, id, b"{}", 0), 0)
        resident.instance.begin()
        (call,) = resident.instance.ops.values()
        call.timeout = timeout  # type: ignore[attr-defined]
        self.activities.start(resident, call)  # type: ignore[arg-type]
        return self.activities._open.get((id, call.id)) or OVER

    async def until(self, attempting: Attempting, stage: Stage) -> None:
        async with asyncio.timeout(10):
            while attempting.stage is not stage:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert stage.value in repr(attempting)


@pytest.fixture
async def case() -> Case:
    global gate, released
    gate, released = asyncio.Event(), threading.Event()
    return Case()


async def test_one_waits_for_a_slot_runs_and_ends(case: Case) -> None:
    first, second = case.start(passing, "first"), case.start(passing, "second")
    await case.until(first, Stage.RUNNING)
    assert second.stage is Stage.WAITING
    gate.set()
    await case.until(second, Stage.ENDED)
    assert first.stage is Stage.ENDED
    assert [type(input) for input in case.posted] == [Answered, Answered]
    assert case.activities.running == 0


async def test_nothing_is_told_of_one_that_is_withdrawn(case: Case) -> None:
    first, second = case.start(passing, "first"), case.start(passing, "second")
    case.activities.withdraw("second", second.call.id)
    assert second.stage is Stage.WITHDRAWN
    await case.until(first, Stage.RUNNING)
    case.activities.withdraw("first", first.call.id)
    assert first.stage is Stage.WITHDRAWN
    await case.until(first, Stage.ENDED)
    assert (case.posted, second.stage) == ([], Stage.WITHDRAWN)
    assert list(case.metrics.activities_ended) == [("passing", "withdrawn")], "the other one never ran"


async def test_one_that_is_withdrawn_before_its_first_step_ends_at_once() -> None:
    """A task made inside a task takes its first step later, before Python 3.12."""
    global gate
    gate, case = asyncio.Event(), Case()
    attempting = case.start(passing)
    early = attempting.stage is Stage.STARTING
    case.activities.withdraw("one", attempting.call.id)
    if early:
        assert attempting.stage is Stage.ENDED
    await case.until(attempting, Stage.ENDED)
    assert (case.posted, case.activities.running) == ([], 0)


async def test_one_that_runs_out_of_time_is_tried_again(case: Case) -> None:
    attempting = case.start(passing, timeout=SECOND)
    await case.until(attempting, Stage.RUNNING)
    case.clock.turn_to(SECOND)
    assert attempting.stage is Stage.EXPIRED
    await case.until(attempting, Stage.ENDED)
    (changed,) = case.posted
    assert isinstance(changed, AttemptChanged)
    assert (changed.error_type, changed.attempt.n, changed.attempt.next_due) == ("TimeoutError", 1, 2 * SECOND)


async def test_a_thread_that_runs_out_of_time_keeps_its_slot_and_is_not_heard_any_more(case: Case) -> None:
    attempting = case.start(blocking, timeout=SECOND)
    await case.until(attempting, Stage.RUNNING)
    case.clock.turn_to(SECOND)
    assert (attempting.stage, case.activities.running) == (Stage.WITHDRAWN, 1)
    assert [type(input) for input in case.posted] == [AttemptChanged]
    released.set()
    await case.until(attempting, Stage.ENDED)
    assert (len(case.posted), case.activities.running) == (1, 0)


async def test_the_last_attempt_fails_for_good(case: Case) -> None:
    attempting = case.start(passing, timeout=SECOND)
    attempting.record = Mock(n=1, first_at=0, progress=None)
    await case.until(attempting, Stage.RUNNING)
    case.clock.turn_to(SECOND)
    await case.until(attempting, Stage.ENDED)
    (failed,) = case.posted
    assert (failed.kind, failed.attempt) == (Kind.ACTIVITY_FAILED, 2)
    assert Failure.decode(failed.payload).timeout


async def test_one_that_cancels_itself_did_not_run_out_of_time(case: Case) -> None:
    case.start(giving_up)
    async with asyncio.timeout(10):
        await case.activities._drained()
    (changed,) = case.posted
    assert changed.error_type == "CancelledError"
