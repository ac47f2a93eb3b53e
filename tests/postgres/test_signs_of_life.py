"""A process that dies loses all its sessions at once. A living one that loses some of them is not taken for dead."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from romancy.core.clock import SystemClock, stopwatch
from romancy.storage.errors import TransientError
from romancy.storage.postgres import leases
from romancy.storage.postgres.listener import lock_key, pool_key
from tests.postgres.conftest import Place
from tests.storage.conftest import Database

LONG = 3600.0


async def worker(place: Place, name: str, **options: Any) -> Database:
    return await place.worker(name, clock=SystemClock(), **options)


def listener(db: Database) -> Any:
    return db.storage._listener  # type: ignore[attr-defined]


def connections(db: Database) -> Any:
    return db.storage._connections  # type: ignore[attr-defined]


async def holders(raw: Any, key: int) -> list[int]:
    """The server processes that hold a lock."""
    query = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND (classid::bigint << 32 | objid::bigint) = $1"
    return [pid for (pid,) in await raw.fetch(query, leases.signed(key))]


async def cut(raw: Any, *keys: int) -> None:
    """Cut the sessions that hold these locks."""
    for key in keys:
        for pid in await holders(raw, key):
            await raw.fetchval("SELECT pg_terminate_backend($1, 10000)", pid)


async def taken_over(heir: Database, name: str = "heir") -> list[str]:
    """Take over until somebody is gone, whenever the storage says that it may be time."""
    again = asyncio.Event()
    heir.storage.watch(again.set)
    async with asyncio.timeout(10):
        while not (gone := await heir.storage.take_over(name)):
            await again.wait()
            again.clear()
    return gone


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a worker without any session is taken over within this test."""
    monkeypatch.setattr(leases, "_MISSING", LONG)
    monkeypatch.setattr(leases, "_LOCKS_EVERY", 0.0)


@pytest.mark.usefixtures("hasty")
async def test_a_dead_process_is_found_without_waiting_for_the_next_sweep(place: Place) -> None:
    dead, heir, raw = await worker(place, "dead"), await worker(place, "heir"), await place.raw()
    assert await holders(raw, lock_key("dead"))
    assert await holders(raw, pool_key("dead"))
    await dead.storage.close()
    begin = stopwatch()
    assert await taken_over(heir) == ["dead"]
    assert stopwatch() - begin >= leases._ALL_MISSING, "it might have been reconnecting"


@pytest.mark.usefixtures("hasty")
async def test_it_takes_two_looks_to_see_that_a_session_is_gone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks are read rarely. What was read once says nothing about the time since."""
    monkeypatch.setattr(leases, "_ALL_MISSING", 0.01)
    dead, heir = await worker(place, "dead"), await worker(place, "heir")
    await dead.storage.close()
    owning: Any = heir.storage._owning  # type: ignore[attr-defined]
    async with asyncio.timeout(5):
        while "dead" not in owning._missing:
            assert await heir.storage.take_over("heir") == []

    async def unchanged() -> None:
        """As if the locks had been read a moment ago."""

    monkeypatch.setattr(owning, "_read_locks", unchanged)
    owning._missing["dead"] = owning._locks_read
    await asyncio.sleep(0.02)
    assert await heir.storage.take_over("heir") == []


@pytest.mark.usefixtures("hasty")
async def test_a_successor_counts_from_its_registration(place: Place) -> None:
    """A process that starts looks at the sessions first, so the wait is over when it is ready."""
    dead = await worker(place, "dead")
    await dead.storage.close()
    heir, raw = Database(await place.storage(clock=SystemClock()), place.clock), await place.raw()
    async with asyncio.timeout(5):
        while await holders(raw, lock_key("dead")) or await holders(raw, pool_key("dead")):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await heir.register("heir")
    await asyncio.sleep(leases._ALL_MISSING)
    assert await heir.storage.take_over("heir") == ["dead"]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("of", [lock_key, pool_key])
async def test_a_worker_that_lost_one_connection_is_not_dead(
    place: Place, monkeypatch: pytest.MonkeyPatch, of: Any
) -> None:
    """Even if it can't reconnect."""
    monkeypatch.setattr(leases, "_ALL_MISSING", 0.0)
    other, heir, raw = await worker(place, "other"), await worker(place, "heir"), await place.raw()
    listener(other)._url = "postgresql://nowhere:1/"
    await cut(raw, of("other"))
    for _ in range(5):
        assert await heir.storage.take_over("heir") == []
        await asyncio.sleep(0.02)


