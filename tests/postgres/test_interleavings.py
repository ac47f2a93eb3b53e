"""Write, commit, look: whatever the order of statements and whoever dies where, no event is lost or comes twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from romancy.core.history import Entry, Kind
from romancy.core.matching import Filter
from romancy.storage.postgres import dispatching
from romancy.storage.protocol import Answer, Commit
from tests.postgres.conftest import Place
from tests.postgres.gates import Gate, deaths, patient, play, schedules
from tests.storage.conftest import Database, offers

pytestmark = patient
FILTERS = {"unfiltered": None, "filtered": Filter.build(where={"n": 1})}


class Scene:
    """An owner about to open a wait, somebody about to accept an event for it, and one who comes after."""

    def __init__(self, owner: Database, sender: Database, heir: Database) -> None:
        self.owner, self.sender, self.heir = owner, sender, heir
        self._runs = 0

    async def set(self, filter: Filter | None) -> None:
        """A new instance and a new event type, so that runs don't touch each other."""
        self._runs += 1
        self.worker, self.instance, self.type = f"owner{self._runs}", f"i{self._runs}", f"type{self._runs}"
        await self.owner.register(self.worker)
        await self.owner.start(self.instance, self.worker)
        self.wait = self.owner.wait("w", self.type, filter=filter)
        self.gates = Gate(self.owner.storage), Gate(self.sender.storage)  # type: ignore[arg-type]

    async def begin(self) -> None:
        opening = Commit(self.instance, 0, "waiting_for_event", self.owner.now, opened=[self.wait])
        await self.gates[0].begin(self.owner.commit(self.worker, commits=[opening]))
        await self.gates[1].begin(self.sender.commit(accepts=[self.sender.event(self.type, {"n": 1}, id=self.type)]))

    async def count(self, filter: Filter | None) -> tuple[int, int]:
        """How many statements each actor takes, at most."""
        await self.set(filter)
        await self.begin()
        await self.gates[0].finish()
        await self.gates[1].finish()
        counts = self.gates[0].count + 1, self.gates[1].count + 1
        await self.owner.storage.release(self.worker)
        return counts

    async def reached(self, answer: Answer | None) -> list[str]:
        """How the owner comes to know of the event; if it died, how its heir does."""
        await self.heir.storage._writer.dispatcher.sweep(None, (), self.heir.now)  # type: ignore[attr-defined]
        if answer is not None:
            ways = ["offer" for offer in answer.offers if offer.instance == self.instance]
            mail = (await self.owner.storage.mail(self.worker, 1000)).deliveries
            ways += ["mail" for instance, _ in mail if instance == self.instance]
            found = await self.owner.look(self.instance, self.worker)
        else:
            await self.heir.storage.take_over("heir", [self.worker])
            claimed = await self.heir.claim("heir")
            ways = ["claim"] if self.instance in claimed else []
            found = await self.heir.look(self.instance, "heir") if ways else []
        assert len(found) <= 1
        return ways if found else []


@pytest.fixture
async def scene(place: Place, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(dispatching, "STALE", 0)
    owner = Database(await place.storage(listen=False), place.clock)
    sender = Database(await place.storage(listen=False), place.clock)
    return Scene(owner, sender, await place.worker("heir", listen=False))


@pytest.mark.parametrize("filter", FILTERS)
async def test_an_event_and_a_wait_find_each_other_in_every_order(scene: Scene, filter: str) -> None:
    for schedule in schedules(*await scene.count(FILTERS[filter])):
        await scene.set(FILTERS[filter])
        await scene.begin()
        await play(schedule, scene.gates)
        answer = await scene.gates[0].finish()
        await scene.gates[1].finish()
        assert await scene.reached(answer), f"lost when the order was {schedule}"
        await scene.owner.storage.release(scene.worker)


@pytest.mark.parametrize("filter", FILTERS)
async def test_the_sender_may_die_at_any_point(scene: Scene, filter: str) -> None:
    """Once the event is stored somebody dispatches it."""
    for schedule in deaths(*await scene.count(FILTERS[filter]), actor=1):
        await scene.set(FILTERS[filter])
        await scene.begin()
        await play(schedule, scene.gates)
        stored = scene.gates[1].count >= 1
        await scene.gates[1].crash()
        answer = await scene.gates[0].finish()
        assert bool(await scene.reached(answer)) == stored, f"lost when the order was {schedule}"
        await scene.owner.storage.release(scene.worker)


@pytest.mark.parametrize("filter", FILTERS)
async def test_the_owner_may_die_at_any_point(scene: Scene, filter: str) -> None:
    """Once the wait is stored the event reaches whoever claims the instance; before, there is nobody to be reached."""
    for schedule in deaths(*await scene.count(FILTERS[filter]), actor=0):
        await scene.set(FILTERS[filter])
        await scene.begin()
        await play(schedule, scene.gates)
        await scene.gates[0].crash()
        await scene.gates[1].finish()
        stored = await scene.owner.version(scene.instance) == 1
        assert bool(await scene.reached(None)) == stored, f"lost when the order was {schedule}"


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


# --- taking over -----------------------------------------------------------------------------------------------------
async def take_over(db: Database, heir: str, dead: str) -> set[str]:
    await db.storage.take_over(heir, [dead])
    return set(await db.claim(heir))


async def test_a_commit_and_a_takeover_in_every_order(scene: Scene) -> None:
    """Either the commit is in and the heir sees it, or it is refused. Never both, never neither."""
    for schedule in schedules(2, 6):
        await scene.set(None)
        heir = f"heir of {scene.worker}"
        await scene.sender.register(heir)
        start = scene.owner.starting(f"new of {scene.worker}", mine=True)
        commit = Commit(scene.instance, 0, "running", scene.owner.now, description="done")
        await scene.gates[0].begin(scene.owner.commit(scene.worker, starts=[start], commits=[commit]))
        await scene.gates[1].begin(take_over(scene.sender, heir, scene.worker))
        await play(schedule, scene.gates)
        answer, claimed = await scene.gates[0].finish(), await scene.gates[1].finish()
        claimed |= set(await scene.sender.claim(heir))
        assert claimed >= {scene.instance, start.id}, "an instance is left with a dead owner"
        row = await scene.sender.storage.instance(scene.instance)
        assert row is not None
        assert (row.owner, row.description == "done") == (heir, answer.commits[0])
        assert answer.fenced != answer.commits[0]
        late = await scene.owner.commit(scene.worker, commits=[Commit(scene.instance, 1, "failed", scene.owner.now)])
        assert late.commits == [False]
        await scene.sender.storage.release(heir)


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
