"""A running worker whose database is migrated to a schema it must not write stops, and says why."""

import asyncio
import logging
from typing import Any

import pytest

from romancy import ActivityContext, App, StorageError, WorkflowContext, activity, wait_event, workflow
from romancy.http.health import ready
from romancy.storage.postgres import PostgresStorage
from romancy.storage.protocol import TransientError
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
    """As a newer version would."""
    storage: Any = env.app.engine.storage
    change = f"UPDATE {{}}schema_info SET version = 99, min_reader = {min_reader}"
    if isinstance(storage, PostgresStorage):
        async with storage._connections.transaction() as connection:
            await connection.execute(change.format(f'"{storage.schema}".'))
    else:
        await storage._writer.call(lambda c: c.execute(change.format("")), write=True)


class Request:
    """As much of a request as the health check looks at."""

    def __init__(self, env: Environment) -> None:
        self.app, self.stopping = env.app, asyncio.Event()
        self.intake = type("Intake", (), {"is_stalled": False})()


async def test_it_stops_on_renewal_and_nothing_more_is_written(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    await env.start(waits.options(instance_id="one"))
    result = asyncio.ensure_future(env.app.handle("one").result())
    await until(lambda: len(env.app.engine.results))
    await migrate(env, 98)
    batches: list[Any] = []
    engine = env.app.engine
    intercept(env, lambda batch, submit: (batches.append(batch), submit())[1])
    caplog.set_level(logging.ERROR, "romancy")
    await engine._renew_round()
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
    await migrate(env, 98)
    tries: list[Any] = []

    def fail(batch: Any, *answered: Any) -> None:
        tries.append(batch)
        asyncio.get_running_loop().call_soon(answered[0], None, TransientError("not now"))

    storage: Any = env.app.engine.storage
    commit, storage.commit = storage.commit, fail
    try:
        sending = asyncio.ensure_future(env.app.send_event("go", "test"))
        await until(lambda: tries)
        await env.app.engine._renew_round()
        with pytest.raises(StorageError, match=MESSAGE):
            await sending
        count = len(tries)
        await asyncio.sleep(0.3)
        assert len(tries) == count
    finally:
        storage.commit = commit


async def test_it_does_not_register_anew_either(env: Environment) -> None:
    await migrate(env, 98)
    env.app.engine._fenced(env.app.engine.worker_id)
    await until(lambda: env.app.engine.outdated)
    with pytest.raises(StorageError, match=MESSAGE):
        await env.app.send_event("go", "test")


async def test_a_migration_that_old_workers_can_live_with_stops_nobody(env: Environment) -> None:
    handle = await env.start(waits)
    await migrate(env, 1)
    await env.app.engine._renew_round()
    await env.send_event("go", "test", 7)
    assert await handle.result() == 7


# --- registering ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("times", [1, 2])
async def test_a_worker_whose_first_connection_breaks_registers_a_little_later(
    db: str, backend: str, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """A file has no connection that breaks: there, people hear at once that it can't be written."""
    kind: Any = PostgresStorage if backend == "postgres" else SQLiteStorage
    register, tries = kind.register, list[str]()

    async def breaks(self: Any, worker: str, *rest: Any) -> None:
        tries.append(worker)
        if len(tries) <= times:
            raise TransientError("the connection was lost")
        await register(self, worker, *rest)

    monkeypatch.setattr(kind, "register", breaks)
    if backend == "sqlite":
        with pytest.raises(TransientError, match="the connection was lost"):
            await App(db, workflows=[waits]).start()
        return
    async with App(db, workflows=[waits]) as app:
        handle = await app.start_workflow(waits)
        await app.send_event("go", "test", 7)
        assert await handle.result(timeout=20) == 7
    assert len(set(tries)) == times + 1, "under a fresh id each time: an earlier one may be in the database"
