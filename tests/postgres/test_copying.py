"""A SQLite database moves to PostgreSQL in the middle of everything, and all goes on there as it would have here.

The plays of the crash tests, between them every primitive there is, are begun on a file, moved, and ended.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
import pytest

from romancy import App, StorageError, WorkerOptions, WorkflowContext, wait_event, workflow
from romancy import Database as Where
from romancy.core.filters import Filter
from romancy.core.model import FOREVER_US
from romancy.storage.attempts import Attempt, Suspicion, Trial
from romancy.storage.batch import CANCEL, Misfit, Request
from romancy.storage.postgres import PostgresStorage
from romancy.storage.rows import MAX_SHAPES
from romancy.storage.sql import prefixed
from romancy.storage.sqlite import SQLiteStorage
from romancy.storage.tools.copy import copy
from romancy.storage.tools.copy.order import Order
from romancy.testing import Environment, ManualClock
from tests import pg_server
from tests.crash.faults import Fault, MortalStorage
from tests.crash.scenarios import SCENARIOS, Scenario
from tests.crash.stage import BEGINNING, RETRY, PatientEnvironment, Stage
from tests.former.conftest import FORMER
from tests.helpers import unqualified
from tests.postgres.conftest import Place
from tests.storage.conftest import Database

T = TypeVar("T")
MOVABLE = [s for s in SCENARIOS if s.movable]
every = pytest.mark.parametrize(
    "scenario",
    [*MOVABLE[:5], *(pytest.param(s, marks=pytest.mark.play) for s in MOVABLE[5:])],
    ids=lambda s: s.name,
)


# --- plays ------------------------------------------------------------------------------------------------------------
class Journey(Stage):
    """A play that begins on a file and moves on, before a step or when the process dies in one."""

    def __init__(
        self, env: Environment, storage: MortalStorage, file: Path, place: Place, leave_at: int | None
    ) -> None:
        super().__init__(env, storage)
        self._file, self._place, self._leave_at = file, place, leave_at
        self.steps, self.has_moved = 0, False

    async def read(self, query: str) -> list[tuple[Any, ...]]:
        if self.has_moved:
            return [tuple(row) for row in await (await self._place.raw()).fetch(unqualified(query))]
        with closing(sqlite3.connect(self._file)) as connection:
            return connection.execute(prefixed(query)).fetchall()

    async def _play(self, step: Callable[[], Awaitable[T]]) -> T:
        self.steps += 1
        async with asyncio.timeout(20):
            if self.steps == self._leave_at:
                await self.env.app.stop()
                await self._move()
            while True:
                playing = asyncio.ensure_future(step())
                if await self._survived(playing):
                    return playing.result()
                await self.env.app._runtime.crash()
                await self._move()

    async def _move(self) -> None:
        await self.storage.inner.close()
        await copy(str(self._file), self._place.url, schema=self._place.schema, clock=self.env.clock)
        self.has_moved = True
        there = PostgresStorage(self._place.url, schema=self._place.schema, clock=self.env.clock, durability="normal")
        await there.open()
        self.storage = self.env.app._runtime.storage = MortalStorage(there, ())
        await self.env.app.start()
        self.env.app._runtime.engine.kick()
        await self.env.settle()


@asynccontextmanager
async def journey(
    scenario: Scenario, folder: Path, *faults: Fault, leave_at: int | None = None
) -> AsyncGenerator[Journey, None]:
    clock, file = ManualClock(BEGINNING), folder / f"{os.urandom(4).hex()}.db"
    here = SQLiteStorage(str(file), durability="normal", clock=clock)
    await here.open()
    app = App(str(file), workflows=scenario.workflows, worker=WorkerOptions(grace=0.1), retry=RETRY)
    app._runtime.clock, app._runtime.timer_window = clock, FOREVER_US
    storage = app._runtime.storage = MortalStorage(here, faults)
    async with pg_server.schema() as schema:
        place = Place(schema, pg_server.url())
        play = Journey(PatientEnvironment(app, clock), storage, file, place, leave_at)
        try:
            await app.start()
            yield play
        finally:
            await app._runtime.crash()
            await play.storage.inner.close()
            await place.close()


async def play(scenario: Scenario, folder: Path, *faults: Fault, leave_at: int | None = None) -> tuple[Journey, Any]:
    async with journey(scenario, folder, *faults, leave_at=leave_at) as it:
        await scenario.script(it)
        return it, _told_apart(scenario, scenario.normal(await it.outcome()))


def _told_apart(scenario: Scenario, outcome: dict[str, Any]) -> dict[str, Any]:
    """Which of several waits of one instance takes an event that all of them may take is each database's own affair."""
    if scenario.name != "waits_that_are_alike":
        return outcome
    return {
        **outcome,
        "history": [(instance, kind, at, payload) for instance, kind, _, at, payload in outcome["history"]],
        "consumed": [entry[:3] for entry in outcome["consumed"]],
    }


