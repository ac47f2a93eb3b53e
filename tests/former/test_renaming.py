"""The tables of a former release had no prefix: a file gets it in one transaction, or stays as it was."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from romancy import App, StorageError
from romancy.storage import sql
from romancy.storage.sqlite.connection import connect
from romancy.storage.sqlite.migrations import LIBRARY_VERSION, migrate
from tests.former.workflows import WORKFLOWS
from tests.helpers import unqualified

pytestmark = pytest.mark.play

RENAMED = 7
"""The version that has the prefix."""
OPENER = """
import os, signal, sys
from romancy.storage.sqlite.connection import connect
from romancy.storage.sqlite.migrations import migrate

path, die_at = sys.argv[1:]
connection = connect(path, durability="full")
if die_at:
    die = lambda statement: die_at in statement and os.kill(os.getpid(), signal.SIGKILL)
    connection.set_trace_callback(die)
print("ready", flush=True)
sys.stdin.readline()
migrate(connection, path)
"""


def opener(database: str, die_at: str = "") -> subprocess.Popen[str]:
    """A process that opens the file after a line on its standard input. It may die before a statement."""
    command = [sys.executable, "-c", OPENER, database, die_at]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def upgrade(database: str) -> None:
    with closing(connect(database, durability="full")) as connection:
        migrate(connection, database)


def ask(database: str, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


def dump(database: str) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return list(connection.iterdump())


def schema(database: str) -> dict[str, str]:
    """Tables and indexes by name. Renaming quotes names: that is no difference."""
    found = ask(database, "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {name: re.sub(r"\s+", " ", definition.replace('"', "")) for name, definition in found}


def content(database: str, prefix: str, like: dict[str, Sequence[str]] | None = None) -> dict[str, Any]:
    """Rows by table, of the columns that were there before."""
    tables = [name for name in schema(database) if name not in ("sqlite_sequence", "schema_info")]
    with closing(sqlite3.connect(database)) as connection:
        columns = {
            name.removeprefix(prefix): [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            for name in tables
        }
    wanted = {name: names for name, names in (like or columns).items() if names}
    return {
        name: (names, sorted(ask(database, f"SELECT {', '.join(names)} FROM {prefix}{name}"), key=repr))
        for name, names in wanted.items()
    }


@pytest.fixture
def new(tmp_path: Path) -> str:
    path = str(tmp_path / "new.db")
    upgrade(path)
    return path


def test_every_row_is_kept(database: str) -> None:
    before = content(database, "")
    assert sum(len(rows) for _, rows in before.values()) > 40
    upgrade(database)
    assert content(database, "romancy_", {name: names for name, (names, _) in before.items()}) == before
    assert [name for name in schema(database) if not name.startswith(("romancy_", "sqlite_"))] == ["schema_info"]


def test_its_schema_is_the_one_of_a_new_file(database: str, new: str) -> None:
    upgrade(database)
    assert schema(database).keys() - schema(new).keys() == {"schema_info"}
    assert {**schema(new), "schema_info": schema(database)["schema_info"]} == schema(database)
    assert ask(database, "SELECT * FROM romancy_schema_info") == ask(new, "SELECT * FROM romancy_schema_info")
    assert ask(database, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("version", range(1, RENAMED))
def test_so_it_is_from_every_former_version(version: int, new: str, tmp_path: Path) -> None:
    path = str(tmp_path / "former.db")
    with closing(sqlite3.connect(path)) as connection:
        for _, _, script in sql.migrations("sqlite")[:version]:
            connection.executescript(unqualified(script))
        connection.execute("CREATE TABLE schema_info (version INTEGER NOT NULL, min_reader INTEGER NOT NULL)")
        connection.execute("INSERT INTO schema_info VALUES (?, 1)", (version,))
        connection.commit()
    assert not any(name.startswith("romancy") for name in schema(path))
    upgrade(path)
    former = schema(path)
    del former["schema_info"]
    assert former == schema(new)


def test_numbers_are_not_used_again(database: str) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("DELETE FROM events")
        connection.execute("DELETE FROM requests")
        connection.commit()
    upgrade(database)
    with closing(sqlite3.connect(database)) as connection:
        added = connection.execute("INSERT INTO romancy_requests (instance, kind, payload, at) VALUES ('a', 1, '', 0)")
        assert added.lastrowid == 2
        columns = "source, id, type, token, accepted_at"
        added = connection.execute(f"INSERT INTO romancy_events ({columns}) VALUES ('s', 'i', 't', x'', 0)")
        assert added.lastrowid == 5


async def test_older_libraries_are_told_that_they_are_too_old(database: str) -> None:
    """They look for the version in `schema_info`, and refuse a file whose `min_reader` they don't know."""
    for _ in range(2):
        async with App(database, workflows=WORKFLOWS):
            pass
        assert ask(database, "SELECT version, min_reader FROM schema_info") == [(RENAMED, RENAMED)]
    assert ask(database, "SELECT version FROM romancy_schema_info") == [(LIBRARY_VERSION,)]


