"""What a workflow did is undone when it fails, is cancelled or runs out of time: whatever else happens meanwhile."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Generator
from typing import Any

import pytest

from romancy import (
    NO_RETRY,
    ActivityContext,
    HooksBase,
    RetryPolicy,
    WorkerOptions,
    WorkflowBlocked,
    WorkflowCancelled,
    WorkflowContext,
    WorkflowFailed,
    activity,
    compensate,
    saga,
    wait_event,
    workflow,
)
from romancy.testing import Environment, environment
from tests.engine.helpers import down, kinds, until

log: list[str] = []
broken: set[str] = set()
keys: list[str] = []
gate = asyncio.Event()
thread_gate = threading.Event()
ONCE = RetryPolicy(max_attempts=1)


@pytest.fixture(autouse=True)
async def clean() -> AsyncIterator[None]:
    global gate
    log.clear()
    broken.clear()
    keys.clear()
    gate = asyncio.Event()
    thread_gate.clear()
    yield
    thread_gate.set()


@activity
async def reserve(ctx: ActivityContext, room: str) -> str:
    log.append(f"reserve {room}")
    return room.upper()


@reserve.compensate
async def release(ctx: ActivityContext, booking: str, room: str) -> None:
    if room in broken:
        raise ConnectionError(f"{room} is closed")
    log.append(f"release {booking} {room}")


@activity
async def slow(ctx: ActivityContext, name: str) -> str:
    log.append(f"begin {name}")
    await gate.wait()
    log.append(f"end {name} cancelled={ctx.is_cancelled}")
    return name


@slow.compensate
async def unslow(ctx: ActivityContext, name: str) -> None:
    log.append(f"undo {name}")


@activity
def slow_thread(ctx: ActivityContext, name: str) -> str:
    thread_gate.wait(30)
    log.append(f"end {name} cancelled={ctx.is_cancelled}")
    return name


@slow_thread.compensate
def unslow_thread(ctx: ActivityContext, result: str) -> None:
    log.append(f"undo {result}")


@activity(retry=RetryPolicy(max_attempts=None, initial=100))
async def flaky(ctx: ActivityContext) -> None:
    log.append(f"flaky {ctx.attempt}")
    raise ConnectionError("away")


@flaky.compensate
async def unflaky(ctx: ActivityContext) -> None:
    log.append("undo flaky")


@activity(retry=NO_RETRY)
async def fail(ctx: ActivityContext) -> None:
    raise ValueError("no luck")


@workflow
async def trip(ctx: WorkflowContext) -> None:
    await reserve(ctx, "a")
    await reserve(ctx, "b")
    await fail(ctx)


@workflow
async def waiting(ctx: WorkflowContext) -> str:
    await reserve(ctx, "a")
    return (await wait_event(ctx, "go", model=str)).data


BOTH = ["reserve a", "reserve b", "release B b", "release A a"]


async def test_a_failed_workflow_is_undone(env: Environment) -> None:
    handle = await env.start(trip)
    with pytest.raises(WorkflowFailed, match="no luck"):
        await handle.result()
    assert log == BOTH
    history = await env.app.get_history(handle.instance_id)
    assert [entry.operation for entry in history[-2:]] == ["undo reserve:2:1", "undo reserve:1:1"]
    assert history[-1].input == {"booking": "A", "room": "a"}


async def test_cancelled(env: Environment) -> None:
    handle = await env.start(waiting)
    await env.cancel(handle, "changed my mind")
    with pytest.raises(WorkflowCancelled, match="changed my mind"):
        await handle.result()
    assert log == ["reserve a", "release A a"]


async def test_out_of_time(env: Environment) -> None:
    handle = await env.start(waiting.options(timeout=10))
    await env.advance(11)
    with pytest.raises(WorkflowFailed, match="ran out of time"):
        await handle.result()
    assert log == ["reserve a", "release A a"]


async def test_completed(env: Environment) -> None:
    handle = await env.start(waiting)
    await env.send_event("go", "test", "fine")
    assert await handle.result() == "fine"
    assert log == ["reserve a"]


# --- while undos run -------------------------------------------------------------------------------------------------
async def test_nothing_interrupts_undos(env: Environment) -> None:
    """Neither a cancellation nor the workflow's time limit, nor a restart between two attempts."""
    broken.add("a")
    handle = await env.start(trip.options(timeout=10))
    assert await handle.status() == "compensating"
    await env.cancel(handle, "too late")
    await env.advance(20)
    await env.restart()
    assert await handle.status() == "compensating"
    engine = env.app._runtime.engine
    assert not (await engine.storage.mail(engine.worker_id or "", 10)).requests
    broken.clear()
    with pytest.raises(WorkflowFailed, match="no luck"):
        await handle.result()
    assert log == BOTH
    assert "cancel_requested" not in await kinds(env, handle.instance_id)


