"""An event is offered without a look if it is the oldest that its wait can take. It brings free instances along.

Each test puts something older in its way, which must come first, or something that forbids it.
"""

from __future__ import annotations

from typing import Any

import pytest

from romancy.core.filters import Filter
from romancy.storage.batch import Batch, BatchResult, Commit, Misfit
from romancy.storage.postgres import PostgresStorage
from romancy.storage.postgres.event_lookup import Looker
from tests.postgres.conftest import Place
from tests.storage.conftest import Database, offers

NARROW = Filter.build(where={"n": 1})
FILTERS = {"unfiltered": None, "filtered": NARROW}


class Looks:
    """Counts the looks."""

    def __init__(self) -> None:
        self.count = 0


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    counted, look = Looks(), Looker.look

    async def counting(*given: Any) -> Any:
        counted.count += 1
        return await look(*given)

    monkeypatch.setattr(Looker, "look", counting)
    return counted


@pytest.fixture
async def me(place: Place) -> Database:
    return await place.worker("me")


@pytest.fixture(params=FILTERS)
def narrow(request: pytest.FixtureRequest) -> Filter | None:
    return FILTERS[request.param]


async def accept(db: Database, *events: Any, room: int = 0) -> BatchResult:
    """As the committer of a worker does it."""
    return await db.submit(db.batch("me", accepts=events or [fitting(db)], room=room))


def fitting(db: Database) -> Any:
    return db.event(data={"n": 1})


def seq_of(answer: BatchResult) -> int:
    return answer.accepts[0].seq


async def store_only(db: Database, batch: Batch) -> Any:
    """Commit a batch, and stop before what must follow."""
    assert isinstance(db.storage, PostgresStorage)
    return await db.storage._writer._write(batch)


async def conclude(db: Database, batch: Batch, row: Any) -> BatchResult:
    assert isinstance(db.storage, PostgresStorage)
    return await db.storage._writer.conclude(batch, row)


# --- without a look --------------------------------------------------------------------------------------------------
async def test_an_event_is_offered_without_a_look(me: Database, looks: Looks, narrow: Filter | None) -> None:
    for name in ("a", "b"):
        await me.waiting(name, "me", me.wait(filter=narrow))
    before = looks.count
    answer = await accept(me)
    assert offers(answer) == [(name, "w", seq_of(answer)) for name in ("a", "b")]
    assert looks.count == before
    found = [(offer, await me.submit(me.batch("me", looks=[(offer.instance, None)]))) for offer in answer.offers]
    assert all(look.offers == [offer] for offer, look in found)


async def test_taking_it_takes_everything_up_to_it(me: Database, place: Place) -> None:
    """Otherwise each later look would go through all that was taken before."""
    await me.waiting("a", "me", wait := me.wait("w0"))
    raw = await place.raw()
    for n in range(3):
        answer = await accept(me)
        following = me.wait(f"w{n + 1}")
        await me.take("a", "me", n + 1, seq_of(answer), wait, opened=[following])
        wait = following
        assert await raw.fetchval("SELECT seq FROM marks WHERE instance = 'a'") == seq_of(answer)


async def test_an_event_that_is_still_on_its_way_is_not_skipped(me: Database, place: Place) -> None:
    """It has a lower number, and becomes visible later."""
    await me.waiting("a", "me", wait := me.wait())
    raw = await place.raw()
    transaction = raw.transaction()
    await transaction.start()
    query = (
        "INSERT INTO events (seq, source, id, type, token, accepted_at) "
        "VALUES (nextval('event_numbers'), 'slow', '1', 'go', '', $1) RETURNING seq"
    )
    slow = await raw.fetchval(query, me.now)
    answer = await accept(me)
    assert offers(answer) == [("a", "w", seq_of(answer))]
    await transaction.commit()
    taken = await me.take("a", "me", 1, seq_of(answer), wait, opened=[me.wait("w2")])
    assert offers(taken) == [("a", "w2", slow)]


async def test_an_instance_that_looks_anyway_is_offered_the_event_once(me: Database) -> None:
    await me.waiting("a", "me")
    answer = await me.submit(me.batch("me", accepts=[fitting(me)], looks=[("a", None)]))
    assert offers(answer) == [("a", "w", seq_of(answer))]


