"""One instance without engine or database: operations and ids, replay, time, cancellation, eviction.

`Drive` plays the engine: it answers what is open, one fact at a time, and keeps the history; `again` replays that
history through (other) code.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    ActivityError,
    WaitTimeout,
    WorkflowContext,
    activity,
    send_event,
    sleep,
    sleep_until,
    wait_event,
    workflow,
)
from romancy.core import loop as loops
from romancy.core.failure import Failure
from romancy.core.history import Entry, Kind, pack_event
from romancy.core.instance import Instance
from romancy.core.model import FOREVER_US, Event, from_us
from romancy.core.operations import ActivityCall, EventWait, Timer
from romancy.errors import NonDeterminismError

S = 1_000_000
T0 = 1_800_000_000 * S


@activity
async def charge(ctx: ActivityContext, amount: int) -> int:
    raise AssertionError("activities don't run here")


@activity
async def refund(ctx: ActivityContext, what: str) -> str:
    raise AssertionError("activities don't run here")


class Drive:
    """The engine's part, by hand."""

    def __init__(self, fn: Callable[..., Any], *, id: str = "i", timeout: float | None = None) -> None:
        self.workflow = workflow(name="wf")(fn)
        self.id = id
        self.deadline = None if timeout is None else T0 + int(timeout * S)
        self.now, self.seq = T0, 0
        self.history: list[Entry] = []
        self.sent: list[Event] = []
        self.logged: list[str] = []
        self.instance = self._new(self.workflow)
        self.instance.begin()
        self.take()

    def _new(self, wf: Any) -> Instance:
        return Instance(
            wf._definition,
            self.id,
            b"{}",
            T0,
            deadline=self.deadline,
            log=lambda _, message: self.logged.append(message),
        )

    def take(self) -> Any:
        activation = self.instance.take()
        self.history += activation.entries
        self.sent += activation.sent
        self.last = activation
        return activation

    @property
    def open(self) -> list[str]:
        return list(self.instance.ops)

    def _apply(self, kind: Kind, op: str, payload: bytes | None = None, event: int | None = None) -> Drive:
        self.instance.feed(self.instance.record(kind, op, self.now, payload, event))
        self.take()
        return self

    def done(self, op: str, result: bytes = b"1") -> Drive:
        return self._apply(Kind.ACTIVITY_COMPLETED, op, result)

    def fail(self, op: str, message: str = "no") -> Drive:
        return self._apply(Kind.ACTIVITY_FAILED, op, Failure("ValueError", message).encode())

    def event(self, op: str, data: bytes = b"1") -> Drive:
        self.seq += 1
        wait = self.instance.ops[op]
        assert isinstance(wait, EventWait)
        event = Event(f"e{self.seq}", "test", wait.types[0], data, accepted_at=self.now, seq=self.seq)
        return self._apply(Kind.EVENT_RECEIVED, op, pack_event(event), self.seq)

    def timeout(self, op: str) -> Drive:
        return self._apply(Kind.WAIT_TIMED_OUT, op)

    def fire(self, op: str) -> Drive:
        timer = self.instance.ops[op]
        assert isinstance(timer, Timer)
        self.now = max(self.now, timer.due)
        return self._apply(Kind.TIMER_FIRED, op)

    def cancel(self, reason: str = "") -> Drive:
        return self._apply(Kind.CANCEL_REQUESTED, "", reason.encode())

    @property
    def outcome(self) -> Any:
        return self.instance.outcome

    @property
    def output(self) -> Any:
        assert self.outcome is not None, self.open
        assert self.outcome.status == "completed", self.outcome.error
        return self.outcome.output

    def again(self, fn: Callable[..., Any] | None = None) -> Instance:
        """Replay what was recorded through this code."""
        instance = self._new(self.workflow if fn is None else workflow(name="wf")(fn))
        try:
            instance.replay(self.history)
        except BaseException:
            instance.evict()
            raise
        return instance

    def differs(self, fn: Callable[..., Any]) -> NonDeterminismError:
        """Its message fits whatever was changed, and a replay outside any database: there is nothing to resume."""
        with pytest.raises(NonDeterminismError) as caught:
            self.again(fn)
        assert "resume" not in str(caught.value)
        assert "order back" not in str(caught.value)
        return caught.value


