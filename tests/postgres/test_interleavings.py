"""Write, commit, look: whatever the order of statements and whoever dies where, no event is lost or comes twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest

from romancy.core.filters import Filter
from romancy.core.history import Entry, Kind
from romancy.storage.batch import Commit
from tests.postgres.conftest import Place
from tests.postgres.exploring import explore
from tests.postgres.gates import Play, patient
from tests.storage.conftest import Database, offers

pytestmark = patient
FILTERS = {"unfiltered": None, "filtered": Filter.build(where={"n": 1})}


class Meeting(Play):
    """An owner opens a wait and somebody accepts an event for it; the heir comes after."""

    names: Sequence[str] = ("owner", "sender", "heir")
    senders: Sequence[str] = ("sender",)

    def __init__(self, filter: Filter | None) -> None:
        self._filter = filter

    async def set(self) -> None:
        await self["owner"].register("owner", "heir")
        await self["owner"].start("a", "owner")

    def actions(self) -> dict[str, Awaitable[Any]]:
        wait = self["owner"].wait(filter=self._filter)
        opening = Commit("a", 0, "waiting_for_event", self["owner"].now, opened=[wait])
        owning = self["owner"].commit("owner", commits=[opening])
        return {"owner": owning, **{name: self.sending(name) for name in self.senders}}

    def sending(self, sender: str) -> Awaitable[Any]:
        return self[sender].commit(accepts=[self[sender].event(data={"n": 1}, id="1")])

    async def check(self) -> None:
        """Once the wait and the event are stored, the event reaches the owner, or whoever claims the instance."""
        is_open, is_stored = await self["heir"].version("a") == 1, bool(await self["heir"].storage.catalog.events())
        answers = [self.result(name) for name in self.senders if not self.is_dead(name)]
        new = sum(not answer.accepts[0].duplicate for answer in answers)
        assert is_open or self.is_dead("owner")
        assert is_stored or not answers
        assert new == 1 or (new == 0 and len(answers) < len(self.senders))
        assert await self._reached() == (is_open and is_stored)

    async def _reached(self) -> bool:
        heir, answer = self["heir"], self.result("owner")
        await heir.storage._writer.dispatcher.sweep(None, (), heir.now)  # type: ignore[attr-defined]
        if answer is not None:
            heard = answer.offers or (await self["owner"].storage.mail("owner", 10)).deliveries
            found = await self["owner"].look("a", "owner")
        else:
            await heir.storage.take_over("heir", ["owner"])
            heard = await heir.claim("heir")
            found = await heir.look("a", "heir")
        assert len(found) <= 1
        return bool(heard and found)


class Resending(Meeting):
    """The event is sent by two, as by one who does not know whether it came through."""

    names = "owner", "sender", "again", "heir"
    senders = "sender", "again"


@pytest.mark.play
@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("play", [Meeting, Resending])
async def test_an_event_and_a_wait_find_each_other_whoever_dies_where(
    place: Place, play: type[Meeting], filter: str
) -> None:
    await explore(place, play(FILTERS[filter]))


async def test_a_filtered_wait_finds_an_event_that_is_just_being_dispatched(place: Place) -> None:
    """The dispatch began before the wait was there, and its keys are not to be seen yet when the wait looks."""
    owner, sender = await place.worker("owner", listen=False), await place.worker("sender", listen=False)
    narrow = Filter.build(where={"n": 1})
    await owner.waiting("other", "owner", owner.wait(filter=narrow))  # so the shape is known
    await owner.start("a", "owner")
    seq = (await sender.send("unrelated")).seq + 1
    raw, spy = await place.raw(), await place.raw()
    transaction = raw.transaction()
    await transaction.start()
    await raw.execute("INSERT INTO deliveries VALUES ('other', $1)", seq)  # the dispatch stops where it wants to do so
    slow = asyncio.ensure_future(sender.send("go", {"n": 1}))
    await _until_blocked(spy, "array_agg(type")
    answer = await owner.step("a", "owner", 0, opened=[owner.wait(filter=narrow)])
    await transaction.rollback()
    accepted = await slow
    assert [m.instance for m in accepted.matched] == ["other"], "the dispatch was too early to see the wait"
    assert offers(answer) == [("a", "w", accepted.seq)]


# --- bringing along --------------------------------------------------------------------------------------------------
class Bringing(Play):
    """A worker accepts an event for an instance that has no owner, while another one claims what has mail."""

    names: Sequence[str] = ("sender", "rival", "heir")

    async def set(self) -> None:
        await self["sender"].register("former", "sender", "rival", "heir")
        await self["sender"].waiting("a", "former")
        await self["sender"].send(id="0")
        await self["sender"].storage.release("former")

    def actions(self) -> dict[str, Awaitable[Any]]:
        sender = self["sender"]
        sending = sender.submit(sender.batch("sender", accepts=[sender.event(id="1")], room=1))
        return {"sender": sending, "rival": self["rival"].claim("rival")}

    async def check(self) -> None:
        """It has one owner at most, who is offered the first event: or the heir is, if the owner is dead."""
        sent, claimed = self.result("sender"), self.result("rival")
        row = await self["heir"].storage.catalog.instance("a")
        assert row is not None
        assert bool(claimed) + bool(sent and sent.offers) <= 1
        assert not claimed or row.owner == "rival"
        assert not (sent and sent.offers) or row.owner == "sender"
        owner = row.owner
        if owner is None or owner == "former" or self.is_dead(owner):
            dead = [name for name in ("sender", "rival") if self.is_dead(name)]
            await self["heir"].storage.take_over("heir", dead)
            assert set(await self["heir"].claim("heir")) == {"a"}
            owner = "heir"
        found = await self[owner].submit(self[owner].batch(owner, looks=[("a", None)]))
        assert [offer.event.id for offer in (*found.offers, *(sent.offers if sent else ()))] in (["0"], ["0", "0"])


@pytest.mark.play
async def test_one_worker_gets_an_instance_that_an_event_brings_along(place: Place) -> None:
    await explore(place, Bringing())


# --- taking over -----------------------------------------------------------------------------------------------------
async def take_over(db: Database, heir: str, *dead: str) -> set[str]:
    await db.storage.take_over(heir, dead)
    return set(await db.claim(heir))


class Handover(Play):
    """An owner commits while somebody takes over from it; after the heir there is one more."""

    names: Sequence[str] = ("owner", "heir", "last")

    async def set(self) -> None:
        await self["owner"].register("owner", "heir", "last")
        await self["owner"].start("a", "owner")

    def actions(self) -> dict[str, Awaitable[Any]]:
        start = self["owner"].starting("new", mine=True)
        commit = Commit("a", 0, "running", self["owner"].now, description="done")
        committing = self["owner"].commit("owner", starts=[start], commits=[commit])
        return {"owner": committing, "heir": take_over(self["heir"], "heir", "owner")}

    async def check(self) -> None:
        claimed = self.result("heir")
        if claimed is None:
            await self._check("last", await take_over(self["last"], "last", "owner", "heir"))
        else:
            await self._check("heir", claimed)

    async def _check(self, name: str, claimed: set[str]) -> None:
        """Either the commit is in and the heir sees it, or it is refused. Never both, never neither."""
        answer = self.result("owner")
        claimed |= set(await self[name].claim(name))
        rows = {row.id: row for row in await self[name].storage.catalog.instances()}
        assert claimed == set(rows), "an instance is left with a dead owner"
        assert {row.owner for row in rows.values()} == {name}
        if answer is not None:
            assert "new" in rows
            assert answer.commits == [rows["a"].description == "done"] == [not answer.fenced]
        for other in self.names[: self.names.index(name)]:
            for version in range(rows["a"].version + 2):
                late = Commit("a", version, "failed", self[other].now)
                assert (await self[other].commit(other, commits=[late])).commits == [False]


class Succession(Handover):
    """The heir is taken over too, while it is at it: dead or not."""

    names = "owner", "heir", "last", "next"

    async def set(self) -> None:
        await super().set()
        await self["next"].register("next")

    def actions(self) -> dict[str, Awaitable[Any]]:
        return {**super().actions(), "last": take_over(self["last"], "last", "owner", "heir")}

    async def check(self) -> None:
        await self._check("next", await take_over(self["next"], "next", "owner", "heir", "last"))


@pytest.mark.play
@pytest.mark.parametrize("play", [Handover, Succession])
async def test_a_commit_and_takeovers_whoever_dies_where(place: Place, play: type[Play]) -> None:
    await explore(place, play())


async def test_a_takeover_waits_for_a_commit_under_way_and_sees_what_it_wrote(place: Place) -> None:
    """The zombie's statement has begun and is slow: the takeover's own snapshot could not see what it writes."""
    zombie, heir = await place.worker("zombie", listen=False), await place.worker("heir", listen=False)
    await zombie.start("a", "zombie")
    raw, spy = await place.raw(), await place.raw()
    transaction = raw.transaction()
    await transaction.start()
    # The zombie stops in the middle of its statement: somebody has its entry in hand.
    await raw.execute("INSERT INTO history VALUES ('a', 1, 3, 't', 0)")
    entry = Entry(1, Kind.TIMER_FIRED, "t", 0)
    slow = asyncio.ensure_future(
        zombie.commit(
            "zombie",
            starts=[zombie.starting("born late", mine=True)],
            commits=[Commit("a", 0, "running", zombie.now, description="done", entries=[entry])],
        )
    )
    await _until_blocked(spy, "started AS")
    taking = asyncio.ensure_future(take_over(heir, "heir", "zombie"))
    await _until_blocked(spy, "orphans")
    assert not taking.done()
    await transaction.rollback()
    answer, claimed = await slow, await taking
    assert answer.commits == [True]
    assert claimed == {"a", "born late"}


async def _until_blocked(spy: Any, part: str) -> None:
    """Wait until a statement with these words, near its beginning, waits for a lock."""
    question = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'"
    async with asyncio.timeout(10):
        while not await spy.fetchval(question, part):  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.005)