async def test_an_undo_is_retried_for_a_day(env: Environment) -> None:
    broken.add("b")
    handle = await env.start(trip)
    await env.advance(12 * 3600)
    assert await handle.status() == "compensating"
    assert log == ["reserve a", "reserve b"]
    await env.advance(13 * 3600)
    assert await handle.status() == "blocked"


async def test_the_policy_is_an_option(env: Environment) -> None:
    broken.add("b")
    async with environment(worker=WorkerOptions(grace=0.1, compensation_retry=ONCE)) as other:
        handle = await other.start(trip)
        assert await handle.status() == "blocked"


async def test_evicted_between_attempts() -> None:
    broken.add("a")
    async with environment(worker=WorkerOptions(grace=0.1, max_resident=1)) as env:
        handle = await env.start(trip)
        others = [await env.start(waiting) for _ in range(3)]
        assert handle.instance_id not in env.app._runtime.engine.residents
        broken.clear()
        await env.advance(600)
        assert await handle.status() == "failed"
        assert [line for line in log if line.startswith("rel")] == ["release B b", "release A a"]
        assert {await other.status() for other in others} == {"waiting_for_event"}


async def test_after_a_crash_it_goes_on_with_the_next_undo(env: Environment) -> None:
    broken.add("a")
    handle = await env.start(trip)
    async with down(env):
        broken.clear()
    with pytest.raises(WorkflowFailed, match="no luck"):
        await handle.result()
    assert log == BOTH


# --- siblings --------------------------------------------------------------------------------------------------------
@workflow
async def beside(ctx: WorkflowContext, what: str) -> None:
    call: Any = {"async": slow, "thread": slow_thread}[what]
    await asyncio.gather(call(ctx, what), reserve(ctx, "a"), fail(ctx))


@pytest.mark.parametrize("what", ["async", "thread"])
async def test_a_sibling_that_runs_is_told_and_waited_for(env: Environment, what: str, impatient: None) -> None:
    handle = await env.start(beside, what)
    assert await handle.status() == "compensating"
    gate.set()
    thread_gate.set()
    with pytest.raises(WorkflowFailed, match="no luck"):
        await handle.result()
    assert log[-3:] == [f"end {what} cancelled=True", f"undo {what}", "release A a"]


@workflow
async def queued(ctx: WorkflowContext) -> None:
    blocker = asyncio.create_task(slow(ctx, "first"))
    await asyncio.sleep(0)
    others = [asyncio.create_task(slow(ctx, f"other{n}")) for n in range(2)]
    await wait_event(ctx, "stop")
    for task in [blocker, *others]:
        task.cancel()
    raise ValueError("no luck")


async def test_a_sibling_that_is_queued_never_begins(impatient: None) -> None:
    async with environment(max_activities=1) as env:
        handle = await env.start(queued)
        await env.send_event("stop", "test")
        gate.set()
        with pytest.raises(WorkflowFailed, match="no luck"):
            await handle.result()
        assert log == ["begin first", "end first cancelled=True", "undo first"]
        history = await env.app.get_history(handle.instance_id)
        failed = [entry for entry in history if entry.kind == "activity_failed"]
        assert [entry.operation for entry in failed] == ["slow:2", "slow:3"]
        assert all("given up before it began" in str(entry.error) for entry in failed)


