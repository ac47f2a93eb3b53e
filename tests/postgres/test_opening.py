"""Schemas that are new, old, too new, somebody else's; URLs that lead nowhere: clear words, and nothing touched."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import asyncpg
import pytest

from romancy import App, Database, StorageError, WorkflowContext, workflow
from romancy.core.clock import SystemClock
from romancy.storage import open_storage
from romancy.storage.postgres import PostgresStorage
from romancy.storage.postgres import migrations as schema_migrations
from romancy.storage.postgres.migrations import LIBRARY_VERSION
from romancy.storage.sql import migrations
from romancy.storage.urls import without_password
from tests import pg_server
from tests.postgres.conftest import Place

OLDEST = 9
"""The oldest library that can use the newest schema."""


@workflow
async def nothing(ctx: WorkflowContext) -> str:
    return "done"


async def test_twenty_may_open_a_new_schema_at_once(place: Place) -> None:
    storages = [PostgresStorage(place.url, schema=place.schema, listen=False) for _ in range(20)]
    try:
        await asyncio.gather(*(storage.open() for storage in storages))
        await asyncio.gather(*(s.register(f"w{n}", 10**7, [("t", "wf", n)], ["wf"]) for n, s in enumerate(storages)))
    finally:
        await asyncio.gather(*(storage.close() for storage in storages))
    raw = await place.raw()
    assert await raw.fetchval("SELECT count(*) FROM workers") == 20
    assert [tuple(r) for r in await raw.fetch("SELECT * FROM schema_info")] == [(LIBRARY_VERSION, OLDEST)]


async def test_schemas_do_not_know_each_other(place: Place) -> None:
    odd = f'{place.schema} "x" $y é'
    raw = await place.raw()
    try:
        one = await place.worker("me")
        two = await place.worker("me", schema=odd)
        await one.start("a", "me")
        assert await two.storage.catalog.instance("a") is None
        await two.waiting("a", "me")
        assert (await one.send()).matched == []
    finally:
        await raw.execute('DROP SCHEMA IF EXISTS "{}" CASCADE'.format(odd.replace('"', '""')))


async def test_a_newer_schema_that_we_can_still_read_is_used(place: Place) -> None:
    await (await place.storage()).close()
    raw = await place.raw()
    await raw.execute("UPDATE schema_info SET version = 99; ALTER TABLE instances ADD COLUMN shiny text")
    db = await place.worker("me")
    await db.waiting("a", "me")
    await db.send()
    assert await raw.fetchval("SELECT version FROM schema_info") == 99


async def test_a_schema_that_is_too_new_is_refused_and_left_alone(place: Place) -> None:
    await (await place.storage()).close()
    raw = await place.raw()
    await raw.execute("UPDATE schema_info SET version = 99, min_reader = 98")
    with pytest.raises(StorageError, match=r"version 99.*newer romancy.*upgrade"):
        await place.storage()
    assert await raw.fetchval("SELECT min_reader FROM schema_info") == 98


async def test_a_migration_that_fails_leaves_nothing_behind(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = migrations("postgres")
    broken = [*steps, (LIBRARY_VERSION + 1, 1, "CREATE TABLE shiny (a int); CREATE TABLE shiny (a int)")]
    monkeypatch.setattr(schema_migrations, "migrations", lambda dialect: broken)
    with pytest.raises(StorageError, match="shiny"):
        await place.storage()
    raw = await place.raw()
    assert await raw.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", place.schema) == 0
    monkeypatch.setattr(schema_migrations, "migrations", lambda dialect: steps)
    await place.storage()


async def test_a_later_migration_is_applied_once_while_old_workers_go_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = await place.worker("old")
    newer = LIBRARY_VERSION + 1
    steps = [*migrations("postgres"), (newer, 1, "ALTER TABLE instances ADD COLUMN shiny text")]
    monkeypatch.setattr(schema_migrations, "migrations", lambda dialect: steps)
    monkeypatch.setattr(schema_migrations, "LIBRARY_VERSION", newer)
    await asyncio.gather(*(place.storage() for _ in range(3)))
    raw = await place.raw()
    assert [tuple(r) for r in await raw.fetch("SELECT * FROM schema_info")] == [(newer, OLDEST)]
    await old.waiting("a", "old")
    assert len((await old.send()).matched) == 1


async def test_somebody_elses_tables_are_left_alone(place: Place) -> None:
    raw = await place.raw()
    await raw.execute(f'CREATE SCHEMA "{place.schema}"; CREATE TABLE "{place.schema}".instances (name text)')
    with pytest.raises(StorageError, match="another program; give Romancy a schema of its own"):
        await place.storage()
    assert await raw.fetchval(f'SELECT count(*) FROM "{place.schema}".instances') == 0


async def test_a_role_that_may_only_read_and_write_rows_is_enough_once_the_schema_is_there(place: Place) -> None:
    await (await place.storage()).close()
    raw, role = await place.raw(), f"{place.schema}_worker"
    await raw.execute(f"CREATE ROLE {role} LOGIN")
    try:
        await raw.execute(f'GRANT USAGE ON SCHEMA "{place.schema}" TO {role}')
        await raw.execute(f'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "{place.schema}" TO {role}')
        await raw.execute(f'GRANT USAGE ON ALL SEQUENCES IN SCHEMA "{place.schema}" TO {role}')
        place.url = place.url.replace("postgres@", f"{role}@")
        db = await place.worker("me")
        await db.waiting("a", "me")
        assert len((await db.send()).matched) == 1
        await place.close()
    finally:
        raw = await Place(place.schema, pg_server.url()).raw()
        await raw.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
        await raw.close()


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
async def test_the_time_zone_of_a_session_does_not_matter(place: Place, zone: str) -> None:
    place.url += f"&options=-ctimezone%3D{zone.replace('/', '%2F')}"
    db = await place.worker("me", clock=SystemClock())
    row = await db.storage.catalog.worker("me")
    assert row is not None
    assert abs(row.started_at - SystemClock().now()) < 60 * 10**6


async def test_a_url_that_leads_nowhere() -> None:
    with pytest.raises(StorageError, match=r"can't be opened: no server answers at 127\.0\.0\.1:1$"):
        await PostgresStorage("postgresql://nobody:secret@127.0.0.1:1/none").open()
    with pytest.raises(StorageError, match=r"can't be opened: no server answers at /nowhere$"):
        await PostgresStorage("postgresql://me@/none?host=/nowhere").open()
    with pytest.raises(StorageError, match="database does not exist; create it first"):
        await PostgresStorage(pg_server.url().replace("/postgres?", "/nowhere?")).open()


def test_passwords_are_not_shown() -> None:
    url = "postgresql://user:secret@a:5432,b:5433/db?x=1"
    assert without_password(url) == "postgresql://user:***@a:5432,b:5433/db?x=1"
    assert without_password("postgresql://a/b?password=secret&x=1") == "postgresql://a/b?password=***&x=1"
    assert without_password("romancy.db") == "romancy.db"
    assert "secret" not in repr(PostgresStorage(url))
    assert "secret" not in repr(App(url))


def test_the_driver_is_asked_for_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("romancy.storage.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(StorageError, match=r"pip install 'romancy\[postgres\]'"):
        open_storage("postgresql://x/y", durability="full", clock=SystemClock())


def test_options_are_for_databases_that_have_them() -> None:
    with pytest.raises(StorageError, match="schema"):
        open_storage("x.db", durability="full", clock=SystemClock(), schema="s")
    for wrong in ("", "x" * 64, "a\0b", "it's", ":name", "a\\b", "\ud800"):
        with pytest.raises(ValueError, match="schema"):
            PostgresStorage("postgresql://x/y", schema=wrong)


async def test_an_app_runs_on_it(place: Place) -> None:
    app = App("postgresql://", workflows=[nothing])
    app._runtime.storage = await place.storage(clock=SystemClock())
    async with app:
        assert await (await app.start_workflow(nothing)).result(10) == "done"


async def test_who_only_looks_creates_nothing(place: Place) -> None:
    said = rf"'{place.schema}' of .* holds no romancy tables; `romancy migrate -d .* --schema {place.schema}` creates"
    looking = App(Database(place.url, schema=place.schema), worker=False)
    looking._runtime.creates = False
    with pytest.raises(StorageError, match=said):
        await looking.start()
    raw = await place.raw()
    assert await raw.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", place.schema) == 0
    await (await place.storage()).close()
    async with looking as app:
        assert (await app.list_instances()).items == []


async def test_a_password_that_is_missing_is_not_called_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    monkeypatch.delenv("PGPASSWORD", raising=False)
    server = pg_server.Server()
    request.addfinalizer(server.remove)
    raw = await asyncpg.connect(server.url)
    await raw.execute("CREATE ROLE ada LOGIN PASSWORD 'secret'")
    hba = Path(server.folder, "pg_hba.conf")
    hba.write_text("local all ada scram-sha-256\n" + hba.read_text())
    await raw.execute("SELECT pg_reload_conf()")
    await raw.close()
    with pytest.raises(StorageError, match="it requires a password, and none was given; put it in the URL"):
        await PostgresStorage(server.url.replace("postgres@", "ada@")).open()
    with pytest.raises(StorageError, match="the password is wrong"):
        await PostgresStorage(server.url.replace("postgres@", "ada:guess@")).open()
