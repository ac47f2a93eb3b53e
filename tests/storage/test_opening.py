"""Files that are new, old, too new, broken, locked, or on a full disk: clear words, nothing lost, work goes on."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from romancy import App, StorageError, WorkflowContext, wait_event, workflow
from romancy.storage import sql
from romancy.storage.errors import TransientError
from romancy.storage.sqlite import SQLiteStorage
from romancy.storage.sqlite.connection import connect
from romancy.storage.sqlite.migrations import LIBRARY_VERSION, migrate
from romancy.testing import ManualClock
from tests.engine.helpers import until
from tests.storage.conftest import Database


@workflow
async def one_event(ctx: WorkflowContext) -> str:
    return (await wait_event(ctx, "go")).id


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as c:
        for statement in statements:
            c.execute(statement)
        c.commit()


def ask(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as c:
        return c.execute(query).fetchall()


async def use(path: Path | str) -> None:
    """Open, run something, close."""
    async with App(path, workflows=[one_event]) as app:
        handle = await app.start_workflow(one_event)
        await app.send_event("go", "test", id=handle.instance_id)
        assert await handle.result(5) == handle.instance_id


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "romancy.db"


# --- versions --------------------------------------------------------------------------------------------------------
async def test_what_is_there_survives_reopening(path: Path) -> None:
    await use(path)
    before = ask(path, "SELECT * FROM romancy_schema_info")
    async with App(path, workflows=[one_event]) as app:
        assert [i.status for i in (await app.list_instances()).items] == ["completed"]
    assert ask(path, "SELECT * FROM romancy_schema_info") == before


async def test_a_newer_schema_that_we_can_still_read_is_used(path: Path) -> None:
    await use(path)
    change(path, "UPDATE romancy_schema_info SET version = 99", "ALTER TABLE romancy_instances ADD COLUMN shiny TEXT")
    async with App(path, workflows=[one_event]) as app:
        handle = await app.start_workflow(one_event)
        await app.send_event("go", "test", id="f")
        assert await handle.result(5) == "f"
    assert ask(path, "SELECT version FROM romancy_schema_info") == [(99,)], (
        "an older library must not set the version back"
    )


async def test_a_schema_that_is_too_new_is_refused_and_left_alone(path: Path) -> None:
    await use(path)
    change(path, "UPDATE romancy_schema_info SET version = 99, min_reader = 98")
    with pytest.raises(StorageError, match=r"version 99.*newer romancy.*upgrade"):
        await use(path)
    assert ask(path, "SELECT version, min_reader FROM romancy_schema_info") == [(99, 98)]


async def test_a_migration_that_fails_leaves_nothing_behind(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = sql.migrations("sqlite")
    broken = [*steps, (LIBRARY_VERSION + 1, 1, "CREATE TABLE shiny (a);\nCREATE TABLE shiny (a)")]
    monkeypatch.setattr(sql, "migrations", lambda dialect: broken)
    with pytest.raises(StorageError, match="shiny"):
        await use(path)
    assert ask(path, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'") == []
    monkeypatch.setattr(sql, "migrations", lambda dialect: steps)
    await use(path)


async def test_a_later_migration_is_applied_once_to_an_old_database(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await use(path)
    newer = LIBRARY_VERSION + 1
    steps = [*sql.migrations("sqlite"), (newer, newer, "ALTER TABLE romancy_instances ADD COLUMN shiny TEXT")]
    monkeypatch.setattr(sql, "migrations", lambda dialect: steps)
    monkeypatch.setattr("romancy.storage.sqlite.migrations.LIBRARY_VERSION", newer)
    storages = [SQLiteStorage(str(path)) for _ in range(3)]
    await asyncio.gather(*(s.open() for s in storages))
    for storage in storages:
        await storage.close()
    assert ask(path, "SELECT version, min_reader FROM romancy_schema_info") == [(newer, newer)]
    assert ask(path, "SELECT count(*), count(shiny) FROM romancy_instances") == [(1, 0)]


def test_the_library_knows_its_own_migrations() -> None:
    assert [number for number, _, _ in sql.migrations("sqlite")] == list(range(1, LIBRARY_VERSION + 1))


async def test_many_may_open_a_new_file_at_once(path: Path) -> None:
    storages = [SQLiteStorage(str(path)) for _ in range(8)]
    await asyncio.gather(*(s.open() for s in storages))
    for n, storage in enumerate(storages):
        await storage.register(f"w{n}", 10**7, [], ["wf"])
    for storage in storages:
        await storage.close()
    assert ask(path, "SELECT count(*) FROM romancy_workers") == [(8,)]


async def test_opening_does_not_wait_for_a_writer(path: Path) -> None:
    """Nothing is to be migrated, so nothing is to be written: another process may hold the file as long as it likes."""
    await use(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as outsider:
        outsider.execute("BEGIN IMMEDIATE")
        async with asyncio.timeout(5), App(path, worker=False) as app:
            assert [i.status for i in (await app.list_instances()).items] == ["completed"]
        outsider.execute("ROLLBACK")


async def test_opening_writes_nothing(path: Path) -> None:
    await use(path)
    with closing(sqlite3.connect(path)) as outsider:
        before = outsider.execute("PRAGMA data_version").fetchone()
        async with App(path, worker=False) as app:
            await app.list_instances()
        assert outsider.execute("PRAGMA data_version").fetchone() == before


async def test_a_migration_waits_for_a_writer_and_looks_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else migrates while we wait for the file: it is done once."""
    await use(path)
    shiny = "ALTER TABLE romancy_instances ADD COLUMN shiny TEXT"
    newer = LIBRARY_VERSION + 1
    steps = [*sql.migrations("sqlite"), (newer, 1, shiny)]
    monkeypatch.setattr(sql, "migrations", lambda dialect: steps)
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        opening = asyncio.create_task(use(path))
        done, _ = await asyncio.wait([opening], timeout=0.2)
        assert not done
        other.execute(shiny)
        other.execute(f"UPDATE romancy_schema_info SET version = {newer}")
        other.execute("COMMIT")
        await opening
    assert ask(path, "SELECT version FROM romancy_schema_info") == [(newer,)]


