"""Bad input: refused with words that say what, which id and what to do. Nothing is half done, nothing is lost."""

import asyncio
import os
import socket
import sqlite3
import urllib.request
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from romancy import (
    NO_RETRY,
    ActivityContext,
    App,
    AppNotRunning,
    InstanceNotFound,
    InvalidEvent,
    InvalidInput,
    Retention,
    RetryPolicy,
    RomancyError,
    StorageError,
    UnknownWorkflow,
    WorkerOptions,
    WorkflowContext,
    WorkflowFailed,
    activity,
    send_event,
    sleep,
    sleep_until,
    wait_event,
    workflow,
)
from romancy.testing import Environment, environment
from tests.engine.helpers import until


@workflow
async def greet(ctx: WorkflowContext, name: str, times: int = 1) -> str:
    return name * times


async def assert_nothing_happened(app: App) -> None:
    assert (await app.list_instances()).items == []
    assert (await app.list_events()).items == []
    assert (await app.list_waits()).items == []


async def failure_of(env: Environment, fn: Any, *args: Any) -> str:
    """The message of a workflow that does something wrong and fails of it."""
    handle = await env.start(workflow(name="bad")(fn), *args)
    with pytest.raises(WorkflowFailed) as failed:
        await handle.result()
    return str(failed.value)


def assert_says(error: BaseException | str, *parts: str) -> None:
    for part in parts:
        assert part in str(error), str(error)


# --- unknown names ----------------------------------------------------------------------------------------------------
async def test_a_workflow_that_is_not_registered(env: Environment) -> None:
    with pytest.raises(UnknownWorkflow) as error:
        await env.app.start_workflow(greet, "Ada")
    assert_says(error.value, "'greet'", "App(workflows=[...])", "app.register")
    await assert_nothing_happened(env.app)


async def test_something_that_is_no_workflow(env: Environment) -> None:
    async def plain(ctx: WorkflowContext) -> None: ...

    for wrong in (plain, 7, None):
        with pytest.raises(TypeError, match="@workflow missing"):
            await env.app.start_workflow(wrong)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="@workflow missing"):
            env.app.register(wrong)  # type: ignore[arg-type]


async def test_an_instance_that_is_not_there(env: Environment) -> None:
    calls = (env.app.get_instance, env.app.get_history, env.app.cancel_workflow, env.app.resume_workflow)
    for call in (*calls, env.app.handle("nobody").result, env.app.handle("nobody").status):
        with pytest.raises(InstanceNotFound) as error:
            await (call("nobody") if call in calls else call())
        assert_says(error.value, "'nobody'", "list_instances")


@pytest.mark.parametrize("id", ["", "x" * 256, "a\nb", "a\x00b", 7])
async def test_an_instance_id_nobody_could_use(env: Environment, id: Any) -> None:
    env.app.register(greet)
    with pytest.raises(InvalidInput, match="instance id"):
        await env.app.start_workflow(greet, "Ada", instance_id=id)
    await assert_nothing_happened(env.app)


# --- arguments --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((), {}, "name"),
        (("a", 1, 2), {}, "too many"),
        (("a",), {"name": "b"}, "name"),
        (("a",), {"nmae": "b"}, "nmae"),
        (("a", "many"), {}, "times"),
        ((object(),), {}, "object"),
        (({"a"},), {}, "name"),
    ],
)
async def test_arguments_that_do_not_fit(env: Environment, args: Any, kwargs: Any, says: str) -> None:
    env.app.register(greet)
    with pytest.raises(InvalidInput) as error:
        await env.app.start_workflow(greet, *args, **kwargs)
    assert_says(error.value, "'greet'", says)
    assert isinstance(error.value, ValueError)
    await assert_nothing_happened(env.app)


async def test_arguments_of_an_activity_that_do_not_fit(env: Environment) -> None:
    runs: list[int] = []

    @activity
    async def charge(ctx: ActivityContext, amount: int) -> None:
        runs.append(amount)

    async def wrong_type(ctx: WorkflowContext) -> None:
        await charge(ctx, object())  # type: ignore[arg-type]

    assert_says(await failure_of(env, wrong_type), "charge", "amount", "object")
    assert runs == []


