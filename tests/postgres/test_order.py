"""Order of acceptance is order of commit: numbers are drawn before it, and must not decide what came before what."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from romancy.core.operations import After
from tests.postgres.conftest import Place
from tests.storage.conftest import Database, offers


async def slow_accept(raw: Any, db: Database, type: str = "go") -> int:
    """An event in a transaction that has begun and drawn its number, and is not committed yet."""
    query = (
        "INSERT INTO events (seq, source, id, type, token, accepted_at) "
        "VALUES (nextval('event_numbers'), 'slow', $1, $2, '', $3) RETURNING seq"
    )
    return await raw.fetchval(query, type, type, db.now)


async def test_an_event_that_was_on_its_way_when_the_instance_was_born_counts(place: Place) -> None:
    """By number it comes before everything the instance has seen; by commit it comes after its birth."""
    db, raw = await place.worker("me"), await place.raw()
    transaction = raw.transaction()
    await transaction.start()
    slow = await slow_accept(raw, db)
    quick = (await db.send("other")).seq
    await db.start("a", "me")
    await transaction.commit()
    assert slow < quick
    assert offers(await db.step("a", "me", 0, opened=[db.wait()])) == [("a", "w", slow)]


async def test_what_was_accepted_before_the_birth_does_not_count_whatever_its_number(place: Place) -> None:
    db = await place.worker("me")
    await db.send()
    await db.start("a", "me")
    assert offers(await db.step("a", "me", 0, opened=[db.wait(), db.wait("n", since="now")])) == []


async def test_an_event_that_was_on_its_way_is_not_skipped_by_a_mark(place: Place) -> None:
    """A later number is taken first; the earlier one becomes visible afterwards, and the next wait takes it."""
    db, raw = await place.worker("me"), await place.raw()
    await db.start("a", "me")
    transaction = raw.transaction()
    await transaction.start()
    slow = await slow_accept(raw, db)
    quick = (await db.send()).seq
    wait, following = db.wait("w1"), db.wait("w2")
    assert offers(await db.step("a", "me", 0, opened=[wait])) == [("a", "w1", quick)]
    await transaction.commit()
    assert offers(await db.take("a", "me", 1, quick, wait, opened=[following])) == [("a", "w2", slow)]


async def test_since_now_takes_what_was_on_its_way(place: Place) -> None:
    db, raw = await place.worker("me"), await place.raw()
    await db.start("a", "me")
    transaction = raw.transaction()
    await transaction.start()
    slow = await slow_accept(raw, db)
    assert offers(await db.step("a", "me", 0, opened=[db.wait(since="now")])) == []
    await transaction.commit()
    assert await db.look("a", "me") == [("w", slow)]


@pytest.mark.parametrize("since", ["now", 0])
async def test_an_event_that_was_on_its_way_is_not_skipped_by_a_place(place: Place, since: Any) -> None:
    """As with a mark: a later number is taken first, and the wait that goes on from there takes the earlier one."""
    db, raw = await place.worker("me"), await place.raw()
    await db.start("a", "me")
    transaction = raw.transaction()
    await transaction.start()
    slow = await slow_accept(raw, db)
    wait = db.wait("w1", since=since)
    await db.step("a", "me", 0, opened=[wait])
    quick = (await db.send()).seq
    [offer] = (await db.submit(db.batch("me", looks=[("a", None)]))).offers
    assert offer.event.seq == quick
    assert offer.place is not None
    await transaction.commit()
    following = db.wait("w2", since=After(offer.place))
    assert offers(await db.take("a", "me", 1, quick, wait, opened=[following])) == [("a", "w2", slow)]


async def test_which_wait_is_served_first_does_not_depend_on_the_order_they_were_found_in(place: Place) -> None:
    """Waits that reach back come first: a query plan, or a crash and another look, must not decide it otherwise."""
    db = await place.worker("me")
    await db.start("a", "me")
    await db.step("a", "me", 0, opened=[db.wait("now", since="now"), db.wait("w")])
    seq = (await db.send()).seq
    for asked in ([("a", "now"), ("a", "w")], [("a", "w"), ("a", "now")], [("a", None)]):
        found = [(offer.op, offer.event.seq) for offer in (await db.submit(db.batch("me", looks=asked))).offers]
        assert found == [("w", seq), ("now", seq)], asked


async def test_a_started_instance_hears_of_what_was_on_its_way_when_its_event_came(place: Place) -> None:
    db, raw = await place.worker("me"), await place.raw()
    await db.register("svc", triggers=[("placed", "wf", None)])
    transaction = raw.transaction()
    await transaction.start()
    slow = await slow_accept(raw, db)
    batch = db.batch("me", accepts=[db.event("go"), db.event("placed"), db.event("go")])
    answer = await db.submit(batch)
    [started] = answer.accepts[1].started
    await transaction.commit()
    wait, following = db.wait(), db.wait("w2")
    assert offers(await db.step(started.id, "me", 0, opened=[wait])) == [(started.id, "w", slow)]
    after = answer.accepts[2].seq
    taken = await db.take(started.id, "me", 1, slow, wait, opened=[following])
    assert offers(taken) == [(started.id, "w2", after)], "what came before it in its own batch does not count"


async def test_two_batches_with_the_same_events_do_not_lock_each_other_out(place: Place) -> None:
    one, two = await place.worker("one"), await place.worker("two")
    for n in range(20):
        events = [one.event(id=f"{n}-{k}") for k in range(20)]
        results = await asyncio.gather(one.commit(accepts=events), two.commit(accepts=events[::-1]))
        new = [sum(not a.duplicate for a in answer.accepts) for answer in results]
        assert sum(new) == 20


async def test_mail_that_comes_in_just_after_the_end_does_not_stay(place: Place) -> None:
    """Whoever dispatched the event, or asked to cancel, saw the instance alive; now nobody would ever read it."""
    db = await place.worker("me")
    await db.start("ended", "me")
    await db.waiting("alive", "me")
    await db.step("ended", "me", 0, status="completed")
    raw = await place.raw()
    for instance in ("ended", "alive"):
        await raw.execute("INSERT INTO deliveries VALUES ($1, 7)", instance)
        await raw.execute(
            "INSERT INTO requests (instance, kind, payload, at, token, n) VALUES ($1, 1, '', 0, $2, 1)",
            instance,
            instance.encode(),
        )
    await db.storage.prune(0, 0, 10)
    assert [row[0] for row in await raw.fetch("SELECT instance FROM deliveries")] == ["alive"]
    assert [row[0] for row in await raw.fetch("SELECT instance FROM requests")] == ["alive"]
