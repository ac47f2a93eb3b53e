"""Blocking code inside its own transaction: threads, Django, SQLAlchemy sessions."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from romancy import InstanceNotFound, NotInTransaction, WorkflowContext, wait_event, workflow
from romancy.sync import App, PendingHandle
from tests import pg_server

pytestmark = pytest.mark.timeout(60)


@workflow
async def double(ctx: WorkflowContext, n: int) -> int:
    return 2 * n


@workflow
async def listener(ctx: WorkflowContext) -> Any:
    return (await wait_event(ctx, "go")).data


def connect(app: App, backend: str) -> Any:
    return closing(sqlite3.connect(app.database) if backend == "sqlite" else psycopg.connect(pg_server.url()))


def test_it_happens_with_the_commit(db: str, backend: str) -> None:
    with App(db, workflows=[double, listener]) as app, connect(app, backend) as connection:
        waiting = app.start_workflow(listener)
        tx = app.within(connection)
        pending: PendingHandle[int] = tx.start_workflow(double, 21)
        tx.send_event("go", "here", {"n": 1})
        if backend == "postgres":
            with pytest.raises(InstanceNotFound):
                pending.handle().status()
        connection.commit()
        assert pending.handle().status() in ("running", "completed")
        assert pending.handle().result(timeout=10) == 42
        assert waiting.result(timeout=10) == {"n": 1}


def test_a_session(db: str, backend: str) -> None:
    url = f"sqlite:///{db}" if backend == "sqlite" else pg_server.url().replace("postgresql:", "postgresql+psycopg:", 1)
    with App(db, workflows=[double]) as app, Session(create_engine(url, poolclass=NullPool)) as session:
        with session.begin():
            pending = app.within(session).start_workflow(double, 4)
        assert pending.handle().result(timeout=10) == 8


def test_what_is_refused(db: str, backend: str) -> None:
    with App(db, workflows=[double]) as app:
        if backend == "sqlite":
            with closing(sqlite3.connect(db, isolation_level=None)) as one, pytest.raises(NotInTransaction):
                app.within(one)
        else:
            with psycopg.connect(pg_server.url(), autocommit=True) as one, pytest.raises(NotInTransaction):
                app.within(one)
        with pytest.raises(TypeError, match="takes a connection of"):
            app.within("connection")


async def test_an_asynchronous_connection(db: str, backend: str) -> None:
    if backend == "sqlite":
        pytest.skip("one driver is enough")
    import asyncpg

    connection = await asyncpg.connect(pg_server.url())
    app = App(db, workflows=[double])
    app.start()
    try:
        async with connection.transaction():
            with pytest.raises(TypeError, match="asynchronous connection"):
                app.within(connection)
    finally:
        app.stop()
        await connection.close()


DJANGO = """
import sys

import django
from django.conf import settings

settings.configure(DATABASES={"default": %s})
django.setup()

from django.db import connection, transaction

from romancy import Database, NotInTransaction, WorkflowContext, workflow
from romancy.sync import App


@workflow
async def double(ctx: WorkflowContext, n: int) -> int:
    return 2 * n


with App(%s, workflows=[double]) as app:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (n INTEGER)")
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (21)")
        tx = app.within(connection)
        pending = tx.start_workflow(double, 21)
        tx.send_event("order.placed", "shop", {"discount": "10 %%"})
        try:
            with transaction.atomic():
                tx.start_workflow(double, 22)
                raise KeyError
        except KeyError:
            pass
    print(pending.handle().result(timeout=10), len(app.list_instances().items), len(app.list_events().items))
    try:
        app.within(connection)
    except NotInTransaction as error:
        print(error)
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE orders")
"""


def test_django(db: str, backend: str, tmp_path: Path) -> None:
    """In a process of its own: Django is configured once for a process."""
    if backend == "sqlite":
        settings, where = {"ENGINE": "django.db.backends.sqlite3", "NAME": db}, repr(db)
    else:
        found = psycopg.conninfo.conninfo_to_dict(pg_server.url())
        settings = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": str(found["dbname"]),
            "USER": str(found.get("user", "")),
            "PASSWORD": str(found.get("password", "")),
            "HOST": str(found.get("host", "")),
            "PORT": str(found.get("port", "")),
        }
        where = f"Database({pg_server.url()!r}, schema='django_{tmp_path.stat().st_ino}')"
    script = tmp_path / "shop.py"
    script.write_text(DJANGO % (settings, where))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    [first, second] = done.stdout.splitlines()
    assert first == "42 1 1"
    assert "use `with transaction.atomic():`" in second
    if backend == "postgres":
        with psycopg.connect(pg_server.url(), autocommit=True) as admin:
            admin.execute(f"DROP SCHEMA django_{tmp_path.stat().st_ino} CASCADE")  # type: ignore[call-overload]