async def test_arguments_by_name_that_are_not_json(db: str) -> None:
    async with App(db, worker=False) as app:
        with pytest.raises(InvalidInput) as error:
            await app.start_workflow("greet", object())
        assert_says(error.value, "'greet'", "not registered here", "plain JSON")
        await assert_nothing_happened(app)


async def test_what_pydantic_cannot_serialise_is_an_error_at_registration() -> None:
    class Opaque: ...

    @workflow
    async def takes(ctx: WorkflowContext, thing: Opaque) -> None: ...

    with pytest.raises(TypeError) as error:
        App(":memory:", workflows=[takes])
    assert_says(error.value, "takes", "thing", "Opaque")


def test_two_workflows_of_one_name() -> None:
    @workflow(name="greet")
    async def other(ctx: WorkflowContext) -> None: ...

    with pytest.raises(ValueError, match=r"'greet'.*@workflow\(name=") as error:
        App(":memory:", workflows=[greet, other])
    assert_says(error.value, "test_bad_input")
    App(":memory:", workflows=[greet, greet])  # the same one twice is no harm


def test_a_module_registers_its_workflows() -> None:
    module = ModuleType("shop")
    module.greet = greet  # type: ignore[attr-defined]
    module.number = 7  # type: ignore[attr-defined]
    assert list(App(":memory:", workflows=[module]).workflows) == ["greet"]


@pytest.mark.parametrize("decorator", [workflow, activity])
def test_functions_that_cannot_be_decorated(decorator: Any) -> None:
    async def no_ctx() -> None: ...
    async def method(self: Any) -> None: ...
    async def takes_id(ctx: Any, instance_id: str) -> None: ...

    class Thing: ...

    for wrong, says in ((no_ctx, "ctx"), (method, "method"), (takes_id, "instance_id"), (Thing, "function")):
        with pytest.raises(TypeError, match=says):
            decorator(wrong)
    with pytest.raises(TypeError, match="name"):
        decorator(name="")(takes_ctx)


async def takes_ctx(ctx: Any) -> None: ...


def test_a_workflow_must_be_async() -> None:
    def sync(ctx: WorkflowContext) -> None: ...

    with pytest.raises(TypeError, match=r"'sync'.*async def"):
        workflow(sync)  # type: ignore[call-overload]


# --- durations and times ----------------------------------------------------------------------------------------------
BAD_DURATIONS = [-1, -0.001, timedelta(seconds=-1), float("nan"), True, "60", 1j]


@pytest.mark.parametrize("duration", BAD_DURATIONS, ids=repr)
async def test_bad_durations(env: Environment, duration: Any) -> None:
    async def sleeps(ctx: WorkflowContext) -> None:
        await sleep(ctx, duration)

    async def waits(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "news", timeout=duration)

    for fn in (sleeps, waits):
        async with environment() as fresh:
            message = await failure_of(fresh, fn)
            assert_says(message, "ValueError", "timeout" if fn is waits else "duration")
    for make, names in (
        (lambda: activity(timeout=duration)(takes_ctx), "timeout"),
        (lambda: workflow(timeout=duration)(takes_ctx), "timeout"),
        (lambda: greet.options(timeout=duration), "timeout"),
        (lambda: App(":memory:", retention=duration), "retention"),
        (lambda: Retention(events=duration), "events"),
        (lambda: WorkerOptions(grace=duration), "grace"),
        (lambda: App(":memory:", lease=duration), "lease"),
        (lambda: RetryPolicy(initial=duration), "initial"),
    ):
        with pytest.raises(ValueError, match=names):
            make()
    with pytest.raises(ValueError, match="timeout"):
        await env.app.handle("x").result(timeout=duration)


