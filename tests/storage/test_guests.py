"""A file may hold tables of the user's own, whatever their names: Romancy's are beside them, and have a prefix."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from romancy import App, Retention, WorkflowContext, WorkflowFailed, sleep, wait_event, workflow

EVERYTHING = """
CREATE TABLE instances (mine TEXT);
CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT);
CREATE TABLE history (seen TEXT);
CREATE INDEX instances_free ON instances (mine);
CREATE TRIGGER waits_due AFTER INSERT ON events BEGIN INSERT INTO history VALUES (new.name); END;
CREATE VIEW workers AS SELECT mine FROM instances;
INSERT INTO instances VALUES ('a'), ('b');
INSERT INTO events (name) VALUES ('opened'), ('closed');
"""
"""With names that Romancy's tables and indexes have, too, but for the prefix."""


@workflow
async def patient(ctx: WorkflowContext) -> Any:
    await sleep(ctx, 0)
    ctx.set_attributes({"customer": "ada"})
    return (await wait_event(ctx, "go", where={"n": 1})).data


@workflow
async def fails(ctx: WorkflowContext) -> None:
    raise ValueError("no")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


def prepare(path: Path, script: str) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
        return guests(connection)


def guests(connection: sqlite3.Connection) -> list[str]:
    """The dump of a database without what is Romancy's."""
    return [
        statement
        for statement in connection.iterdump()
        if "romancy_" not in statement and not statement.startswith('DELETE FROM "sqlite_sequence"')
    ]


async def use(path: Path) -> None:
    async with App(path, workflows=[patient, fails], retention=Retention(instances=None)) as app:
        handle = await app.start_workflow(patient)
        await app.send_event("go", "test", {"n": 1})
        assert await handle.result(timeout=10) == {"n": 1}
        with pytest.raises(WorkflowFailed):
            await (failed := await app.start_workflow(fails)).result(timeout=10)
        with pytest.raises(WorkflowFailed):
            await (await app.retry_workflow(failed.instance_id)).result(timeout=10)
        assert len((await app.list_instances()).items) == 2
        assert [i.instance_id for i in (await app.list_instances(where={"customer": "ada"})).items] == [
            handle.instance_id
        ]


async def test_tables_of_the_same_names_are_left_alone(path: Path) -> None:
    before = prepare(path, EVERYTHING)
    await use(path)
    with closing(sqlite3.connect(path)) as connection:
        assert guests(connection) == before
        connection.execute("INSERT INTO events (name) VALUES ('opened again')")
        assert connection.execute("SELECT * FROM history").fetchall()[-1] == ("opened again",)
        ours = connection.execute("SELECT name FROM sqlite_master WHERE name LIKE 'romancy_instances%'").fetchall()
        assert ("romancy_instances",) in ours
        assert ("romancy_instances_free",) in ours


@pytest.mark.parametrize(
    "tables",
    [
        ["schema_info (key TEXT, value TEXT)"],
        ["schema_info (version INTEGER, min_reader INTEGER)"],
        ["schema_info (version TEXT)", "instances (mine)", "workers (name)"],
    ],
    ids=["another", "one like ours", "and others"],
)
async def test_a_version_of_the_users_own_is_not_taken_for_ours(path: Path, tables: Sequence[str]) -> None:
    before = prepare(path, "".join(f"CREATE TABLE {table};" for table in tables))
    await use(path)
    with closing(sqlite3.connect(path)) as connection:
        assert guests(connection) == before


async def test_the_user_may_write_there_meanwhile(path: Path) -> None:
    prepare(path, EVERYTHING)
    async with App(path, workflows=[patient]) as app:
        handle = await app.start_workflow(patient)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("INSERT INTO instances VALUES ('c')")
            connection.execute("DROP INDEX instances_free")
            connection.execute("ALTER TABLE instances ADD COLUMN more TEXT")
            connection.commit()
        await app.send_event("go", "test", {"n": 1})
        assert await handle.result(timeout=10) == {"n": 1}
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT mine FROM instances WHERE more IS NULL").fetchall() == [
            ("a",),
            ("b",),
            ("c",),
        ]
