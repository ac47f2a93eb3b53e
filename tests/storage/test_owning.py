"""Conformance: leases, the fence, takeover in steps, claims."""

from __future__ import annotations

from pathlib import Path

import pytest

from romancy.core.model import SECOND
from romancy.storage.batch import CANCEL, Commit, Request
from romancy.storage.postgres import PostgresStorage
from romancy.storage.postgres.listener import lock_key
from romancy.storage.sqlite import SQLiteStorage
from romancy.testing import ManualClock
from tests.storage.conftest import LEASE, Database


# --- leases and the fence --------------------------------------------------------------------------------------------
async def test_a_lease_is_renewed_until_somebody_takes_over(db: Database) -> None:
    await db.register("heir")
    db.clock.turn_to(db.now + LEASE)
    assert await db.storage.renew("heir", LEASE)
    assert await db.storage.take_over("heir") == [], "to the moment: the lease has not ended"
    db.clock.turn_to(db.now + 1)
    assert await db.storage.take_over("heir") == ["me"]
    assert await db.storage.take_over("heir") == []
    assert not await db.storage.renew("me", LEASE)
    assert await db.storage.renew("heir", LEASE)


async def test_a_process_that_died_is_seen_before_its_lease_ends(db: Database) -> None:
    await db.register("heir")
    assert not await db.storage.is_gone("heir")
    assert not await db.storage.is_gone("nobody"), "nothing is known of it"
    if isinstance(db.storage, PostgresStorage):
        query = (
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' AND objid::bigint = $1"
        )
        db.storage._listener._workers.clear()  # its process is gone: nobody takes the lock again
        await db.rows(query, lock_key("heir") & 0xFFFFFFFF)
    else:
        db.storage._locks.drop()  # type: ignore[attr-defined]
    is_known = not getattr(db.storage, "_in_memory", False)
    assert await db.storage.is_gone("heir") is is_known


async def test_nobody_takes_over_from_itself(db: Database) -> None:
    db.clock.turn_to(db.now + 100 * LEASE)
    assert await db.storage.take_over("me") == []
    assert await db.storage.renew("me", LEASE)


async def test_a_fenced_worker_writes_nothing_but_what_anybody_may(db: Database) -> None:
    await db.waiting("a", "me")
    await db.register("heir")
    await db.storage.take_over("heir", ["me"])
    answer = await db.commit(
        "me",
        starts=[db.starting("new", mine=True)],
        commits=[Commit("a", 1, "completed", db.now)],
        accepts=[db.event()],
        requests=[Request("a", CANCEL, b"", db.now)],
        looks=[("a", None)],
    )
    assert answer.fenced
    assert answer.commits == [False]
    assert answer.offers == []
    assert (answer.starts[0].created, answer.starts[0].owned) == (True, False)
    assert len(answer.accepts[0].matched) == 1, "the event is a fact, whoever brings it"
    assert answer.requests[0].id
    new = await db.storage.catalog.instance("new")
    assert new is not None
    assert new.owner is None


async def test_a_fenced_worker_claims_nothing(db: Database) -> None:
    await db.start("free")
    await db.register("heir")
    await db.storage.take_over("heir", ["me"])
    assert await db.claim("me") == {}
    assert await db.claim("never registered") == {}
    assert list(await db.claim("heir")) == ["free"]


async def test_a_stale_commit_is_refused_even_when_the_instance_came_back(db: Database) -> None:
    """The worker row alone would not do: the same worker lost the instance and claimed it again."""
    await db.start("a", "me")
    late = db.batch("me", commits=[Commit("a", 0, "completed", db.now)])
    await db.step("a", "me", 0, status="running", release=True)
    assert list(await db.claim("me")) == ["a"]
    assert (await db.submit(late)).commits == [False]
    await db.step("a", "me", 2, status="completed")