@pytest.fixture(autouse=True)
def tolerated() -> Iterator[list[str]]:
    """No coroutine left to the collector, no 'Task was destroyed', no exception nobody could raise; but for these."""
    heard: list[str] = []
    tolerated: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    gc.freeze()  # what is there already is not ours, and takes long to look through
    handler, hook = Handler(), sys.unraisablehook
    logging.getLogger("asyncio").addHandler(handler)
    sys.unraisablehook = lambda args: heard.append(f"{args.err_msg}: {args.exc_value!r} in {args.object!r}")
    yield tolerated
    gc.collect()
    gc.collect()
    gc.unfreeze()
    sys.unraisablehook = hook
    logging.getLogger("asyncio").removeHandler(handler)
    assert [noise for noise in heard if not any(known in noise for known in tolerated)] == []


# --- ids -------------------------------------------------------------------------------------------------------------


def test_ids_are_counted_per_name_in_call_order() -> None:
    async def wf(ctx: WorkflowContext) -> None:
        await asyncio.gather(
            charge(ctx, 1),
            charge(ctx, 2),
            refund(ctx, "x"),
            wait_event(ctx, "paid", "failed"),
            wait_event(ctx, "paid"),
            sleep(ctx, 1),
            sleep_until(ctx, ctx.now()),
            asyncio.sleep(1),
            charge(ctx, 3),
        )

    drive = Drive(wf)
    expected = ["charge:1", "charge:2", "refund:1", "paid:1", "paid:2", "sleep:1", "sleep:2", "timer:1", "charge:3"]
    assert sorted(drive.open) == sorted(expected)
    assert {type(op).__name__ for op in drive.instance.ops.values()} == {"ActivityCall", "EventWait", "Timer"}
    calls = [op for op in drive.instance.ops.values() if isinstance(op, ActivityCall)]
    assert [op.arguments for op in calls if op.id == "charge:3"] == [b'{"amount":3}']
    drive.instance.evict()


def test_given_ids_replace_the_counted_ones() -> None:
    async def wf(ctx: WorkflowContext) -> None:
        await asyncio.gather(
            charge.options(activity_id="eu")(ctx, 1),
            charge.options(activity_id="eu")(ctx, 2),
            charge(ctx, 3),
            wait_event(ctx, "paid", wait_id="money"),
            wait_event(ctx, "other", wait_id="money"),
            sleep(ctx, 1, timer_id="nap"),
        )

    drive = Drive(wf)
    assert drive.open == ["eu", "eu:2", "charge:1", "money", "money:2", "nap"]
    drive.instance.evict()


@pytest.mark.parametrize("given", ["", "x:1", "charge:22"])
def test_given_ids_must_not_look_counted(given: str) -> None:
    async def wf(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "paid", wait_id=given)

    drive = Drive(wf)
    assert drive.outcome.status == "failed"
    assert "must not be empty or end in ':<number>'" in drive.outcome.error.message


def test_a_given_id_and_a_counted_one_never_meet() -> None:
    async def wf(ctx: WorkflowContext) -> None:
        await asyncio.gather(
            charge.options(activity_id="charge")(ctx, 1),
            charge(ctx, 2),
            charge(ctx, 3),
            charge.options(activity_id="charge")(ctx, 4),
        )

    drive = Drive(wf)
    assert len(drive.open) == 4
    drive.instance.evict()


def test_what_is_opened_and_closed_within_one_activation_leaves_no_trace() -> None:
    async def wf(ctx: WorkflowContext) -> None:
        await charge(ctx, 1)
        waiting = asyncio.create_task(wait_event(ctx, "never"))
        await asyncio.sleep(0)
        waiting.cancel()
        async with asyncio.timeout(5):  # noqa: ASYNC100
            pass
        await charge(ctx, 2)

    drive = Drive(wf).done("charge:1")
    assert [op.id for op in drive.last.opened] == ["charge:2"]
    assert [op.id for op in drive.last.closed] == ["charge:1"]
    drive.instance.evict()


def test_losers_are_withdrawn_with_the_winner() -> None:
    async def wf(ctx: WorkflowContext) -> str:
        tasks = [asyncio.create_task(wait_event(ctx, t)) for t in ("a", "b")]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await charge(ctx, 1)
        return next(iter(done)).result().type

    drive = Drive(wf).event("b:1")
    assert {op.id for op in drive.last.closed} == {"a:1", "b:1"}
    assert [op.id for op in drive.last.opened] == ["charge:1"]
    assert drive.done("charge:1", b"1").output == b'"b"'


# --- replay ----------------------------------------------------------------------------------------------------------


async def shop(ctx: WorkflowContext) -> Any:
    first = await charge(ctx, 5)
    await send_event(ctx, "charged", "shop", {"amount": first})
    try:
        event = await wait_event(ctx, "paid", where={"order": 7}, timeout=60)
        got = event.data
    except WaitTimeout:
        got = "timeout"
    await sleep(ctx, 10)
    return [first, got]


