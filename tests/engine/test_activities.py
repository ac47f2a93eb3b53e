"""Activities: run in tasks and threads, retried, timed, cancelled; their results recorded once and exactly."""

import asyncio
import enum
import logging
import threading
import traceback
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypedDict
from uuid import UUID

import pytest
from pydantic import BaseModel

from romancy import (
    NO_RETRY,
    ActivityContext,
    ActivityError,
    ActivityTimeout,
    RetryPolicy,
    TerminalError,
    WorkflowContext,
    WorkflowFailed,
    activity,
    send_event,
    sleep,
    wait_event,
    workflow,
)
from romancy.testing import Environment, activity_context, environment
from tests.engine.helpers import down_for, kinds, until

EXACT = RetryPolicy(max_attempts=4, initial=timedelta(seconds=10), backoff=2, jitter=0)


# --- running ----------------------------------------------------------------------------------------------------------
async def test_async_on_the_loop_and_def_in_a_thread(env: Environment) -> None:
    @activity
    async def in_loop(ctx: ActivityContext) -> bool:
        return threading.current_thread() is threading.main_thread() and ActivityContext.current() is ctx

    @activity
    def in_thread(ctx: ActivityContext) -> bool:
        return threading.current_thread() is not threading.main_thread() and ActivityContext.current() is ctx

    @workflow
    async def both(ctx: WorkflowContext) -> list[bool]:
        return await asyncio.gather(in_loop(ctx), in_thread(ctx))

    assert await (await env.start(both)).result() == [True, True]


async def test_a_recorded_result_is_not_computed_again(env: Environment) -> None:
    runs: list[str] = []

    @activity
    async def once(ctx: ActivityContext, name: str) -> str:
        runs.append(name)
        return name.upper()

    @workflow
    async def steps(ctx: WorkflowContext) -> list[str]:
        done: list[str] = []
        for name in "abc":
            done.append(await once(ctx, name))
            await sleep(ctx, 60)
        return done

    handle = await env.start(steps)
    for _ in range(3):
        await env.restart()
        await env.advance(60)
    assert await handle.result() == ["A", "B", "C"]
    assert runs == ["a", "b", "c"]


async def test_the_context_says_who_is_running(env: Environment) -> None:
    @activity(name="stored-name")
    async def who(ctx: ActivityContext) -> list[Any]:
        return [ctx.instance_id, ctx.workflow_name, ctx.activity_id, ctx.attempt, ctx.idempotency_key]

    @workflow
    async def asks(ctx: WorkflowContext) -> list[Any]:
        return [await who(ctx), await who(ctx), await who.options(activity_id="mine")(ctx)]

    first, second, named = await (await env.start(asks.options(instance_id="one"))).result()
    assert first == ["one", "asks", "stored-name:1", 1, "one/stored-name:1"]
    assert second[2] == "stored-name:2"
    assert named[2] == "mine"


async def test_thousands_in_the_queue_that_end_at_once(env: Environment) -> None:
    """An activity takes its first step the moment it is launched; that must not pile up on the stack."""

    @activity
    async def quick(ctx: ActivityContext, i: int) -> int:
        if i == 0:
            await asyncio.sleep(0)  # meanwhile the others queue up
        return i

    @workflow
    async def many(ctx: WorkflowContext) -> int:
        return sum(await asyncio.gather(*(quick(ctx, i) for i in range(3000))))

    async with environment(workflows=[many], max_activities=1) as env:
        assert await (await env.start(many)).result() == sum(range(3000))


async def test_the_first_step_is_inside_a_task_of_its_own(env: Environment) -> None:
    """`asyncio.timeout`, `TaskGroup` and context variables work from the first line on."""

    @activity
    async def careful(ctx: ActivityContext) -> str:
        async with asyncio.timeout(10):
            assert ActivityContext.current() is ctx
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0))
        return "done"

    @workflow
    async def both(ctx: WorkflowContext) -> list[str]:
        return await asyncio.gather(careful(ctx), careful(ctx))

    assert await (await env.start(both)).result() == ["done", "done"]


