"""Conformance: who takes on a free instance when an event for it is accepted.

A worker with room for it may, in the transaction that accepts the event, instead of finding it in its next sweep.
Nothing is lost if it does not.
"""

from __future__ import annotations

from typing import Any

from romancy.storage.batch import CANCEL, Request
from tests.storage.conftest import Database, offers


async def free(db: Database, id: str = "a", workflow: str = "wf") -> None:
    """An instance that waits, and that its worker has released."""
    await db.start(id, "me", workflow)
    await db.step(id, "me", 0, opened=[db.wait()], release=True)


async def owner(db: Database, id: str = "a") -> str | None:
    row = await db.storage.catalog.instance(id)
    assert row is not None
    return row.owner


async def send(db: Database, worker: str | None = "me", **fields: Any) -> list[tuple[str, str, int]]:
    answer = await db.commit(worker, accepts=[db.event()], **{"room": 10, **fields})
    return offers(answer)


async def test_a_free_instance_is_taken_on_with_its_event(db: Database) -> None:
    await free(db)
    [(id, op, event)] = await send(db)
    assert (id, op, await owner(db)) == ("a", "w", "me")
    assert await db.version("a") == 2, "whoever owned it before is fenced"
    mail = await db.storage.mail("me", 10)
    assert list(mail.deliveries) == [("a", event)], "if this worker dies, the next one finds the event"


async def test_a_repeated_batch_offers_the_same(db: Database) -> None:
    """Its answer was lost: the instance is ours by then, and the event is on its way."""
    await free(db)
    batch = db.batch("me", accepts=[db.event()], room=1)
    first, again = await db.submit(batch), await db.submit(batch)
    assert offers(first) == offers(again) != []
    assert await db.version("a") == 2


async def test_nobody_takes_on_more_than_there_is_room_for(db: Database) -> None:
    for id in "abc":
        await free(db, id)
    assert len(await send(db, room=2)) == 2
    assert len([id for id in "abc" if await owner(db, id) == "me"]) == 2
    assert len(await db.claim("me")) == 1, "the third is claimed when there is room"


async def test_without_room_it_is_left_to_a_sweep(db: Database) -> None:
    await free(db)
    assert await send(db, room=0) == []
    assert await owner(db) is None
    assert list(await db.claim("me")) == ["a"]


async def test_a_worker_without_the_workflow_leaves_it(db: Database) -> None:
    await free(db, workflow="other")
    assert await send(db) == []
    assert await owner(db) is None


async def test_a_sender_that_is_no_worker_leaves_it(db: Database) -> None:
    await free(db)
    assert await send(db, None) == []
    assert await owner(db) is None


async def test_a_fenced_worker_leaves_it(db: Database) -> None:
    await free(db)
    await db.register("heir")
    await db.storage.take_over("heir", ["me"])
    assert await send(db) == []
    assert await owner(db) is None


async def test_the_instance_of_another_worker_stays_there(db: Database) -> None:
    await db.register("other")
    await db.waiting("a", "other")
    assert await send(db) == []
    assert (await owner(db), await db.version("a")) == ("other", 1)


async def test_what_a_worker_left_when_it_stopped_is_free(db: Database) -> None:
    await db.register("other")
    await db.waiting("a", "other")
    await db.storage.release("other")
    assert [id for id, _, _ in await send(db)] == ["a"]
    assert await owner(db) == "me"


async def test_what_a_dead_worker_left_is_claimed_by_a_sweep(db: Database) -> None:
    """It may be to blame for the death, and a sweep tells."""
    await db.register("other")
    await db.waiting("a", "other")
    await db.storage.take_over("me", ["other"])
    assert await send(db) == []
    assert (await db.claim("me"))["a"].crashed


async def test_an_instance_with_a_request_is_claimed_by_a_sweep(db: Database) -> None:
    await free(db)
    await db.commit("me", requests=[Request("a", CANCEL, b"", db.now)])
    assert await send(db) == []
    assert list(await db.claim("me")) == ["a"]


async def test_an_older_event_that_is_on_its_way_comes_first(db: Database) -> None:
    await free(db)
    older = await db.send()
    assert await send(db) in ([], [("a", "w", older.seq)])
    if await owner(db) is None:
        assert list(await db.claim("me")) == ["a"]
    assert await db.look("a", "me") == [("w", older.seq)]


async def test_two_events_of_one_batch_are_one_offer(db: Database) -> None:
    await free(db)
    answer = await db.commit("me", accepts=[db.event(), db.event()], room=10)
    first = answer.accepts[0].seq
    assert {offer.event.seq for offer in answer.offers} == {first}
    assert await db.version("a") == 2


async def test_a_blocked_instance_is_left_alone(db: Database) -> None:
    await db.start("a", "me")
    await db.step("a", "me", 0, opened=[db.wait()], status="blocked", release=True)
    assert await send(db) == []
    assert await owner(db) is None