# --- what is no database of ours -------------------------------------------------------------------------------------
async def test_a_read_that_is_cancelled_while_it_opens_the_file_closes_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = SQLiteStorage(str(path))
    await storage.open()
    opened: list[sqlite3.Connection] = []
    begun, go_on = threading.Event(), threading.Event()

    def slowly(path: str, durability: str, level: int) -> sqlite3.Connection:
        begun.set()
        assert go_on.wait(10)
        opened.append(connect(path, durability=durability, level=level))
        return opened[0]

    monkeypatch.setattr("romancy.storage.sqlite.connect", slowly)
    look = asyncio.ensure_future(storage.catalog.instance("a"))
    assert await asyncio.to_thread(begun.wait, 10)
    look.cancel()
    asyncio.get_running_loop().call_later(0.05, go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await look
    await storage.close()
    [connection] = opened
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


async def test_a_file_that_is_no_database_is_left_alone(path: Path) -> None:
    text = "my diary\n" * 1000
    path.write_text(text)
    with pytest.raises(StorageError, match="is not a SQLite database; use another path"):
        await use(path)
    assert path.read_text() == text


async def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="does not exist; create it first"):
        await use(tmp_path / "no" / "such" / "folder" / "db")


async def test_a_folder_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is a folder, not a database file"):
        await use(tmp_path)