async def test_max_activities_is_respected(impatient: None) -> None:
    running, most, go = 0, 0, asyncio.Event()

    @activity
    async def work(ctx: ActivityContext) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1

    @workflow
    async def many(ctx: WorkflowContext) -> None:
        await asyncio.gather(*(work(ctx) for _ in range(10)))

    async with environment(workflows=[many], max_activities=3) as env:
        handle = await env.start(many)
        assert running == 3
        go.set()
        await handle.result()
        assert most == 3


async def test_threads_are_limited_too(impatient: None) -> None:
    running, most, lock, go = 0, 0, threading.Lock(), threading.Event()

    @activity
    def work(ctx: ActivityContext) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        go.wait(10)
        with lock:
            running -= 1

    @workflow
    async def many(ctx: WorkflowContext) -> None:
        await asyncio.gather(*(work(ctx) for _ in range(6)))

    async with environment(workflows=[many], max_activities=2) as env:
        handle = await env.start(many)
        await until(lambda: running == 2)
        go.set()
        await handle.result()
        assert most == 2


# --- retry ------------------------------------------------------------------------------------------------------------
async def test_attempts_and_next_due_survive_a_restart(env: Environment) -> None:
    attempts: list[tuple[int, timedelta]] = []
    began = env.now

    @activity(retry=EXACT)
    async def flaky(ctx: ActivityContext) -> int:
        attempts.append((ctx.attempt, env.now - began))
        if ctx.attempt < 4:
            raise ValueError(f"attempt {ctx.attempt}")
        return ctx.attempt

    @workflow
    async def retries(ctx: WorkflowContext) -> int:
        return await flaky(ctx)

    handle = await env.start(retries)
    (wait,) = await env.waits(handle)
    assert (wait.kind, wait.wait_id, wait.due_at) == ("retry", "flaky:1", began + timedelta(seconds=10))
    assert "attempt 1" in (wait.error or "")
    assert await handle.status() == "running", "between attempts too"
    await down_for(env, timedelta(seconds=4))
    await env.advance(5)
    assert len(attempts) == 1, "not early"
    await env.advance(1)
    await env.restart()
    assert await handle.result() == 4
    seconds = [(n, after.total_seconds()) for n, after in attempts]
    assert seconds == [(1, 0), (2, 10), (3, 30), (4, 70)]


async def test_a_retry_that_fell_due_while_down_runs_at_once(env: Environment) -> None:
    attempts: list[int] = []

    @activity(retry=EXACT)
    async def flaky(ctx: ActivityContext) -> None:
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            raise ValueError

    @workflow
    async def retries(ctx: WorkflowContext) -> None:
        await flaky(ctx)

    handle = await env.start(retries)
    await down_for(env, timedelta(hours=1))
    assert attempts == [1, 2]
    assert await handle.status() == "completed"


async def test_when_attempts_are_used_up_the_error_has_everything(env: Environment) -> None:
    @activity(retry=EXACT)
    async def charge(ctx: ActivityContext) -> None:
        raise KeyError("no such card")

    @workflow
    async def pays(ctx: WorkflowContext) -> list[Any]:
        try:
            await charge(ctx)
        except ActivityError as e:
            await sleep(ctx, 1)
            return [e.activity, e.error_type, e.message, e.attempts, "charge" in e.traceback, str(e)]
        return []

    handle = await env.start(pays)
    await env.advance(70)
    await env.restart()
    activity_name, error_type, message, attempts, traced, text = await handle.result()
    assert (activity_name, error_type, message, attempts, traced) == ("charge", "KeyError", "'no such card'", 4, True)
    for part in ("charge", "4", "KeyError", "no such card"):
        assert part in text


async def test_an_uncaught_activity_error_fails_the_workflow(env: Environment) -> None:
    @activity(retry=NO_RETRY)
    async def charge(ctx: ActivityContext) -> None:
        raise ValueError("card declined")

    @workflow
    async def pays(ctx: WorkflowContext) -> None:
        await charge(ctx)

    handle = await env.start(pays)
    with pytest.raises(WorkflowFailed, match="card declined") as failed:
        await handle.result()
    assert failed.value.error_type == "ActivityError"
    assert failed.value.instance_id == handle.instance_id
    instance = await env.app.get_instance(handle.instance_id)
    assert (instance.status, instance.error["type"]) == ("failed", "ActivityError")