def test_workers_of_older_libraries_are_fenced(database: str) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("INSERT INTO workers (id, host, until, started_at) VALUES ('old', 'here', 9e18, 0)")
        connection.commit()
    upgrade(database)
    assert ask(database, "SELECT * FROM romancy_workers") == []
    assert ask(database, "SELECT clean FROM romancy_orphans WHERE id = 'old'") == [(1,)]


# --- trouble ---------------------------------------------------------------------------------------------------------
def test_an_error_leaves_the_file_as_it_was(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dump(database)
    broken = [*sql.migrations("sqlite"), (LIBRARY_VERSION + 1, 1, "SELECT * FROM romancy.nowhere")]
    with monkeypatch.context() as patch:
        patch.setattr(sql, "migrations", lambda dialect: broken)
        with pytest.raises(StorageError, match="nowhere"):
            upgrade(database)
    assert dump(database) == before
    upgrade(database)


@pytest.mark.parametrize(
    "statement", ["UPDATE schema_info", "ALTER TABLE", "DROP INDEX", "CREATE TABLE romancy_views", "COMMIT"]
)
def test_a_kill_leaves_the_file_as_it_was(database: str, new: str, statement: str) -> None:
    before = dump(database)
    process = opener(database, statement)
    process.communicate("go\n", timeout=30)
    assert process.returncode == -9, f"it never came to {statement}"
    assert dump(database) == before
    upgrade(database)
    assert schema(database).keys() - schema(new).keys() == {"schema_info"}


def test_many_processes_may_open_it_at_once(database: str, new: str) -> None:
    before = content(database, "")
    processes = [opener(database) for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
    assert [process.returncode for process in processes] == [0] * 4
    assert content(database, "romancy_", {name: names for name, (names, _) in before.items()}) == before
    assert schema(database).keys() - schema(new).keys() == {"schema_info"}


# --- what users had added --------------------------------------------------------------------------------------------
def test_tables_of_the_users_own_stay(database: str) -> None:
    """Also those with names that a later version of ours used."""
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(
            """
            CREATE TABLE customers (name TEXT, instance TEXT REFERENCES instances (id));
            INSERT INTO customers VALUES ('Ada', 'order-1');
            CREATE TABLE views (page TEXT, count INTEGER);
            INSERT INTO views VALUES ('/', 7);
            CREATE INDEX views_count ON views (count);
            CREATE INDEX "of my own" ON instances (description);
            CREATE INDEX mine ON instances (updated_at);
            CREATE VIEW open_orders AS SELECT id FROM instances WHERE status < 9;
            """
        )
        orders = connection.execute("SELECT id FROM open_orders ORDER BY 1").fetchall()
    upgrade(database)
    assert ask(database, "SELECT * FROM customers") == [("Ada", "order-1")]
    assert ask(database, "SELECT * FROM views") == [("/", 7)]
    assert ask(database, "SELECT id FROM open_orders ORDER BY 1") == orders
    assert "REFERENCES romancy_instances (id)" in schema(database)["customers"]
    assert {"views_count", "of my own", "mine"} <= schema(database).keys()