def recorded() -> Drive:
    return Drive(shop).done("charge:1", b"5").event("paid:1", b'{"order":7}').fire("sleep:1")


def test_replay_ends_where_it_ended() -> None:
    drive = recorded()
    assert drive.output == b'[5,{"order":7}]'
    assert drive.again().outcome == drive.outcome
    assert [event.type for event in drive.sent] == ["charged"]


def test_replay_stands_where_it_stood_and_goes_on() -> None:
    drive = Drive(shop).done("charge:1", b"5")
    instance = drive.again()
    assert list(instance.ops) == ["paid:1"]
    assert not instance.take().sent, "what was sent is not sent again"
    drive.instance.evict()
    drive.instance = instance
    drive.timeout("paid:1").fire("sleep:1")
    assert drive.output == b'[5,"timeout"]'
    assert drive.again().outcome == drive.outcome


def test_failures_replay_as_failures() -> None:
    async def wf(ctx: WorkflowContext) -> str:
        try:
            await charge(ctx, 1)
        except ActivityError as error:
            return f"{error.error_type}: {error.message}"
        return "no error"

    drive = Drive(wf).fail("charge:1", "declined")
    assert drive.output == b'"ValueError: declined"'
    assert drive.again().outcome == drive.outcome


def test_is_replaying_is_true_only_then() -> None:
    seen: list[bool] = []

    async def wf(ctx: WorkflowContext) -> None:
        seen.append(ctx.is_replaying)
        await charge(ctx, 1)
        seen.append(ctx.is_replaying)

    drive = Drive(wf).done("charge:1")
    assert seen == [False, False]
    drive.again()
    assert seen == [False, False, True, True]


def test_random_and_uuid_are_the_same_on_replay_and_differ_between_instances() -> None:
    async def wf(ctx: WorkflowContext) -> Any:
        first = [ctx.random.random(), str(ctx.uuid4())]
        await charge(ctx, ctx.random.randrange(10**9))
        return [*first, str(ctx.uuid4())]

    drive, other = Drive(wf).done("charge:1"), Drive(wf, id="j").done("charge:1")
    assert drive.again().outcome.output == drive.output  # type: ignore[union-attr]
    assert other.output != drive.output


def test_interleavings_are_those_of_the_history() -> None:
    async def wf(ctx: WorkflowContext) -> Any:
        seen: list[str] = []

        async def branch(name: str) -> None:
            await wait_event(ctx, name)
            seen.append(name)
            await refund(ctx, "".join(seen))

        await asyncio.gather(*(branch(n) for n in "abc"))
        return seen

    drive = Drive(wf).event("c:1").event("a:1").done("refund:2", b'"x"').event("b:1")
    drive.done("refund:3", b'"y"').done("refund:1", b'"z"')
    assert drive.output == b'["c","a","b"]'
    assert drive.again().outcome == drive.outcome


# --- leaving history -------------------------------------------------------------------------------------------------


def test_code_that_does_not_ask_for_what_was_recorded() -> None:
    async def changed(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "paid")

    error = recorded().differs(changed)
    assert error.recorded.startswith("activity_completed charge:1")
    assert "paid" in error.asked
    assert "recorded: " in str(error)
    assert "the code: " in str(error)
    assert "'i'" in str(error)


def test_code_that_asks_for_another_kind() -> None:
    async def before(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "x", wait_id="same")

    async def changed(ctx: WorkflowContext) -> None:
        await sleep(ctx, 5, timer_id="same")

    drive = Drive(before).event("same")
    error = drive.differs(changed)
    assert error.recorded.startswith("event_received same")
    assert error.asked == "timer same"


def test_code_that_calls_with_other_arguments() -> None:
    """A call inserted before must not get the other one's result."""

    async def changed(ctx: WorkflowContext) -> None:
        await charge(ctx, 1)
        await charge(ctx, 5)

    error = recorded().differs(changed)
    assert '{"amount":5}' in error.recorded
    assert '{"amount":1}' in error.asked


def test_code_that_waits_for_other_events() -> None:
    async def before(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "a", where={"k": 1})

    async def other_filter(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "a", where={"k": 2})

    async def other_types(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "a", "b", where={"k": 1})

    drive = Drive(before).event("a:1", b'{"k":1}')
    for changed in (other_filter, other_types):
        error = drive.differs(changed)
        assert error.recorded != error.asked
        assert "a:1" in error.recorded
        assert "a:1" in error.asked