class Declined(Exception):
    pass


@pytest.mark.parametrize("error", [ValueError("no such card"), Declined("no money")], ids=repr)
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_failed_workflow_shows_where_its_activity_failed(
    env: Environment, error: Exception, restarts: bool
) -> None:
    """The line in the activity and the line in the workflow that called it, live and after a replay."""

    def deep_in_the_bank() -> None:
        raise error

    @activity(retry=NO_RETRY, raises=[Declined])
    async def charge(ctx: ActivityContext) -> None:
        deep_in_the_bank()

    @workflow
    async def pays_with_a_card(ctx: WorkflowContext) -> None:
        try:
            await charge(ctx)
        finally:
            if restarts:
                await sleep(ctx, 1)

    handle = await env.start(pays_with_a_card)
    if restarts:
        await env.restart()
    with pytest.raises(WorkflowFailed) as failed:
        await handle.result()
    printed = "".join(traceback.format_exception(failed.value))
    for text in (failed.value.traceback, printed):
        assert "in deep_in_the_bank" in text
        assert "in pays_with_a_card" in text
        assert str(error) in text
    assert "deep_in_the_bank" not in str(failed.value), "the message stays one line"


@pytest.mark.parametrize("error", [TerminalError("stop"), ZeroDivisionError("no use")])
async def test_terminal_and_non_retryable_errors_are_not_retried(env: Environment, error: Exception) -> None:
    attempts: list[int] = []

    @activity(retry=RetryPolicy(non_retryable=(ArithmeticError,)))
    async def hopeless(ctx: ActivityContext) -> None:
        attempts.append(ctx.attempt)
        raise error

    @workflow
    async def tries(ctx: WorkflowContext) -> list[Any]:
        try:
            await hopeless(ctx)
        except ActivityError as e:
            return [e.error_type, e.attempts]
        return []

    assert await (await env.start(tries)).result() == [type(error).__name__, 1]
    assert attempts == [1]


async def test_the_apps_policy_the_activitys_and_the_calls(env: Environment) -> None:
    runs: list[str] = []

    @activity
    async def by_app(ctx: ActivityContext) -> None:
        runs.append("app")
        raise ValueError

    @activity(retry=RetryPolicy(max_attempts=3))
    async def by_activity(ctx: ActivityContext) -> None:
        runs.append("activity")
        raise ValueError

    @workflow
    async def all_three(ctx: WorkflowContext) -> None:
        calls = by_app(ctx), by_activity(ctx), by_activity.options(retry=NO_RETRY)(ctx)
        await asyncio.gather(*calls, return_exceptions=True)

    async with environment(workflows=[all_three], retry=RetryPolicy(max_attempts=2)) as env:
        await (await env.start(all_three)).result()
    assert (runs.count("app"), runs.count("activity")) == (2, 4)


async def test_each_failed_attempt_is_logged_as_a_warning(env: Environment, caplog: pytest.LogCaptureFixture) -> None:
    @activity(retry=RetryPolicy(max_attempts=2))
    async def flaky(ctx: ActivityContext) -> None:
        raise ValueError("oh no")

    @workflow
    async def tries(ctx: WorkflowContext) -> None:
        with pytest.raises(ActivityError):
            await flaky(ctx)

    with caplog.at_level(logging.WARNING, "romancy"):
        handle = await env.start(tries)
        await handle.result()
    records = [r for r in caplog.records if "oh no" in r.getMessage()]
    assert len(records) == 2
    assert {r.instance_id for r in records} == {handle.instance_id}  # type: ignore[attr-defined]
    assert {r.levelname for r in records} == {"WARNING"}


# --- raises= ----------------------------------------------------------------------------------------------------------
class CardDeclined(Exception):
    def __init__(self, code: int, why: str) -> None:
        super().__init__(code, why)
        self.code, self.why = code, why


class CardStolen(CardDeclined): ...


