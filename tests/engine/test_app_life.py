"""The life of an app: it starts once, stops for good, keeps to its loop, and leaves nothing behind."""

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    App,
    InstanceNotFound,
    InvalidEvent,
    InvalidInput,
    ReceivedEvent,
    RomancyError,
    StorageError,
    WorkerOptions,
    WorkflowContext,
    activity,
    wait_event,
    workflow,
)
from romancy.engine.items import CLOSED
from romancy.storage.errors import TransientError
from romancy.storage.sqlite import SQLiteStorage, leases
from romancy.testing import Environment, environment
from tests.engine.helpers import until


@workflow
async def one(ctx: WorkflowContext) -> int:
    return 1


@workflow
async def take_one(ctx: WorkflowContext) -> Any:
    return (await wait_event(ctx, "news")).data


def workers(db: str) -> int:
    connection = sqlite3.connect(db)
    try:
        return connection.execute("SELECT count(*) FROM romancy_workers").fetchone()[0]
    finally:
        connection.close()


def at_work() -> set[str]:
    """The library's tasks and threads."""
    names = {task.get_name() for task in asyncio.all_tasks()} | {thread.name for thread in threading.enumerate()}
    return {name for name in names if name.startswith("romancy")}


# --- starting and stopping ---
@pytest.mark.sqlite
async def test_two_starts_at_once_make_one_engine(db: str) -> None:
    app = App(db, workflows=[one], worker=WorkerOptions(grace=0.1))
    outcomes = await asyncio.gather(app.start(), app.start(), return_exceptions=True)
    assert sorted(type(outcome) for outcome in outcomes if outcome is not None) == [RomancyError]
    assert "already running" in str(outcomes[1])
    assert workers(db) == 1
    await app.stop()
    assert (workers(db), at_work()) == (0, set())


@pytest.mark.sqlite
async def test_a_start_that_failed_may_be_tried_again(tmp_path: Path) -> None:
    app = App(tmp_path / "folder" / "romancy.db", workflows=[one])
    with pytest.raises(StorageError):
        await app.start()
    (tmp_path / "folder").mkdir()
    async with app:
        assert await (await app.start_workflow(one)).result() == 1


@activity
async def hangs(ctx: ActivityContext) -> None:
    ctx.state.set()
    await asyncio.get_running_loop().create_future()


@workflow
async def hanging(ctx: WorkflowContext) -> None:
    await hangs(ctx)


@pytest.mark.sqlite
async def test_a_second_stop_returns_when_the_first_is_done(db: str) -> None:
    begun = asyncio.Event()
    app = App(db, workflows=[hanging], worker=WorkerOptions(grace=0.1), state=begun)
    await app.start()
    await app.start_workflow(hanging)
    await begun.wait()
    first = asyncio.ensure_future(app.stop())
    await asyncio.sleep(0)
    await app.stop()
    assert first.done() or not at_work(), "the file is still in use"
    await first
    assert (workers(db), at_work()) == (0, set())


@pytest.mark.sqlite
async def test_a_stop_that_is_cancelled_leaves_nothing_running(db: str) -> None:
    begun = asyncio.Event()
    app = App(db, workflows=[hanging], worker=WorkerOptions(grace=60), state=begun)
    await app.start()
    await app.start_workflow(hanging)
    await begun.wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(app.stop(), 0.05)
    await until(lambda: not at_work())
    async with App(db, workflows=[one]) as successor:
        assert await (await successor.start_workflow(one)).result(timeout=10) == 1