@workflow
async def between(ctx: WorkflowContext) -> None:
    task = asyncio.create_task(flaky(ctx))
    await reserve(ctx, "a")
    await wait_event(ctx, "stop")
    task.cancel()
    raise ValueError("no luck")


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_sibling_between_attempts_is_not_tried_again(env: Environment, restarted: bool) -> None:
    handle = await env.start(between)
    if restarted:
        await env.restart()
    await env.send_event("stop", "test")
    assert await handle.status() == "failed"
    assert log == ["flaky 1", "reserve a", "release A a"] or log == ["reserve a", "flaky 1", "release A a"]


@activity
async def breaks(ctx: ActivityContext) -> None:
    await gate.wait()
    log.append(f"breaks {ctx.attempt}")
    raise ConnectionError("away")


@breaks.compensate
async def unbreak(ctx: ActivityContext) -> None:
    log.append("never")


@workflow
async def beside_breaking(ctx: WorkflowContext) -> None:
    await asyncio.gather(breaks(ctx), fail(ctx))


async def test_a_sibling_whose_attempt_fails_is_not_tried_again(env: Environment, impatient: None) -> None:
    handle = await env.start(beside_breaking)
    assert await handle.status() == "compensating"
    gate.set()
    await until(lambda: "breaks 1" in log)
    await env.settle()
    assert await handle.status() == "failed"
    assert log == ["breaks 1"]
    assert "attempt_failed" not in await kinds(env, handle.instance_id)


async def test_an_undo_can_be_replaced_in_tests(env: Environment) -> None:
    seen: list[tuple[str, str]] = []

    def fake(booking: str, room: str) -> None:
        seen.append((booking, room))

    env.replace(release, fake)
    await env.start(trip)
    assert seen == [("B", "b"), ("A", "a")]


async def test_an_undo_that_dies_with_its_worker_is_run_again(env: Environment, impatient: None) -> None:
    handle = await env.start(undo_hangs)
    assert await handle.status() == "compensating"
    for _ in range(2):
        async with down(env):
            pass
        await env.advance(200)
    gate.set()
    await until(lambda: "undone" in log)
    await env.settle()
    assert await handle.status() == "failed"
    assert len(set(keys)) == 1


@activity
async def quick(ctx: ActivityContext) -> None: ...


@quick.compensate
async def slow_undo(ctx: ActivityContext) -> None:
    keys.append(ctx.idempotency_key)
    await gate.wait()
    log.append("undone")


@workflow
async def undo_hangs(ctx: WorkflowContext) -> None:
    await quick(ctx)
    await fail(ctx)


@workflow
async def goes_without(ctx: WorkflowContext) -> str:
    await reserve(ctx, "kept")
    try:
        async with asyncio.timeout(5):
            await slow(ctx, "late")
    except TimeoutError:
        return "went without"
    return "?"


@pytest.mark.parametrize("crashed", [False, True])
async def test_a_completed_workflow_undoes_what_it_gave_up(env: Environment, impatient: None, crashed: bool) -> None:
    handle = await env.start(goes_without)
    await env.advance(6)
    assert await handle.status() == "compensating"
    if crashed:
        async with down(env):
            pass
        await env.advance(120)
    gate.set()
    assert await handle.result() == "went without"
    assert log[-2:] == ["end late cancelled=True", "undo late"]


class Raced:
    """Awaits a call, and is cancelled by the very result, before the code sees it."""

    def __init__(self, call: Coroutine[Any, Any, Any]) -> None:
        self._call = call

    def __await__(self) -> Generator[Any, Any, Any]:
        task, call = asyncio.current_task(), self._call.__await__()
        assert task is not None
        future = next(call)
        future.add_done_callback(lambda _: task.cancel())
        try:
            value = yield future
        except BaseException as error:
            return call.throw(error)
        return call.send(value)