@pytest.mark.parametrize("kind", [CardDeclined, CardStolen])
async def test_a_listed_exception_is_an_answer(env: Environment, kind: type[CardDeclined]) -> None:
    runs: list[int] = []

    @activity(raises=(CardDeclined,))
    async def charge(ctx: ActivityContext) -> None:
        runs.append(1)
        raise kind(51, "no money")

    @workflow
    async def pays(ctx: WorkflowContext) -> list[Any]:
        try:
            await charge(ctx)
        except CardDeclined as e:
            await wait_event(ctx, "go")
            return [type(e).__name__, e.code, e.why, list(e.args)]
        return []

    handle = await env.start(pays)
    await env.restart()
    await env.send_event("go", "test")
    assert await handle.result() == [kind.__name__, 51, "no money", [51, "no money"]]
    assert runs == [1]


async def test_an_exception_that_is_not_listed_arrives_as_activity_error(env: Environment) -> None:
    @activity(raises=(CardStolen,), retry=NO_RETRY)
    async def charge(ctx: ActivityContext) -> None:
        raise CardDeclined(1, "not listed")

    @workflow
    async def pays(ctx: WorkflowContext) -> str:
        try:
            await charge(ctx)
        except Exception as error:
            return type(error).__name__
        return ""

    assert await (await env.start(pays)).result() == "ActivityError"


# --- timeouts ---------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("impatient")
async def test_timeout_is_per_attempt_and_cancels_an_async_activity(env: Environment) -> None:
    heard: list[str] = []

    @activity(timeout=5, retry=RetryPolicy(max_attempts=2, initial=10, jitter=0))
    async def slow(ctx: ActivityContext) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append(f"attempt {ctx.attempt}")
            raise

    @workflow
    async def waits(ctx: WorkflowContext) -> list[Any]:
        try:
            await slow(ctx)
        except ActivityTimeout as e:
            return [e.activity, e.attempts, isinstance(e, TimeoutError), isinstance(e, ActivityError), str(e)]
        return []

    handle = await env.start(waits)
    await env.advance(4.9)
    assert heard == []
    await env.advance(0.1)
    assert heard == ["attempt 1"]
    result = await handle.result()
    assert heard == ["attempt 1", "attempt 2"]
    assert result[:4] == ["slow", 2, True, True]
    assert "5 s" in result[4]


@pytest.mark.usefixtures("impatient")
async def test_a_thread_that_runs_too_long_is_told_and_its_result_ignored(env: Environment) -> None:
    told, release = threading.Event(), threading.Event()

    @activity(timeout=5, retry=NO_RETRY)
    def slow(ctx: ActivityContext) -> str:
        release.wait(10)
        try:
            ctx.check_cancelled()
        except asyncio.CancelledError:
            told.set()
        return "too late"

    @workflow
    async def waits(ctx: WorkflowContext) -> str:
        try:
            return await slow(ctx)
        except ActivityTimeout:
            return "timed out"

    handle = await env.start(waits)
    await env.advance(5)
    assert await handle.status() == "completed"
    release.set()
    assert await asyncio.to_thread(told.wait, 10)
    await env.settle()
    assert await handle.result() == "timed out"


async def test_options_override_the_timeout_of_one_call(env: Environment, impatient: None) -> None:
    @activity(timeout=1000, retry=NO_RETRY)
    async def slow(ctx: ActivityContext) -> None:
        await asyncio.Event().wait()

    @workflow
    async def waits(ctx: WorkflowContext) -> None:
        await slow.options(timeout=1)(ctx)

    handle = await env.start(waits)
    await env.advance(1)
    assert await handle.status() == "failed"


# --- cancelling -------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("impatient")
async def test_cancelling_reaches_async_and_threaded_activities(env: Environment) -> None:
    heard: list[str] = []
    started, stop = threading.Event(), threading.Event()

    @activity
    async def in_loop(ctx: ActivityContext) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("loop")
            raise

    @activity
    def in_thread(ctx: ActivityContext) -> None:
        ctx.check_cancelled()  # not cancelled yet: nothing happens
        started.set()
        try:
            while not stop.wait(0.001):
                ctx.check_cancelled()
        except asyncio.CancelledError:
            heard.append("thread")
            raise
        finally:
            stop.set()

    @workflow
    async def both(ctx: WorkflowContext) -> None:
        await asyncio.gather(in_loop(ctx), in_thread(ctx))

    handle = await env.start(both)
    assert await asyncio.to_thread(started.wait, 10)
    await env.cancel(handle)
    assert await asyncio.to_thread(stop.wait, 10)
    await env.settle()
    assert sorted(heard) == ["loop", "thread"]
    assert await handle.status() == "cancelled"