async def test_the_listening_session_alone_tells_after_a_while(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another session of a dead process may be busy for long, and not notice."""
    monkeypatch.setattr(leases, "_MISSING", 0.3)
    monkeypatch.setattr(leases, "_LOCKS_EVERY", 0.0)
    dead, heir, raw = await worker(place, "dead"), await worker(place, "heir"), await place.raw()
    listener(dead)._url = "postgresql://nowhere:1/"
    await cut(raw, lock_key("dead"))
    assert await holders(raw, pool_key("dead"))
    assert await taken_over(heir) == ["dead"]


@pytest.mark.usefixtures("hasty")
async def test_a_worker_whose_sessions_were_all_cut_goes_on(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It connects anew at once, and its next renewal takes the second lock again."""
    monkeypatch.setattr(leases, "_ALL_MISSING", 2.0)
    a, b, raw = await worker(place, "a"), await worker(place, "b"), await place.raw()
    await a.start("of a", "a")
    await cut(raw, lock_key("a"), pool_key("a"))
    assert await b.storage.take_over("b") == []
    async with asyncio.timeout(5):
        while not await holders(raw, lock_key("a")):  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.01)
    assert await a.storage.renew("a", 10**7)
    assert await holders(raw, pool_key("a"))
    monkeypatch.setattr(leases, "_ALL_MISSING", 0.0)
    assert await b.storage.take_over("b") == []
    assert await a.step("of a", "a", 0, status="completed")


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("trouble", ["refused", "listener", "spare"])
async def test_after_trouble_of_our_own_others_have_time_to_reconnect(
    place: Place, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setattr(leases, "_ALL_MISSING", 0.0)
    other, heir, raw = await worker(place, "other"), await worker(place, "heir"), await place.raw()
    if trouble == "refused":
        assert isinstance(connections(heir).explain(ConnectionResetError("the server is away")), TransientError)
    else:
        await cut(raw, (lock_key if trouble == "listener" else pool_key)("heir"))
    await other.storage.close()
    async with asyncio.timeout(5):
        while await holders(raw, lock_key("other")) or await holders(raw, pool_key("other")):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    if trouble == "listener":
        async with asyncio.timeout(5):
            while not listener(heir).holds("heir"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    for _ in range(3):
        assert await heir.storage.take_over("heir") == []


async def test_sessions_of_a_pooler_are_no_sign_of_life(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """They live on when a process dies. Its listening session tells, after a while."""
    monkeypatch.setattr(leases, "_ALL_MISSING", 0.0)
    monkeypatch.setattr(leases, "_LOCKS_EVERY", 0.0)
    raw = await place.raw()
    pooled = [Database(await place.storage(clock=SystemClock()), place.clock) for _ in range(2)]
    for db, name in zip(pooled, ("other", "heir"), strict=True):
        connections(db).is_direct = False
        await db.register(name)
        assert await db.storage.renew(name, 10**7)
        assert await holders(raw, lock_key(name))
        assert not await holders(raw, pool_key(name))
    other, heir = pooled
    await other.storage.close()
    async with asyncio.timeout(5):
        while await holders(raw, lock_key("other")):  # noqa: ASYNC110 - the server notices when it does
            await asyncio.sleep(0.01)
    assert await heir.storage.take_over("heir") == []
    assert await heir.storage.take_over("heir") == []
    monkeypatch.setattr(leases, "_MISSING", 0.0)
    assert await heir.storage.take_over("heir") == ["other"]
