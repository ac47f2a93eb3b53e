"""Conformance: commits that only add to the history. The history itself is what they are compared and set against."""

from __future__ import annotations

import pytest

from romancy.core.history import Entry, Kind
from romancy.storage.batch import Commit
from romancy.storage.errors import RefusedValue
from romancy.storage.sqlite import SQLiteStorage, threads
from tests.storage.conftest import Database


def entry(n: int, payload: bytes = b"x") -> Entry:
    return Entry(n, Kind.ACTIVITY_COMPLETED, f"act:{n}", 7, b"{}", payload)


def plain(db: Database, instance: str, version: int, *entries: Entry) -> Commit:
    return Commit(instance, version, "running", db.now, same_status=True, entries=entries, append_only=True)


async def history(db: Database, id: str) -> list[Entry]:
    return await db.storage.catalog.history(id)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long this machine takes to write."""
    monkeypatch.setattr(threads, "_QUICK", 60.0)


async def test_one_entry_is_stored_on_the_spot_where_that_needs_no_waiting(db: Database) -> None:
    await db.start("a", "me")
    stored = db.storage.append(plain(db, "a", 0, entry(1)), "me")
    assert stored == isinstance(db.storage, SQLiteStorage)
    assert await history(db, "a") == [entry(1)] * stored


async def test_what_can_not_be_stored_on_the_spot_is_left_to_a_batch(db: Database) -> None:
    await db.start("a", "me")
    await db.register("other")
    for refused, worker in [
        (plain(db, "a", 1, entry(1)), "me"),
        (plain(db, "a", 0, entry(1)), "other"),
        (plain(db, "a", 0, entry(1)), None),
        (plain(db, "b", 0, entry(1)), "me"),
        (plain(db, "a", 0, entry(2**70)), "me"),
    ]:
        assert not db.storage.append(refused, worker)
    assert await history(db, "a") == await history(db, "b") == []
    await db.commit("me", commits=[plain(db, "a", 0, entry(1))])
    assert not db.storage.append(plain(db, "a", 0, entry(1, b"another")), "me")
    await db.storage.close()
    assert not db.storage.append(plain(db, "a", 0, entry(2)), "me")


async def test_it_adds_entries_and_leaves_the_version(db: Database) -> None:
    await db.start("a", "me")
    assert (await db.commit("me", commits=[plain(db, "a", 0, entry(1), entry(2))])).commits == [True]
    assert (await db.commit("me", commits=[plain(db, "a", 0, entry(3))])).commits == [True]
    assert await history(db, "a") == [entry(1), entry(2), entry(3)]
    assert await db.version("a") == 0
    await db.step("a", "me", 0, status="completed", entries=[entry(4)])
    assert [e.n for e in await history(db, "a")] == [1, 2, 3, 4]


async def test_it_needs_owner_and_version(db: Database) -> None:
    await db.register("other")
    await db.start("a", "me")
    await db.start("free")
    for worker, instance, version in [("other", "a", 0), ("me", "a", 1), ("me", "free", 0), ("me", "nowhere", 0)]:
        answer = await db.commit(worker, commits=[plain(db, instance, version, entry(1))])
        assert answer.commits == [False], (worker, instance, version)
    assert await history(db, "a") == await history(db, "free") == []


async def test_after_the_end_nothing_is_added(db: Database) -> None:
    await db.start("a", "me")
    await db.step("a", "me", 0, status="completed")
    assert (await db.commit("me", commits=[plain(db, "a", 1, entry(1))])).commits == [False]


async def test_a_refused_one_leaves_its_neighbours_alone(db: Database) -> None:
    for id in "abc":
        await db.start(id, "me")
    commits = [
        plain(db, "a", 0, entry(1), entry(2)),
        plain(db, "b", 9, entry(1)),
        Commit("c", 0, "waiting_for_event", db.now, entries=[entry(1)], opened=[db.wait()]),
        plain(db, "nowhere", 0, entry(1)),
    ]
    assert (await db.commit("me", commits=commits)).commits == [True, False, True, False]
    assert [len(await history(db, id)) for id in "abc"] == [2, 0, 1]


async def test_submitted_again_it_was_applied(db: Database) -> None:
    """The answer was lost: the same batch goes out again, and is told the same."""
    await db.start("a", "me")
    await db.start("b", "me")
    batch = db.batch("me", commits=[plain(db, "a", 0, entry(1), entry(2)), plain(db, "b", 5, entry(1))])
    assert (await db.submit(batch)).commits == [True, False]
    assert (await db.submit(batch)).commits == [True, False]
    assert await history(db, "a") == [entry(1), entry(2)]


async def test_submitted_again_after_a_takeover_it_was_applied(db: Database) -> None:
    await db.register("other")
    await db.start("a", "me")
    batch = db.batch("me", commits=[plain(db, "a", 0, entry(1))])
    assert (await db.submit(batch)).commits == [True]
    await db.storage.take_over("other", ["me"])
    again = await db.submit(batch)
    assert (again.fenced, again.commits) == (True, [True])


async def test_a_worker_that_was_taken_over_adds_nothing(db: Database) -> None:
    await db.register("other")
    await db.start("a", "me")
    await db.storage.take_over("other", ["me"])
    late = await db.commit("me", commits=[plain(db, "a", 0, entry(1))])
    assert (late.fenced, late.commits) == (True, [False])
    assert "a" in await db.claim("other")
    assert (await db.commit("me", commits=[plain(db, "a", 0, entry(1))])).commits == [False]
    version = await db.version("a")
    assert (await db.commit("other", commits=[plain(db, "a", version, entry(1, b"theirs"))])).commits == [True]
    assert (await db.commit("me", commits=[plain(db, "a", version, entry(1))])).commits == [False]
    assert await history(db, "a") == [entry(1, b"theirs")]


async def test_a_history_that_is_not_as_its_owner_knows_it_takes_nothing(db: Database) -> None:
    """It can't happen unless somebody else wrote to the table; then the instance must not go on."""
    await db.start("a", "me")
    await db.start("b", "me")
    await db.commit("me", commits=[plain(db, "a", 0, entry(1, b"another"))])
    with pytest.raises(RefusedValue, match="not as its owner knows it"):
        await db.commit("me", commits=[plain(db, "a", 0, entry(1)), plain(db, "b", 0, entry(1))])
    assert await history(db, "a") == [entry(1, b"another")]
    assert await history(db, "b") == [], "all or nothing: the rest of the batch is submitted again without the culprit"
