"""Retention while an instance begins to wait for what is being removed, held at its last moment."""

from __future__ import annotations

import asyncio
from typing import Any

from romancy.core.interests import Interest
from romancy.core.model import SECOND
from romancy.storage.batch import Consumption
from tests.postgres.conftest import Place
from tests.storage.conftest import Database

DAY = 24 * 3600 * SECOND


async def until_waiting(raw: Any) -> None:
    """Until a statement waits for a row that is locked."""
    async with asyncio.timeout(30):
        while not await raw.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def prune(db: Database) -> int:
    return await db.storage.prune(0, db.now - 7 * DAY, 500)


async def prepared(place: Place) -> tuple[Database, Database, Any, int]:
    """Two workers; an instance whose workflow expects nothing that is known; an old event with a key; a connection."""
    one, two = await place.worker("one"), await place.worker("two")
    raw = await place.raw()
    await one.storage.expect([Interest("wf", frozenset({"go"}))])
    await one.start("done", "one")
    await one.step("done", "one", 0, status="completed")
    await one.start("i", "one")
    seq = (await one.send("new", {"n": 1}, id="wanted")).seq
    place.clock.turn_to(one.now + 8 * DAY)
    await raw.execute("INSERT INTO event_keys SELECT 0, 'k', '5'::xid8, $1", seq)
    return one, two, raw, seq


async def test_what_is_offered_while_it_is_removed_is_taken(place: Place) -> None:
    """The removal has checked the interests and waits for a lock. A wait that is stored now is offered the event."""
    one, two, raw, seq = await prepared(place)
    lock = raw.transaction()
    await lock.start()
    await raw.execute("SELECT 1 FROM event_keys WHERE seq = $1 FOR UPDATE", seq)
    removing = asyncio.ensure_future(prune(two))
    await until_waiting(await place.raw())
    wait = one.wait("w", "new")
    answer = await one.step("i", "one", 0, opened=[wait], status="waiting_for_event", workflow="wf")
    assert [offer.event.seq for offer in answer.offers] == [seq]
    await lock.rollback()
    assert await removing == 1
    assert await place_events(raw) == set()
    # Whoever was offered it has it, and takes it.
    await one.step("i", "one", 1, closed=["w"], consumed=[Consumption(seq, "new", wait)], status="completed")


async def test_a_removal_that_comes_after_an_interest_removes_nothing(place: Place) -> None:
    """The interest is stored before the wait: a removal that does not see it ends before the wait can be stored."""
    one, two, raw, seq = await prepared(place)
    await one.step("i", "one", 0, opened=[one.wait("w", "new")], status="waiting_for_event", workflow="wf")
    assert await prune(two) == 0
    assert await place_events(raw) == {seq}


async def place_events(raw: Any) -> set[int]:
    return {row["seq"] for row in await raw.fetch("SELECT seq FROM events")}
