"""A running worker whose database is migrated to a schema it must not write stops, and says why."""

import asyncio
import logging
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    App,
    ReceivedEvent,
    StorageError,
    WorkflowContext,
    activity,
    wait_event,
    workflow,
)
from romancy.http.health import ready
from romancy.storage.errors import TransientError, Unusable
from romancy.storage.postgres import PostgresStorage
from romancy.storage.sqlite import SQLiteStorage
from romancy.testing import Environment
from tests.engine.helpers import intercept, until

MESSAGE = r"schema version 99.*newer romancy.*upgrade"


@activity
async def work(ctx: ActivityContext) -> None: ...


@workflow
async def waits(ctx: WorkflowContext) -> Any:
    event = await wait_event(ctx, "go")
    await work(ctx)
    return event.data


async def migrate(env: Environment, min_reader: int) -> None:
    """As a newer version would. Thousands say that values are sealed."""
    storage: Any = env.app._runtime.engine.storage
    change = f"UPDATE {{}}schema_info SET version = 99, min_reader = min_reader / 1000 * 1000 + {min_reader}"
    if isinstance(storage, PostgresStorage):
        async with storage._connections.transaction() as connection:
            await connection.execute(change.format(f'"{storage.schema}".'))
    else:
        await storage._writer.call(lambda c: c.execute(change.format("romancy_")), write=True)


class Request:
    """As much of a request as the health check looks at."""

    def __init__(self, env: Environment) -> None:
        self.runtime, self.stopping = env.app._runtime, asyncio.Event()
        self.backpressure = type("Backpressure", (), {"is_stalled": False})()


async def test_it_stops_on_renewal_and_nothing_more_is_written(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    await env.start(waits.options(instance_id="one"))
    result = asyncio.ensure_future(env.app.handle("one").result())
    await until(lambda: len(env.app._runtime.engine.endings))
    await migrate(env, 98)
    batches: list[Any] = []
    engine = env.app._runtime.engine
    intercept(env, lambda batch, submit: (batches.append(batch), submit())[1])
    caplog.set_level(logging.ERROR, "romancy")
    await engine.lease.round()
    assert [r.getMessage() for r in caplog.records if "this worker stops" in r.getMessage()]
    with pytest.raises(StorageError, match=MESSAGE):
        await result
    for ask in (
        lambda: env.app.send_event("go", "test"),
        lambda: env.app.start_workflow(waits),
        lambda: env.app.handle("one").result(),
        lambda: ready(Request(env)),  # type: ignore[arg-type]
    ):
        with pytest.raises(StorageError, match=MESSAGE):
            await ask()  # type: ignore[no-untyped-call]
    engine.kick()
    await asyncio.sleep(0.05)
    assert batches == []
    assert engine.worker_id is None
    assert len(engine.scheduler.residents) == 0


async def test_a_batch_that_is_tried_again_is_given_up(env: Environment) -> None:
    await env.app._runtime.engine._renewal.stop()  # on a slow machine it would notice the migration before we send
    await migrate(env, 98)
    tries: list[Any] = []

    def fail(batch: Any, *answered: Any) -> None:
        tries.append(batch)
        asyncio.get_running_loop().call_soon(answered[0], None, TransientError("not now"))

    storage: Any = env.app._runtime.engine.storage
    commit, storage.commit = storage.commit, fail
    try:
        sending = asyncio.ensure_future(env.app.send_event("go", "test"))
        await until(lambda: tries)
        await env.app._runtime.engine.lease.round()
        with pytest.raises(StorageError, match=MESSAGE):
            await sending
        count = len(tries)
        await asyncio.sleep(0.3)
        assert len(tries) == count
    finally:
        storage.commit = commit


async def test_it_does_not_register_anew_either(env: Environment) -> None:
    await migrate(env, 98)
    env.app._runtime.engine.lease.fenced(env.app._runtime.engine.worker_id)
    await until(lambda: env.app._runtime.engine.outdated)
    with pytest.raises(StorageError, match=MESSAGE):
        await env.app.send_event("go", "test")


async def test_a_migration_that_old_workers_can_live_with_stops_nobody(env: Environment) -> None:
    handle = await env.start(waits)
    await migrate(env, 1)
    await env.app._runtime.engine.lease.round()
    await env.send_event("go", "test", 7)
    assert await handle.result() == 7


# --- registering ------------------------------------------------------------------------------------------------------
@workflow(on_event="order")
async def ships(ctx: WorkflowContext, event: ReceivedEvent[int]) -> int:
    return event.data


class Failing:
    """A method of the storage that fails some times before it does its work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, backend: str, name: str, times: int, error: Exception) -> None:
        self.calls: list[Any] = []
        kind: Any = PostgresStorage if backend == "postgres" else SQLiteStorage
        method = getattr(kind, name)

        async def fail(storage: Any, *given: Any) -> None:
            self.calls.append(given[0])
            if len(self.calls) <= times:
                raise error
            await method(storage, *given)

        monkeypatch.setattr(kind, name, fail)


@pytest.mark.parametrize("times", [1, 2])
async def test_a_worker_that_can_not_register_at_first_does_so_a_little_later(
    db: str, backend: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, times: int
) -> None:
    """A connection that breaks, a file that another process holds: an outage like any other."""
    tries = Failing(monkeypatch, backend, "register", times, TransientError("not now")).calls
    async with App(db, workflows=[waits]) as app:
        handle = await app.start_workflow(waits)
        await app.send_event("go", "test", 7)
        assert await handle.result(timeout=20) == 7
    assert len(set(tries)) == times + 1, "under a fresh id each time: an earlier one may be in the database"
    assert caplog.text.count("can't be written (not now)") == 1


async def test_an_event_sent_before_the_worker_is_registered_starts_what_it_should(
    db: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Failing(monkeypatch, backend, "register", 2, TransientError("not now"))
    async with App(db, workflows=[ships]) as app:
        assert app._runtime.engine.worker_id is None
        assert (await app.send_event("order", "test", 7)).started == 1


async def test_what_only_people_can_mend_is_told_at_once(
    db: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = Failing(monkeypatch, backend, "register", 1, Unusable("it is read-only")).calls
    app = App(db, workflows=[waits])
    with pytest.raises(StorageError, match="it is read-only"):
        await app.start()
    assert len(tries) == 1


@pytest.mark.parametrize("times", [1, 2])
async def test_what_is_registered_during_an_outage_is_known_before_the_next_event(
    db: str, backend: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, times: int
) -> None:
    async with App(db, workflows=[waits]) as app:
        Failing(monkeypatch, backend, "announce", times, TransientError("not now"))
        app.register(ships)
        assert (await app.send_event("order", "test", 7)).started == 1
    assert caplog.text.count("can't be written (not now)") == 1


async def test_what_is_registered_while_the_worker_registers_is_known_too(
    db: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registration under way was sent off without it."""
    kind: Any = PostgresStorage if backend == "postgres" else SQLiteStorage
    register = kind.register
    app = App(db, workflows=[waits])

    async def slow(storage: Any, *given: Any) -> None:
        await register(storage, *given)
        app.register(ships)

    monkeypatch.setattr(kind, "register", slow)
    async with app:
        assert (await app.send_event("order", "test", 7)).started == 1


async def test_an_app_that_stops_does_not_wait_for_what_it_can_not_announce(
    db: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(10), App(db, workflows=[waits]) as app:
        tries = Failing(monkeypatch, backend, "announce", 10**6, TransientError("not now")).calls
        app.register(ships)
        await until(lambda: tries)
