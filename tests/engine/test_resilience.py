"""Code and data that misbehave: the instance is set aside where all can see it, and everybody else goes on."""

import asyncio
import errno
import gc
import sqlite3
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pydantic
import pytest

from romancy import (
    NO_RETRY,
    ActivityContext,
    ActivityTimeout,
    App,
    HooksBase,
    RetryPolicy,
    WaitTimeout,
    WorkerOptions,
    Workflow,
    WorkflowBlocked,
    WorkflowContext,
    WorkflowFailed,
    activity,
    sleep,
    wait_event,
    workflow,
)
from romancy.core.model import Event
from romancy.errors import StorageError
from romancy.storage.batch import Batch
from romancy.storage.errors import RefusedValue, TransientError
from romancy.storage.protocol import Answered
from romancy.testing import Environment, environment
from tests.engine.helpers import intercept, kinds, until

HANGS = 10
"""Real seconds after which something that should be over counts as hanging."""


@activity
async def echo(ctx: ActivityContext, value: str) -> str:
    return value


@workflow
async def fine(ctx: WorkflowContext) -> str:
    return await echo(ctx, "fine")


@workflow
async def take_one(ctx: WorkflowContext) -> Any:
    return (await wait_event(ctx, "news")).data


async def assert_others_go_on(env: Environment) -> None:
    async with asyncio.timeout(HANGS):
        assert await (await env.start(fine)).result() == "fine"


def damage(db: str, statement: str, *values: Any) -> None:
    """Change the database behind everybody's back; something must have changed."""
    connection = sqlite3.connect(db)
    assert connection.execute(statement, values).rowcount > 0
    connection.commit()
    connection.close()


# --- changed code ---
class Payments:
    """A workflow that pays back whatever goes wrong, in several versions."""

    def __init__(self) -> None:
        self.refunds = 0

    def version(self, result: Any, model: Any = None) -> Workflow[[], Any]:
        async def charge(ctx: ActivityContext) -> Any:
            return 7

        charge.__annotations__["return"] = result
        charge_it = activity(name="charge")(charge)

        @activity(name="refund")
        async def refund(ctx: ActivityContext) -> None:
            self.refunds += 1

        @workflow(name="pay")
        async def pay(ctx: WorkflowContext) -> Any:
            try:
                charged = await charge_it(ctx)
                await wait_event(ctx, "packed", model=model)
                await wait_event(ctx, "sent")
            except Exception:
                await refund(ctx)
                return "refunded"
            return charged

        return pay


@pytest.mark.parametrize(
    ("result", "model", "recorded", "next_one"),
    [(dict[str, int], int, [], "packed"), (int, dict[str, int], ["packed"], "sent")],
    ids=["result", "model"],
)
async def test_a_recorded_value_that_no_longer_fits_is_never_raised_into_the_code(
    db: str, result: Any, model: Any, recorded: list[str], next_one: str
) -> None:
    payments = Payments()
    before, after = payments.version(int, int), payments.version(result, model)
    async with environment(database=db, workflows=[before]) as env:
        await env.start(before.options(instance_id="one"))
        for type in recorded:
            await env.send_event(type, "test", 1)
    async with environment(database=db, workflows=[after]) as env:
        await env.send_event(next_one, "test", 1)
        with pytest.raises(WorkflowBlocked, match="'one'"):
            await env.app.handle("one").result(timeout=HANGS)
        assert payments.refunds == 0
    async with environment(database=db, workflows=[before]) as env:
        await env.app.resume_workflow("one")
        await env.send_event("sent", "test")
        assert await env.app.handle("one").result(timeout=HANGS) == 7
        assert payments.refunds == 0


# --- events and rows that can't be read ---
UNREADABLE = {"too deep": b"[" * 100_000 + b"]" * 100_000, "no JSON": b"{nope", "no UTF-8": b'"\xff"'}