@pytest.mark.parametrize("far", [float("inf"), timedelta.max, 1e300, 10**30], ids=repr)
async def test_very_long_durations_are_for_ever(env: Environment, far: Any) -> None:
    @workflow
    async def sleeps(ctx: WorkflowContext) -> None:
        await asyncio.gather(sleep(ctx, far), wait_event(ctx, "news", timeout=far))

    handle = await env.start(sleeps)
    await env.advance(timedelta(days=36500))
    assert len(await env.waits(handle)) == 2


async def test_naive_datetimes(env: Environment) -> None:
    naive = datetime(2026, 1, 1)

    async def sleeps(ctx: WorkflowContext) -> None:
        await sleep_until(ctx, naive)

    async def looks_back(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "news", since=naive)

    async def not_a_time(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "news", since="yesterday")  # type: ignore[call-overload]

    for fn, says in ((sleeps, "time zone"), (looks_back, "time zone"), (not_a_time, '"now"')):
        async with environment() as fresh:
            assert_says(await failure_of(fresh, fn), "ValueError", says)
    with pytest.raises(ValueError, match="time zone"):
        await env.app.list_instances(started_after=naive)


# --- events -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("event", "says"),
    [
        ({"type": ""}, "type"),
        ({"type": None}, "type"),
        ({"type": "x" * 1025}, "1024"),
        pytest.param({"id": "\u4e00" * 1024}, "id must be at most 1300 bytes, got 3072", id="a long id"),
        ({"type": "a\x00b"}, "control"),
        ({"source": ""}, "source"),
        ({"id": ""}, "id"),
        ({"subject": ""}, "subject"),
        ({"to": ""}, "to"),
        ({"type": "a\ud800"}, "type"),
        ({"data": object()}, "object"),
        ({"data": float("nan")}, "JSON"),
        ({"data": {"deep": [float("inf")]}}, "JSON"),
        ({"data": {"text": "\ud800"}}, "JSON"),
        ({"extensions": {"Not-Allowed": 1}}, "Not-Allowed"),
        ({"extensions": {"type": "x"}}, "type"),
        ({"extensions": {"x": 1.5}}, "'x'"),
        ({"extensions": {"expirytime": "tomorrow"}}, "expirytime"),
        ({"extensions": {"expirytime": "2026-01-01T00:00:00"}}, "expirytime"),
        ({"data": "x" * (8 * 1024 * 1024)}, "8,388,608"),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0][:40].encode("ascii", "backslashreplace").decode(),
)
async def test_events_that_cannot_be_accepted(env: Environment, event: dict[str, Any], says: str) -> None:
    good: dict[str, Any] = {"type": "news", "source": "test", "data": 1}
    with pytest.raises(InvalidEvent) as error:
        await env.app.send_event(**{**good, **event})
    assert_says(error.value, says)
    assert isinstance(error.value, ValueError)
    await assert_nothing_happened(env.app)

    async def sends(ctx: WorkflowContext) -> None:
        await send_event(ctx, **{**good, **event})

    if "expirytime" not in event.get("extensions", {}):
        assert_says(await failure_of(env, sends), "InvalidEvent")
        assert (await env.app.list_events()).items == []


async def test_an_expirytime_in_a_workflows_send_is_checked_too(env: Environment) -> None:
    async def sends(ctx: WorkflowContext) -> None:
        await send_event(ctx, "news", "test", 1, extensions={"expirytime": "tomorrow"})

    assert_says(await failure_of(env, sends), "expirytime")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((("",), {}), "type"),
        ((("a", "a"), {}), "twice"),
        (((7,), {}), "type"),
        ((("a", "b"), {"model": (int, int, int)}), "3 models, 2 types"),
        ((("a",), {"where": {"x": [1]}}), "where"),
        ((("a",), {"where": {"": 1}}), "where"),
        ((("a",), {"where": {"x": 1.5}}), "where"),
        ((("a",), {"subject": ""}), "subject must not be empty"),
        ((("a",), {"source": ""}), "source must not be empty"),
        pytest.param((("\u4e00" * 1024,), {}), "type must be at most 1300 bytes, got 3072", id="a long type"),
        ((("a",), {"wait_id": ""}), "id"),
        ((("a",), {"wait_id": "a:1"}), "id"),
    ],
    ids=repr,
)
async def test_waits_that_make_no_sense(env: Environment, arguments: Any, says: str) -> None:
    args, kwargs = arguments

    async def waits(ctx: WorkflowContext) -> None:
        await wait_event(ctx, *args, **kwargs)

    assert_says(await failure_of(env, waits), "Error", says)