# --- results survive exactly ------------------------------------------------------------------------------------------
class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclass
class Line:
    sku: str
    price: Decimal
    tags: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Basket:
    lines: tuple[Line, ...]
    by_day: dict[date, list[Line | None]]
    owner: UUID


class Address(TypedDict):
    street: str
    since: datetime


class Customer(BaseModel):
    name: str
    colours: list[Colour]
    basket: Basket | None = None


LINE = Line("a", Decimal("1.10"), {"x", "y"})
BASKET = Basket((LINE,), {date(2026, 1, 2): [LINE, None]}, UUID(int=7))
WHEN = datetime(2026, 3, 4, 5, 6, 7, 890123, tzinfo=UTC)
LOCAL = datetime(2026, 3, 4, 5, 6, 7, 890123)
VALUES: list[tuple[Any, Any]] = [
    (int, 10**60),
    (int, -1),
    (float, 0.1 + 0.2),
    (float, 1e300),
    (float, 5.0),
    (float, float("inf")),
    (str, "ü\x00\U0001f600 \n"),
    (bytes, bytes(range(256))),
    (bool, True),
    (type(None), None),
    (int | None, None),
    (list[int], [1, 2]),
    (dict[str, int], {"b": 1, "a": 2}),
    (dict[int, str], {1: "a", 20: "b"}),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (set[int], {1, 2, 3}),
    (frozenset[str], frozenset({"a"})),
    (datetime, WHEN),
    (datetime, LOCAL),
    (date, date(2026, 1, 2)),
    (time, time(1, 2, 3, 4)),
    (timedelta, timedelta(days=-1, microseconds=1)),
    (Decimal, Decimal("1.10")),
    (UUID, UUID(int=2**100)),
    (Colour, Colour.RED),
    (Level, Level.HIGH),
    (Line, LINE),
    (Basket, BASKET),
    (Address, {"street": "x", "since": WHEN}),
    (Customer, Customer(name="n", colours=[Colour.RED], basket=BASKET)),
    (list[Customer | Line], [LINE, Customer(name="n", colours=[])]),
    (dict[str, list[tuple[Decimal, set[UUID]]]], {"a": [(Decimal("0.00"), {UUID(int=1)})]}),
    (Any, {"a": [1, 2.5, None, True, "x", {"b": []}]}),
]


@pytest.mark.parametrize(("annotation", "value"), VALUES, ids=[f"{a}-{str(v)[:20]!a}" for a, v in VALUES])
async def test_a_result_is_the_same_live_and_on_replay(env: Environment, annotation: Any, value: Any) -> None:
    seen: list[tuple[bool, Any]] = []

    @activity
    async def make(ctx: ActivityContext) -> annotation:
        return value

    @activity
    async def take(ctx: ActivityContext, given: annotation) -> str:
        return f"{given!r}"

    @workflow
    async def keeps(ctx: WorkflowContext, given: annotation) -> annotation:
        made = await make(ctx)
        seen.append((ctx.is_replaying, made))
        seen.append((ctx.is_replaying, given))
        await sleep(ctx, 60)
        assert await take(ctx, made) == repr(made)
        return made

    handle = await env.start(keeps, value)
    await env.restart()
    result = await handle.result()
    assert [replaying for replaying, _ in seen] == [False, False, True, True]
    for copy in (*(v for _, v in seen), result):
        assert copy == value
        assert type(copy) is type(value)
        assert repr(copy) == repr(value) or isinstance(value, set | frozenset) or "{" in repr(value)


