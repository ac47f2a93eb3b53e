"""Conformance: who owns how many, what may be let go of, what is taken up."""

from __future__ import annotations

from romancy.core.model import SECOND
from romancy.storage.batch import CANCEL, Request
from romancy.storage.records import Idle
from tests.storage.conftest import LEASE, Database


async def release(db: Database, instance: str, worker: str, version: int, status: str = "waiting_for_event") -> None:
    await db.step(instance, worker, version, status=status, release=True)


async def test_one_worker_alone_has_nobody_to_compare_with(db: Database) -> None:
    await db.waiting("a", "me")
    assert (await db.storage.shares(["wf"], 10)).owned == {}


async def test_everybody_alive_is_counted_with_what_is_not_finished(db: Database) -> None:
    await db.register("other")
    await db.waiting("a", "me")
    await db.start("b", "me")
    await db.start("c", "me")
    await db.step("c", "me", 0, status="completed")
    await db.start("d", "me")
    await db.step("d", "me", 0, status="blocked", release=True)
    shares = await db.storage.shares(["wf"], 10)
    assert (shares.owned, shares.free) == ({"me": 2, "other": 0}, 0)
    db.clock.turn_to(db.now + LEASE + 1)
    await db.storage.renew("me", LEASE)
    assert (await db.storage.shares(["wf"], 10)).owned == {"me": 2}


async def test_what_is_free_is_counted_only_if_it_waits_and_is_known(db: Database) -> None:
    await db.register("other")
    for id in ("a", "b", "c"):
        await db.waiting(id, "me")
        await release(db, id, "me", 1)
    await db.start("running")
    await db.start("theirs", "me", workflow="another")
    await release(db, "theirs", "me", 0)
    assert (await db.storage.shares(["wf"], 10)).free == 3
    assert (await db.storage.shares(["wf"], 2)).free == 2
    assert (await db.storage.shares(["another"], 10)).free == 1
    assert (await db.storage.shares([], 10)).free == 0


async def test_idle_is_who_waits_without_mail_and_is_not_due_soon(db: Database) -> None:
    now = db.now
    await db.waiting("event", "me")
    await db.waiting("soon", "me", db.wait(due=now + SECOND))
    await db.waiting("late", "me", db.wait("w", "go2", due=now + SECOND + 1))
    await db.start("timer", "me")
    await db.step("timer", "me", 0, status="waiting_for_timer", opened=[db.wait(due=now + 99 * SECOND)])
    await db.start("running", "me")
    await db.waiting("mail", "me", db.wait("w", "mailed"))
    await db.send("mailed")
    await db.waiting("asked", "me")
    await db.commit(requests=[Request("asked", CANCEL, b"", now)])
    await db.register("other")
    await db.waiting("theirs", "other")
    found = await db.storage.idle("me", now + SECOND, 10)
    assert sorted(found, key=lambda idle: idle.id) == [
        Idle("event", 1, "waiting_for_event"),
        Idle("late", 1, "waiting_for_event"),
        Idle("timer", 1, "waiting_for_timer"),
    ]
    assert len(await db.storage.idle("me", now + SECOND, 2)) == 2


async def test_adopting_takes_what_waits_and_nobody_owns(db: Database) -> None:
    await db.register("other")
    for id in ("a", "b", "c"):
        await db.waiting(id, "me")
        await release(db, id, "me", 1)
    await db.waiting("mine", "me")
    await db.start("running")
    assert await db.storage.claim_idle("other", ["another"], 10) == 0
    assert await db.storage.claim_idle("other", ["wf"], 2) == 2
    assert await db.storage.claim_idle("other", ["wf"], 2) == 1
    assert await db.storage.claim_idle("other", ["wf"], 2) == 0
    rows = {row.id: (row.owner, row.version) for row in await db.storage.catalog.instances()}
    assert rows == {"a": ("other", 3), "b": ("other", 3), "c": ("other", 3), "mine": ("me", 1), "running": (None, 0)}


async def test_a_fenced_worker_adopts_nothing(db: Database) -> None:
    await db.waiting("a", "me")
    await release(db, "a", "me", 1)
    await db.register("heir")
    await db.storage.take_over("heir", ["me"])
    assert await db.storage.claim_idle("me", ["wf"], 10) == 0
    assert await db.storage.claim_idle("never registered", ["wf"], 10) == 0
    assert await db.storage.claim_idle("heir", ["wf"], 10) == 1


async def test_an_adopted_instance_gets_its_events_and_timers(db: Database) -> None:
    await db.register("other")
    await db.waiting("a", "me", db.wait("w", "go", due=db.now + SECOND))
    await release(db, "a", "me", 1)
    seq = (await db.send()).seq
    assert await db.storage.claim_idle("other", ["wf"], 10) == 1
    assert (await db.storage.mail("other", 10)).deliveries == [("a", seq)]
    assert [due.instance for due in await db.storage.due("other", db.now + SECOND, 10)] == ["a"]
    assert await db.look("a", "other") == [("w", seq)]