# --- taking over and claiming ----------------------------------------------------------------------------------------
async def test_what_the_living_own_is_not_claimed(db: Database) -> None:
    await db.register("other")
    await db.start("running", "me")
    await db.waiting("waiting", "me")
    await db.send()
    await db.commit(requests=[Request("waiting", CANCEL, b"", db.now)])
    assert await db.claim("other", within=LEASE) == {}


async def test_what_the_dead_owned_is_claimed_when_there_is_something_to_do(db: Database) -> None:
    await db.start("running", "me")
    await db.waiting("idle", "me", db.wait("w", "nothing"))
    await db.waiting("mail", "me", db.wait("w", "go"))
    await db.waiting("asked", "me", db.wait("w", "nothing"))
    await db.waiting("soon", "me", db.wait("t", due=db.now + 5 * SECOND))
    await db.waiting("later", "me", db.wait("t", due=db.now + 3600 * SECOND))
    await db.start("over", "me")
    await db.step("over", "me", 0, status="completed")
    await db.register("heir")
    await db.storage.take_over("heir", ["me"])
    await db.send()
    await db.commit(requests=[Request("asked", CANCEL, b"", db.now)])
    claimed = await db.claim("heir", within=60 * SECOND)
    assert set(claimed) == {"running", "mail", "asked", "soon"}
    assert all(item.crashed for item in claimed.values())
    assert {id for id, item in claimed.items() if item.waits} == {"soon"}
    assert await db.claim("heir", within=60 * SECOND) == {}
    assert [due.instance for due in await db.storage.due("heir", db.now + 60 * SECOND, 10)] == ["soon"]
    await db.send("nothing")
    assert set(await db.claim("heir")) == {"idle"}
    assert set(await db.claim("heir", within=3600 * SECOND)) == {"later"}


async def test_claiming_bumps_the_version(db: Database) -> None:
    await db.start("a", "me")
    await db.register("heir")
    await db.storage.take_over("heir", ["me"])
    await db.claim("heir")
    assert await db.version("a") == 1
    await db.step("a", "heir", 1, status="completed")


async def test_claims_come_in_bites(db: Database) -> None:
    await db.register("other", workflows=("wf", "wf2"))
    for n in range(5):
        await db.start(f"a{n}")
        await db.start(f"b{n}", workflow="wf2")
    seen: set[str] = set()
    for _ in range(10):
        bite = await db.claim("other", "wf", "wf2", limit=3)
        assert len(bite) <= 3
        assert not seen & set(bite)
        seen |= set(bite)
    assert len(seen) == 10


async def test_only_known_workflows_are_claimed(db: Database) -> None:
    await db.start("mine")
    await db.start("foreign", workflow="other service")
    await db.start("orphan", "me", workflow="other service")
    await db.register("heir")
    await db.storage.take_over("heir", ["me"])
    assert set(await db.claim("heir", "wf")) == {"mine"}
    assert set(await db.claim("heir", "other service")) == {"foreign", "orphan"}


async def test_who_stops_hands_over_without_blame(db: Database) -> None:
    await db.start("a", "me")
    await db.waiting("w", "me")
    await db.storage.release("me")
    await db.register("heir")
    claimed = await db.claim("heir")
    assert list(claimed) == ["a"]
    assert not claimed["a"].crashed
    await db.send()
    assert list(await db.claim("heir")) == ["w"]


async def test_two_deaths_in_a_row(db: Database) -> None:
    await db.start("a", "me")
    await db.waiting("w", "me")
    for heir, dead in (("second", "me"), ("third", "second")):
        await db.register(heir)
        assert await db.storage.take_over(heir, [dead]) == [dead]
        assert list(await db.claim(heir)) == ["a"]
    await db.send()
    assert list(await db.claim("third")) == ["w"]
    await db.step("a", "third", 2, status="completed")