async def test_without_an_annotation_values_are_json(env: Environment) -> None:
    @activity
    async def make(ctx: ActivityContext):  # type: ignore[no-untyped-def]
        return (1, {"a": (2, 3)})

    seen: list[Any] = []

    @workflow
    async def keeps(ctx: WorkflowContext) -> None:
        seen.append(await make(ctx))
        await sleep(ctx, 60)

    handle = await env.start(keeps)
    await env.restart()
    await handle.result()
    assert seen == [[1, {"a": [2, 3]}]] * 2, "tuples come back as lists, live as on replay"


async def test_the_workflow_sees_a_copy_never_the_activitys_own_object(env: Environment) -> None:
    mine = {"n": [1]}

    @activity
    async def make(ctx: ActivityContext) -> dict[str, list[int]]:
        return mine

    @workflow
    async def keeps(ctx: WorkflowContext) -> dict[str, list[int]]:
        made = await make(ctx)
        made["n"].append(2)
        return made

    assert await (await env.start(keeps)).result() == {"n": [1, 2]}
    assert mine == {"n": [1]}


class Opaque:
    pass


@pytest.mark.parametrize("value", [Opaque(), {"deep": [Opaque()]}, threading.Lock()], ids=["object", "nested", "lock"])
async def test_a_result_that_cannot_be_stored_names_activity_and_type_and_is_not_retried(
    env: Environment, value: Any
) -> None:
    runs: list[int] = []

    @activity
    async def make(ctx: ActivityContext):  # type: ignore[no-untyped-def]
        runs.append(1)
        return value

    @workflow
    async def keeps(ctx: WorkflowContext) -> None:
        await make(ctx)

    handle = await env.start(keeps)
    with pytest.raises(WorkflowFailed) as failed:
        await handle.result()
    assert runs == [1]
    message = str(failed.value)
    assert "make" in message
    inner = value["deep"][0] if isinstance(value, dict) else value
    assert type(inner).__name__ in message


async def test_a_result_of_the_wrong_type_is_refused(env: Environment) -> None:
    @activity
    async def make(ctx: ActivityContext) -> int:
        return "seven"  # type: ignore[return-value]

    @workflow
    async def keeps(ctx: WorkflowContext) -> int:
        return await make(ctx)

    with pytest.raises(WorkflowFailed, match=r"make.*int"):
        await (await env.start(keeps)).result()


# --- progress ---------------------------------------------------------------------------------------------------------
async def test_progress_is_handed_to_the_next_attempt(env: Environment) -> None:
    seen: list[Any] = []

    @activity(retry=EXACT)
    async def copies(ctx: ActivityContext) -> list[Any]:
        seen.append(ctx.last_progress)
        ctx.progress({"done": ctx.attempt * 10})
        ctx.progress({"done": ctx.attempt * 10 + 1})
        if ctx.attempt < 3:
            raise ValueError
        return seen

    @workflow
    async def job(ctx: WorkflowContext) -> list[Any]:
        return await copies(ctx)

    handle = await env.start(job)
    await env.restart()
    assert await handle.result() == [None, {"done": 11}, {"done": 21}]


@pytest.mark.usefixtures("impatient")
async def test_progress_survives_the_death_of_the_worker(env: Environment) -> None:
    seen: list[tuple[int, Any]] = []
    hang = asyncio.Event()

    @activity
    async def copies(ctx: ActivityContext) -> None:
        seen.append((ctx.attempt, ctx.last_progress))
        ctx.progress("half way")
        if len(seen) == 1:
            await hang.wait()

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await copies(ctx)

    handle = await env.start(job)
    await env.restart()
    assert await handle.status() == "completed"
    assert seen == [(1, None), (1, "half way")]


async def test_the_idempotency_key_stays_the_same_over_attempts_and_crashes(env: Environment) -> None:
    keys: list[str] = []

    @activity(retry=EXACT)
    async def charge(ctx: ActivityContext) -> None:
        keys.append(ctx.idempotency_key)
        if len(keys) < 3:
            raise ValueError

    @workflow
    async def pays(ctx: WorkflowContext) -> None:
        await charge(ctx)
        await charge(ctx)

    handle = await env.start(pays.options(instance_id="one"))
    await env.restart()
    await handle.result()
    assert keys == ["one/charge:1"] * 3 + ["one/charge:2"]


