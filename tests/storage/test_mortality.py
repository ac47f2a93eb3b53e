"""Conformance: which workers died, what is known of suspects, and who begins anew."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from romancy.core.model import SECOND
from romancy.storage import sql
from romancy.storage.attempts import Attempt, Suspicion, Trial
from romancy.storage.batch import BODY
from romancy.storage.postgres import migrations
from romancy.storage.records import DEATHS_KEPT, POOLED, Tally
from romancy.storage.sqlite import SQLiteStorage
from romancy.testing import ManualClock
from tests.storage.conftest import LEASE, Database

CALL = Attempt("x:1", 1, 5, 77, b"error", b"progress", 2, True, Suspicion(6, 500, 400, 1, 300, True), "x")
CODE = Attempt(BODY, 0, 5, crashes=1, started=True, suspicion=Suspicion(6, 50), culprit="wf (code)")


async def attempts(db: Database, instance: str = "a") -> list[Attempt]:
    snapshot = await db.storage.load(instance)
    assert snapshot is not None
    return sorted(snapshot.attempts, key=lambda attempt: attempt.op)


# --- deaths -----------------------------------------------------------------------------------------------------------
async def test_a_worker_that_died_is_remembered_with_its_life(db: Database) -> None:
    began = db.now
    await db.register("heir", "other")
    await db.start("a", "other")
    db.clock.turn_to(db.now + 5 * SECOND)
    await db.storage.take_over("heir", ["other"])
    [death] = (await db.storage.mortality()).deaths
    assert death.since == began
    assert began + 3 * SECOND < death.at <= began + 5 * SECOND
    [claimed] = await db.storage.claim("heir", ["wf"], 10, 0)
    assert claimed.crashed


async def test_one_that_let_its_lease_end_did_not_live_so_long_for_certain(db: Database) -> None:
    began = db.now
    await db.register("heir")
    db.clock.turn_to(db.now + 10 * LEASE)
    assert await db.storage.renew("heir", LEASE)
    assert await db.storage.take_over("heir") == ["me"]
    for death in (await db.storage.mortality()).deaths:  # where its lock tells that it lives there is none
        assert began <= death.at <= began + LEASE


async def test_one_that_left_did_not_die(db: Database) -> None:
    """It released what it had; or it said that it stops, and was killed before it was through."""
    await db.register("heir", "released", "leaving")
    await db.start("a", "released")
    await db.start("b", "leaving")
    await db.storage.release("released")
    await db.storage.leave("leaving")
    await db.storage.take_over("heir", ["leaving"])
    assert (await db.storage.mortality()).deaths == []
    claimed = await db.storage.claim("heir", ["wf"], 10, 0)
    assert {item.id: item.crashed for item in claimed} == {"a": False, "b": False}


async def test_deaths_and_trials_are_forgotten_in_the_end(db: Database) -> None:
    await db.register("heir", "other")
    await db.storage.take_over("heir", ["other"])
    await db.start("a", "heir")
    await db.step("a", "heir", 0, trials=[Trial("x", db.now, 1, 2, 1)], attempts_done=["x:1"])
    await db.storage.prune(0, 0, 10)
    assert len((await db.storage.mortality()).deaths) == 1
    db.clock.turn_to(db.now + DEATHS_KEPT + 1)
    await db.storage.prune(0, 0, 10)
    mortality = await db.storage.mortality()
    assert (mortality.deaths, mortality.tallies) == ([], {})


# --- suspects ---------------------------------------------------------------------------------------------------------
async def test_what_is_known_of_a_suspect_comes_back(db: Database) -> None:
    await db.start("a", "me")
    plain = Attempt("z:1", 3, 5, 99, b"e")
    await db.step("a", "me", 0, attempts=[CALL, CODE, plain])
    assert await attempts(db) == [CODE, CALL, plain]
    changed = Attempt("x:1", 2, 5, 99, b"other")
    await db.step("a", "me", 1, attempts=[changed], attempts_done=[BODY])
    assert await attempts(db) == [changed, plain], "it ended by itself: it is no suspect any more"


async def test_suspects_of_one_name_are_pooled_for_some_minutes(db: Database) -> None:
    now = db.now
    await db.start("a", "me")
    await db.start("b", "me")
    one = Attempt("x:1", 0, 5, crashes=2, suspicion=Suspicion(now - 9, 500, 400, 2), culprit="x")
    two = Attempt("x:1", 0, 5, crashes=2, suspicion=Suspicion(now - 5, 50, 40, 1), culprit="x")
    in_company = Attempt("y:1", 0, 5, crashes=2, suspicion=Suspicion(now, 50), culprit="y")
    await db.step("a", "me", 0, attempts=[one, in_company])
    await db.step("b", "me", 0, attempts=[two], trials=[Trial("x", now, now - 7, 4, 0)], attempts_done=["q:1"])
    assert (await db.storage.mortality()).tallies == {"x": Tally(now - 9, 444, 3, 1)}
    db.clock.turn_to(now + POOLED)
    assert (await db.storage.mortality()).tallies == {}


async def test_a_refused_commit_leaves_no_trial(db: Database) -> None:
    await db.start("a", "me")
    answer = await db.commit("me", commits=[_commit("a", 7, db, trials=[Trial("x", db.now, 1, 2, 1)])])
    assert answer.commits == [False]
    assert (await db.storage.mortality()).tallies == {}


def _commit(instance: str, version: int, db: Database, **fields: Any) -> Any:
    from romancy.storage.batch import Commit

    return Commit(instance, version, "running", db.now, **fields)


async def test_a_blocked_instance_that_is_resumed_begins_without_a_record(db: Database) -> None:
    plain = Attempt("z:1", 3, 5, 99, b"e")
    for id, status in (("a", "blocked"), ("b", "running")):
        await db.start(id, "me")
        await db.step(id, "me", 0, status=status, attempts=[CALL, CODE, plain], release=True)
    assert await db.storage.resume("a") == "blocked"
    assert await db.storage.resume("b") == "running"
    assert await attempts(db, "a") == [Attempt("x:1", 1, 5, None, b"error", b"progress"), plain]
    assert await attempts(db, "b") == [CODE, CALL, plain], "only what was blocked"


async def test_several_are_resumed_at_once_and_only_the_blocked_ones(db: Database) -> None:
    for id, status in (("a", "blocked"), ("b", "running"), ("c", "blocked"), ("d", "blocked")):
        await db.start(id, "me")
        await db.step(id, "me", 0, status=status, attempts=[CALL, CODE], release=True)
    assert await db.storage.resume_all(["c", "nosuch", "b", "a", "a\0"]) == {"a", "c"}
    assert await db.storage.resume_all(["c", "a"]) == set()
    assert await db.storage.resume_all([]) == set()
    found = {row.id: row.status for row in await db.storage.catalog.instances()}
    assert found == {"a": "running", "b": "running", "c": "running", "d": "blocked"}
    assert await attempts(db, "c") == [Attempt("x:1", 1, 5, None, b"error", b"progress")]
    assert await attempts(db, "d") == [CODE, CALL]


# --- an older database ------------------------------------------------------------------------------------------------
async def test_a_file_from_before_goes_on_with_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, steps = tmp_path / "romancy.db", sql.migrations("sqlite")
    clock = ManualClock()
    monkeypatch.setattr(sql, "migrations", lambda dialect: steps[:2])
    old = SQLiteStorage(str(path), clock=clock)
    await old.open()
    await old.close()
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(
            "INSERT INTO romancy_workers VALUES ('me', 'here', ?, ?)", (clock.now() + 9**12, clock.now())
        )
        connection.execute("INSERT INTO romancy_attempts VALUES ('a', 'x:1', 1, 5, 77, x'01', NULL, 2, 1)")
        connection.execute(
            "INSERT INTO romancy_instances (id, workflow, status, owner, token, birth, since, input, input_kind, "
            "created_at, updated_at) VALUES ('a', 'wf', 1, 'me', x'', x'', 0, x'7b7d', 0, 1, 1)"
        )
    connection.close()
    monkeypatch.setattr(sql, "migrations", lambda dialect: steps)
    storage = SQLiteStorage(str(path), clock=clock)
    await storage.open()
    try:
        await check_old(Database(storage, clock))
    finally:
        await storage.close()


async def test_a_schema_from_before_goes_on_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests import pg_server
    from tests.postgres.conftest import Place

    steps = sql.migrations("postgres")
    async with pg_server.schema() as schema:
        place = Place(schema, pg_server.url())
        try:
            monkeypatch.setattr(migrations, "migrations", lambda dialect: steps[:2])
            await place.storage()
            raw = await place.raw()
            now = place.clock.now()
            await raw.execute("INSERT INTO workers VALUES ('me', 'here', $1, $2, false)", now + 9**12, now)
            await raw.execute("INSERT INTO attempts VALUES ('a', 'x:1', 1, 5, 77, '\\x01', NULL, 2, true)")
            await raw.execute(
                "INSERT INTO instances (id, workflow, status, owner, token, birth, born, input, input_kind, "
                "created_at, updated_at) VALUES ('a', 'wf', 1, 'me', '', '', pg_current_snapshot(), '{}', 0, 1, 1)"
            )
            monkeypatch.setattr(migrations, "migrations", lambda dialect: steps)
            await check_old(Database(await place.storage(), place.clock))
        finally:
            await place.close()


async def check_old(db: Database) -> None:
    """A call that two workers died over, by the old way of counting, and the worker that runs it."""
    assert await attempts(db) == [Attempt("x:1", 1, 5, 77, b"\x01", None, 2, True)]
    await db.register("heir")
    await db.storage.take_over("heir", ["me"])
    [claimed] = await db.storage.claim("heir", ["wf"], 10, 0)
    assert (claimed.id, claimed.crashed) == ("a", False), (
        "the migration fences older libraries: their workers are no dead"
    )
    assert (await db.storage.mortality()).deaths == []
    await db.step("a", "heir", await db.version("a"), attempts=[CALL])
    assert await attempts(db) == [CALL]