# --- big things -------------------------------------------------------------------------------------------------------
async def test_an_input_that_is_too_big(env: Environment) -> None:
    env.app.register(greet)
    with pytest.raises(InvalidInput) as error:
        await env.app.start_workflow(greet, "x" * (16 * 1024 * 1024))
    assert_says(error.value, "'greet'", "16,777,216", "store it elsewhere")
    await assert_nothing_happened(env.app)


async def test_a_result_that_is_too_big(env: Environment) -> None:
    runs: list[int] = []

    @activity
    async def big(ctx: ActivityContext) -> str:
        runs.append(1)
        return "x" * (16 * 1024 * 1024)

    async def uses(ctx: WorkflowContext) -> None:
        await big(ctx)

    assert_says(await failure_of(env, uses), "'big'", "16,777,216", "store it elsewhere")
    assert runs == [1], "not retried"


async def test_a_workflow_result_that_is_too_big(env: Environment) -> None:
    async def huge(ctx: WorkflowContext) -> str:
        return "x" * (16 * 1024 * 1024 + 1)

    assert_says(await failure_of(env, huge), "'bad'", "16,777,216", "store it elsewhere")


async def test_a_workflow_result_that_cannot_be_stored(env: Environment) -> None:
    async def opaque(ctx: WorkflowContext) -> Any:
        return object()

    assert_says(await failure_of(env, opaque), "'bad'", "object")


# --- workflows that reach outside -------------------------------------------------------------------------------------
async def awaits_outside_future(outside: asyncio.Future[Any]) -> None:
    await outside


REACHES: list[tuple[str, Any]] = [
    ("to_thread", lambda: asyncio.to_thread(print)),
    ("open_connection", lambda: asyncio.open_connection("localhost", 1)),
    ("subprocess", lambda: asyncio.create_subprocess_exec("true")),
    ("getaddrinfo", lambda: asyncio.get_running_loop().getaddrinfo("localhost", 1)),
    ("sock_connect", lambda: asyncio.get_running_loop().sock_connect(socket.socket(), ("localhost", 1))),
    ("executor", lambda: asyncio.get_running_loop().run_in_executor(None, urllib.request.urlopen, "http://x")),
]


@pytest.mark.parametrize(("name", "reach"), REACHES, ids=[name for name, _ in REACHES])
async def test_a_workflow_doing_real_io(env: Environment, name: str, reach: Any) -> None:
    async def reaches(ctx: WorkflowContext) -> None:
        await reach()

    sockets: list[socket.socket] = []
    real = socket.socket
    if name == "sock_connect":
        socket.socket = lambda *a: sockets.append(real(*a)) or sockets[-1]  # type: ignore[assignment, misc, func-returns-value]
    try:
        message = await failure_of(env, reaches)
    finally:
        socket.socket = real  # type: ignore[misc]
        for s in sockets:
            s.close()
    assert_says(message, "IOInWorkflow", "move this into an activity")


async def test_a_workflow_that_awaits_something_of_the_outside(env: Environment) -> None:
    outside: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def reaches(ctx: WorkflowContext) -> None:
        await outside

    assert_says(await failure_of(env, reaches), "IOInWorkflow", "move this into an activity")