def test_code_that_ends_too_early() -> None:
    async def changed(ctx: WorkflowContext) -> None:
        await charge(ctx, 5)
        await send_event(ctx, "charged", "shop", {"amount": 5})

    error = recorded().differs(changed)
    assert error.recorded.startswith("event_received paid:1")
    assert error.asked == "(the end)"
    assert "continues with" in str(error)


def test_code_that_fails_too_early() -> None:
    async def changed(ctx: WorkflowContext) -> None:
        raise ValueError("new code")

    error = recorded().differs(changed)
    assert "(the end)" in error.asked


def test_code_that_no_longer_sends() -> None:
    async def changed(ctx: WorkflowContext) -> None:
        await charge(ctx, 5)
        await wait_event(ctx, "paid", where={"order": 7}, timeout=60)

    error = recorded().differs(changed)
    assert error.recorded.startswith("event_sent send charged:1")
    assert error.asked.startswith("did not send it; waits for event paid:1 ")


def test_code_that_asks_for_something_before_it_sends() -> None:
    async def changed(ctx: WorkflowContext) -> None:
        await charge(ctx, 5)
        await charge(ctx, 6)
        await send_event(ctx, "charged", "shop", {"amount": 5})

    error = recorded().differs(changed)
    assert error.recorded.startswith("event_sent send charged:1")
    assert error.asked == 'did not send it; waits for activity charge:2 charge({"amount":6})'


def test_code_that_sends_something_new() -> None:
    async def changed(ctx: WorkflowContext) -> None:
        await charge(ctx, 5)
        await send_event(ctx, "charged", "shop", {"amount": 5})
        await send_event(ctx, "more", "shop")
        await wait_event(ctx, "paid", where={"order": 7}, timeout=60)

    error = recorded().differs(changed)
    assert "nothing was sent as send more:1" in error.recorded
    assert "more" in error.asked


def test_code_that_sends_other_data() -> None:
    async def changed(ctx: WorkflowContext) -> None:
        await charge(ctx, 5)
        await send_event(ctx, "charged", "shop", {"amount": 6})
        await wait_event(ctx, "paid", where={"order": 7}, timeout=60)

    error = recorded().differs(changed)
    assert error.recorded.startswith("event_sent send charged:1")
    assert error.asked.startswith("sends ")


def test_history_of_a_newer_version() -> None:
    drive = recorded()
    drive.history[0].kind = 99
    with pytest.raises(NonDeterminismError):
        drive.again()


def test_other_durations_are_no_other_code() -> None:
    """They may come from now(); the recorded deadline stands."""

    async def changed(ctx: WorkflowContext) -> Any:
        first = await charge(ctx, 5)
        await send_event(ctx, "charged", "shop", {"amount": first})
        event = await wait_event(ctx, "paid", where={"order": 7}, timeout=3600)
        await sleep(ctx, 99)
        return [first, event.data]

    drive = recorded()
    assert drive.again(changed).outcome == drive.outcome


@pytest.mark.parametrize("kind", [Exception, BaseException])
def test_no_except_can_swallow_the_halt(kind: type[BaseException]) -> None:
    """Code that left its history is stopped where it stands, whatever it catches."""
    went_on: list[str] = []

    async def changed(ctx: WorkflowContext) -> str:
        await charge(ctx, 5)
        try:
            await send_event(ctx, "other", "shop")
        except kind:
            went_on.append("caught")
        try:
            await charge(ctx, 6)
        except kind:
            went_on.append("caught again")
        return "swallowed"

    error = recorded().differs(changed)
    assert "other" in error.asked
    if kind is Exception:
        assert went_on == []


@pytest.mark.parametrize("kind", [Exception, BaseException])
def test_no_except_can_swallow_a_suspension(kind: type[BaseException]) -> None:
    caught: list[BaseException] = []

    async def wf(ctx: WorkflowContext) -> int:
        for _ in range(2):
            try:
                await wait_event(ctx, "x")
            except kind as error:
                caught.append(error)
        return 1

    drive = Drive(wf).event("x:1").event("x:2")
    assert drive.output == b"1"
    assert caught == []


# --- stuck -----------------------------------------------------------------------------------------------------------


def test_waiting_for_what_nothing_can_bring() -> None:
    async def wf(ctx: WorkflowContext) -> None:
        await asyncio.Event().wait()

    drive = Drive(wf)
    assert drive.outcome.status == "failed"
    assert drive.outcome.error.error_type == "WorkflowStuck"
    assert "that is never set" in drive.outcome.error.message
    drive.instance.evict()


def test_stuck_after_its_last_operation() -> None:
    async def wf(ctx: WorkflowContext) -> None:
        queue: asyncio.Queue[int] = asyncio.Queue()
        await charge(ctx, 1)
        await queue.get()

    drive = Drive(wf).done("charge:1")
    assert drive.outcome.error.error_type == "WorkflowStuck"
    drive.instance.evict()