# --- something older -------------------------------------------------------------------------------------------------
async def test_an_older_event_that_is_noted_comes_first(place: Place, me: Database, narrow: Filter | None) -> None:
    other = await place.worker("other")
    await me.waiting("a", "me", me.wait(filter=narrow))
    older = (await other.send("go", {"n": 1})).seq
    assert offers(await accept(me)) == [("a", "w", older)]


async def test_an_older_event_that_nobody_has_dispatched_comes_first(
    place: Place, me: Database, narrow: Filter | None
) -> None:
    """Its process died after it was stored. A sender that repeats it hears that it was accepted."""
    other = await place.worker("other")
    await me.waiting("a", "me", me.wait(filter=narrow))
    event = fitting(other)
    await store_only(other, other.batch(accepts=[event]))
    again = (await me.commit(accepts=[event])).accepts[0]
    assert again.duplicate
    assert offers(await accept(me)) == [("a", "w", again.seq)]


async def test_an_older_event_comes_first_if_a_look_is_still_due(me: Database, narrow: Filter | None) -> None:
    """The event came before the wait, whose owner died, or was cut off, before it looked."""
    await me.waiting("known", "me", me.wait(filter=narrow))
    await me.start("a", "me")
    older = (await me.send("go", {"n": 1})).seq
    opening = me.batch("me", commits=[Commit("a", 0, "waiting_for_event", me.now, opened=[me.wait(filter=narrow)])])
    await store_only(me, opening)
    found = [offer for offer in offers(await accept(me)) if offer[0] == "a"]
    assert found == [("a", "w", older)]


async def test_the_first_of_two_events_in_a_batch_comes_first(me: Database, narrow: Filter | None) -> None:
    await me.waiting("a", "me", me.wait(filter=narrow))
    answer = await accept(me, fitting(me), fitting(me))
    assert offers(answer) == [("a", "w", seq_of(answer))]


async def test_two_waits_of_an_instance_get_what_a_look_finds(me: Database) -> None:
    await me.waiting("a", "me", me.wait("any"), me.wait("narrow", filter=NARROW))
    answer = await accept(me)
    assert offers(answer) == [("a", "any", seq_of(answer)), ("a", "narrow", seq_of(answer))]


# --- events that a wait can't take -----------------------------------------------------------------------------------
async def test_an_event_that_was_taken_before_it_is_dispatched_is_not_offered_again(
    me: Database, narrow: Filter | None
) -> None:
    await me.waiting("known", "me", me.wait(filter=narrow))
    await me.waiting("a", "me", wait := me.wait("w1", filter=narrow))
    batch = me.batch("me", accepts=[fitting(me)])
    row = await store_only(me, batch)
    [(_, seq)] = await me.look("a", "me")
    await me.take("a", "me", 1, seq, wait, opened=[me.wait("w2", filter=narrow)])
    assert [offer for offer in offers(await conclude(me, batch, row)) if offer[0] == "a"] == []


async def test_an_event_that_did_not_fit_before_it_is_dispatched_is_not_offered_again(me: Database) -> None:
    await me.waiting("a", "me", me.wait(model="m"))
    batch = me.batch("me", accepts=[fitting(me)])
    row = await store_only(me, batch)
    [(_, seq)] = await me.look("a", "me")
    await me.step("a", "me", 1, misfits=[Misfit("w", "m", seq, "no")], seen_deliveries=[seq], looks=["w"])
    await me.look("a", "me")
    assert offers(await conclude(me, batch, row)) == []


async def test_an_event_from_before_the_instance_is_not_offered(me: Database, narrow: Filter | None) -> None:
    await me.waiting("known", "me", me.wait(filter=narrow))
    batch = me.batch("me", accepts=[fitting(me)])
    row = await store_only(me, batch)
    await me.waiting("late", "me", me.wait(filter=narrow))
    await me.waiting("now", "me", me.wait(filter=narrow, since="now"))
    assert [offer for offer in offers(await conclude(me, batch, row)) if offer[0] != "known"] == []