@workflow
async def raced(ctx: WorkflowContext) -> str:
    async def one() -> None:
        await Raced(reserve(ctx, "missed"))

    await reserve(ctx, "kept")
    await asyncio.gather(asyncio.create_task(one()), return_exceptions=True)
    await wait_event(ctx, "go")
    return "went without"


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_call_whose_result_the_code_never_saw_is_undone(env: Environment, restarted: bool) -> None:
    handle = await env.start(raced)
    if restarted:
        await env.restart()
    await env.send_event("go", "test")
    assert await handle.result() == "went without"
    assert log == ["reserve kept", "reserve missed", "release MISSED missed"]


@workflow
async def again(ctx: WorkflowContext, runs: int) -> str:
    try:
        async with asyncio.timeout(5):
            await slow(ctx, f"late {runs}")
    except TimeoutError:
        if runs > 1:
            again.continue_as_new(ctx, runs - 1)
    return "went without"


@pytest.mark.parametrize("crashed", [False, True])
async def test_a_cancel_during_the_undos_before_the_next_run_reaches_it(
    env: Environment, impatient: None, crashed: bool
) -> None:
    handle = await env.start(again, 3)
    await env.advance(6)
    assert await handle.status() == "compensating"
    async with asyncio.timeout(10):
        await env.cancel(handle, "enough")  # told at once that it is stored, although nothing interrupts undos
    assert await handle.status() == "compensating"
    if crashed:
        async with down(env):
            pass
        await env.advance(120)
    gate.set()
    await env.settle()
    with pytest.raises(WorkflowCancelled, match="enough"):
        await handle.result()
    assert (await env.app.get_instance(handle.instance_id)).run_number == 2
    assert "undo late 3" in log


# --- undos that fail for good ----------------------------------------------------------------------------------------
class Told(HooksBase):
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_compensation_started(self, info: Any) -> None:
        self.heard.append(("started", info.owed))

    def on_compensation_completed(self, info: Any) -> None:
        self.heard.append(("completed", info.owed))

    def on_compensation_failed(self, info: Any) -> None:
        self.heard.append(("failed", info.owed, info.not_undone))

    def on_workflow_blocked(self, info: Any) -> None:
        self.heard.append(("blocked", str(info.error)))

    def on_activity_started(self, info: Any) -> None:
        if info.undo_of:
            self.heard.append((info.activity_id, info.undo_of))

    def on_activity_completed(self, info: Any) -> None:
        if info.undo_of:
            self.heard.append((info.activity_id, "done"))

    def on_activity_failed(self, info: Any) -> None:
        if info.undo_of:
            self.heard.append((info.activity_id, info.error_type))


def strict(**options: Any) -> Any:
    return environment(worker=WorkerOptions(grace=0.1, compensation_retry=ONCE), **options)


async def test_the_others_run_then_it_is_blocked_and_resumed() -> None:
    broken.add("b")
    told = Told()
    async with strict(hooks=told) as env:
        handle = await env.start(trip)
        with pytest.raises(WorkflowBlocked) as caught:
            await handle.result()
        problem = "could not be undone: release (undo of reserve:2): ConnectionError: b is closed"
        assert caught.value.not_undone == ("reserve:2",)
        assert caught.value.reason == problem
        assert log == ["reserve a", "reserve b", "release A a"]
        assert told.heard == [
            ("started", ("reserve:2", "reserve:1")),
            ("undo reserve:2:1", "reserve:2"),
            ("undo reserve:2:1", "ConnectionError"),
            ("undo reserve:1:1", "reserve:1"),
            ("undo reserve:1:1", "done"),
            ("failed", ("reserve:2", "reserve:1"), ("reserve:2",)),
            ("blocked", f"CompensationFailed: {problem}"),
        ]
        await env.app.resume_workflow(handle.instance_id)
        await env.settle()
        assert await handle.status() == "blocked"  # it is still broken
        broken.clear()
        await env.app.resume_workflow(handle.instance_id)
        await env.settle()
        assert await handle.status() == "failed"
        assert log == ["reserve a", "reserve b", "release A a", "release B b"]
        assert (await kinds(env, handle.instance_id)).count("resumed") == 2
        assert told.heard[-1] == ("completed", ("reserve:2",))


