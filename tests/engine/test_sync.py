"""The blocking app: the same verbs from threads, errors as themselves, and never a deadlock."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from romancy import (
    ActivityContext,
    AppNotRunning,
    BulkResult,
    HooksBase,
    InstanceExists,
    InstanceNotFound,
    RomancyError,
    WaitTimeout,
    WorkerOptions,
    WorkflowCancelled,
    WorkflowCompletedInfo,
    WorkflowContext,
    WorkflowFailed,
    activity,
    wait_event,
    workflow,
)
from romancy.sync import App, WorkflowHandle
from tests.helpers import eventually


@dataclass
class Paid:
    amount: int


@activity
def double(ctx: ActivityContext, number: int) -> int:
    return 2 * number


@workflow
async def order(ctx: WorkflowContext, order_id: str, patience: timedelta = timedelta(minutes=5)) -> Paid:
    try:
        event = await wait_event(ctx, "paid", model=Paid, subject=order_id, timeout=patience)
    except WaitTimeout:
        raise ValueError("nobody paid") from None
    return Paid(await double(ctx, event.data.amount))


@activity
async def call_from_its_loop(ctx: ActivityContext) -> str:
    app: App = ctx.state["app"]
    try:
        app.send_event("paid", "activity")
    except RomancyError as error:
        return str(error)
    return "no error"


@activity
def call_from_a_thread(ctx: ActivityContext, order_id: str) -> int:
    app: App = ctx.state["app"]
    return app.send_event("paid", "activity", Paid(21), subject=order_id).delivered


@workflow
async def calls_the_app(ctx: WorkflowContext) -> str:
    return await call_from_its_loop(ctx)


@workflow
async def pays(ctx: WorkflowContext, order_id: str) -> int:
    return await call_from_a_thread(ctx, order_id)


@workflow
async def reaches_out(ctx: WorkflowContext) -> str:
    try:
        ctx.state["app"].send_event("paid", "workflow")
    except RomancyError as error:
        return str(error)
    return "no error"


ALL = [order, calls_the_app, pays, reaches_out]


@pytest.fixture
def app(tmp_path: Path):
    state: dict[str, App] = {}
    with App(str(tmp_path / "sync.db"), workflows=ALL, state=state, worker=WorkerOptions(grace=1)) as app:
        state["app"] = app
        yield app


def test_who_only_starts_need_not_register(tmp_path: Path) -> None:
    path = str(tmp_path / "sync.db")
    with App(path, worker=False) as outside:
        handle = outside.start_workflow(order, "ORD-1", instance_id="order-1")
        with App(path, workflows=[order]) as worker:
            worker.send_event("paid", "test", {"amount": 2}, subject="ORD-1")
            assert handle.result(timeout=5) == Paid(4)


def test_the_verbs(app: App) -> None:
    handle = app.start_workflow(order, "ORD-1", instance_id="order-1")
    assert isinstance(handle, WorkflowHandle)
    assert (handle.instance_id, handle.created) == ("order-1", True)
    again = app.start_workflow(order.options(instance_id="order-1"), "ORD-1")
    assert not again.created
    eventually(lambda: handle.status() == "waiting_for_event", within=5)
    assert [wait.types for wait in app.get_instance("order-1").waits] == [("paid",)]
    assert [wait.instance_id for wait in app.list_waits(type="paid").items] == ["order-1"]
    receipt = app.send_event("paid", "bank", {"amount": 4}, subject="ORD-1")
    assert (receipt.delivered, receipt.duplicate) == (1, False)
    assert handle.result(timeout=10) == Paid(8)
    assert app.handle("order-1", order).result() == Paid(8)
    assert [instance.status for instance in app.list_instances(workflow="order").items] == ["completed"]
    assert [record.received_by for record in app.list_events(type="paid").items] == [(("order-1", "paid:1"),)]
    assert [e.kind for e in app.get_history("order-1")] == ["started", "event_received", "activity_completed"]
    assert app.resume_workflow("order-1") is False
    assert app.count_instances(workflow="order") == 1
    assert app.cancel_workflows(workflow="order") == BulkResult(1, 0, {})
    assert app.resume_workflows(workflow="order") == BulkResult(1, 0, {})
    assert app.cancel_workflow("order-1") is False
    assert handle.status() == "completed"


def test_errors_come_as_themselves(app: App) -> None:
    app.start_workflow(order, "ORD-1", instance_id="order-1")
    with pytest.raises(InstanceExists):
        app.start_workflow(order, "ORD-2", instance_id="order-1")
    with pytest.raises(InstanceNotFound):
        app.get_instance("nobody")
    with pytest.raises(TimeoutError, match="it keeps running"):
        app.handle("order-1").result(timeout=0.01)
    with pytest.raises(WorkflowFailed, match="nobody paid"):
        app.start_workflow(order, "ORD-3", timedelta(0)).result(timeout=10)
    handle = app.handle("order-1", order)
    assert handle.cancel("no stock") is True
    with pytest.raises(WorkflowCancelled, match="no stock"):
        handle.result(timeout=10)


def test_many_threads_at_once(app: App) -> None:
    def one(number: int) -> int:
        order_id = f"ORD-{number}"
        handle = app.start_workflow(order, order_id, instance_id=order_id)
        app.send_event("paid", "bank", Paid(number), subject=order_id)
        return handle.result(timeout=60).amount

    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(one, range(200))) == [2 * number for number in range(200)]


def test_threads_racing_for_one_instance_get_the_same(app: App) -> None:
    barrier = threading.Barrier(8)

    def one(_: int) -> bool:
        barrier.wait()
        return app.start_workflow(order, "ORD-1", instance_id="order-1").created

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(one, range(8))) == [False] * 7 + [True]


def test_calling_it_on_its_own_loop_is_an_error_not_a_deadlock(app: App) -> None:
    assert "would wait for itself" in app.start_workflow(calls_the_app).result(timeout=10)
    assert "would wait for itself" in app.start_workflow(reaches_out).result(timeout=10)


def test_a_plain_activity_may_call_it(app: App) -> None:
    waiting = app.start_workflow(order, "ORD-1")
    eventually(lambda: waiting.status() == "waiting_for_event", within=5)
    assert app.start_workflow(pays, "ORD-1").result(timeout=10) == 1
    assert waiting.result(timeout=10) == Paid(42)


def test_not_running() -> None:
    app = App(":memory:", workflows=[order])
    with pytest.raises(AppNotRunning, match="with app:"):
        app.start_workflow(order, "ORD-1")
    app.stop()
    app.register(pays)
    assert sorted(app.workflows) == ["order", "pays"]
    app.start()
    with pytest.raises(RomancyError, match="already running"):
        app.start()
    app.register(reaches_out)
    app.stop()
    app.stop()
    with pytest.raises(AppNotRunning):
        app.handle("order-1").status()
    with app:  # and once more
        assert app.list_instances().items == []


@pytest.mark.sqlite
def test_a_database_that_can_not_be_opened(tmp_path: Path) -> None:
    before = threading.active_count()
    with pytest.raises(RomancyError):
        App(str(tmp_path / "no such folder" / "sync.db")).start()
    eventually(lambda: threading.active_count() <= before, within=5, what="the thread's end")


def test_stopping_wakes_those_who_wait(tmp_path: Path) -> None:
    app = App(str(tmp_path / "sync.db"), workflows=[order])
    app.start()
    handle = app.start_workflow(order, "ORD-1")
    met: list[BaseException] = []

    def wait() -> None:
        try:
            handle.result()
        except BaseException as error:
            met.append(error)

    waiting = [threading.Thread(target=wait) for _ in range(4)]
    for thread in waiting:
        thread.start()
    eventually(lambda: handle.status() == "waiting_for_event", within=5)
    app.stop()
    for thread in waiting:
        thread.join(10)
    assert [type(error) for error in met] == [AppNotRunning] * 4


def test_calls_while_it_stops_are_answered(tmp_path: Path) -> None:
    app = App(str(tmp_path / "sync.db"), workflows=[order])
    app.start()
    sent = threading.Semaphore(0)

    def send_on() -> int:
        for number in range(100_000):
            try:
                app.send_event("noise", "thread", number)
            except RomancyError:
                return number
            sent.release()
        raise AssertionError("it never stopped")

    with ThreadPoolExecutor(4) as threads:
        senders = [threads.submit(send_on) for _ in range(4)]
        for _ in range(20):
            sent.acquire()
        app.stop()
        counts = [sender.result(timeout=30) for sender in senders]
    with app:
        stored, cursor = 0, None
        while True:
            page = app.list_events(type="noise", limit=1000, cursor=cursor)
            stored, cursor = stored + len(page.items), page.cursor
            if cursor is None:
                break
    assert stored >= sum(counts) >= 20, "accepted means durable"


def test_run_and_hooks() -> None:
    ended: list[str] = []

    class Listening(HooksBase):
        def on_workflow_completed(self, info: WorkflowCompletedInfo) -> None:
            ended.append(info.workflow)

    state: dict[str, App] = {}
    app = state["app"] = App(":memory:", hooks=Listening(), state=state)
    assert "would wait for itself" in app.run(calls_the_app)
    assert ended == ["calls_the_app"]


def test_a_program_that_forgets_to_stop_ends(tmp_path: Path) -> None:
    script = """
from romancy.sync import App
app = App("sync.db")
app.start()
print(app.send_event("hello", "script").status)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "accepted\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_a_fork_it_says_so(tmp_path: Path) -> None:
    script = """
import os, sys
from romancy.sync import App
with App("sync.db") as app:
    child = os.fork()
    if child == 0:
        try:
            app.send_event("hello", "child")
        except Exception as error:
            print(error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout == "the app was started before this process was forked; start it after the fork\n", done.stderr