def test_a_workflow_timeout_is_nothing_to_wait_for() -> None:
    async def wf(ctx: WorkflowContext) -> None:
        await asyncio.Event().wait()

    drive = Drive(wf, timeout=60)
    assert drive.outcome.error.error_type == "WorkflowStuck"
    drive.instance.evict()


def test_endless_sleep_zero_fails_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MAX_CALLBACKS", 10_000)

    async def wf(ctx: WorkflowContext) -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    drive = Drive(wf)
    assert drive.outcome.status == "failed"
    assert drive.outcome.error.error_type == "WorkflowStuck"
    drive.instance.evict()


def test_foreign_futures_are_named_as_such() -> None:
    other = asyncio.new_event_loop()
    try:
        foreign = other.create_future()

        async def wf(ctx: WorkflowContext) -> None:
            await foreign

        drive = Drive(wf)
        assert drive.outcome.status == "failed"
        assert drive.outcome.error.error_type == "IOInWorkflow"
        assert "move this into an activity" in drive.outcome.error.message
    finally:
        other.close()


def test_io_in_a_workflow_fails_it_with_advice() -> None:
    async def wf(ctx: WorkflowContext) -> None:
        await asyncio.to_thread(print)

    drive = Drive(wf)
    assert drive.outcome.error.error_type == "IOInWorkflow"
    assert "move this into an activity" in drive.outcome.error.message


def test_primitives_outside_the_workflow_are_refused() -> None:
    kept: list[WorkflowContext] = []

    async def wf(ctx: WorkflowContext) -> None:
        kept.append(ctx)
        await charge(ctx, 1)

    drive = Drive(wf)

    async def outside() -> None:
        with pytest.raises(RuntimeError, match="outside its workflow function"):
            await charge(kept[0], 2)

    asyncio.run(outside())
    drive.instance.evict()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_exit_in_a_workflow_fails_it_and_not_the_process(error: BaseException) -> None:
    async def wf(ctx: WorkflowContext) -> None:
        raise error

    drive = Drive(wf)
    assert drive.outcome.status == "failed"


def test_exit_in_a_child_task_fails_it_and_not_the_process() -> None:
    async def child() -> None:
        sys.exit(3)

    async def wf(ctx: WorkflowContext) -> None:
        await asyncio.gather(child(), charge(ctx, 1))

    try:
        drive = Drive(wf)
    except SystemExit:
        pytest.fail("it reached the worker")
    assert drive.outcome.status == "failed"
    drive.instance.evict()


# --- time ------------------------------------------------------------------------------------------------------------


def test_time_is_that_of_the_fact_last_fed() -> None:
    seen: list[Any] = []

    async def wf(ctx: WorkflowContext) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(4):
            seen.append((loop.time(), ctx.now() - ctx.started_at))
            await charge(ctx, 1)

    drive = Drive(wf)
    for n, at in enumerate((T0 + 5 * S, T0 + 3 * S, T0 + 7 * S), 1):
        drive.now = at
        drive.done(f"charge:{n}")
    assert seen == [(0.0, timedelta(0))] + [(t, timedelta(seconds=t)) for t in (5.0, 5.0, 7.0)], "never backwards"
    assert [entry.at for entry in drive.history] == [T0 + 5 * S, T0 + 5 * S, T0 + 7 * S]
    live, seen[:] = list(seen), []
    drive.again().evict()
    assert seen == live
    drive.instance.evict()


def test_now_is_aware_utc() -> None:
    seen: list[datetime] = []

    async def wf(ctx: WorkflowContext) -> None:
        seen.extend([ctx.now(), ctx.started_at])

    Drive(wf)
    assert seen == [from_us(T0), from_us(T0)]
    assert seen[0].tzinfo is UTC


@pytest.mark.parametrize("seconds", [0.0000001, 0.1, 1 / 3, 2 / 3, 1.1, 1e-6, 1e5 + 1 / 3, 86400.1, 3e7 + 0.7])
def test_timers_are_rounded_up_never_early(seconds: float) -> None:
    async def wf(ctx: WorkflowContext) -> None:
        await asyncio.gather(asyncio.sleep(seconds), sleep(ctx, seconds), wait_event(ctx, "x", timeout=seconds))

    drive = Drive(wf)
    dues = [op.due - T0 for op in drive.instance.ops.values()]  # type: ignore[attr-defined]
    for due in dues:
        assert due / S >= seconds * (1 - 1e-12), "never early"
        assert due <= seconds * S + 1.001, "and not more than a microsecond late"
    drive.instance.evict()