async def test_cancelling_it_gives_up() -> None:
    broken.add("a")
    async with strict() as env:
        handle = await env.start(trip)
        assert await handle.status() == "blocked"
        await env.cancel(handle, "leave it")
        assert await handle.status() == "cancelled"
        assert log == ["reserve a", "reserve b", "release B b"]


@workflow
async def outer_and_inner(ctx: WorkflowContext) -> None:
    await reserve(ctx, "a")
    async with saga(ctx):
        await reserve(ctx, "b")
        await fail(ctx)


async def test_cancelling_it_keeps_the_list_of_what_is_not_undone() -> None:
    broken.add("b")
    async with strict() as env:
        handle = await env.start(outer_and_inner)
        with pytest.raises(WorkflowBlocked) as caught:
            await handle.result()
        assert caught.value.not_undone == ("reserve:2", "reserve:1")
        await env.cancel(handle, "leave it")
        error = (await env.app.get_instance(handle.instance_id)).error
        assert error is not None
        assert (error["message"], error["not_undone"]) == ("leave it", ["reserve:2", "reserve:1"])
        with pytest.raises(WorkflowCancelled, match="leave it"):
            await handle.result()


async def test_resumed_and_crashed_before_that_is_recorded() -> None:
    broken.add("a")
    async with strict() as env:
        handle = await env.start(trip)
        await env.app.stop()
        await env.app.start()
        broken.clear()
        await env.app._runtime.engine.storage.resume(handle.instance_id)  # nobody is told
        await env.restart()
        assert await handle.status() == "failed"
        assert log == [*BOTH]


@workflow
async def block_beside_work(ctx: WorkflowContext) -> str:
    async def block() -> None:
        async with saga(ctx):
            await reserve(ctx, "a")
            await fail(ctx)

    done = await asyncio.gather(block(), slow(ctx, "work"), return_exceptions=True)
    return str(done[1])


async def test_a_running_activity_ends_before_the_instance_is_blocked(impatient: None) -> None:
    broken.add("a")
    async with strict() as env:
        handle = await env.start(block_beside_work)
        assert await handle.status() == "compensating"
        gate.set()
        await until(lambda: "end work cancelled=False" in log)
        await env.settle()
        assert await handle.status() == "blocked"
        broken.clear()
        await env.app.resume_workflow(handle.instance_id)
        await env.settle()
        assert await handle.result() == "work"


@workflow
async def by_hand(ctx: WorkflowContext) -> None:
    compensate(ctx, release, "X", "x")
    compensate(ctx, release.options(retry=ONCE), "Y", "y")
    await fail(ctx)


async def test_by_hand_with_a_policy_of_its_own(env: Environment) -> None:
    broken.add("y")
    handle = await env.start(by_hand)
    with pytest.raises(WorkflowBlocked, match="could not be undone: release: ConnectionError: y is closed"):
        await handle.result()
    assert log == ["release X x"]


@activity
async def mistyped(ctx: ActivityContext) -> str:
    return "not a number"


@mistyped.compensate  # type: ignore[arg-type]
async def takes_number(ctx: ActivityContext, n: int) -> None:
    log.append("never")


@workflow
async def misfit(ctx: WorkflowContext) -> None:
    await reserve(ctx, "a")
    await mistyped(ctx)
    await fail(ctx)


async def test_an_undo_that_cannot_read_the_result_fails_like_any_other(env: Environment) -> None:
    handle = await env.start(misfit)
    with pytest.raises(WorkflowBlocked, match="takes_number") as caught:
        await handle.result()
    assert caught.value.not_undone == ("mistyped:1",)
    assert log == ["reserve a", "release A a"]
