"""`romancy migrate` and `romancy copy`."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from romancy import App, Database
from romancy.storage import sql
from romancy.storage.postgres import migrations as postgres
from tests import pg_server

NEWEST = postgres.LIBRARY_VERSION


def fetch(schema: str, query: str) -> list[tuple[Any, ...]]:
    async def main() -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(pg_server.url(), server_settings={"search_path": schema})
        try:
            return [tuple(row) for row in await connection.fetch(query)]
        finally:
            await connection.close()

    return asyncio.run(main())


# --- migrate ---------------------------------------------------------------------------------------------------------
def test_a_file_is_made_and_then_up_to_date(romancy, folder: Path) -> None:
    assert romancy("migrate", "--check", "-d", "new.db", code=1).stdout == "no schema yet at 'new.db'\n"
    assert not (folder / "new.db").exists()
    assert romancy("migrate", "-d", "new.db").stdout == f"created the tables, version {NEWEST}\n"
    assert romancy("migrate", "-d", "new.db").stdout == f"up to date at version {NEWEST}\n"
    assert romancy("migrate", "--check", "-d", "new.db").stdout == f"up to date at version {NEWEST}\n"


def test_a_schema_is_made_and_then_up_to_date(romancy, schema: str) -> None:
    where = ("-d", pg_server.url(), "--schema", schema)
    nothing = romancy("migrate", "--check", *where, code=1).stdout
    assert nothing == f"no schema yet in schema {schema!r} of {pg_server.url()}\n"
    assert fetch(schema, f"SELECT 1 FROM pg_namespace WHERE nspname = '{schema}'") == []
    assert romancy("migrate", *where).stdout == f"created the tables, version {NEWEST} (schema {schema})\n"
    assert romancy("migrate", *where).stdout == f"up to date at version {NEWEST} (schema {schema})\n"


def test_one_that_is_behind_is_brought_forward(
    romancy, database: Path, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("-d", pg_server.url(), "--schema", schema)
    romancy("migrate", *where)
    real = sql.migrations

    def two(dialect: str) -> list[tuple[int, int, str]]:
        return [*real(dialect), (NEWEST + 1, 1, "CREATE TABLE shiny (a integer)")]

    monkeypatch.setattr(sql, "migrations", two)
    monkeypatch.setattr(postgres, "migrations", two)
    for place, named in (("-d", "romancy.db"), ""), (where, f" (schema {schema})"):
        behind = romancy("migrate", "--check", *place, code=1).stdout
        assert behind == f"out of date: version {NEWEST}, this romancy has {NEWEST + 1}{named}\n"
        assert romancy("migrate", *place).stdout == f"upgraded from version {NEWEST} to {NEWEST + 1}{named}\n"
        assert romancy("migrate", "--check", *place).stdout == f"up to date at version {NEWEST + 1}{named}\n"


def test_a_newer_one_is_left_alone_or_refused(romancy, refused, database: Path, schema: str) -> None:
    where = ("-d", pg_server.url(), "--schema", schema)
    romancy("migrate", *where)
    fetch(schema, "UPDATE schema_info SET version = 99")
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE romancy_schema_info SET version = 99")
        connection.commit()
    for place in ((), where):
        assert (
            f"up to date at version 99, newer than this romancy's version {NEWEST}" in romancy("migrate", *place).stdout
        )
    fetch(schema, "UPDATE schema_info SET min_reader = 99")
    assert "needs a newer romancy" in refused("migrate", "--check", *where, code=1)


def test_a_file_with_other_tables_gets_ours_beside_them(romancy, folder: Path) -> None:
    with closing(sqlite3.connect(folder / "other.db")) as other:
        other.execute("CREATE TABLE addresses (name)")
        assert romancy("migrate", "-d", "other.db", "--check", code=1).stdout == "no schema yet at 'other.db'\n"
        assert list(other.iterdump()) == ["BEGIN TRANSACTION;", "CREATE TABLE addresses (name);", "COMMIT;"]
        assert romancy("migrate", "-d", "other.db").stdout == f"created the tables, version {NEWEST}\n"
        assert romancy("list", "-d", "other.db").exit_code == 0


def test_what_can_not_be_migrated(refused, folder: Path) -> None:
    assert "only lasts as long as this command" in refused("migrate", "-d", ":memory:")
    assert "--schema only applies to PostgreSQL" in refused("migrate", "--schema", "x", "-d", "new.db")
    (folder / "text.db").write_text("not a database, but long enough to be one" * 100)
    for check in ((), ("--check",)):
        assert "not a SQLite database" in refused("migrate", "-d", "text.db", *check, code=1)
    url = "postgresql://nobody:secret@127.0.0.1:1/none"
    assert "secret" not in refused("migrate", "-d", url, code=1)


# --- copy ------------------------------------------------------------------------------------------------------------
def test_a_shop_moves(romancy, database: Path, schema: str) -> None:
    done = romancy("copy", "romancy.db", pg_server.url(), "--schema", schema)
    assert "copied 7 instances, 1 event and 4 waits, and verified the counts\n" in done.stdout
    assert f"they are in schema {schema!r}" in done.stdout
    assert "put romancy.db away" in done.stdout
    assert done.stderr == "", "progress is for terminals"
    assert "your own tables" not in done.stdout
    listed = fetch(schema, "SELECT id, status FROM instances ORDER BY id")
    with closing(sqlite3.connect(database)) as connection:
        assert listed == connection.execute("SELECT id, status FROM romancy_instances ORDER BY id").fetchall()


def test_the_users_own_tables_are_named(romancy, database: Path, schema: str) -> None:
    """They are not copied. Workers that start without them would sell the same seats again."""
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript('CREATE TABLE seats (n); INSERT INTO seats VALUES (1), (2); CREATE TABLE "a b" (n)')
    said = romancy("copy", "romancy.db", pg_server.url(), "--schema", schema).stdout
    assert "not copied: your own tables a b (0 rows), seats (2 rows); copy them before you start the workers\n" in said


def test_its_workflows_go_on_there(romancy, database: Path, schema: str) -> None:
    romancy("copy", "romancy.db", pg_server.url(), "--schema", schema)

    async def pay() -> str:
        import shop

        async with App(Database(pg_server.url(), schema=schema), workflows=[shop.pay]) as app:
            await app.send_event("payment.completed", "test", {"order": {"id": "ORD-1"}, "amount": 7})
            return await app.handle("order-1", shop.pay).result(10)

    assert asyncio.run(pay()) == "paid 7.0"


def test_what_can_not_be_copied(refused, romancy, database: Path, schema: str) -> None:
    url = pg_server.url()
    assert "'romancy.db' is not a postgresql:// URL" in refused("copy", url, "romancy.db")
    assert "is not a file" in refused("copy", url, url)
    there = ("--schema", schema)
    assert "there is no database at 'nowhere.db'" in alone(romancy("copy", "nowhere.db", url, *there, code=2))
    romancy("copy", "romancy.db", url, *there)
    assert f"{schema!r} is not empty" in alone(romancy("copy", "romancy.db", url, *there, code=1))


def alone(result: Any) -> str:
    """The one line that says what went wrong."""
    [line] = [line for line in result.stderr.splitlines() if line.startswith("romancy: ")]
    return line


def test_without_the_driver(refused, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name for name in sys.modules if name.startswith(("romancy.storage.postgres", "romancy.storage.tools.copy"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    said = refused("copy", "romancy.db", "postgresql://x/y", code=1)
    assert "pip install 'romancy[postgres]'" in said
    assert "pip install 'romancy[postgres]'" in refused("migrate", "-d", "postgresql://x/y", code=1)
