"""Every driver's connection can hold a start and an event: they happen with its commit, and not after a rollback."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiosqlite
import asyncpg
import psycopg
import pytest
from psycopg import rows
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from romancy import App, InstanceNotFound, InvalidInput, NotInTransaction, WorkflowContext, wait_event, workflow
from romancy.service import runtime_of
from romancy.storage.postgres import PostgresStorage
from tests import pg_server

pytestmark = pytest.mark.timeout(60)


@workflow
async def double(ctx: WorkflowContext, n: int) -> int:
    return 2 * n


@workflow
async def listener(ctx: WorkflowContext) -> Any:
    return (await wait_event(ctx, "go")).data


@pytest.fixture
async def app(db: str) -> AsyncIterator[App]:
    async with App(db, workflows=[double, listener]) as app:
        yield app


class Stop(Exception):
    """Ends a transaction with a rollback."""


Opened = Callable[[str], AbstractAsyncContextManager[Any]]
"""Opens a connection with a transaction, which it commits at the end of the block, or rolls back after an error."""


def alchemy_url(path: str, driver: str) -> str:
    if path.startswith("postgresql:"):
        return path.replace("postgresql:", f"postgresql+{driver}:", 1)
    return f"sqlite+{driver}:///{path}"


@asynccontextmanager
async def by_sqlite3(path: str) -> AsyncIterator[Any]:
    connection = sqlite3.connect(path)
    connection.row_factory = lambda cursor, row: {"row": row}
    try:
        with connection:
            yield connection
    finally:
        connection.close()


@asynccontextmanager
async def by_sqlite3_by_hand(path: str) -> AsyncIterator[Any]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.text_factory = bytes
    try:
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            yield connection
    finally:
        connection.close()


@asynccontextmanager
async def by_aiosqlite(path: str) -> AsyncIterator[Any]:
    async with aiosqlite.connect(path) as connection:
        connection.row_factory = sqlite3.Row
        try:
            yield connection
            await connection.commit()
        except BaseException:
            await connection.rollback()
            raise


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(url, min_size=0) as pool, pool.acquire() as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def by_psycopg(url: str) -> AsyncIterator[Any]:
    with psycopg.connect(url, row_factory=rows.dict_row) as connection:
        yield connection


@asynccontextmanager
async def by_psycopg_transaction(url: str) -> AsyncIterator[Any]:
    with psycopg.connect(url, autocommit=True) as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def by_async_psycopg(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


def by_alchemy(driver: str) -> Opened:
    @asynccontextmanager
    async def open(url: str) -> AsyncIterator[Any]:
        engine = create_engine(alchemy_url(url, driver), poolclass=NullPool)
        with engine.begin() as connection:
            yield connection

    return open


def by_session(driver: str, *, scoped: bool = False) -> Opened:
    @asynccontextmanager
    async def open(url: str) -> AsyncIterator[Any]:
        engine = create_engine(alchemy_url(url, driver), poolclass=NullPool)
        if scoped:
            session: Any = scoped_session(sessionmaker(engine))
            try:
                yield session
                session.commit()
            finally:
                session.remove()
            return
        with Session(engine) as session, session.begin():
            yield session

    return open


def by_async_alchemy(driver: str) -> Opened:
    @asynccontextmanager
    async def open(url: str) -> AsyncIterator[Any]:
        engine = create_async_engine(alchemy_url(url, driver), poolclass=NullPool)
        async with engine.begin() as connection:
            yield connection

    return open


def by_async_session(driver: str) -> Opened:
    @asynccontextmanager
    async def open(url: str) -> AsyncIterator[Any]:
        engine = create_async_engine(alchemy_url(url, driver), poolclass=NullPool)
        async with AsyncSession(engine) as session, session.begin():
            yield session

    return open


DRIVERS: dict[str, dict[str, Opened]] = {
    "sqlite": {
        "sqlite3": by_sqlite3,
        "sqlite3 by hand": by_sqlite3_by_hand,
        "aiosqlite": by_aiosqlite,
        "alchemy": by_alchemy("pysqlite"),
        "session": by_session("pysqlite"),
        "scoped session": by_session("pysqlite", scoped=True),
        "async alchemy": by_async_alchemy("aiosqlite"),
        "async session": by_async_session("aiosqlite"),
    },
    "postgresql": {
        "asyncpg": by_asyncpg,
        "psycopg": by_psycopg,
        "psycopg transaction": by_psycopg_transaction,
        "async psycopg": by_async_psycopg,
        "alchemy": by_alchemy("psycopg"),
        "session": by_session("psycopg"),
        "scoped session": by_session("psycopg", scoped=True),
        "async alchemy": by_async_alchemy("asyncpg"),
        "async session": by_async_session("asyncpg"),
        "async session of psycopg": by_async_session("psycopg"),
    },
}
NAMES = sorted({name for drivers in DRIVERS.values() for name in drivers})


@pytest.fixture(params=NAMES)
async def transaction(app: App, request: pytest.FixtureRequest) -> Callable[[], AbstractAsyncContextManager[Any]]:
    """A transaction on the app's database, by a driver."""
    storage: Any = runtime_of(app).engine.storage
    opened = DRIVERS[storage.inbox.dialect].get(request.param)
    if opened is None:
        pytest.skip("a driver of the other database")
    return lambda: opened(storage.path if storage.inbox.dialect == "sqlite" else pg_server.url())


