"""`romancy doctor`: every check can find something, and nothing is changed by looking."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from romancy import (
    App,
    Queue,
    Rate,
    ReceivedEvent,
    WorkerOptions,
    WorkflowContext,
    __version__,
    workflow,
)
from romancy.cli.place_checks import Place, check_connections
from romancy.cli.state_checks import check_inbox, check_workers
from romancy.codecs import Encrypted
from romancy.core.clock import SystemClock
from romancy.core.model import SECOND
from romancy.desk import WorkerRecord
from romancy.records import InboxRecord, Page
from romancy.storage.tools import file_state
from tests import pg_server
from tests.http.conftest import Live
from tests.sealed import KEYS

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Findings = list[dict[str, Any]]


@workflow(queue=Queue("printer", rate=Rate(1, per=timedelta(hours=1))))
async def prints(ctx: WorkflowContext) -> None: ...


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROMANCY_URL", "ROMANCY_TOKEN", "ROMANCY_TOKENS", "ROMANCY_CODEC", "ROMANCY_DEBUG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def doctor(romancy) -> Callable[..., Findings]:
    def ask(*words: str, code: int = 1) -> Findings:
        return json.loads(romancy("doctor", "--json", *words, code=code).stdout)["items"]

    return ask


def one(findings: Findings, check: str, level: str = "problem") -> str:
    [found] = [f for f in findings if f["check"] == check and f["level"] == level]
    return f"{found['says']}; {found['advice']}"


@pytest.fixture
def served(database: Path) -> Iterator[Callable[..., Live]]:
    """Starts a server with a worker on the stocked database."""
    running: list[Live] = []

    def start(**options: Any) -> Live:
        given = {"workflows": importlib.import_module("shop"), "worker": WorkerOptions(grace=1), **options}
        running.append(Live(App(database, **given)))
        return running[-1]

    yield start
    for live in running:
        live.stop()


# --- a file -----------------------------------------------------------------------------------------------------------
def test_a_database_in_use_is_fine(doctor, served: Callable[..., Live], database: Path) -> None:
    database.unlink()
    served()
    found = doctor(code=0)
    assert {finding["level"] for finding in found} == {"ok"}
    assert [f["check"] for f in found] == ["romancy", "file", "schema", "workers", "instances", "timers"]


def test_each_finding_is_a_line_that_says_what_to_do(romancy, database: Path) -> None:
    lines = romancy("doctor", code=1).stdout.splitlines()
    assert [line for line in lines if line.startswith("problem  workers ") and line.endswith("romancy worker MODULE")]
    assert {line.split()[0] for line in lines} == {"ok", "problem"}


def test_nothing_is_changed(doctor, database: Path) -> None:
    before = database.read_bytes()
    doctor("--deep")
    assert database.read_bytes() == before


def test_no_database_is_created(doctor, folder: Path) -> None:
    assert "no database at 'romancy.db'" in one(doctor(), "file")
    assert "is not a file" in one(doctor("-d", str(folder)), "file")
    assert [file.name for file in folder.iterdir()] == ["shop.py"]


def test_another_file(doctor, folder: Path) -> None:
    (folder / "text.db").write_text("hello " * 1000)
    said = one(doctor("-d", "text.db"), "file")
    assert said == "'text.db' is not a SQLite database; use another path, or move that file away"
    with sqlite3.connect("other.db") as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    assert "is not a Romancy database" in one(doctor("-d", "other.db"), "schema")


def test_a_file_that_is_read_only(doctor, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_state.os, "access", lambda path, mode, **options: path != str(database.name))
    assert "can't write to 'romancy.db'; give its user write access" in one(doctor(), "file")


def test_a_file_that_all_can_read(doctor, database: Path) -> None:
    database.chmod(0o644)
    assert "every user of this machine can read it" in one(doctor(), "file", "warning")


def test_a_network_file_system(doctor, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = database.parent / "mounts"
    head = "22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    mounts.write_text(f"{head}98 22 0:50 / {database.parent} rw - nfs4 server:/share rw\n")
    monkeypatch.setattr(file_state, "MOUNTS", str(mounts))
    assert "on a network file system (nfs4)" in one(doctor(), "file")
    mounts.write_text(f"{head}98 22 0:50 / {database.parent}x rw - nfs4 server:/share rw\n")  # a neighbour
    assert file_state.remote_file_system(str(database)) is None
    mounts.write_text(f"98 22 0:50 / {database.parent} rw - nfs4 server:/share rw\n" + head)  # the deepest one counts
    assert file_state.remote_file_system(str(database)) == "nfs4"


def test_a_full_disk(doctor, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romancy.cli.place_checks.LITTLE", 2**62)
    assert "MiB are free on its disk" in one(doctor(), "disk", "warning")


def change(database: Path, statement: str) -> Any:
    connection = sqlite3.connect(database)
    try:
        row = connection.execute(statement).fetchone()
        connection.commit()
        return row
    finally:
        connection.close()


def test_another_journal_mode_is_left_as_it_is(doctor, database: Path) -> None:
    change(database, "PRAGMA journal_mode = DELETE")
    assert "the journal mode is delete, not wal" in one(doctor(code=0), "file", "warning")
    assert change(database, "PRAGMA journal_mode") == ("delete",)


def test_an_old_schema_is_not_upgraded(doctor, database: Path) -> None:
    change(database, "UPDATE romancy_schema_info SET version = 12")
    assert "`romancy migrate -d romancy.db` upgrades it" in one(doctor(code=0), "schema", "warning")
    assert change(database, "SELECT version FROM romancy_schema_info") == (12,)


def test_a_schema_of_a_newer_library(doctor, database: Path) -> None:
    change(database, "UPDATE romancy_schema_info SET version = 99")
    assert "this romancy only" in one(doctor(), "schema", "warning")
    change(database, "UPDATE romancy_schema_info SET min_reader = 99")
    assert "upgrade the package" in one(doctor(), "schema")


def test_a_damaged_file(doctor, database: Path) -> None:
    assert "nothing is damaged" in one(doctor("--deep"), "integrity", "ok")
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA writable_schema = ON")  # the index no longer has what it says
    connection.execute(
        "UPDATE sqlite_master SET sql = replace(sql, '(instance, op)', '(op, instance)') "
        "WHERE name = 'romancy_wait_keys_wait'"
    )
    connection.commit()
    connection.close()
    assert "integrity" not in {finding["check"] for finding in doctor()}
    assert "restore it from a backup" in one(doctor("--deep"), "integrity")


def test_a_file_that_was_cut_off(doctor, database: Path) -> None:
    database.write_bytes(database.read_bytes()[:3000])
    assert one(doctor(), "file") == "'romancy.db' is damaged; restore it from a backup"


def test_damage_that_shows_only_when_the_database_is_read(doctor, romancy, database: Path) -> None:
    change(database, "DROP TABLE romancy_waits")
    found = doctor()
    assert [f["check"] for f in found] == ["romancy", "file", "schema", "database"]
    said = one(found, "database")
    assert "no such table: romancy_waits; " in said
    assert "restore the database from a backup" in said
    assert "problem  database  " in romancy("doctor", code=1).stdout


def test_the_pages_of_a_table_are_damaged(doctor, database: Path) -> None:
    (size,), (page,) = (
        change(database, statement)
        for statement in ("PRAGMA page_size", "SELECT rootpage FROM sqlite_master WHERE name = 'romancy_instances'")
    )
    whole = bytearray(database.read_bytes())
    whole[(page - 1) * size : page * size] = b"\xff" * size
    database.write_bytes(whole)
    said = one(doctor(), "database")
    assert said.endswith("romancy.db' is damaged; restore it from a backup")


def test_sealed_values_need_the_codec(doctor, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "keys.py").write_text(f"from romancy.codecs import Encrypted\ncodec = Encrypted({KEYS!r})\n")

    async def fill() -> None:
        async with App("romancy.db", codec=Encrypted(KEYS)):
            pass

    asyncio.run(fill())
    assert "set ROMANCY_CODEC" in one(doctor(code=0), "codec", "warning")
    monkeypatch.setenv("ROMANCY_CODEC", "keys:codec")
    assert "there is a codec" in one(doctor(code=0), "codec", "ok")


# --- what is in it ----------------------------------------------------------------------------------------------------
def test_no_worker(doctor, database: Path) -> None:
    assert "no worker is alive, but instances are open, such as" in one(doctor(), "workers")
    change(database, "UPDATE romancy_instances SET status = (SELECT status FROM romancy_instances WHERE id = 'done')")
    assert one(doctor(code=0), "workers", "warning") == "no worker is alive; start one: romancy worker MODULE"


def worker(**about: Any) -> WorkerRecord:
    usual = WorkerRecord("w1", "host", 1, __version__, "b", ("pay",), 10, 0, NOW, NOW, True, 0)
    return replace(usual, **about)


@pytest.mark.parametrize(
    ("about", "check", "level", "said"),
    [
        ({"version": "0.0.9"}, "versions", "warning", f"of several versions: 0.0.9, {__version__}"),
        ({"version": None}, "versions", "warning", f"of several versions: {__version__}, older"),
        ({"started_at": NOW + timedelta(minutes=10)}, "clock", "problem", "w1 on host began 10 min in the future"),
        ({"load": 10}, "slots", "warning", "all 10 slots of worker w1 on host are taken"),
    ],
)
async def test_a_worker_that_is_not_as_it_should_be(about: Any, check: str, level: str, said: str) -> None:
    nothing_read: Any = None
    found = await check_workers(nothing_read, [worker(id="w0"), worker(**about)], NOW)
    [wrong] = [finding for finding in found if finding.level != "ok"]
    assert (wrong.check, wrong.level) == (check, level)
    assert said in wrong.says


def test_workflows_that_no_worker_has(doctor, served: Callable[..., Live]) -> None:
    served(workflows=[prints])
    found = [f for f in doctor() if f["check"] == "workflows"]
    assert {"nap", "pay"} <= {id for f in found for id in f["ids"]}
    assert "no live worker has workflow 'nap', of which 1 instance is open" in " ".join(f["says"] for f in found)


def test_blocked_instances(doctor, database: Path) -> None:
    said = one(doctor(), "instances")
    assert "1 instance of workflow 'turns' blocked, such as blocked: NonDeterminismError: the code of" in said
    assert "then `romancy resume blocked`" in said


@pytest.mark.parametrize(
    ("error", "way"),
    [
        ({"type": "KillsWorkers"}, "`romancy why blocked` shows the evidence"),
        ({"type": "CompensationFailed"}, "undos failed"),
        ({"type": "CodecError", "missing": "k2"}, "add the missing key"),
        ({"type": "CodecError"}, "restore the value"),
    ],
)
def test_blocked_instances_of_other_kinds(
    doctor, database: Path, monkeypatch: pytest.MonkeyPatch, error: dict[str, str], way: str
) -> None:
    listed = App.list_instances

    async def changed(self: App, **which: Any) -> Any:
        page = await listed(self, **which)
        return replace(page, items=[replace(item, error={"message": "", **error}) for item in page.items])

    monkeypatch.setattr(App, "list_instances", changed)
    assert way in one(doctor(), "instances")


def test_overdue_timers(doctor, database: Path, served: Callable[..., Live]) -> None:
    change(database, "UPDATE romancy_waits SET due_at = 1700000000000000 WHERE instance = 'asleep'")
    change(database, "UPDATE romancy_attempts SET next_due = 4000000000000000 WHERE next_due IS NOT NULL")
    said = one(doctor(), "timers")
    assert "1 overdue, first the timer of asleep, which was due" in said
    assert said.endswith("start a worker")
    served(workflows=[prints])
    assert "`romancy why asleep`" in one(doctor(), "timers")


def test_a_queue_that_stands_still(doctor, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fill() -> None:
        async with App("romancy.db", workflows=[prints]) as app:
            await (await app.start_workflow(prints)).result()
            await app.start_workflow(prints.options(instance_id="late"))  # its turn is in an hour

    asyncio.run(fill())
    assert "1 queue moving or empty" in one(doctor(), "queues", "ok")
    monkeypatch.setattr("romancy.cli.state_checks.STILL", timedelta(0))
    said = one(doctor(), "queues", "warning")
    assert "queue 'printer' stands still: 1 waiting" in said
    assert "`romancy why late` says what holds it" in said


class Refuses:
    """A sink that refuses everything."""

    name, types = "crm", "order.*"

    def __init__(self, give_up_after: float) -> None:
        self.give_up_after = give_up_after

    async def deliver(self, event: ReceivedEvent[Any]) -> None:
        raise ConnectionError("nobody home")


@pytest.mark.parametrize(
    ("give_up_after", "level", "said"),
    [
        (0, "problem", "sink 'crm' gave up 1 event; see `romancy sinks dead crm`"),
        (100, "warning", "sink 'crm' fails, 1 event parked: "),
    ],
)
def test_a_sink_that_fails(doctor, folder: Path, give_up_after: float, level: str, said: str) -> None:
    async def fill() -> None:
        async with App("romancy.db", sinks=[Refuses(give_up_after)]) as app:
            await app.send_event("order.paid", "shop")
            while not [s for s in await app.list_sinks() if s.dead or s.parked]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    asyncio.run(fill())
    found = doctor(code=1 if level == "problem" else 0)
    told = [f"{f['level']} {f['says']}; {f['advice']}" for f in found if f["check"] == "sinks"]
    assert [line for line in told if line.startswith(f"{level} {said}")]
    assert [line for line in told if line.startswith("warning no live worker runs sink 'crm'")]


async def test_refused_arrivals() -> None:
    class Verbs:
        async def list_inbox(self, limit: int) -> Page[InboxRecord]:
            given = InboxRecord(7, "start", NOW, "a", "pay", None, None, None, "it already exists")
            return Page([replace(given, number=6, refused=None), given], None)

    verbs: Any = Verbs()
    [found] = await check_inbox(verbs)
    assert found.says == "1 refused, such as number 7 (it already exists)"


# --- a server ---------------------------------------------------------------------------------------------------------
def test_a_server(doctor, served: Callable[..., Live]) -> None:
    live = served()
    found = doctor("--url", live.url)
    assert "answers" in one(found, "server", "ok")
    assert "1 alive" in one(found, "workers", "ok")
    assert "workflow 'turns' blocked" in one(found, "instances")


def test_a_server_that_refuses_or_is_not_there(doctor, served: Callable[..., Live]) -> None:
    live = served(tokens=["secret"])
    assert "ROMANCY_TOKEN" in one(doctor("--url", live.url), "server")
    live.stop()
    assert "check the URL" in one(doctor("--url", live.url), "server")


# --- PostgreSQL -------------------------------------------------------------------------------------------------------
def test_a_schema_that_is_not_there_is_not_created(doctor, schema: str) -> None:
    words = ("-d", pg_server.url(), "--schema", schema)
    for _ in range(2):
        said = one(doctor(*words), "schema")
        assert f"schema {schema!r} holds no Romancy tables" in said
        assert f"--schema {schema}` creates them" in said


def test_a_postgres_database_that_is_fine(doctor, romancy, schema: str) -> None:
    words = ("-d", pg_server.url(), "--schema", schema)
    romancy("migrate", *words)
    found = {f["check"]: f["level"] for f in doctor(*words, code=0)}
    assert found.pop("workers") == "warning"
    assert found == dict.fromkeys("romancy server privileges clock schema connections instances timers".split(), "ok")


def test_a_postgres_server_that_does_not_answer(doctor) -> None:
    assert "can't be opened" in one(doctor("-d", "postgresql://nobody@127.0.0.1:1/x"), "server")


def test_an_old_postgres_schema_is_not_upgraded(doctor, romancy, schema: str) -> None:
    words = ("-d", pg_server.url(), "--schema", schema)
    romancy("migrate", *words)
    asyncio.run(execute(f"UPDATE {schema}.schema_info SET version = 12"))
    assert "has version 12" in one(doctor(*words, code=0), "schema", "warning")
    assert "out of date: version 12" in romancy("migrate", "--check", *words, code=1).stdout


def test_a_postgres_schema_of_a_newer_library(doctor, romancy, schema: str) -> None:
    words = ("-d", pg_server.url(), "--schema", schema)
    romancy("migrate", *words)
    asyncio.run(execute(f"UPDATE {schema}.schema_info SET version = 99, min_reader = 99"))
    said = one(doctor(*words), "server")
    assert "needs a newer romancy" in said
    assert said.endswith("; upgrade the package")


@pytest.mark.parametrize(
    ("url", "shown", "why"),
    [
        ("postgres://me:secret@[bad", "postgres://***", "Invalid IPv6 URL"),
        (
            "postgres://me:secret@127.0.0.1:99999/x",
            "postgres://me:***@127.0.0.1:99999/x",
            "the port in its URL must be from 0 to 65535",
        ),
    ],
)
def test_a_url_that_leads_nowhere(doctor, romancy, refused, database: Path, url: str, shown: str, why: str) -> None:
    said = one(doctor("-d", url), "server")
    assert said.startswith(f"the database {shown} can't be opened: ")
    assert why in said
    assert "; check the URL" in said
    for words in (["list"], ["migrate"], ["start", "hello"], ["worker", "shop"]):
        assert f"the database {shown} can't be opened: {why}" in refused(*words, "-d", url, code=1)
    assert f"{shown}: {why}; nothing was copied" in romancy("copy", "romancy.db", url, code=1).stderr


def test_a_postgres_table_is_missing(doctor, romancy, schema: str) -> None:
    words = ("-d", pg_server.url(), "--schema", schema)
    romancy("migrate", *words)
    asyncio.run(execute(f"DROP TABLE {schema}.waits CASCADE"))
    found = doctor(*words)
    assert "server" in {f["check"] for f in found}
    assert f'relation "{schema}.waits" does not exist' in one(found, "database")


def test_a_dump_of_another_server(doctor, romancy, schema: str) -> None:
    words = ("-d", pg_server.url(), "--schema", schema)
    romancy("migrate", *words)
    romancy("send", "go", *words)
    assert "order" not in {f["check"] for f in doctor(*words, code=0)}
    asyncio.run(execute(f"UPDATE {schema}.events SET xid = (xid::text::bigint + 999999)::text::xid8"))
    said = one(doctor(*words), "order")
    assert re.search(r"comes from another server, whose transaction numbers were 999,\d{3} ahead", said)
    assert "order" in {f["check"] for f in doctor(*words)}, "it has changed nothing"
    romancy("list", *words)
    assert "order" not in {f["check"] for f in doctor(*words, code=0)}


def test_a_server_with_another_clock(doctor, romancy, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(SystemClock):
        def now(self) -> int:
            return super().now() - 600 * SECOND

    words = ("-d", pg_server.url(), "--schema", schema)
    romancy("migrate", *words)
    monkeypatch.setattr("romancy.storage.tools.server_state.SystemClock", Slow)
    said = one(doctor(*words, code=0), "clock", "warning")
    assert re.search(r"the server's clock is (10 min|9 min 59 s) ahead of this machine's", said)


def test_a_user_with_too_few_privileges_and_connections(doctor, romancy, schema: str) -> None:
    if "postgres@" not in pg_server.url():
        pytest.skip("this server wants passwords")
    romancy("migrate", "-d", pg_server.url(), "--schema", schema)
    role = f"{schema}_reader"
    url = pg_server.url().replace("postgres@", f"{role}@")
    asyncio.run(execute(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 5; GRANT USAGE ON SCHEMA {schema} TO {role}"))
    try:
        assert "permission denied" in one(doctor("-d", url, "--schema", schema), "server")
        asyncio.run(execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"))
        said = one(doctor("-d", url, "--schema", schema), "privileges")
        assert "this user lacks " in said
        assert "INSERT on " in said
        asyncio.run(execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}"))
        assert "USAGE on " in one(doctor("-d", url, "--schema", schema), "privileges")
        asyncio.run(execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"))
        found = doctor("-d", url, "--schema", schema, code=0)
        assert "the user allows 5: another worker may need 6" in one(found, "connections", "warning")
    finally:
        asyncio.run(execute(f"DROP OWNED BY {role}; DROP ROLE {role}"))


def test_more_workers_than_connections() -> None:
    [found] = check_connections(Place([], True, [("server", 97, 40)]), 20, 6)
    assert (found.level, found.says) == ("problem", "20 live workers may use 120 connections, but the server allows 97")
    assert "max_connections" in found.advice
    [found] = check_connections(Place([], True, [("server", 97, 40)]), 5, 6)
    assert found.level == "ok"
    assert check_connections(Place([], True), 5, 6) == []  # a file


async def execute(statement: str) -> None:
    connection = await asyncpg.connect(pg_server.url())
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
