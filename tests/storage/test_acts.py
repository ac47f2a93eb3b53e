"""Conformance: who did what is stored with what was done, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from romancy.core.model import SECOND
from romancy.core.questions import ANSWERED
from romancy.core.queues import Place
from romancy.core.retrial import RetryAsk
from romancy.storage.batch import CANCEL, Accept, Request, Start
from romancy.storage.forks import Fork
from romancy.storage.sql import prefixed
from tests.storage.conftest import Database

HEAD = RetryAsk().head


async def acts(db: Database, id: str) -> list[tuple[str, str]]:
    return [(act.verb, act.who) for act in await db.storage.acts.of(id)]


def start(db: Database, id: str, who: str | None = "alice", **fields: Any) -> Start:
    return Start(id, "wf", b"{}", 0, db.now, who=who, **fields)


def cancel(db: Database, id: str, who: str | None = "bob", at: int | None = None) -> Request:
    return Request(id, CANCEL, b"", db.now if at is None else at, who)


def answer(db: Database, to: str, id: str = "1", origin: str | None = "api ann") -> Accept:
    return db.event(ANSWERED, {}, id=id, target=to, origin=origin)


async def end(db: Database, id: str, status: str = "failed") -> None:
    await db.step(id, "me", await db.version(id), status=status, release=status == "blocked")


async def test_a_start_is_recorded_once(db: Database) -> None:
    queued = start(db, "q", place=Place("line", "", 0))
    batch = db.batch("me", starts=[start(db, "a", mine=True), start(db, "a", "carl"), start(db, "n", None), queued])
    assert [one.created for one in (await db.submit(batch)).starts] == [True, False, True, True]
    await db.submit(batch)  # its answer was lost
    await db.commit(starts=[start(db, "a", "dora")])
    assert [await acts(db, id) for id in ("a", "n", "q")] == [[("start", "alice")], [], [("start", "alice")]]
    assert [act.at for act in await db.storage.acts.of("a")] == [db.now]


async def test_a_cancellation_is_recorded_if_it_does_something(db: Database) -> None:
    for id in ("run", "ended", "unnamed"):
        await db.start(id, "me")
    await db.start("new")
    await end(db, "ended")
    wanted = [cancel(db, id) for id in ("run", "new", "ended", "none")] + [cancel(db, "unnamed", None)]
    batch = db.batch(requests=wanted)
    assert [one.took for one in (await db.submit(batch)).requests] == [True, True, False, False, True]
    ids = ("run", "new", "ended", "none", "unnamed")
    assert [await acts(db, id) for id in ids] == [[("cancel", "bob")], [("cancel", "bob")], [], [], []]


async def test_resumed_reopened_and_forked(db: Database) -> None:
    for id, status in (("b", "blocked"), ("c", "blocked"), ("f", "failed"), ("ok", "completed")):
        await db.start(id, "me")
        await end(db, id, status)
    assert await db.storage.resume("b", "alice") == "blocked"
    assert await db.storage.resume("b", "late") != "blocked"
    assert await db.storage.resume_all(["c", "f"], "bob") == {"c"}
    assert await db.storage.reopen(["f", "ok"], db.now, HEAD, "carl") == {"f"}
    assert await db.storage.fork(Fork("f", "copy", db.now, b"1", generation=0, who="dora"))
    assert not await db.storage.fork(Fork("f", "copy", db.now, b"2", generation=0, who="late"))
    assert await acts(db, "b") == [("resume", "alice")]
    assert await acts(db, "c") == [("resume", "bob")]
    assert await acts(db, "f") == [("retry", "carl")]
    assert await acts(db, "copy") == [("fork", "dora")]
    assert await acts(db, "ok") == []


async def test_an_answer_is_recorded_if_it_counts(db: Database) -> None:
    await db.start("a", "me")
    batch = db.batch(
        accepts=[answer(db, "a"), answer(db, "a", "2", None), db.event(id="3", target="a", origin="http x")]
    )
    await db.submit(batch)
    await db.submit(batch)
    await db.commit(accepts=[answer(db, "a", origin="api late")])
    assert await acts(db, "a") == [("answer", "ann")]


async def test_of_twins_in_a_batch_the_first_answer_is_recorded(db: Database) -> None:
    await db.start("a", "me")
    twins = [answer(db, "a", "1"), answer(db, "a", "1", "api late"), answer(db, "a", "2", None), answer(db, "a", "2")]
    assert [one.duplicate for one in (await db.commit(accepts=twins)).accepts] == [False, True, False, True]
    assert await acts(db, "a") == [("answer", "ann")]


async def test_they_are_removed_with_their_instance(db: Database) -> None:
    await db.commit("me", starts=[start(db, "a", mine=True), start(db, "b", mine=True)])
    await end(db, "a", "completed")
    db.clock.turn_to(db.now + 10 * SECOND)
    assert await db.storage.prune(db.now, 0, 100) == 1
    assert await db.rows("SELECT instance, verb, who FROM romancy.acts") == [("b", "start", "alice")]


async def test_those_of_an_earlier_instance_are_not_shown(db: Database) -> None:
    """A library that does not know the table leaves them behind."""
    await write(db, f"INSERT INTO romancy.acts (instance, at, verb, who) VALUES ('a', {db.now - 1}, 'start', 'old')")
    await db.commit(starts=[start(db, "a")])
    assert await acts(db, "a") == [("start", "alice")]


async def test_a_clock_that_is_behind_hides_nothing(db: Database) -> None:
    ahead = start(db, "a")
    ahead.created_at = db.now + SECOND
    await db.commit(starts=[ahead])
    await db.commit(accepts=[answer(db, "a")])
    await db.commit(requests=[cancel(db, "a")])
    assert await acts(db, "a") == [("start", "alice"), ("answer", "ann"), ("cancel", "bob")]


async def test_act_and_deed_are_one_transaction(db: Database) -> None:
    """If the act can't be stored, the deed is not stored either. Without a name, the table is not touched."""
    for id, status in (("b", "blocked"), ("f", "failed")):
        await db.start(id, "me")
        await end(db, id, status)
    await db.start("run", "me")
    await broken(db)
    for deed in (
        lambda: db.commit(starts=[start(db, "a")]),
        lambda: db.commit(requests=[cancel(db, "run")]),
        lambda: db.commit(accepts=[answer(db, "run")]),
        lambda: db.storage.resume("b", "alice"),
        lambda: db.storage.reopen(["f"], db.now, HEAD, "alice"),
        lambda: db.storage.fork(Fork("f", "copy", db.now, b"1", generation=0, who="alice")),
    ):
        with pytest.raises(Exception, match=r"acts_fail|constraint"):
            await deed()
    assert await db.storage.existing(["a", "copy"]) == set()
    assert await db.rows("SELECT count(*) FROM romancy.requests") == [(0,)]
    assert await db.rows("SELECT count(*) FROM romancy.events") == [(0,)]
    for id, status in (("b", "blocked"), ("f", "failed"), ("run", "running")):
        row = await db.storage.catalog.instance(id)
        assert row is not None
        assert row.status == status
    await db.commit(starts=[start(db, "a", None)], requests=[cancel(db, "run", None)])
    assert await db.storage.existing(["a"]) == {"a"}


async def broken(db: Database) -> None:
    """Let every insert of an act fail."""
    if hasattr(db.storage, "schema"):
        await write(db, "ALTER TABLE romancy.acts ADD CONSTRAINT acts_fail CHECK (who = '')")
    else:
        fails = "BEGIN SELECT RAISE(ABORT, 'acts_fail'); END"
        await write(db, f"CREATE TRIGGER acts_fail BEFORE INSERT ON romancy.acts {fails}")


async def write(db: Database, statement: str) -> None:
    storage: Any = db.storage
    if hasattr(storage, "schema"):
        await db.rows(statement)
    else:
        await storage._write(lambda c: c.execute(prefixed(statement)).fetchall())