def test_timers_after_a_while_are_as_exact() -> None:
    async def wf(ctx: WorkflowContext) -> None:
        await charge(ctx, 1)
        await asyncio.gather(asyncio.sleep(0.1), sleep(ctx, 0.1))

    drive = Drive(wf)
    drive.now = T0 + 123_456_789_012_345
    drive.done("charge:1")
    assert {op.due for op in drive.instance.ops.values()} == {drive.now + 100_000}  # type: ignore[attr-defined]
    drive.instance.evict()


@pytest.mark.parametrize("seconds", [math.inf, 1e13, 1e300])
def test_sleeping_for_ever(seconds: float) -> None:
    async def wf(ctx: WorkflowContext) -> None:
        await asyncio.sleep(seconds)

    drive = Drive(wf)
    (timer,) = drive.instance.ops.values()
    assert isinstance(timer, Timer)
    assert FOREVER_US // 2 < timer.due < 2**63
    drive.instance.evict()


def test_sleep_until_the_past_is_over_at_once_and_counted() -> None:
    async def wf(ctx: WorkflowContext) -> None:
        await sleep_until(ctx, ctx.now() - timedelta(days=1))
        await sleep(ctx, 1)

    drive = Drive(wf)
    assert drive.open == ["sleep:1"]
    drive.fire("sleep:1")
    assert drive.open == ["sleep:2"]
    drive.fire("sleep:2")
    assert drive.again().outcome == drive.outcome


def test_a_stored_deadline_stands() -> None:
    async def wf(ctx: WorkflowContext) -> None:
        await asyncio.gather(sleep(ctx, 10), wait_event(ctx, "x", timeout=20), charge(ctx, 1))

    drive = Drive(wf)
    instance = drive.again()
    assert instance.reconcile({"sleep:1": T0 + 5, "x:1": T0 + 6, "gone": 1}) == ["gone"]
    assert [instance.ops[op].due for op in ("sleep:1", "x:1")] == [T0 + 5, T0 + 6]  # type: ignore[attr-defined]
    assert [op.id for op in instance.take().opened] == ["charge:1"]
    instance.evict()
    drive.instance.evict()


# --- async generators ------------------------------------------------------------------------------------------------


def test_generators_left_by_break_are_closed_in_order_at_the_end() -> None:
    seen: list[str] = []

    async def ticks(ctx: WorkflowContext, name: str) -> AsyncGenerator[int, None]:
        try:
            while True:
                yield (await wait_event(ctx, name)).data
        finally:
            await refund(ctx, name)
            seen.append(name)

    async def wf(ctx: WorkflowContext) -> str:
        for name in ("b", "a"):
            async for _ in ticks(ctx, name):
                break
        gc.collect()
        await charge(ctx, 1)
        return "end"

    drive = Drive(wf).event("b:1").event("a:1")
    assert drive.open == ["charge:1"], "neither break nor the collector closes them"
    drive.done("charge:1", b"1")
    assert drive.open == ["refund:1"]
    drive.done("refund:1", b'"b"')
    assert drive.open == ["refund:2"]
    drive.done("refund:2", b'"a"')
    assert drive.output == b'"end"'
    assert seen == ["b", "a"]
    assert drive.again().outcome == drive.outcome


def test_a_generator_somebody_is_inside_of_does_not_spoil_the_end() -> None:
    async def ticks(ctx: WorkflowContext) -> AsyncGenerator[int, None]:
        while True:
            yield (await wait_event(ctx, "tick")).data

    async def wf(ctx: WorkflowContext) -> str:
        async def child() -> None:
            async for _ in ticks(ctx):
                pass

        background = asyncio.create_task(child())
        await charge(ctx, 1)
        assert not background.done()
        return "ok"

    drive = Drive(wf).done("charge:1", b"1")
    assert drive.output == b'"ok"'
    drive.instance.evict()


def test_a_generator_whose_cleanup_fails_does_not_replace_the_result() -> None:
    async def ticks() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            raise ValueError("in finally")

    async def wf(ctx: WorkflowContext) -> str:
        async for _ in ticks():
            break
        return "ok"

    drive = Drive(wf)
    assert drive.output == b'"ok"'
    assert any("in finally" in line for line in drive.logged)


# --- cancellation ----------------------------------------------------------------------------------------------------