async def test_primitives_outside_a_workflow(env: Environment) -> None:
    kept: list[WorkflowContext] = []

    @workflow
    async def leaks(ctx: WorkflowContext) -> None:
        kept.append(ctx)
        await wait_event(ctx, "go")

    @activity
    async def work(ctx: ActivityContext) -> None: ...

    await env.start(leaks)
    for call in (
        lambda c: sleep(c, 1),
        lambda c: wait_event(c, "x"),
        lambda c: work(c),
        lambda c: send_event(c, "a", "b"),
    ):
        with pytest.raises(RuntimeError, match="outside its workflow"):
            await call(kept[0])
    nobody: Any = SimpleNamespace()
    for call in (
        lambda c: sleep(c, 1),
        lambda c: wait_event(c, "x"),
        lambda c: work(c),
        lambda c: send_event(c, "a", "b"),
    ):
        with pytest.raises(TypeError, match="ctx"):
            await call(nobody)
    for context in (WorkflowContext, ActivityContext):
        with pytest.raises(RuntimeError, match="running here"):
            context.current()


async def test_an_activity_called_inside_an_activity(env: Environment) -> None:
    @activity(retry=NO_RETRY)
    async def inner(ctx: ActivityContext) -> None: ...

    @activity(retry=NO_RETRY)
    async def outer(ctx: ActivityContext) -> None:
        await inner(ctx)  # type: ignore[arg-type]

    async def calls(ctx: WorkflowContext) -> None:
        await outer(ctx)

    assert_says(await failure_of(env, calls), "'inner'", "from a workflow", ".fn(")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
async def test_a_workflow_that_tries_to_end_the_process(env: Environment, error: BaseException) -> None:
    async def exits(ctx: WorkflowContext) -> None:
        raise error

    assert_says(await failure_of(env, exits), type(error).__name__)