# --- sending ----------------------------------------------------------------------------------------------------------
async def test_an_event_leaves_with_the_result_and_not_at_all_if_the_attempt_fails(env: Environment) -> None:
    @activity(retry=EXACT)
    async def tells(ctx: ActivityContext) -> None:
        await send_event(ctx, "news", "activity", ctx.attempt)
        if ctx.attempt < 3:
            raise ValueError

    @activity
    def tells_from_thread(ctx: ActivityContext) -> None:
        ctx.send_event("news", "thread", "x", subject="s")

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await tells(ctx)
        await tells_from_thread(ctx)

    @workflow
    async def listener(ctx: WorkflowContext) -> list[Any]:
        return [(await wait_event(ctx, "news")).data for _ in range(2)]

    heard = await env.start(listener)
    await env.start(job.options(instance_id="one"))
    assert (await env.app.list_events()).items == []
    await env.advance(10)
    assert (await env.app.list_events()).items == []
    await env.advance(60)
    assert await heard.result() == [3, "x"]
    ids = [record.event.id for record in (await env.app.list_events()).items]
    assert ids == ["one/tells_from_thread:1/1", "one/tells:1/1"], "the default id makes a repeat a duplicate"


async def test_nothing_leaves_when_the_attempt_is_given_up(env: Environment, impatient: None) -> None:
    @activity(timeout=5, retry=NO_RETRY)
    async def tells(ctx: ActivityContext) -> None:
        await send_event(ctx, "news", "activity")
        await asyncio.Event().wait()

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        with pytest.raises(ActivityTimeout):
            await tells(ctx)

    handle = await env.start(job)
    await handle.result()
    assert (await env.app.list_events()).items == []


# --- listing ----------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("impatient")
async def test_an_open_activity_is_shown_as_a_wait(env: Environment) -> None:
    @activity
    async def slow(ctx: ActivityContext) -> None:
        await asyncio.Event().wait()

    @workflow
    async def busy(ctx: WorkflowContext) -> None:
        await slow(ctx)

    handle = await env.start(busy)
    (wait,) = await env.waits(handle)
    assert (wait.kind, wait.wait_id, wait.due_at) == ("activity", "slow:1", None)
    assert wait.location.endswith(" in busy")
    assert await handle.status() == "running"


async def test_a_fake_stands_in_for_an_activity(env: Environment) -> None:
    @activity
    async def charge(ctx: ActivityContext, amount: int) -> str:
        raise AssertionError("the real one")

    @workflow
    async def pays(ctx: WorkflowContext) -> str:
        return await charge(ctx, 7)

    def fake(amount: int) -> str:
        return f"paid {amount}"

    env.replace(charge, fake)
    await env.restart()
    assert await (await env.start(pays)).result() == "paid 7"


async def test_history_shows_inputs_results_and_errors(env: Environment) -> None:
    @activity
    async def doubles(ctx: ActivityContext, n: int) -> int:
        return n * 2

    @activity(retry=NO_RETRY)
    async def breaks(ctx: ActivityContext) -> None:
        raise ValueError("broken")

    @workflow
    async def both(ctx: WorkflowContext, n: int) -> None:
        await doubles(ctx, n)
        with pytest.raises(ActivityError):
            await breaks(ctx)

    handle = await env.start(both, 4)
    assert await kinds(env, handle.instance_id) == ["started", "activity_completed", "activity_failed"]
    started, done, failed = await env.app.get_history(handle.instance_id)
    assert (started.operation, started.input) == ("both", {"n": 4})
    assert (done.operation, done.input, done.result) == ("doubles:1", {"n": 4}, 8)
    assert (failed.operation, failed.error["type"], failed.error["message"]) == ("breaks:1", "ValueError", "broken")


def test_plain_functions_are_there_for_unit_tests() -> None:
    @activity
    def doubles(ctx: ActivityContext, n: int) -> int:
        ctx.progress("half")
        return n * 2

    assert doubles.fn(activity_context(attempt=2), 4) == 8