@pytest.mark.sqlite
async def test_stopping_while_another_program_holds_the_file(db: str) -> None:
    app = App(db, workflows=[one], worker=WorkerOptions(grace=0.1))
    await app.start()
    other = sqlite3.connect(db, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    sending = asyncio.ensure_future(app.send_event("news", "test", 1, id="e1"))
    await asyncio.sleep(0)
    began = time.monotonic()
    await app.stop()
    assert time.monotonic() - began < 10
    other.execute("ROLLBACK")
    assert other.execute("SELECT count(*) FROM romancy_events").fetchone() == (0,)
    other.close()
    with pytest.raises(RomancyError):
        await asyncio.wait_for(sending, 5)
    assert at_work() == set()


@pytest.mark.sqlite
async def test_stopping_while_another_program_writes(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker holds the file for a moment: this one still hands its instances back."""
    pauses = list[float]()
    nap = time.sleep
    monkeypatch.setattr(time, "sleep", lambda pause: (pauses.append(pause), nap(pause)))
    app = App(db, workflows=[one])
    await app.start()
    engine = app._runtime.engine
    other = sqlite3.connect(db, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    stopping = asyncio.ensure_future(app.stop())
    await until(lambda: stopping.done() or engine.committer._life is CLOSED)
    pauses.clear()
    await until(lambda: stopping.done() or len(pauses) > 2)
    other.execute("ROLLBACK")
    await stopping
    assert other.execute("SELECT count(*) FROM romancy_workers").fetchone() == (0,)
    other.close()


# --- threads and loops ---
CALLS: dict[str, Callable[[App], Awaitable[Any]]] = {
    "send": lambda app: app.send_event("news", "test", 1),
    "start": lambda app: app.start_workflow(one),
    "list": lambda app: app.list_instances(),
    "cancel": lambda app: app.cancel_workflow("x"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_another_threads_loop_is_refused(env: Environment, call: Callable[[App], Awaitable[Any]]) -> None:
    async def from_elsewhere() -> None:
        await asyncio.wait_for(call(env.app), 5)

    env.app.register(one)
    with pytest.raises(RomancyError, match=r"another event loop.*run_coroutine_threadsafe"):
        await asyncio.to_thread(lambda: asyncio.run(from_elsewhere()))
    assert (await env.app.list_events()).items == (await env.app.list_instances()).items == []


# --- registering late ---
async def test_a_workflow_registered_while_running_is_started_by_its_event(env: Environment) -> None:
    @workflow(on_event="order")
    async def ship(ctx: WorkflowContext, event: ReceivedEvent[int]) -> int:
        return event.data

    assert (await env.send_event("order", "test", 1)).started == 0
    env.app.register(ship)
    assert (await env.send_event("order", "test", 2)).started == 1
    assert [i.output for i in (await env.app.list_instances()).items] == [2]


async def test_what_is_registered_while_running_is_known_to_other_processes(db: str) -> None:
    @workflow(on_event="order")
    async def ship(ctx: WorkflowContext, event: ReceivedEvent[int]) -> int:
        return event.data

    async with environment(database=db) as env, App(db, worker=False) as other:
        env.app.register(ship)
        await env.settle()
        assert (await other.send_event("order", "test", 3)).started == 1


# --- wrong types ---
NO_IDS = [None, 1, 1.5, b"x", [], {}, object()]


@pytest.mark.parametrize("id", NO_IDS, ids=lambda id: type(id).__name__)
async def test_an_id_of_a_wrong_type_is_named(env: Environment, id: Any) -> None:
    app = env.app
    calls = [app.get_instance, app.get_history, app.cancel_workflow, app.resume_workflow]
    for call in calls:
        with pytest.raises(InvalidInput, match="instance id"):
            await call(id)
    with pytest.raises(InvalidInput, match="instance id"):
        await app.handle(id).result(timeout=1)


async def test_an_id_that_no_database_could_hold_is_not_found(env: Environment) -> None:
    app, id = env.app, "a\ud800"
    for call in (app.get_instance, app.get_history, app.cancel_workflow, app.resume_workflow, app.handle(id).result):
        with pytest.raises(InstanceNotFound):
            await (call() if call == app.handle(id).result else call(id))


@pytest.mark.parametrize("reason", [1.5, b"x", "a\ud800"])
async def test_a_reason_that_is_no_text(env: Environment, reason: Any) -> None:
    handle = await env.start(take_one)
    with pytest.raises(InvalidInput, match="reason"):
        await env.app.cancel_workflow(handle.instance_id, reason=reason)
    assert await handle.status() == "waiting_for_event"


@pytest.mark.parametrize("extensions", ["x", [1], {1: "x"}, {"a": [1]}], ids=repr)
async def test_extensions_that_are_none(env: Environment, extensions: Any) -> None:
    with pytest.raises((InvalidEvent, InvalidInput), match="extension"):
        await env.app.send_event("news", "test", extensions=extensions)
    assert (await env.app.list_events()).items == []


@pytest.mark.parametrize("filters", [{"limit": 1.5}, {"limit": "x"}, {"started_after": "2024"}], ids=repr)
async def test_lists_asked_for_in_a_wrong_way(env: Environment, filters: Any) -> None:
    with pytest.raises((InvalidInput, ValueError), match=r"limit|aware datetime"):
        await env.app.list_instances(**filters)


# --- locks and folders ---
def locks(db: str) -> list[str]:
    return os.listdir(f"{db}.workers") if os.path.exists(f"{db}.workers") else []


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_a_registration_that_fails_leaves_no_lock(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    storage = SQLiteStorage(db)
    await storage.open()
    before = open_files() if os.path.exists("/proc/self/fd") else 0
    with monkeypatch.context() as patch:
        patch.setattr(leases, "register", fails)
        for n in range(5):
            with pytest.raises(TransientError):
                await storage.register(f"w{n}", 1_000_000, [], [])
    assert locks(db) == []
    assert not before or open_files() == before
    await storage.register("w", 1_000_000, [], [])
    assert locks(db) == ["w"]
    await storage.close()


@pytest.mark.sqlite
async def test_a_worker_that_was_taken_over_lets_go_of_its_old_lock(db: str) -> None:
    async with environment(database=db, workflows=[one]) as env:
        engine: Any = env.app._runtime.engine
        for _ in range(3):
            old = engine.worker_id
            async with environment(database=db) as other:
                other.clock.turn_to(env.clock.now() + 11_000_000)  # past the lease of 10 s
                assert await other.app._runtime.engine.storage.take_over(other.app._runtime.engine.worker_id or "") == [
                    old
                ]
            engine._renewal.kick()
            await until(lambda old=old: engine.worker_id not in (None, old))
            assert list(engine.storage._locks._mine) == locks(db) == [engine.worker_id]
        assert await (await env.start(one)).result() == 1
    assert locks(db) == []


@pytest.mark.sqlite
async def test_a_file_where_the_locks_should_be(db: str) -> None:
    Path(f"{db}.workers").write_text("")
    with pytest.raises(StorageError, match=r"romancy\.db\.workers.*allow writing"):
        await App(db, workflows=[one]).start()
    assert at_work() == set()


@pytest.mark.sqlite
@pytest.mark.parametrize("row", ["'abc', NULL", "NULL, NULL"])
async def test_a_schema_that_says_nothing_sensible(db: str, row: str) -> None:
    connection = sqlite3.connect(db)
    connection.execute("CREATE TABLE romancy_schema_info (version, min_reader)")
    connection.execute(f"INSERT INTO romancy_schema_info VALUES ({row})")
    connection.commit()
    connection.close()
    with pytest.raises(StorageError, match=r"romancy\.db.*damaged"):
        await App(db, workflows=[one]).start()


@pytest.mark.sqlite
@pytest.mark.parametrize("url", ["sqlite:///{}", "file://{}"])
async def test_a_url_names_the_file_it_says(db: str, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    async with App(url.format(db), workflows=[one]) as app:
        assert await (await app.start_workflow(one)).result() == 1
    assert os.listdir(tmp_path) == ["romancy.db"]


async def test_who_stops_does_not_wait_for_a_database_that_says_nothing(
    db: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(db, workflows=[])
    await app.start()
    storage: Any = app._runtime.engine.storage

    async def silent(worker: str) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr("romancy.engine.leases.HAND_BACK", 0.05)
    monkeypatch.setattr(storage, "release", silent)
    async with asyncio.timeout(10):
        await app.stop()
    assert "can't be handed back (the database does not answer)" in caplog.text
