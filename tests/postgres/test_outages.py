"""Outages: the outcome of a batch is found out, never guessed; what can't be stored is told from what can't be now."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from romancy import App, WorkflowContext, activity, wait_event, workflow
from romancy.api.context import ActivityContext
from romancy.core.history import Entry, Kind
from romancy.storage.batch import Accept, Commit, Misfit
from romancy.storage.catalog import Search
from romancy.storage.errors import RefusedValue, TransientError
from romancy.storage.postgres import connection
from romancy.storage.sql import Statement
from tests import pg_server
from tests.engine.helpers import until
from tests.postgres.conftest import Place
from tests.storage.conftest import Database

pytestmark = pytest.mark.play


def big_batch(db: Database) -> Any:
    """Something of everything."""
    return db.batch(
        "me",
        starts=[db.starting("new", mine=True)],
        commits=[
            Commit("a", 0, "running", db.now, description="x", opened=[db.wait()], sent=[db.event(id="sent")]),
            Commit("b", 0, "running", db.now, entries=[Entry(1, Kind.TIMER_FIRED, "t", 0)], append_only=True),
        ],
        accepts=[db.event(id="accepted")],
    )


async def held_up(place: Place, db: Database) -> tuple[Any, Any, asyncio.Task[Any]]:
    """A batch that is under way on the server and waits for a lock."""
    for id in ("a", "b"):
        await db.start(id, "me")
    raw, batch = await place.raw(), big_batch(db)
    transaction = raw.transaction()
    await transaction.start()
    await raw.execute("UPDATE instances SET updated_at = updated_at WHERE id = 'a'")
    submitted = asyncio.ensure_future(db.submit(batch))
    spy = await place.raw()
    async with asyncio.timeout(10):
        while not await spy.fetchval(  # noqa: ASYNC110 - the server tells nobody
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%started AS%'"
        ):
            await asyncio.sleep(0.005)
    return batch, transaction, submitted


async def check(db: Database, batch: Any) -> None:
    """Everything of the batch is there, once."""
    answer = await db.submit(batch)
    assert (answer.starts[0].created, answer.commits) == (True, [True, True])
    assert [a.duplicate for a in (*answer.accepts, *answer.sent)] == [False, False]
    assert await db.version("a") == 1
    assert len(await db.storage.catalog.history("b")) == 1
    assert len(await db.storage.catalog.events()) == 2
    assert await db.submit(batch) == answer


async def test_a_server_process_killed_in_the_middle_of_a_commit(place: Place) -> None:
    db = await place.worker("me")
    batch, transaction, submitted = await held_up(place, db)
    raw = await place.raw()
    await raw.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE wait_event_type = 'Lock' AND query LIKE '%started AS%'"
    )
    with pytest.raises(TransientError):
        await submitted
    await transaction.rollback()
    assert await db.version("a") == 0
    await check(db, batch)


async def test_a_connection_lost_while_the_server_goes_on(place: Place) -> None:
    """Reading now would say "not stored", and be wrong a moment later: the old process still has the batch."""
    db = await place.worker("me")
    batch, transaction, submitted = await held_up(place, db)
    for holder in db.storage._connections._pool._holders:  # type: ignore[attr-defined]
        if holder._con is not None and holder._in_use is not None:
            holder._con._transport.abort()
    with pytest.raises(TransientError):
        await submitted
    again = asyncio.ensure_future(db.submit(batch))
    await asyncio.sleep(0.05)
    assert not again.done(), "answered before the outcome was known"
    await transaction.rollback()
    answer = await again
    assert (answer.starts[0].created, answer.commits) == (True, [True, True])
    await check(db, batch)


async def test_whoever_waits_for_an_answer_gets_one_when_the_database_is_closed(place: Place) -> None:
    db = await place.worker("me")
    _, transaction, submitted = await held_up(place, db)
    await db.storage.close()
    with pytest.raises(TransientError, match="the outcome is unknown"):
        await asyncio.wait_for(submitted, 5)
    await transaction.rollback()


async def test_a_connection_that_was_lost_while_nobody_used_it_is_no_news(place: Place) -> None:
    db, raw = await place.worker("me", listen=False), await place.raw()
    connections = db.storage._connections  # type: ignore[attr-defined]
    assert connections._spare is not None
    await raw.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'romancy'")
    async with asyncio.timeout(5):
        while connections._spare._con is not None:  # noqa: ASYNC110 - until the pool has noticed
            await asyncio.sleep(0.01)
    assert await db.storage.renew("me", 10**7)


async def test_all_connections_busy(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    db = await place.worker("me")
    connections: Any = db.storage._connections  # type: ignore[attr-defined]
    pool = connections._pool
    taken = [await connections._take(pool) for _ in range(connection.MAX_CONNECTIONS)]
    monkeypatch.setattr(connection, "ACQUIRE_TIMEOUT", 0.05)
    with pytest.raises(TransientError, match=r"no connection to .* became free"):
        await db.commit(accepts=[db.event()])
    for each in taken:
        await pool.release(each)
    await db.send()


async def test_whoever_waits_gets_the_first_connection_that_comes_free(place: Place) -> None:
    db = await place.worker("me")
    connections: Any = db.storage._connections  # type: ignore[attr-defined]
    pool = connections._pool
    taken = [await connections._take(pool) for _ in range(connection.MAX_CONNECTIONS - 1)]
    last = asyncio.ensure_future(connections.write(Statement("SELECT pg_sleep(0.2)", ()), {}))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await db.send()
    assert last.done()
    for each in taken:
        await pool.release(each)


async def test_a_statement_that_takes_too_long(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STATEMENT_TIMEOUT", 0.2)
    db = await place.worker("me")
    batch, transaction, submitted = await held_up(place, db)
    with pytest.raises(TransientError, match="no answer within"):
        await submitted
    await transaction.rollback()
    await check(db, batch)


async def test_a_serialization_failure(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only at another isolation level than ours can there be one: then the batch is simply submitted again."""
    monkeypatch.setitem(connection._SETTINGS, "default_transaction_isolation", "repeatable read")
    db = await place.worker("me")
    batch, transaction, submitted = await held_up(place, db)
    await transaction.commit()
    with pytest.raises(TransientError, match="could not serialize access"):
        await submitted
    await check(db, batch)