async def test_commit(app: App, transaction: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
    waiting = await app.start_workflow(listener)
    async with transaction() as connection:
        tx = app.within(connection)
        pending = await tx.start_workflow(double, 21, instance_id="twice")
        await tx.send_event("go", "here", {"naïve": "100 % 😀"}, subject="s", extensions={"tenant": "a"})
    assert pending.instance_id == "twice"
    assert await pending.handle().result(timeout=10) == 42
    assert await waiting.result(timeout=10) == {"naïve": "100 % 😀"}
    [event] = (await app.list_events()).items
    found = event.event
    assert (found.type, found.source, found.subject, found.extensions["tenant"]) == ("go", "here", "s", "a")


async def test_rollback(app: App, transaction: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
    with suppress(Stop):
        async with transaction() as connection:
            tx = app.within(connection)
            await tx.start_workflow(double, 21, instance_id="lost")
            await tx.send_event("go", "here", b"\x00\xff")
            raise Stop
    with pytest.raises(InstanceNotFound):
        await app.handle("lost").result()
    assert not (await app.list_events()).items


# --- what is refused --------------------------------------------------------------------------------------------------
async def refused(app: App, connection: Any, match: str) -> None:
    with pytest.raises(NotInTransaction, match=match):
        await app.within(connection).send_event("go", "here")


def url_of(app: App) -> str:
    storage: Any = runtime_of(app).engine.storage
    return storage.path if storage.inbox.dialect == "sqlite" else pg_server.url()


async def test_autocommit_is_refused(app: App, backend: str) -> None:
    url = url_of(app)
    if backend == "sqlite":
        with closing(sqlite3.connect(url, isolation_level=None)) as plain:
            await refused(app, plain, "no transaction is open")
        async with aiosqlite.connect(url, isolation_level=None) as connection:
            await refused(app, connection, "no transaction is open")
    else:
        asyncpg_one = await asyncpg.connect(url)
        await refused(app, asyncpg_one, "no transaction is open")
        await asyncpg_one.close()
        with psycopg.connect(url, autocommit=True) as one:
            await refused(app, one, "no transaction is open")
    driver = "pysqlite" if backend == "sqlite" else "psycopg"
    for options in ({"isolation_level": "AUTOCOMMIT"}, {}):
        engine = create_engine(alchemy_url(url, driver), poolclass=NullPool, **options)
        with engine.connect() as plain:
            connection = plain if options else plain.execution_options(isolation_level="AUTOCOMMIT")
            await refused(app, connection, "AUTOCOMMIT")
    with Session(create_engine(alchemy_url(url, driver), poolclass=NullPool, isolation_level="AUTOCOMMIT")) as session:
        await refused(app, session, "AUTOCOMMIT")
    assert not (await app.list_events()).items


@pytest.mark.parametrize("opened", [lambda engine: engine.connect(), Session])
async def test_autocommit_of_the_driver_is_refused(app: App, backend: str, opened: Any) -> None:
    """SQLAlchemy does not know of it."""
    driver, arguments = (
        ("pysqlite", {"isolation_level": None}) if backend == "sqlite" else ("psycopg", {"autocommit": 1})
    )
    engine = create_engine(alchemy_url(url_of(app), driver), poolclass=NullPool, connect_args=arguments)
    with opened(engine) as connection:
        await refused(app, connection, "no transaction is open")
    assert not (await app.list_events()).items


async def test_pipelines_of_psycopg(app: App, backend: str) -> None:
    if backend == "sqlite":
        pytest.skip("a driver of the other database")
    with psycopg.connect(url_of(app)) as connection, connection.pipeline():
        first = await app.within(connection).start_workflow(double, 1)
    async with await psycopg.AsyncConnection.connect(url_of(app), autocommit=True) as another, another.pipeline():
        async with another.transaction():
            second = await app.within(another).start_workflow(double, 2)
        await another.execute("SELECT 1")
        await refused(app, another, "no transaction is open")
    assert [await first.handle().result(timeout=10), await second.handle().result(timeout=10)] == [2, 4]


async def test_other_cursors_of_psycopg(app: App, backend: str) -> None:
    if backend == "sqlite":
        pytest.skip("a driver of the other database")
    for factory in (psycopg.RawCursor, psycopg.ClientCursor):
        with psycopg.connect(url_of(app), cursor_factory=factory) as connection:
            pending = await app.within(connection).start_workflow(double, 1)
        assert await pending.handle().result(timeout=10) == 2


async def test_a_name_that_the_database_would_refuse(app: App, backend: str) -> None:
    """Its error would abort the caller's transaction."""
    async with (
        DRIVERS["sqlite"]["sqlite3"](url_of(app)) if backend == "sqlite" else by_asyncpg(url_of(app)) as connection
    ):
        with pytest.raises(InvalidInput, match="name of a workflow"):
            await app.within(connection).start_workflow("a\0b")
        pending = await app.within(connection).start_workflow(double, 1)
    assert await pending.handle().result(timeout=10) == 2


async def test_a_transaction_that_has_ended_is_refused(app: App, backend: str) -> None:
    """A `Within` may be kept for too long."""
    async with DRIVERS["sqlite" if backend == "sqlite" else "postgresql"][
        "sqlite3 by hand" if backend == "sqlite" else "psycopg transaction"
    ](url_of(app)) as connection:
        tx = app.within(connection)
        await tx.send_event("go", "here", id="1")
        connection.execute("COMMIT")
        with pytest.raises(NotInTransaction):
            await tx.send_event("go", "here", id="2")
        connection.execute("BEGIN")


async def test_the_other_kind_of_database_is_refused(app: App, backend: str, tmp_path: Path) -> None:
    if backend == "sqlite":
        with psycopg.connect(pg_server.url()) as connection:
            await refused(app, connection, "connection to 'postgresql'")
    else:
        with closing(sqlite3.connect(tmp_path / "other.db")) as other:
            await refused(app, other, "connection to 'sqlite'")


@pytest.mark.sqlite
async def test_another_file_is_refused(app: App, db: str, tmp_path: Path) -> None:
    async with App(str(tmp_path / "other.db")):
        pass
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        await refused(app, other, r"main database is '.*other\.db'")
        other.execute("ATTACH ? AS shop", (db,))
        await refused(
            app, other, r"is only attached to this connection, as 'shop'\. Its main database is '.*other\.db'"
        )
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.execute("ATTACH ? AS shop", (db,))
        await refused(app, memory, "as 'shop'. Its main database is in memory, and a transaction over several files")
    link = tmp_path / "link.db"
    link.symlink_to(db)
    with closing(sqlite3.connect(link)) as same, same:
        await app.within(same).send_event("go", "here")


@pytest.mark.sqlite
async def test_an_app_in_memory_refuses_everything() -> None:
    async with App(":memory:") as app:
        with closing(sqlite3.connect(":memory:")) as memory:
            await refused(app, memory, "give the app a file")


async def test_another_database_of_the_server_is_refused(app: App, backend: str) -> None:
    """Also if it has the same schema, with an inbox."""
    if backend == "sqlite":
        pytest.skip("about servers")
    storage: Any = runtime_of(app).engine.storage
    admin = await asyncpg.connect(pg_server.url())
    name = f"elsewhere_{os.urandom(4).hex()}"
    await admin.execute(f"CREATE DATABASE {name}")
    try:
        url = urlsplit(pg_server.url())._replace(path=f"/{name}").geturl()
        for opened in DRIVERS["postgresql"].values():
            with pytest.raises(NotInTransaction, match=r"no tables of Romancy.*your transaction is aborted"):
                async with opened(url) as connection:
                    await app.within(connection).send_event("go", "here")
        with psycopg.connect(url) as connection, connection.pipeline():
            await refused(app, connection, "no tables of Romancy")
        other = await asyncpg.connect(url)
        twin = PostgresStorage(url, schema=storage.schema)
        await twin.open()
        await twin.close()
        async with other.transaction():
            await refused(app, other, "not in a transaction of the app's database")
            assert await other.fetchval("SELECT 1") == 1  # the transaction is not aborted
        await other.close()
    finally:
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await admin.close()


async def test_anything_else_is_a_type_error(app: App) -> None:
    with pytest.raises(TypeError, match="asyncpg, psycopg 3, sqlite3"):
        app.within(object())


async def test_the_values_are_checked_before_the_database_sees_them(app: App, backend: str) -> None:
    """A statement that fails aborts the caller's transaction on PostgreSQL."""
    opened = by_sqlite3 if backend == "sqlite" else by_asyncpg
    async with opened(url_of(app)) as connection:
        tx = app.within(connection)
        wrong: list[Callable[[], Awaitable[Any]]] = [
            lambda: tx.send_event("", "here"),
            lambda: tx.send_event("a\x00b", "here"),
            lambda: tx.send_event("go", "here", {1, object()}),
            lambda: tx.start_workflow(double, "no number"),  # type: ignore[arg-type]
            lambda: tx.start_workflow(double, 1, instance_id="\x00"),
            lambda: tx.start_workflow("", 1),
        ]
        for call in wrong:
            with pytest.raises((ValueError, TypeError)):
                await call()
        await tx.send_event("go", "here")