def raw(data: bytes) -> Event:
    return Event(id="bad", source="test", type="news", data=data, datacontenttype="application/json")


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE)
async def test_an_unreadable_event_in_the_log_stops_nobody_who_waits_for_its_type(
    env: Environment, data: bytes
) -> None:
    before = await env.start(take_one)
    await env.app._runtime.engine.accept(raw(data))  # as somebody less careful would have stored it
    await env.settle()
    after = await env.start(take_one)
    await env.send_event("news", "test", "good")
    async with asyncio.timeout(HANGS):
        assert [await before.result(), await after.result()] == ["good", "good"]


@workflow
async def long_story(ctx: WorkflowContext) -> str:
    await echo(ctx, "begins")
    await wait_event(ctx, "middle")
    await wait_event(ctx, "end", timeout=3600)
    return "told"


DAMAGES = {
    "a result": "UPDATE romancy_history SET payload = substr(payload, 1, 3) WHERE kind = 1",
    "an event": "UPDATE romancy_history SET payload = substr(payload, 1, 10) WHERE kind = 4",
    "a kind": "UPDATE romancy_history SET kind = 99 WHERE n = 1",
    "an input": "UPDATE romancy_instances SET input = x'00'",
    "a timer": "UPDATE romancy_waits SET due_at = 'abc'",
}


async def tell_half(db: str) -> None:
    async with environment(database=db, workflows=[long_story]) as env:
        await env.start(long_story.options(instance_id="one"))
        await env.send_event("middle", "test")


@pytest.mark.sqlite
@pytest.mark.parametrize("statement", DAMAGES.values(), ids=DAMAGES)
async def test_a_damaged_row_blocks_its_instance_and_nothing_hangs(db: str, statement: str) -> None:
    await tell_half(db)
    damage(db, statement)
    async with environment(database=db, workflows=[long_story, fine]) as env, asyncio.timeout(HANGS):
        await env.send_event("end", "test")
        with pytest.raises(WorkflowBlocked, match="'one'"):
            await env.app.handle("one").result()
        assert [i.status for i in (await env.app.list_instances()).items] == ["blocked"]
        await assert_others_go_on(env)
        await env.app.cancel_workflow("one")
        assert (await env.app.get_instance("one")).status == "cancelled"