@every
async def test_a_play_that_moves_half_way_ends_as_if_it_had_stayed(scenario: Scenario, tmp_path: Path) -> None:
    stayed, expected = await play(scenario, tmp_path)
    for step in range(2, stayed.steps + 1) if THOROUGH else [max(2, stayed.steps // 2 + 1)]:
        moved, outcome = await play(scenario, tmp_path, leave_at=step)
        assert moved.has_moved == (step <= stayed.steps)
        for part, value in expected.items():
            assert outcome[part] == value, f"{part} differs after moving before step {step}"


@pytest.mark.parametrize("when", ["before", "after"])
@every
async def test_a_play_whose_worker_is_killed_and_that_moves_then_ends_the_same(
    scenario: Scenario, when: Any, tmp_path: Path
) -> None:
    never = Fault(10**9, "before")
    _, expected = await play(scenario, tmp_path, never)
    for k in range(2, never.seen + 1) if THOROUGH else [never.seen // 2 + 1]:
        fault = Fault(k, when)
        moved, outcome = await play(scenario, tmp_path, fault)
        if k > never.seen // 2 + 1 and not fault.struck:
            break  # threads may make for a commit more or less
        assert moved.has_moved, "nobody died"
        for part, value in expected.items():
            assert outcome[part] == value, f"{part} differs after dying {when} commit {k} and moving"


THOROUGH = bool(os.environ.get("ROMANCY_TEST_THOROUGH"))


# --- the order of events ----------------------------------------------------------------------------------------------
class Here:
    """A file to fill, and what it becomes."""

    def __init__(self, folder: Path, place: Place) -> None:
        self.file, self._place = folder / "romancy.db", place
        self.db = Database(SQLiteStorage(str(self.file), durability="normal", clock=place.clock), place.clock)

    async def move(self, **options: Any) -> dict[str, int]:
        await self.db.storage.close()
        return await copy(
            str(self.file), self._place.url, schema=self._place.schema, clock=self._place.clock, **options
        )

    async def there(self) -> Database:
        """Moved, with a worker that owns everything."""
        await self.move()
        db = await self._place.worker("heir")
        await (await self._place.raw()).execute("UPDATE instances SET owner = 'heir', version = 100 WHERE status < 9")
        return db


@pytest.fixture
async def here(tmp_path: Path, place: Place) -> AsyncGenerator[Here, None]:
    here = Here(tmp_path, place)
    await here.db.storage.open()
    await here.db.register("me")
    yield here
    await here.db.storage.close()


def test_every_beginning_is_exact_whatever_the_cuts() -> None:
    for cuts in ([], [0], [3], [0, 3, 4, 9], [2, 5, 7]):
        order = Order(cuts, 1000)
        assert [order.xid(n) for n in range(1, 12)] == sorted(order.xid(n) for n in range(1, 12))
        assert order.xid(11) <= 1000
        for since in range(11):
            begins = order.after(since)
            taken = [
                n
                for n in range(1, 12)
                if order.xid(n) >= begins.born[1] and not (order.xid(n) == begins.xid and n <= (begins.seq or 0))
            ]
            assert taken == list(range(since + 1, 12)), (cuts, since)
        for cut in cuts:
            assert order.after(cut).xid is None, "a wait has no more than a snapshot"


async def test_instances_and_waits_take_exactly_what_they_would_have_taken(here: Here) -> None:
    """Five beginnings: before, between and after events; and "now", and a time before the instance was there."""
    db, now = here.db, here.db.now
    seqs: list[int] = []
    for n in range(6):
        await db.waiting(f"i{n}", "me")
        await db.start(f"late{n}", "me")
        await db.step(f"late{n}", "me", 0, opened=[db.wait("n", since="now"), db.wait("t", since=now + 2)])
        db.clock.turn_to(now + n)
        seqs.append((await db.send(accepted_at=db.now)).seq)
    stayed = {id: dict(await db.look(id, "me")) for n in range(6) for id in (f"i{n}", f"late{n}")}
    assert [stayed[f"i{n}"]["w"] for n in range(6)] == [stayed[f"late{n}"]["n"] for n in range(6)] == seqs
    assert [stayed[f"late{n}"]["t"] for n in (3, 4, 5)] == [seqs[2]] * 3
    moved = await here.there()
    assert {id: dict(await moved.look(id, "heir")) for id in stayed} == stayed
    after = (await moved.send()).seq
    assert after > seqs[-1]
    for n in range(6):
        for k, seq in enumerate([*seqs[n:], after]):
            await moved.take(f"i{n}", "heir", 100 + 2 * k, seq, moved.wait())
            await moved.step(f"i{n}", "heir", 101 + 2 * k, opened=[moved.wait()])
        assert await moved.look(f"i{n}", "heir") == []


async def test_beginnings_within_one_piece_of_the_log(here: Here) -> None:
    """No wait has a beginning of its own, so that all events get one transaction number."""
    db = here.db
    seqs: list[int] = []
    for n in range(6):
        await db.waiting(f"i{n}", "me", db.wait("all"), db.wait("some", filter=Filter.build(where={"n": 1})))
        seqs += [(await db.send(data={"n": k})).seq for k in range(2)]
    moved = await here.there()
    for n in range(6):
        assert dict(await moved.look(f"i{n}", "heir")) == {"all": seqs[2 * n], "some": seqs[2 * n + 1]}
    await moved.waiting("new", "heir")
    assert await moved.look("new", "heir") == []
    assert len((await moved.send()).matched) == 7


async def test_a_new_server_has_enough_transaction_numbers_too(here: Here, place: Place) -> None:
    """Each beginning takes one, below those of all that comes later: the copy uses them up itself."""
    db = here.db
    await db.start("a", "me")
    for n in range(50):
        await db.step("a", "me", n, opened=[db.wait(f"w{n}", since="now")])
        await db.send()
    raw = await place.raw()
    before = await raw.fetchval("SELECT pg_current_xact_id()::text::bigint")
    moved = await here.there()
    [(first, last)] = await raw.fetch("SELECT min(xid::text::bigint), max(xid::text::bigint) FROM events")
    assert before < first < last < await raw.fetchval("SELECT pg_current_xact_id()::text::bigint")
    assert dict(await moved.look("a", "heir")) == {f"w{n}": n + 1 for n in range(50)}


async def test_what_was_consumed_is_not_consumed_again_and_what_was_not_is_still_there(here: Here) -> None:
    """Marks, and events passed over by a filter."""
    db = here.db
    seven, eight = Filter.build(where={"n": 7}), Filter.build(where={"n": 8})
    wait7, wait8 = db.wait("w7", filter=seven), db.wait("w8", filter=eight)
    await db.waiting("a", "me", wait7)
    first = (await db.send(data={"n": 8})).seq
    second = (await db.send(data={"n": 7})).seq
    third = (await db.send(data={"n": 7})).seq
    await db.take("a", "me", 1, second, wait7, opened=[db.wait("again", filter=seven), wait8, db.wait("any")])
    moved = await here.there()
    assert dict(await moved.look("a", "heir")) == {"again": third, "w8": first, "any": first}
    await moved.take("a", "heir", 100, first, wait8)
    assert dict(await moved.look("a", "heir")) == {"again": third, "any": third}
    fourth = (await moved.send(data={"n": 7})).seq
    await moved.take("a", "heir", 101, third, moved.wait("again", filter=seven))
    assert dict(await moved.look("a", "heir")) == {"any": fourth}


async def test_filters_beyond_the_indexed_ones_still_match(here: Here) -> None:
    db = here.db
    waits = [db.wait(f"w{n}", filter=Filter.build(where={f"f{n}": 1})) for n in range(MAX_SHAPES + 2)]
    await db.waiting("a", "me", *waits)
    moved = await here.there()
    last = MAX_SHAPES + 1
    assert len((await moved.send(data={f"f{last}": 2})).matched) == 0
    answer = await moved.send(data={f"f{last}": 1})
    assert [m.op for m in answer.matched] == [f"w{last}"]
    assert await moved.look("a", "heir", f"w{last}") == [(f"w{last}", answer.seq)]
    assert [m.op for m in (await moved.send(data={"f3": 1})).matched] == ["w3"]


async def test_the_first_readers_find_everything_tidy(here: Here, place: Place) -> None:
    for n in range(20):
        await here.db.start(f"i{n}", "me")
    await here.there()
    pages = "SELECT relallvisible FROM pg_class WHERE oid = 'instances'::regclass"
    assert await (await place.raw()).fetchval(pages) > 0


async def test_everything_else_arrives_as_it_was(here: Here, place: Place) -> None:
    db = here.db
    await db.storage.announce([("placed", "other", 5), ("paid", "other", 5)], ["other"])
    await db.storage.announce([("placed", "other", 5)], ["other"])
    await db.start("a", "me")
    attempt = Attempt("x:1", 2, 5, 77, b"error", b"progress", 1, True)
    suspect = Attempt("y:1", 0, 5, crashes=2, suspicion=Suspicion(6, 50, 40, 1, 30, True), culprit="y")
    trial = Trial("y", db.now, 3, 10, 1)
    await db.register("dead")
    await db.storage.take_over("me", ["dead"])
    misfit = Misfit("w", "M", 1, "no \0 fit")
    await db.step(
        "a",
        "me",
        0,
        opened=[db.wait("w", "go", due=99)],
        attempts=[attempt, suspect],
        trials=[trial],
        misfits=[misfit],
        description="a\0b",
    )
    mortality = await db.storage.mortality()
    assert len(mortality.deaths) == len(mortality.tallies) == 1
    await db.commit(requests=[Request("a", CANCEL, b"why", db.now)])
    await db.send(id="e", subject="S", time=5, target="a", expires_at=db.now + 10)
    assert (await db.send("other", id="e")).differs
    moved = await here.there()
    snapshot = await moved.storage.load("a")
    assert snapshot is not None
    assert snapshot.attempts == [attempt, suspect]
    assert await moved.storage.mortality() == mortality
    assert snapshot.waits == {"w": 99}
    assert [(request.kind, request.payload) for request in snapshot.requests] == [(CANCEL, b"why")]
    assert snapshot.deliveries == [1]
    assert snapshot.row.description == "a␀b"
    assert await moved.storage.catalog.misfits("a") == [(1, "w", "no ␀ fit")]
    [stored] = await moved.storage.catalog.events()
    assert (stored.event.subject, stored.event.time, stored.event.target) == ("S", 5, "a")
    assert stored.event.expires_at == moved.now + 10
    assert stored.differed_at == moved.now
    await moved.storage.propose([("paid", "other", 5), ("moved", "other", 5)])
    assert await moved.storage.catalog.triggers(["placed", "paid", "moved"]) == {
        "placed": ["other"],
        "paid": [],
        "moved": ["other"],
    }
    found = await (await place.raw()).fetch("SELECT timeout FROM triggers WHERE type = 'placed'")
    assert [row["timeout"] for row in found] == [5]
    # Numbers go on where they were.
    assert (await moved.commit(requests=[Request("a", CANCEL, b"", moved.now)])).requests[0].id == 2
    assert (await moved.send()).seq == 3, "the one that was dropped had drawn a number"
    await moved.step("a", "heir", 100, opened=[moved.wait("f", filter=Filter.build(where={"n": 7}))])


async def test_what_a_killed_worker_ran_counts_as_a_death(here: Here, place: Place) -> None:
    await here.db.start("a", "me")
    await here.move()
    db = await place.worker("heir")
    [claimed] = await db.storage.claim("heir", ["wf"], 10, 0)
    assert (claimed.id, claimed.crashed) == ("a", True)


async def test_what_a_stopped_worker_ran_does_not(here: Here, place: Place) -> None:
    await here.db.start("a", "me")
    await here.db.storage.release("me")
    await here.move()
    db = await place.worker("heir")
    [claimed] = await db.storage.claim("heir", ["wf"], 10, 0)
    assert (claimed.id, claimed.crashed) == ("a", False)


# --- refusals ---------------------------------------------------------------------------------------------------------
@workflow
async def waits(ctx: WorkflowContext) -> str:
    return (await wait_event(ctx, "go")).id


@pytest.mark.parametrize("worker", [True, False])
async def test_a_file_in_use_is_refused(tmp_path: Path, place: Place, worker: bool) -> None:
    file = str(tmp_path / "romancy.db")
    async with App(file, workflows=[waits], worker=worker):
        with pytest.raises(StorageError, match=r"in use.*stop every process"):
            await copy(file, place.url, schema=place.schema)
    assert await tables(place) == []
    assert (await copy(file, place.url, schema=place.schema))["instances"] == 0


@pytest.mark.parametrize("script", ["CREATE TABLE workers (name)", FORMER.read_text()], ids=["other", "former"])
async def test_so_is_one_that_others_use(tmp_path: Path, place: Place, script: str) -> None:
    """Without our table of workers, there is nobody to name."""
    file = tmp_path / "romancy.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.executescript(script)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match=r"romancy\.db' is in use; stop every process"):
            await copy(str(file), place.url, schema=place.schema)
        other.execute("ROLLBACK")


async def test_tables_of_the_users_own_stay_behind(here: Here, place: Place) -> None:
    await here.db.waiting("a", "me")
    await here.db.storage.close()
    with closing(sqlite3.connect(here.file)) as connection:
        connection.executescript("CREATE TABLE instances (mine); INSERT INTO instances VALUES (1), (2)")
    assert (await here.move())["instances"] == 1
    with closing(sqlite3.connect(here.file)) as connection:
        assert connection.execute("SELECT * FROM instances").fetchall() == [(1,), (2,)]


async def test_what_callers_left_is_moved_on_there(tmp_path: Path, place: Place) -> None:
    """With the events that were accepted since, and none from before."""
    file = str(tmp_path / "shop.db")

    @workflow
    async def listener(ctx: WorkflowContext) -> Any:
        return (await wait_event(ctx, "go")).data

    async with App(file, worker=False) as app, aiosqlite.connect(file) as connection:
        await app.send_event("go", "here", "too early")
        await app.send_event("other", "here")
        tx = app.within(connection)
        await tx.start_workflow("listener", instance_id="new")
        await tx.send_event("last", "here", id="left")
        await connection.commit()
        await app.send_event("go", "here", "since")
    assert (await copy(file, place.url, schema=place.schema))["inbox"] == 2
    async with App(Where(place.url, schema=place.schema), workflows=[listener]) as app:
        assert await app.handle("new", listener).result(timeout=10) == "since"
        assert "left" in [record.event.id for record in (await app.list_events()).items]


async def test_a_file_of_a_former_version_is_brought_up_to_date_first(tmp_path: Path, place: Place) -> None:
    file = tmp_path / "romancy.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(FORMER.read_text())
        (count,) = connection.execute("SELECT count(*) FROM instances").fetchone()
    assert (await copy(str(file), place.url, schema=place.schema))["instances"] == count


async def tables(place: Place) -> list[str]:
    query = "SELECT tablename FROM pg_tables WHERE schemaname = $1"
    return [name for (name,) in await (await place.raw()).fetch(query, place.schema)]


async def test_nobody_can_open_the_file_meanwhile(here: Here) -> None:
    await here.db.start("a", "me")
    seen: list[str] = []

    def told(table: str, copied: int, total: int) -> None:
        try:
            with closing(sqlite3.connect(here.file, timeout=0)) as connection:
                connection.execute("SELECT * FROM romancy_instances").fetchall()
        except sqlite3.OperationalError as error:
            seen.append(str(error))

    await here.move(told=told)
    assert set(seen) == {"database is locked"}


@pytest.mark.parametrize("filled", ["instances", "workers", "events"])
async def test_a_schema_with_something_in_it_is_refused_and_left_alone(here: Here, place: Place, filled: str) -> None:
    db = Database(await place.storage(), place.clock)
    if filled == "instances":
        await db.start("theirs")
    elif filled == "workers":
        await db.register("somebody")
    else:
        await db.send(id="theirs")
    await here.db.start("a", "me")
    with pytest.raises(StorageError, match=rf"{place.schema}.*not empty.*in {filled}.*nothing was copied"):
        await here.move()
    raw = await place.raw()
    assert await raw.fetchval(f"SELECT count(*) FROM {filled}") == 1
    assert await raw.fetchval("SELECT count(*) FROM instances WHERE id = 'a'") == 0


async def test_an_empty_schema_that_is_there_already_will_do(here: Here, place: Place) -> None:
    await (await place.storage()).close()
    await here.db.start("a", "me")
    assert (await here.move())["instances"] == 1


async def test_all_or_nothing(here: Here, place: Place) -> None:
    """A value PostgreSQL does not take is met after most of it was sent."""
    await here.db.waiting("a", "me")
    await here.db.storage.close()
    with closing(sqlite3.connect(here.file)) as connection:
        connection.execute("UPDATE romancy_waits SET location = 'x' || char(0)")
        connection.commit()
    with pytest.raises(StorageError, match=r"NUL.*nothing was copied"):
        await copy(str(here.file), place.url, schema=place.schema)
    assert await tables(place) == []


async def test_rows_that_do_not_arrive_are_noticed(here: Here, place: Place) -> None:
    await (await place.storage()).close()
    raw = await place.raw()
    await raw.execute(
        f"CREATE FUNCTION \"{place.schema}\".eat() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        f'CREATE TRIGGER eats BEFORE INSERT ON waits FOR EACH ROW EXECUTE FUNCTION "{place.schema}".eat()'
    )
    await here.db.waiting("a", "me")
    with pytest.raises(StorageError, match="0 of the 1 rows of waits arrived, so nothing was copied"):
        await here.move()
    assert await raw.fetchval("SELECT count(*) FROM instances") == 0


async def test_what_is_not_there_or_not_ours(tmp_path: Path, place: Place) -> None:
    with pytest.raises(StorageError, match="there is no database at"):
        await copy(str(tmp_path / "nowhere.db"), place.url, schema=place.schema)
    (tmp_path / "text.db").write_text("not a database, but long enough to be one" * 100)
    with pytest.raises(StorageError, match="not a SQLite database"):
        await copy(str(tmp_path / "text.db"), place.url, schema=place.schema)
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE addresses (name)")
        before = list(other.iterdump())
        with pytest.raises(StorageError, match=r"other\.db' has no tables of Romancy; give the SQLite file to copy"):
            await copy(str(tmp_path / "other.db"), place.url, schema=place.schema)
        assert list(other.iterdump()) == before


async def test_a_newer_file_is_not_copied_in_part(here: Here, place: Place) -> None:
    await here.db.storage.close()
    with closing(sqlite3.connect(here.file)) as connection:
        connection.execute("UPDATE romancy_schema_info SET version = 99")
        connection.commit()
    with pytest.raises(StorageError, match=r"version 99.*upgrade the package"):
        await copy(str(here.file), place.url, schema=place.schema)


async def test_a_server_that_is_not_there(here: Here) -> None:
    await here.db.storage.close()
    with pytest.raises(StorageError, match="nothing was copied"):
        await copy(str(here.file), "postgresql://nobody@127.0.0.1:1/none")


async def test_the_file_is_left_as_it_was(here: Here) -> None:
    await here.db.waiting("a", "me")
    await here.db.send()
    await here.db.storage.close()
    before = dump(here.file)
    await here.move()
    assert dump(here.file) == before
    assert before


def dump(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as connection:
        return list(connection.iterdump())


async def test_progress_is_told(here: Here) -> None:
    for n in range(3):
        await here.db.start(f"i{n}", "me")
    told: list[tuple[str, int, int]] = []
    counts = await here.move(told=lambda *now: told.append(now))
    assert ("instances", 3, 3) in told
    assert {table: total for table, copied, total in told if copied == total} == counts
