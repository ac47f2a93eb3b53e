"""The end of an instance passes its slot on while another statement that it must wait for is not committed yet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from romancy import Queue
from romancy.engine.foresight import Foresight
from romancy.storage.batch import BatchResult, Commit
from tests.postgres.conftest import Place
from tests.postgres.test_retention_interleavings import until_waiting
from tests.storage.admitters import admit_all, fill, running
from tests.storage.conftest import Database

QUEUE = Queue("q", max_concurrent=2)


async def passing_on(db: Database) -> BatchResult:
    """End an instance, and admit the next one with its end."""
    foresight = Foresight()
    foresight.keep("q", await db.storage.queues.glance(QUEUE), {"a1": "a", "b1": "b"})
    made = foresight.successor(QUEUE, "a1", db.now)
    assert made is not None
    return await db.commit("owner", commits=[Commit("a1", 1, "completed", db.now, output=b"null", admits=made)])


async def held_up(place: Place, change: str) -> tuple[Database, Database, Any, BatchResult]:
    """Let an instance pass its slot on while a change of somebody else is stored, which is committed then."""
    owner, other = await place.worker("owner"), await place.worker("other")
    await fill(owner)
    await admit_all(owner, QUEUE, "owner")
    assert set(await running(owner)) == {"a1", "b1"}
    raw = await place.raw()
    transaction = raw.transaction()
    await transaction.start()
    await raw.execute(change)
    passing = asyncio.ensure_future(passing_on(owner))
    await until_waiting(await place.raw())
    await transaction.commit()
    return owner, other, raw, await passing


async def check_slots(db: Database, has_ended: bool) -> None:
    """Whoever admits next finds as many free slots as there are."""
    await admit_all(db, QUEUE, "other")
    held = await running(db)
    assert len(held) == 2
    assert ("a1" in held) != has_ended


async def test_the_worker_is_taken_over(place: Place) -> None:
    _, other, raw, answer = await held_up(place, "DELETE FROM workers WHERE id = 'owner'")
    assert (answer.fenced, answer.commits, list(answer.admitted)) == (True, [False], [])
    assert await raw.fetchval("SELECT version FROM queues") == 1, "only the first admission"
    await check_slots(other, has_ended=False)


@pytest.mark.parametrize("change", ["version = version + 1", "version = version + 1, turn = 'c'"])
async def test_another_admission_comes_first(place: Place, change: str) -> None:
    """It may have taken the slots that were free when the owner looked, so this one is void, but not the end."""
    _, other, _, answer = await held_up(place, f"UPDATE queues SET {change}")
    assert (answer.commits, list(answer.admitted)) == ([True], [])
    assert set(await running(other)) == {"b1"}
    await check_slots(other, has_ended=True)


async def test_the_instance_itself_is_taken_over(place: Place) -> None:
    change = "UPDATE instances SET version = version + 1, owner = 'other' WHERE id = 'a1'"
    _, other, raw, answer = await held_up(place, change)
    assert (answer.commits, list(answer.admitted)) == ([False], [])
    assert await raw.fetchval("SELECT version FROM queues") == 1
    await check_slots(other, has_ended=False)


async def test_the_next_one_is_being_cancelled(place: Place) -> None:
    """Nobody waits for it. The slot stays free until the next round, which the owner begins at once."""
    owner, other = await place.worker("owner"), await place.worker("other")
    await fill(owner)
    await admit_all(owner, QUEUE, "owner")
    raw = await place.raw()
    transaction = raw.transaction()
    await transaction.start()
    await raw.execute("UPDATE instances SET status = 12, finished_at = 1 WHERE id = 'c1'")
    answer = await passing_on(owner)
    assert (answer.commits, list(answer.admitted)) == ([True], [])
    await transaction.commit()
    await check_slots(other, has_ended=True)
    assert set(await running(other)) == {"b1", "a2"}