def test_cancellation_is_seen_and_ends_as_cancelled() -> None:
    seen: list[str] = []

    async def wf(ctx: WorkflowContext) -> None:
        try:
            await wait_event(ctx, "x")
        except asyncio.CancelledError as error:
            seen.append(str(error))
            raise

    drive = Drive(wf).cancel("customer gave up")
    assert seen == ["customer gave up"]
    assert drive.outcome.status == "cancelled"
    assert drive.outcome.error.message == "customer gave up"
    assert drive.open == []
    assert drive.again().outcome == drive.outcome


def test_cleanup_may_await() -> None:
    async def wf(ctx: WorkflowContext) -> None:
        try:
            await wait_event(ctx, "x")
        finally:
            await refund(ctx, "all")
            await sleep(ctx, 5)
            await send_event(ctx, "gone", "shop")

    drive = Drive(wf).cancel()
    assert drive.open == ["refund:1"]
    assert drive.outcome is None
    instance = drive.again()
    assert list(instance.ops) == ["refund:1"]
    instance.evict()
    drive.done("refund:1", b'"all"').fire("sleep:1")
    assert drive.outcome.status == "cancelled"
    assert [event.type for event in drive.sent] == ["gone"]
    assert drive.again().outcome == drive.outcome


def test_cancelled_although_swallowed_and_its_value_kept() -> None:
    async def wf(ctx: WorkflowContext) -> str:
        try:
            await wait_event(ctx, "x")
        except asyncio.CancelledError:
            return "half done"
        return "done"

    drive = Drive(wf).cancel()
    assert drive.outcome.status == "cancelled"
    assert drive.outcome.output == b'"half done"'


def test_cancelled_and_its_cleanup_fails() -> None:
    async def wf(ctx: WorkflowContext) -> None:
        try:
            await wait_event(ctx, "x")
        finally:
            raise ValueError("in cleanup")

    drive = Drive(wf).cancel()
    assert drive.outcome.status == "cancelled"
    assert drive.outcome.error.error_type == "ValueError"


def test_cancelling_reaches_every_branch() -> None:
    seen: list[str] = []

    async def wf(ctx: WorkflowContext) -> None:
        async def branch(name: str) -> None:
            try:
                await wait_event(ctx, name)
            finally:
                seen.append(name)
                await refund(ctx, name)

        async with asyncio.TaskGroup() as group:
            for name in "cab":
                group.create_task(branch(name))

    drive = Drive(wf).cancel()
    assert seen == ["c", "a", "b"]
    assert drive.open == ["refund:1", "refund:2", "refund:3"]
    for n in (2, 1, 3):
        drive.done(f"refund:{n}", b'"x"')
    assert drive.outcome.status == "cancelled"
    assert drive.again().outcome == drive.outcome


def test_a_workflows_own_cancelled_error_is_no_cancellation() -> None:
    async def wf(ctx: WorkflowContext) -> None:
        raise asyncio.CancelledError("mine")

    drive = Drive(wf)
    assert drive.outcome.status == "failed"


# --- workflow timeout ------------------------------------------------------------------------------------------------


def test_workflow_timeout_cancels_and_fails() -> None:
    async def wf(ctx: WorkflowContext) -> str:
        try:
            await wait_event(ctx, "x")
        except asyncio.CancelledError:
            await refund(ctx, "all")
        return "cleaned up"

    drive = Drive(wf, timeout=60)
    (timer,) = [op for op in drive.instance.ops.values() if isinstance(op, Timer)]
    assert timer.due == T0 + 60 * S
    drive.fire(timer.id)
    assert drive.open == ["refund:1"]
    drive.done("refund:1", b'"all"')
    assert drive.outcome.status == "failed"
    assert drive.outcome.error.error_type == "WorkflowTimeout"
    assert drive.again().outcome == drive.outcome


def test_workflow_timeout_goes_with_the_end() -> None:
    async def wf(ctx: WorkflowContext) -> str:
        await charge(ctx, 1)
        return "in time"

    drive = Drive(wf, timeout=60).done("charge:1", b"1")
    assert drive.output == b'"in time"'
    assert drive.open == []


def test_status_from_what_is_open() -> None:
    async def wf(ctx: WorkflowContext) -> None:
        await charge(ctx, 1)
        await sleep(ctx, 1)
        async with asyncio.timeout(9):
            await wait_event(ctx, "x")

    drive = Drive(wf)
    statuses = [drive.instance.status]
    statuses.append(drive.done("charge:1", b"1").instance.status)
    statuses.append(drive.fire("sleep:1").instance.status)
    statuses.append(drive.event("x:1").instance.status)
    assert statuses == ["running", "waiting_for_timer", "waiting_for_event", "completed"]


# --- eviction --------------------------------------------------------------------------------------------------------