@pytest.mark.sqlite
@pytest.mark.parametrize(
    "statement",
    ["UPDATE romancy_instances SET status = 7", "UPDATE romancy_history SET op = cast(x'ff' AS TEXT) WHERE n = 1"],
    ids=["status", "text"],
)
async def test_an_instance_that_cannot_even_be_loaded_holds_up_nobody(
    db: str, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    await tell_half(db)
    damage(db, statement)
    async with environment(database=db, workflows=[long_story, fine]) as env, asyncio.timeout(HANGS):
        await env.send_event("end", "test")
        for _ in range(5):
            env.app._runtime.engine.kick()
            await env.settle()
        assert [i.instance_id for i in (await env.app.list_instances()).items] == ["one"]
        assert (await env.app.get_instance("one")).instance_id == "one"
        await env.cancel("one")
        await assert_others_go_on(env)
    assert len([r for r in caplog.records if "'one' can't be read" in r.message]) <= 1, "once is enough"


@pytest.mark.sqlite
async def test_a_wait_whose_description_is_damaged_is_shown_as_such(db: str) -> None:
    async with environment(database=db, workflows=[take_one]) as env:
        for id in ("one", "two"):
            await env.start(take_one.options(instance_id=id))
    damage(db, "UPDATE romancy_waits SET spec = x'00' WHERE instance = 'one'")
    async with environment(database=db, workflows=[take_one]) as env:
        errors = {wait.instance_id: wait.error for wait in await env.waits()}
        assert "damaged" in (errors["one"] or "")
        assert errors["two"] is None
        assert (await env.app.get_instance("one")).status == "waiting_for_event"


@pytest.mark.sqlite
async def test_a_request_that_cannot_be_read_does_not_hide_the_others(db: str) -> None:
    async with environment(database=db, workflows=[take_one]) as env:
        for id in ("one", "two"):
            await env.start(take_one.options(instance_id=id))
    insert = "INSERT INTO romancy_requests (instance, kind, payload, at) VALUES (?, 1, ?, 1)"
    damage(db, insert, "one", b"\xff")
    damage(db, insert, "two", b"enough")
    async with environment(database=db, workflows=[take_one]) as env:
        await env.settle()
        assert {i.status for i in (await env.app.list_instances()).items} == {"cancelled"}


# --- failures that are hard to rebuild ---
class Form(pydantic.BaseModel):
    number: int


def group() -> None:
    raise ExceptionGroup("both", [ValueError("one"), ValueError("two")])


def invalid() -> None:
    Form.model_validate({"number": "x"})


@pytest.mark.parametrize(("kind", "act"), [(ExceptionGroup, group), (pydantic.ValidationError, invalid)])
async def test_a_failure_that_cannot_be_made_again_is_still_a_failure(env: Environment, kind: Any, act: Any) -> None:
    @activity(raises=(kind,), retry=NO_RETRY)
    async def fails(ctx: ActivityContext) -> None:
        act()

    @workflow
    async def careful(ctx: WorkflowContext) -> str:
        try:
            await fails(ctx)
        except Exception as error:
            caught = repr(error)
        await sleep(ctx, 60)
        return caught

    handle = await env.start(careful)
    assert await kinds(env, handle.instance_id) == ["started", "activity_failed"]
    await env.restart()
    async with asyncio.timeout(HANGS):
        assert kind.__name__ in await handle.result()


async def test_an_os_error_keeps_its_number_across_a_restart(env: Environment) -> None:
    @activity(raises=(OSError,), retry=NO_RETRY)
    async def fails(ctx: ActivityContext) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file", "/nowhere")

    @workflow
    async def careful(ctx: WorkflowContext) -> list[Any]:
        try:
            await fails(ctx)
        except FileNotFoundError as error:
            found = [error.errno, error.strerror, error.filename]
        await sleep(ctx, 60)
        return found

    handle = await env.start(careful)
    await env.restart()
    assert await handle.result() == [errno.ENOENT, "No such file", "/nowhere"]


@pytest.mark.usefixtures("impatient")
async def test_an_attempt_that_took_too_long_is_told_in_one_sentence(env: Environment) -> None:
    """Not "failed after 1 attempt" inside "failed after 2 attempts"."""

    @activity(timeout=5, retry=RetryPolicy(max_attempts=2, initial=1, jitter=0))
    async def hangs(ctx: ActivityContext) -> None:
        await asyncio.get_running_loop().create_future()

    @workflow
    async def impatient(ctx: WorkflowContext) -> list[str]:
        try:
            await hangs(ctx)
        except ActivityTimeout as error:
            return [error.error_type, str(error)]
        return []

    handle = await env.start(impatient)
    error_type, message = await handle.result()
    assert error_type == "TimeoutError"
    assert message.count("failed after") == 1
    assert "failed after 2 attempt" in message


# --- resuming ---
async def test_a_resumed_instance_that_only_waits_says_so() -> None:
    mended = True

    @workflow
    async def mendable(ctx: WorkflowContext) -> str:
        await echo(ctx, "right" if mended else "wrong")
        await wait_event(ctx, "news")
        return "done"

    async with environment(worker=WorkerOptions(max_resident=1, grace=0.1)) as env:
        handle = await env.start(mendable)
        other = await env.start(take_one)  # there is room for one only
        assert handle.instance_id not in env.app._runtime.engine.scheduler.residents
        mended = False
        env.app._runtime.engine.loader.load(handle.instance_id)
        await env.settle()
        assert await handle.status() == "blocked"
        mended = True
        await env.app.resume_workflow(handle.instance_id)
        env.app._runtime.engine.kick()
        await env.settle()
        assert await handle.status() == await other.status() == "waiting_for_event"
        await env.send_event("news", "test")
        assert await handle.result() == "done"


# --- code that catches everything ---
class Stubborn:
    """A workflow that catches everything in a loop; it gives up at last, so that a test can fail."""

    def __init__(self) -> None:
        self.caught = 0

        @workflow(name="stubborn")
        async def stubborn(ctx: WorkflowContext) -> Any:
            await echo(ctx, self.word)
            while self.caught < 10_000:
                try:
                    return (await wait_event(ctx, "news")).data
                except BaseException:
                    self.caught += 1

        self.word = "right"
        self.workflow = stubborn


@pytest.fixture
def unclosable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Python's word that a coroutine ignored its end is all that is left of such code."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "unraisablehook", lambda args: None)
        yield
        gc.collect()


@pytest.mark.usefixtures("unclosable")
async def test_stopping_code_that_catches_everything_in_a_loop(db: str) -> None:
    wf = Stubborn()
    async with environment(database=db, workflows=[wf.workflow]) as env:
        await env.start(wf.workflow.options(instance_id="one"))
    assert wf.caught < 1000
    async with environment(database=db, workflows=[wf.workflow]) as env:
        await env.send_event("news", "test", "at last")
        assert await env.app.handle("one").result(timeout=HANGS) == "at last"


@pytest.mark.usefixtures("unclosable")
async def test_evicting_and_blocking_code_that_catches_everything_in_a_loop() -> None:
    wf = Stubborn()
    async with environment(worker=WorkerOptions(max_resident=1, grace=0.1)) as env:
        handle = await env.start(wf.workflow)
        await env.start(take_one)
        assert handle.instance_id not in env.app._runtime.engine.scheduler.residents
        assert wf.caught < 1000
        wf.word = "wrong"
        await env.send_event("news", "test", "at last")
        assert await handle.status() == "blocked"
        assert wf.caught < 1000
        await assert_others_go_on(env)
        wf.word = "right"
        await env.app.resume_workflow(handle.instance_id)
        env.app._runtime.engine.kick()
        assert await handle.result() == "at last"


# --- code that wants to end the process ---
async def test_a_child_task_that_exits_ends_its_workflow_only(env: Environment) -> None:
    @workflow
    async def exits(ctx: WorkflowContext) -> None:
        async def child() -> None:
            await echo(ctx, "first")
            raise SystemExit(3)

        await asyncio.gather(child(), echo(ctx, "beside"))

    handle = await env.start(exits)
    with pytest.raises(WorkflowFailed, match="SystemExit"):
        await handle.result()
    await assert_others_go_on(env)


async def test_a_callback_that_exits_ends_nobody_else(env: Environment) -> None:
    @workflow
    async def exits(ctx: WorkflowContext) -> Any:
        def callback() -> None:
            raise SystemExit(4)

        asyncio.get_running_loop().call_soon(callback)
        return (await wait_event(ctx, "news")).data

    handle = await env.start(exits)
    await env.restart()
    await assert_others_go_on(env)
    await env.send_event("news", "test", 1)
    assert await handle.result() == 1


# --- hooks that raise anything ---
@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_a_hook_may_raise_anything(error: type[BaseException], is_async: bool) -> None:
    told: list[str] = []

    class Bad(HooksBase):
        def __getattribute__(self, name: str) -> Any:
            if not name.startswith("on_"):
                return super().__getattribute__(name)

            def sync(info: Any) -> None:
                told.append(name)
                raise error

            async def later(info: Any) -> None:
                sync(info)

            return later if is_async else sync

    async with environment(hooks=Bad()) as env, asyncio.timeout(HANGS):
        handle = await env.start(take_one)
        await env.restart()
        await env.send_event("news", "test", 1)
        assert await handle.result() == 1
        await assert_others_go_on(env)
    assert {"on_workflow_started", "on_event_received", "on_workflow_completed"} <= set(told)


# --- batches ----------------------------------------------------------------------------------------------------------
async def test_what_is_big_goes_out_in_several_batches(env: Environment) -> None:
    """A database takes only so much at once, and a slow line only so much in time."""
    sizes: list[int] = []

    def weigh(batch: Batch, submit: Callable[[], None]) -> None:
        sizes.append(sum(len(item.event.data or b"") for item in batch.accepts))
        submit()

    undo = intercept(env, weigh)
    await asyncio.gather(*(env.app.send_event("big", "test", "x" * 1_500_000) for _ in range(12)))
    undo()
    assert sum(sizes) > 12 * 1_500_000
    assert max(sizes) < 6_000_000


async def test_what_people_broke_is_waited_for_and_blames_nobody(
    env: Environment, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A privilege revoked, a table renamed: it is mended by and by, and no value is at fault."""
    storage: Any = env.app._runtime.engine.storage
    commit, left = storage.commit, [StorageError("permission denied for table history")] * 3

    def refuse(batch: Batch, answered: Answered) -> None:
        if left:
            asyncio.get_running_loop().call_soon(answered, None, left.pop())
        else:
            commit(batch, answered)

    monkeypatch.setattr(storage, "append", lambda *_: False)
    monkeypatch.setattr(storage, "commit", refuse)
    receipt = await env.app.send_event("go", "test")
    assert not receipt.duplicate
    assert not left
    [said] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "permission denied for table history" in said


async def test_a_look_of_a_worker_that_was_fenced_lets_no_wait_time_out(env: Environment) -> None:
    """It found nothing because nothing was its any more; the event is there, and came in time."""

    @workflow
    async def patient(ctx: WorkflowContext) -> str:
        try:
            return (await wait_event(ctx, "news", timeout=60)).data
        except WaitTimeout:
            return "timed out"

    handle = await env.start(patient)
    engine, held = env.app._runtime.engine, list[Callable[[], None]]()
    undo = intercept(env, lambda batch, submit: held.append(submit))
    env.clock.turn_to(env.clock.now() + 60_000_000)
    await until(lambda: held)  # the last look before the wait times out is under way
    undo()
    old = engine.worker_id
    assert old is not None
    await engine.storage.leave(old)  # no death: else the instance waits for a commit, behind the look that is held
    await engine.storage.take_over("", [old])
    other = App(env.app.database, worker=False)
    other._runtime.clock, other._runtime.storage = env.clock, engine.storage
    async with other:
        await other.send_event("news", "test", "in time")
    engine.storage.watch(engine._foreign_change)
    engine._renewal.kick()
    await until(lambda: engine.worker_id not in (None, old) and handle.instance_id in engine.scheduler.residents)
    for submit in held:
        submit()
    await env.settle()
    assert await handle.result() == "in time"


async def test_a_step_that_was_stored_before_it_was_refused_is_read_again(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer was lost, and the same batch failed in a way that blocks: but the row has moved on."""

    @workflow
    async def steps(ctx: WorkflowContext) -> str:
        await wait_event(ctx, "one")
        await sleep(ctx, 5)
        return "done"

    handle = await env.start(steps)
    storage, tries = env.app._runtime.engine.storage, list[Batch]()
    commit = storage.commit

    def flawed(batch: Batch, answered: Answered) -> None:
        if not any(entry.op.startswith("one") for step in batch.commits for entry in step.entries):
            commit(batch, answered)
            return
        tries.append(batch)
        if len(tries) == 1:
            commit(batch, lambda answer, error: answered(None, TransientError("the answer is lost")))
        else:
            answered(None, RefusedValue("a value that no database takes"))

    monkeypatch.setattr(storage, "commit", flawed)
    await env.send_event("one", "test")
    assert await handle.result() == "done"
    assert len(tries) == 2