async def test_an_activity_that_raises_strange_things(env: Environment) -> None:
    class Strange(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    @activity(retry=NO_RETRY)
    async def odd(ctx: ActivityContext) -> None:
        raise Strange

    @activity(retry=NO_RETRY)
    def leaves(ctx: ActivityContext) -> None:
        raise SystemExit(3)

    @workflow
    async def survives(ctx: WorkflowContext) -> list[str]:
        results = await asyncio.gather(odd(ctx), leaves(ctx), return_exceptions=True)
        return [getattr(r, "error_type", repr(r)) for r in results]

    result = await (await env.start(survives)).result()
    assert result[0].endswith("Strange")
    assert result[1] == "SystemExit"


async def test_an_async_activity_that_raises_system_exit(env: Environment) -> None:
    @activity(retry=NO_RETRY)
    async def leaves(ctx: ActivityContext) -> None:
        raise SystemExit(3)

    async def calls(ctx: WorkflowContext) -> None:
        await leaves(ctx)

    assert_says(await failure_of(env, calls), "SystemExit")


# --- the app ----------------------------------------------------------------------------------------------------------
async def test_an_app_that_is_not_running() -> None:
    app = App(":memory:", workflows=[greet])
    for call in (
        lambda: app.start_workflow(greet, "x"),
        lambda: app.send_event("a", "b"),
        lambda: app.get_instance("x"),
    ):
        with pytest.raises(AppNotRunning, match="async with app"):
            await call()


async def test_an_app_that_is_running_already(db: str) -> None:
    app = App(db)
    async with app:
        with pytest.raises(RomancyError, match="already running"):
            await app.start()


@pytest.mark.parametrize("settings", [{"max_activities": 0}, {"lease": 0.1}], ids=repr)
async def test_settings_that_make_no_sense(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        async with App(":memory:", **settings):
            pass


# --- the database -----------------------------------------------------------------------------------------------------
async def refusal_of(path: str) -> StorageError:
    with pytest.raises(StorageError) as error:
        async with App(path, workflows=[greet]):
            pass
    return error.value


@pytest.mark.sqlite
async def test_a_file_that_is_not_a_database(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("these are my notes, please keep them " * 100)
    before = file.read_bytes()
    assert_says(await refusal_of(str(file)), "notes.txt", "not a SQLite database", "another path")
    assert file.read_bytes() == before


@pytest.mark.sqlite
async def test_a_database_of_another_program(tmp_path: Path) -> None:
    """Its tables stay as they are, beside ours: tests/storage/test_guests.py."""
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE instances (mine)")
    connection.close()
    async with App(str(file), workflows=[greet]) as app:
        assert await (await app.start_workflow(greet, "Ada")).result(timeout=5) == "Ada"


@pytest.mark.sqlite
async def test_a_database_of_a_newer_version(db: str) -> None:
    async with App(db):
        pass
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE romancy_schema_info SET version = 99, min_reader = 99")
    connection.close()
    assert_says(await refusal_of(db), "99", "newer", "upgrade")


@pytest.mark.sqlite
async def test_a_newer_database_that_this_version_can_still_use(db: str) -> None:
    async with App(db):
        pass
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE romancy_schema_info SET version = 99")
    connection.close()
    async with App(db, workflows=[greet]) as app:
        assert await (await app.start_workflow(greet, "Ada")).result(timeout=5) == "Ada"
    with sqlite3.connect(db) as connection:
        assert connection.execute("SELECT version FROM romancy_schema_info").fetchone() == (99,)
    connection.close()


@pytest.mark.sqlite
async def test_a_folder_and_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert_says(await refusal_of(str(tmp_path)), "is a folder")
    assert_says(await refusal_of(str(tmp_path / "no" / "x.db")), "no", "does not exist", "create it")


@pytest.mark.sqlite
async def test_another_kind_of_database() -> None:
    assert_says(await refusal_of("oracle://host/db"), "'oracle'", "not supported")


@pytest.mark.sqlite
async def test_a_read_only_file(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with App(db, workflows=[greet]) as app:
        await app.start_workflow(greet, "Ada", instance_id="one")
    if os.geteuid() == 0:  # root may write everything, so SQLite itself must say no
        connect = sqlite3.connect
        monkeypatch.setattr(
            sqlite3, "connect", lambda path, **kw: connect(f"file:{path}?mode=ro", **{**kw, "uri": True})
        )
    else:
        os.chmod(db, 0o444)
        os.chmod(Path(db).parent, 0o555)
    try:
        assert_says(await refusal_of(db), "romancy.db", "read-only", "allow writing")
    finally:
        monkeypatch.undo()
        os.chmod(Path(db).parent, 0o755)
        os.chmod(db, 0o644)
    async with App(db, workflows=[greet]) as app:
        assert await app.handle("one").result(timeout=5) == "Ada"


@pytest.mark.sqlite
async def test_a_full_disk_pauses_the_work_and_loses_nothing(db: str, caplog: pytest.LogCaptureFixture) -> None:
    @workflow
    async def waits(ctx: WorkflowContext) -> str:
        return (await wait_event(ctx, "big")).data

    async with environment(database=db, workflows=[waits]) as env:
        handle = await env.start(waits)
        storage: Any = env.app._runtime.engine.storage
        (pages,) = await storage._write(lambda c: c.execute("PRAGMA page_count").fetchone())
        await storage._reader.call(lambda c: None)
        writer = storage._writer.connection
        await storage._writer.call(lambda c: c.execute(f"PRAGMA max_page_count = {pages + 1}").fetchone())
        sending = asyncio.ensure_future(env.app.send_event("big", "test", "x" * 1_000_000, id="e1"))
        await until(lambda: "full" in caplog.text)
        assert not sending.done(), "not accepted while it can't be stored"
        assert writer is storage._writer.connection
        await storage._writer.call(lambda c: c.execute("PRAGMA max_page_count = 1000000").fetchone())
        assert not (await sending).duplicate
        await env.settle()
        assert len(await handle.result()) == 1_000_000
        await until(lambda: "the database is back" in caplog.text)  # other parts may try again only after a second
    assert_says(caplog.text, "can't be written", "is full")


@pytest.mark.sqlite
async def test_a_file_locked_by_another_program_is_waited_for(db: str) -> None:
    async with App(db, workflows=[greet]) as app:
        other = sqlite3.connect(db, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        starting = asyncio.ensure_future(app.start_workflow(greet, "Ada"))
        await asyncio.sleep(0.05)
        assert not starting.done()
        other.execute("ROLLBACK")
        other.close()
        assert await (await starting).result(timeout=5) == "Ada"