def test_evicting_runs_no_cleanup_that_acts() -> None:
    seen: list[str] = []

    async def wf(ctx: WorkflowContext) -> None:
        try:
            await wait_event(ctx, "x")
        finally:
            seen.append("finally")
            await refund(ctx, "must not happen")
            seen.append("after")

    drive = Drive(wf)
    drive.instance.evict()
    assert "after" not in seen
    activation = drive.instance.take()
    assert not activation.opened
    assert not activation.sent


def test_evicting_what_catches_everything() -> None:
    seen: list[str] = []

    async def wf(ctx: WorkflowContext) -> str:
        for _ in range(3):
            try:
                await wait_event(ctx, "x")
            except BaseException as error:
                seen.append(type(error).__name__)
        await send_event(ctx, "never", "shop")
        return "never"

    drive = Drive(wf)
    drive.instance.evict()
    assert not drive.instance.take().sent
    assert drive.instance.outcome is None


def test_evicting_what_sleeps_in_finally() -> None:
    async def wf(ctx: WorkflowContext) -> None:
        try:
            await wait_event(ctx, "x")
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(5)

    Drive(wf).instance.evict()


def test_evicting_async_with_and_locks() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def resource(ctx: WorkflowContext) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await refund(ctx, "resource")
            seen.append("released")

    async def wf(ctx: WorkflowContext) -> None:
        lock = asyncio.Lock()
        async with resource(ctx), lock, asyncio.timeout(60):
            await wait_event(ctx, "x")

    drive = Drive(wf)
    drive.instance.evict()
    assert seen == []
    assert not drive.instance.take().opened


def test_evicting_many_tasks() -> None:
    async def wf(ctx: WorkflowContext) -> None:
        async def child(n: int) -> None:
            try:
                await wait_event(ctx, f"t{n}")
            finally:
                await refund(ctx, str(n))

        async with asyncio.TaskGroup() as group:
            for n in range(10):
                group.create_task(child(n))
            shielded = asyncio.shield(child(99))
            await asyncio.gather(asyncio.wait([asyncio.create_task(child(50))]), shielded)

    drive = Drive(wf)
    assert len(drive.open) == 12
    drive.instance.evict()
    assert not drive.instance.take().opened


def test_evicting_with_open_generators() -> None:
    async def ticks(ctx: WorkflowContext) -> AsyncGenerator[int, None]:
        try:
            while True:
                yield (await wait_event(ctx, "tick")).data
        finally:
            await refund(ctx, "generator")

    async def wf(ctx: WorkflowContext) -> None:
        async for _ in ticks(ctx):
            break
        async for _ in ticks(ctx):
            pass

    drive = Drive(wf).event("tick:1").event("tick:2")
    assert drive.open == ["tick:3"]
    drive.instance.evict()
    assert not drive.instance.take().opened


def test_evicting_mutes_the_log() -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger("romancy").addHandler(handler)

    async def wf(ctx: WorkflowContext) -> None:
        try:
            await wait_event(ctx, "x")
        finally:
            ctx.logger.warning("cleaning up")

    try:
        Drive(wf).instance.evict()
    finally:
        logging.getLogger("romancy").removeHandler(handler)
    assert records == []


def test_an_evicted_instance_replays() -> None:
    drive = Drive(shop).done("charge:1", b"5")
    drive.instance.evict()
    drive.instance = drive.again()
    drive.event("paid:1", b'{"order":7}').fire("sleep:1")
    assert drive.output == b'[5,{"order":7}]'


def test_evicting_a_loop_that_catches_everything_ends(tolerated: list[str]) -> None:
    """`while True: try: await ... except BaseException: continue` must not hold up the worker for ever."""
    tolerated.append("coroutine ignored GeneratorExit")  # it would not end; that is all that is left of it
    tries: list[int] = []

    class Enough(BaseException):
        pass

    async def wf(ctx: WorkflowContext) -> None:
        while True:
            try:
                await wait_event(ctx, "x")
            except Enough:
                raise
            except BaseException:
                tries.append(1)
                if len(tries) > 10_000:
                    raise Enough from None

    drive = Drive(wf)
    drive.instance.evict()
    assert len(tries) < 1000


def test_leaving_history_in_a_loop_that_catches_everything_ends(tolerated: list[str]) -> None:
    tolerated.append("coroutine ignored GeneratorExit")
    tries: list[int] = []

    async def changed(ctx: WorkflowContext) -> None:
        await charge(ctx, 5)
        while len(tries) < 10_000:
            try:
                await send_event(ctx, "other", "shop")
            except BaseException:
                tries.append(1)

    recorded().differs(changed)
    assert len(tries) < 1000