@pytest.fixture
def ordinary() -> Iterator[Callable[[], Path]]:
    """A folder of one's own for an ordinary user, and a switch to become one: root may write to anything."""
    folder = Path(tempfile.mkdtemp(prefix="romancy-"))
    root = os.geteuid() == 0
    if root:
        os.chown(folder, 65534, 65534)

    def become() -> Path:
        if root:
            os.seteuid(65534)
        return folder

    yield become
    if root:
        os.seteuid(0)
    for file in sorted(folder.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    folder.rmdir()


async def test_a_read_only_file(ordinary: Callable[[], Path]) -> None:
    folder = ordinary()
    file = folder / "db"
    await use(file)
    file.chmod(0o444)
    with pytest.raises(StorageError, match="read-only; allow writing to the file and its folder"):
        await use(file)
    for part in folder.glob("db*"):  # SQLite gave its -wal and -shm the rights of the file
        part.chmod(0o755 if part.is_dir() else 0o644)
    await use(file)


async def test_a_read_only_folder(ordinary: Callable[[], Path]) -> None:
    folder = ordinary()
    file = folder / "db"
    await use(file)
    folder.chmod(0o555)
    with pytest.raises(StorageError, match=r"folder|read-only"):
        await use(file)
    with pytest.raises(StorageError, match="folder"):
        await use(folder / "new")
    folder.chmod(0o755)
    await use(file)


# --- while it runs ---------------------------------------------------------------------------------------------------
async def limit(storage: SQLiteStorage, more_pages: int | None) -> None:
    """Pretend the disk has room for so many more pages; None: for all."""

    def set(c: sqlite3.Connection) -> None:
        pages = c.execute("PRAGMA page_count").fetchone()[0]
        c.execute(f"PRAGMA max_page_count = {2**30 if more_pages is None else pages + more_pages}")

    assert storage._writer is not None
    await storage._writer.call(set)


async def test_a_full_disk_refuses_a_batch_whole_and_takes_it_again_later(path: Path) -> None:
    storage = SQLiteStorage(str(path), clock=ManualClock())
    await storage.open()
    db = Database(storage, storage._clock)  # type: ignore[arg-type]
    batch = db.batch(accepts=[db.event("go", "x" * 3000, id=f"e{n}") for n in range(20)])
    await limit(storage, 3)
    with pytest.raises(TransientError, match=r"disk that holds .* is full; work continues when there is space again"):
        await db.submit(batch)
    assert await db.rows("SELECT count(*) FROM romancy.events") == [(0,)]
    await limit(storage, None)
    assert [a.duplicate for a in (await db.submit(batch)).accepts] == [False] * 20
    await storage.close()


async def test_an_app_waits_for_room_and_goes_on(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with App(path, workflows=[one_event]) as app:
        storage = app._runtime.engine.storage
        assert isinstance(storage, SQLiteStorage)
        handle = await app.start_workflow(one_event)
        await limit(storage, 2)
        with caplog.at_level(logging.WARNING, "romancy"):
            sending = [asyncio.create_task(app.send_event("fill", "test", "x" * 9000, id=f"f{n}")) for n in range(5)]
            sending.append(asyncio.create_task(app.send_event("go", "test", id="e")))
            await until(lambda: app._runtime.engine.committer._pause >= 0.2)  # it has been tried three times
            assert not any(send.done() for send in sending), "acknowledged, and not stored"
        assert "is full; work continues when there is space again" in caplog.text
        assert caplog.text.count("can't be written") == 1, "an outage is told once, not at every attempt"
        await limit(storage, None)
        receipts = await asyncio.gather(*sending)
        assert not any(r.duplicate for r in receipts)
        assert await handle.result(5) == "e"


async def test_a_locked_file_is_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("romancy.storage.sqlite.threads._PATIENCE", 0.05)
    async with App(path, workflows=[one_event]) as app:
        handle = await app.start_workflow(one_event)
        with closing(sqlite3.connect(path, isolation_level=None)) as outsider:
            outsider.execute("BEGIN IMMEDIATE")
            with caplog.at_level(logging.WARNING, "romancy"):
                sending = asyncio.create_task(app.send_event("go", "test", id="e"))
                await until(lambda: "locked by another program" in caplog.text)
            assert not sending.done()
            outsider.execute("ROLLBACK")
        assert (await sending).delivered == 1
        assert await handle.result(5) == "e"


async def test_a_file_that_is_locked_when_a_worker_registers_is_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await use(path)
    monkeypatch.setattr("romancy.storage.sqlite.threads._PATIENCE", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as outsider:
        outsider.execute("BEGIN IMMEDIATE")
        async with App(path, workflows=[one_event]) as app:
            assert app._runtime.engine.worker_id is None
            sending = asyncio.create_task(app.send_event("go", "test", id="e"))
            starting = asyncio.create_task(app.start_workflow(one_event))
            await until(lambda: app._runtime.engine.committer._pause >= 0.2)
            assert caplog.text.count("locked by another program") == 1, "an outage is told once"
            outsider.execute("ROLLBACK")
            await sending
            await app.send_event("go", "test", id="f")
            assert await (await starting).result(5) in ("e", "f")
            assert app._runtime.engine.worker_id is not None


@pytest.mark.parametrize(
    "spoil", ["PRAGMA query_only = 1", "DROP TABLE romancy_workers"], ids=["read-only", "no table"]
)
async def test_a_file_that_will_never_take_a_worker_is_told_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, spoil: str
) -> None:
    await use(path)
    opened = SQLiteStorage._open

    def spoiled(storage: SQLiteStorage) -> sqlite3.Connection:
        connection = opened(storage)
        connection.execute(spoil)
        return connection

    monkeypatch.setattr(SQLiteStorage, "_open", spoiled)
    with pytest.raises(StorageError, match=r"read-only; allow writing|no such table"):
        await App(path, workflows=[one_event]).start()


async def test_a_worker_that_was_locked_out_past_its_lease_is_not_harmed(path: Path) -> None:
    """Nobody could write, so nobody could take over."""
    async with App(path, workflows=[one_event], lease=0.5) as app:
        handle = await app.start_workflow(one_event)
        before = app._runtime.engine.worker_id
        with closing(sqlite3.connect(path, isolation_level=None)) as outsider:
            outsider.execute("BEGIN IMMEDIATE")
            await asyncio.wait([asyncio.create_task(app.send_event("go", "test", id="e"))], timeout=0.7)
            outsider.execute("ROLLBACK")
        assert await handle.result(5) == "e"
        assert app._runtime.engine.worker_id == before


def test_waits_of_a_former_version_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come before all followers."""
    c = connect(":memory:", durability="normal")
    steps = sql.migrations("sqlite")
    monkeypatch.setattr(sql, "migrations", lambda dialect: steps[:4])
    migrate(c, ":memory:")
    keys = [("go", 0, b"", "a", "w1"), ("go", 0, b"", "a", "w2"), ("go", 3, b"k", "b", "w")]
    c.executemany("INSERT INTO romancy_wait_keys (type, shape, key, instance, op) VALUES (?, ?, ?, ?, ?)", keys)
    monkeypatch.undo()
    migrate(c, ":memory:")
    assert c.execute("SELECT * FROM romancy_wait_keys").fetchall() == [(*key, 0, b"") for key in keys]
    c.close()


async def test_a_relative_path_means_the_same_file_after_chdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are also opened later: for reading, and for transactions."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    storage = SQLiteStorage("romancy.db")
    monkeypatch.chdir(elsewhere)
    await storage.open()
    try:
        transaction = await storage.begin(10**6)
        await transaction.abandon()
        assert await storage.catalog.instance("nothing") is None
    finally:
        await storage.close()
    assert (tmp_path / "romancy.db").exists()
    assert list(elsewhere.iterdir()) == []