async def test_a_wait_with_a_beginning_of_its_own_looks(me: Database) -> None:
    await me.waiting("a", "me", me.wait(since="now"))
    answer = await accept(me)
    assert offers(answer) == [("a", "w", seq_of(answer))]
    assert answer.offers[0].place is not None


# --- instances without an owner --------------------------------------------------------------------------------------
async def free_instances(place: Place, *names: str, **waits: Any) -> Database:
    """Instances that wait, and whose worker has stopped."""
    former = await place.worker("former")
    for name in names:
        await former.waiting(name, "former", former.wait(**waits))
    await former.storage.release("former")
    return former


async def owners(place: Place) -> dict[str, tuple[str, int]]:
    raw = await place.raw()
    return {id: (owner, version) for id, owner, version in await raw.fetch("SELECT id, owner, version FROM instances")}


async def test_an_event_brings_free_instances_along(place: Place, me: Database, narrow: Filter | None) -> None:
    await free_instances(place, "a", "b", filter=narrow)
    answer = await accept(me, room=10)
    assert offers(answer) == [(name, "w", seq_of(answer)) for name in ("a", "b")]
    assert await owners(place) == {"a": ("me", 2), "b": ("me", 2)}
    snapshot = await me.storage.load("a")
    assert snapshot is not None
    assert snapshot.row.owner == "me"
    assert snapshot.row.version == 2
    assert await me.claim("me") == {}


async def test_only_as_many_as_there_is_room_for(place: Place, me: Database) -> None:
    await free_instances(place, "a", "b", "c")
    answer = await accept(me, room=2)
    assert len(answer.offers) == 2
    assert sorted(owner for owner, _ in (await owners(place)).values()) == ["former", "me", "me"]
    assert len(await me.claim("me")) == 1


async def test_a_resubmitted_batch_offers_the_same(place: Place, me: Database) -> None:
    await free_instances(place, "a")
    batch = me.batch("me", accepts=[fitting(me)], room=1)
    first = await me.submit(batch)
    assert offers(await me.submit(batch)) == offers(first) == [("a", "w", seq_of(first))]
    assert await owners(place) == {"a": ("me", 2)}


async def test_an_older_event_for_a_free_instance_comes_first(place: Place, me: Database) -> None:
    await free_instances(place, "a")
    older = (await me.send("go", {"n": 1})).seq
    assert offers(await accept(me, room=1)) == [("a", "w", older)]


async def test_what_is_locked_is_left_to_others(place: Place, me: Database) -> None:
    await free_instances(place, "a", "b")
    raw = await place.raw()
    async with raw.transaction():
        await raw.execute("SELECT 1 FROM instances WHERE id = 'a' FOR NO KEY UPDATE")
        answer = await accept(me, room=10)
    assert offers(answer) == [("b", "w", seq_of(answer))]
    assert set(await me.claim("me")) == {"a"}


async def test_what_is_not_only_waiting_is_left_to_a_claim(place: Place, me: Database) -> None:
    former = await place.worker("former")
    for name in ("runs", "waits", "strange"):
        await former.start(name, "former", "wf" if name != "strange" else "other")
    for name, status in (("runs", "running"), ("waits", "waiting_for_event"), ("strange", "waiting_for_event")):
        await former.step(name, "former", 0, status=status, opened=[former.wait()])
    await former.storage.release("former")
    answer = await accept(me, room=10)
    assert offers(answer) == [("waits", "w", seq_of(answer))]
    assert {id for id, (owner, _) in (await owners(place)).items() if owner == "me"} == {"waits"}


async def test_instances_of_a_worker_that_died_are_left_to_a_claim(place: Place, me: Database) -> None:
    """They may be suspects."""
    dead = await place.worker("dead")
    await dead.waiting("a", "dead")
    await me.storage.take_over("me", ["dead"])
    assert offers(await accept(me, room=10)) == []
    assert (await me.claim("me"))["a"].crashed


async def test_a_worker_that_was_taken_over_takes_nothing(place: Place, me: Database) -> None:
    other = await place.worker("other")
    await free_instances(place, "a")
    await other.storage.take_over("other", ["me"])
    assert offers(await accept(me, room=10)) == []
    assert (await owners(place))["a"] == ("former", 1)