async def test_the_isolation_level_is_ours_whatever_the_database_prefers(place: Place) -> None:
    """The protocol is proved for READ COMMITTED; a stricter level would only make work stumble."""
    raw = await place.raw()
    role = f"strict_{place.schema}"
    await raw.execute(
        f"CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} SET default_transaction_isolation = serializable"
    )
    try:
        place.url = place.url.replace("postgres@", f"{role}@")
        storage = await place.storage()
        async with storage._connections.transaction() as ours:
            assert await ours.fetchval("SHOW transaction_isolation") == "read committed"
        await storage.close()
    finally:
        await raw.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


# --- what is never taken ---------------------------------------------------------------------------------------------
async def test_nul_in_text_is_refused_and_in_data_it_is_not(place: Place) -> None:
    db = await place.worker("me")
    for field in ("id", "source", "type", "subject"):
        item = db.event("go", "x")
        with pytest.raises(RefusedValue, match="NUL"):
            await db.commit(accepts=[Accept(replace(item.event, **{field: "a\0b"}), b"")])
    item = db.event()
    await db.commit(accepts=[Accept(replace(item.event, data=b"a\0b"), b"")])
    assert [stored.event.data for stored in await db.storage.catalog.events()] == [b"a\0b"]
    assert await db.storage.catalog.instance("a\0b") is None
    assert await db.storage.catalog.instances(Search(text="a\0b")) == []


async def test_words_for_people_may_hold_anything(place: Place) -> None:
    db = await place.worker("me")
    await db.waiting("a", "me")
    seq = (await db.send()).seq
    await db.step("a", "me", 1, description="a\0b", misfits=[Misfit("w", "M", seq, "bad: \0")])
    row = await db.storage.catalog.instance("a")
    assert row is not None
    assert row.description == "a␀b"
    assert await db.storage.catalog.misfits("a") == [(seq, "w", "bad: ␀")]


async def test_text_too_long_for_an_index_is_refused(place: Place) -> None:
    db = await place.worker("me")
    long = "".join(chr(0x4E00 + n) for n in range(1024))
    with pytest.raises(RefusedValue, match="too long for the database's index"):
        await db.commit(accepts=[db.event(id=long)])
    with pytest.raises(RefusedValue):
        await db.commit(accepts=[db.event(time=2**70)])


# --- the server goes away --------------------------------------------------------------------------------------------
@pytest.fixture
def server() -> Iterator[pg_server.Server]:
    """One that may be stopped."""
    server = pg_server.Server()
    yield server
    server.remove()


@activity
async def double(ctx: ActivityContext, n: int) -> int:
    return 2 * n


@workflow
async def steps(ctx: WorkflowContext, n: int) -> int:
    first = await double(ctx, n)
    event = await wait_event(ctx, "go", where={"n": n})
    return await double(ctx, first) + event.data["plus"]


async def load(app: App, count: int) -> list[int]:
    """Workflows that each wait for an event of their own."""

    async def one(n: int) -> int:
        handle = await app.start_workflow(steps, n, instance_id=f"i{n}")
        receipt = await app.send_event("go", "test", {"n": n, "plus": 1}, id=f"e{n}")
        assert not receipt.duplicate
        return await handle.result(60)

    return await asyncio.gather(*(one(n) for n in range(count)))


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_restart_of_the_server_loses_and_doubles_nothing(
    server: pg_server.Server, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "romancy"):
        async with App(server.url, workflows=[steps]) as app:
            loading = asyncio.ensure_future(load(app, 300))
            await asyncio.sleep(0.15)
            await asyncio.to_thread(getattr(server, how))
            await asyncio.sleep(0.1)
            assert not loading.done(), "the load was over before the server was stopped"
            await asyncio.to_thread(server.start)
            assert await loading == [4 * n + 1 for n in range(300)]
            assert {i.status for i in (await app.list_instances(limit=1000)).items} == {"completed"}
            await until(lambda: "the database is back" in caplog.text)  # which is told after a moment of calm
    assert caplog.text.count("can't be written") == 1, "an outage is told once"
    assert caplog.text.count("the database is back") == 1


async def test_a_server_that_became_read_only_is_waited_for(server: pg_server.Server) -> None:
    place = Place("romancy", server.url)
    db, raw = await place.worker("me"), await place.raw()
    await raw.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    await raw.execute("SELECT pg_reload_conf()")
    await asyncio.sleep(0.1)
    for _ in range(2):  # on the connection that was there, and on a new one
        with pytest.raises(TransientError, match=r"read-only|read-write"):
            await db.send(id="e")
    await raw.execute("SET transaction_read_only = off; SET default_transaction_read_only = off")
    await raw.execute("ALTER SYSTEM RESET default_transaction_read_only")
    await raw.execute("SELECT pg_reload_conf()")
    await asyncio.sleep(0.1)
    assert not (await db.send(id="e")).duplicate
    await place.close()
