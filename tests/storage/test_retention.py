"""Conformance: what is pruned, and above all what is not (protocol C4)."""

from __future__ import annotations

import pytest

from romancy.core.filters import Filter
from romancy.core.model import SECOND
from romancy.storage.catalog import Search
from tests.storage.conftest import Database

DAY = 24 * 3600 * SECOND
WEEK = 7 * DAY


async def prune(db: Database, limit: int = 100) -> int:
    return await db.storage.prune(db.now - WEEK, db.now - WEEK, limit)


async def kept(db: Database) -> set[str]:
    return {stored.event.id for stored in await db.storage.catalog.events(limit=1000)}


async def test_old_events_go_with_all_that_hangs_on_them(db: Database) -> None:
    wait = db.wait(filter=Filter.build(where={"n": 1}))
    await db.waiting("a", "me", wait)
    seq = (await db.send("go", {"n": 1}, id="taken")).seq
    await db.take("a", "me", 1, seq, wait, status="completed")
    await db.send("go", {"n": 2}, id="unmatched")
    db.clock.turn_to(db.now + WEEK)
    assert await prune(db) == 0, "to the moment: not yet"
    await db.send("go", {"n": 2}, id="new")
    db.clock.turn_to(db.now + 1)
    assert await prune(db) == 3, "two events, and the instance"
    assert await kept(db) == {"new"}
    assert await db.rows("SELECT count(*) FROM romancy.consumed") == [(0,)]
    assert await db.rows("SELECT count(*) FROM romancy.event_keys") == [(1,)]


async def test_what_is_still_to_be_delivered_is_never_pruned(db: Database) -> None:
    """A worker that is down for eight days must not lose what was accepted."""
    await db.waiting("a", "me")
    pending = await db.send(id="pending", expires_at=db.now + DAY)
    db.clock.turn_to(db.now + 8 * DAY)
    assert await prune(db) == 0
    assert await kept(db) == {"pending"}
    [stored] = await db.storage.catalog.events()
    assert stored.event.seq == pending.seq


async def test_a_pending_event_keeps_its_data_and_is_delivered(db: Database) -> None:
    await db.waiting("a", "me")
    seq = (await db.send("go", {"n": 1}, id="pending")).seq
    db.clock.turn_to(db.now + 8 * DAY)
    await prune(db)
    [offer] = (await db.commit("me", looks=[("a", None)])).offers
    assert (offer.event.seq, offer.event.data) == (seq, b'{"n": 1}')


async def test_an_expired_event_loses_its_data_but_not_its_identity(db: Database) -> None:
    """Pruned and sent again it would be delivered twice."""
    await db.send("go", {"secret": 1}, id="short", expires_at=db.now + SECOND)
    db.clock.turn_to(db.now + 2 * SECOND)
    await prune(db)
    [stored] = await db.storage.catalog.events()
    assert stored.event.data is None
    assert (await db.send("go", {"secret": 1}, id="short")).duplicate


async def test_an_event_that_is_good_for_longer_is_kept_for_longer(db: Database) -> None:
    await db.send("go", {"n": 1}, id="long", expires_at=db.now + 30 * DAY)
    db.clock.turn_to(db.now + 8 * DAY)
    await db.start("a", "me")
    assert await prune(db) == 0
    answer = await db.step("a", "me", 0, opened=[db.wait(since=0)])
    assert [offer.event.id for offer in answer.offers] == ["long"]
    db.clock.turn_to(db.now + 30 * DAY)
    await db.step("a", "me", 1, status="completed", closed=["w"])
    assert await prune(db) == 1


async def test_finished_instances_go_whole_and_the_others_not_at_all(db: Database) -> None:
    for id in ("done", "failed", "running", "waiting", "blocked"):
        await db.waiting(id, "me", db.wait("w", "go"))
    seq = (await db.send()).seq
    for id, status in (("done", "completed"), ("failed", "failed"), ("blocked", "blocked"), ("running", "running")):
        await db.take(id, "me", 1, seq, db.wait(), status=status)
    db.clock.turn_to(db.now + 20 * DAY)
    assert await prune(db) == 2
    assert {row.id for row in await db.storage.catalog.instances()} == {"running", "waiting", "blocked"}
    for table in ("history", "consumed", "marks", "waits", "wait_keys", "deliveries", "misfits", "attempts"):
        lost = f"SELECT instance FROM romancy.{table} WHERE instance NOT IN (SELECT id FROM romancy.instances)"
        assert await db.rows(lost) == [], table
    assert len(await db.storage.catalog.history("running")) == 1
    assert [w.instance for w in await db.storage.catalog.waits()] == ["waiting"]


@pytest.mark.parametrize(("failed", "left"), [(3, {"done"}), (None, {"done", "failed"}), (20, {"failed"})])
async def test_failed_instances_may_have_a_time_of_their_own(db: Database, failed: int | None, left: set[str]) -> None:
    for id in ("done", "failed", "cancelled"):
        await db.waiting(id, "me", db.wait("w", "go"))
    for id, status in (("done", "completed"), ("failed", "failed"), ("cancelled", "cancelled")):
        await db.step(id, "me", 1, status=status, closed=["w"])
    db.clock.turn_to(db.now + 5 * DAY)
    ended = db.now - (10 if "done" in left else 4) * DAY
    failed_before = 0 if failed is None else db.now - failed * DAY
    await db.storage.prune(ended, 0, 100, failed_before=failed_before)
    kept = {row.id for row in await db.storage.catalog.instances(Search())}
    assert kept - {"cancelled"} == left
    assert ("cancelled" in kept) == ("done" in left), "as if completed"


async def test_pruning_comes_in_bites(db: Database) -> None:
    await db.commit(accepts=[db.event() for _ in range(7)])
    db.clock.turn_to(db.now + 8 * DAY)
    assert [await prune(db, limit=3) for _ in range(4)] == [3, 3, 1, 0]


async def test_numbers_are_not_used_again(db: Database) -> None:
    """A mark or an offer must never mean another event."""
    last = (await db.send()).seq
    db.clock.turn_to(db.now + 8 * DAY)
    assert await prune(db) == 1
    await db.start("a", "me")
    assert (await db.send()).seq > last
    answer = await db.step("a", "me", 0, opened=[db.wait()])
    assert [offer.event.seq for offer in answer.offers] == [last + 1]