async def test_a_worker_whose_row_was_deleted_by_hand_is_dead(db: Database) -> None:
    """By the next clearing up at the latest. Who lives has a row, and keeps what it owns."""
    await db.register("other")
    for id, worker in [("a", "other"), ("b", "other"), ("c", "me")]:
        await db.start(id, worker)
    await db.rows("DELETE FROM romancy.workers WHERE id = 'other'")
    assert await db.claim("me") == {}
    await db.storage.prune(0, 0, 100)
    assert set(await db.claim("me")) == {"a", "b"}
    await db.storage.prune(0, 0, 100)
    await db.register("third")
    assert await db.claim("third") == {}


async def test_only_ones_own_timers_and_mail(db: Database) -> None:
    await db.register("other")
    for worker in ("me", "other"):
        await db.waiting(f"of {worker}", worker, db.wait(), db.wait("t", due=db.now + 5))
    await db.send()
    assert [instance for instance, _ in (await db.storage.mail("me", 10)).deliveries] == ["of me"]
    due = await db.storage.due("me", db.now + 5, 10)
    assert [(d.instance, d.op, d.due) for d in due] == [("of me", "t", db.now + 5)]
    assert await db.storage.due("me", db.now + 4, 10) == []


async def test_timers_come_in_order_and_bites(db: Database) -> None:
    for n in (3, 1, 2):
        await db.waiting(f"i{n}", "me", db.wait("t", due=db.now + n))
    assert [d.instance for d in await db.storage.due("me", db.now + 9, 2)] == ["i1", "i2"]


# --- seeing death ----------------------------------------------------------------------------------------------------
async def test_a_dropped_lock_is_seen_at_once_and_a_held_one_respected(tmp_path: Path) -> None:
    """The lease has ten more seconds to go; the lock file tells the living from the dead."""
    clock = ManualClock()
    path = str(tmp_path / "db")
    first, second = SQLiteStorage(path, clock=clock), SQLiteStorage(path, clock=clock)
    await first.open()
    await second.open()
    await first.register("first", LEASE, [], ["wf"])
    await second.register("second", LEASE, [], ["wf"])
    assert await second.take_over("second") == []
    await first.close()
    assert await second.take_over("second") == ["first"]
    assert [p.name for p in Path(path + ".workers").iterdir()] == ["second"]
    await second.release("second")
    assert not list(Path(path + ".workers").glob("*")), "a stopped worker leaves its lock behind"
    await second.close()


async def test_a_worker_without_a_lock_file_lives_until_its_lease_ends(tmp_path: Path) -> None:
    clock = ManualClock()
    path = str(tmp_path / "db")
    first, second = SQLiteStorage(path, clock=clock), SQLiteStorage(path, clock=clock)
    await first.open()
    await second.open()
    await first.register("first", LEASE, [], ["wf"])
    (Path(path + ".workers") / "first").unlink()
    await second.register("second", LEASE, [], ["wf"])
    assert await second.take_over("second") == [], "a missing file proves nothing"
    clock.turn_to(clock.now() + LEASE + 1)
    assert await second.take_over("second") == ["first"]
    await first.close()
    await second.close()


@pytest.mark.parametrize("status", ["running", "compensating"])
async def test_an_instance_with_work_to_do_is_claimed_after_a_death(db: Database, status: str) -> None:
    """An instance that compensates has work to do as well as one that runs."""
    await db.register("heir", "other")
    await db.start("a", "other")
    await db.step("a", "other", 0, status=status)
    assert await db.storage.unloaded("other") == ["a"]
    assert await db.storage.idle("other", db.now, 10) == []
    await db.storage.take_over("heir", ["other"])
    assert list(await db.claim("heir")) == ["a"]


@pytest.mark.parametrize("status", ["running", "compensating"])
async def test_an_instance_with_work_to_do_is_claimed_when_it_is_free(db: Database, status: str) -> None:
    await db.register("heir", "other")
    await db.start("a", "other")
    await db.step("a", "other", 0, status=status, release=True)
    assert await db.storage.claim_idle("heir", ["wf"], 10) == 0
    assert list(await db.claim("heir")) == ["a"]
