"""Three at once: an owner, a sender, and whoever takes over from the owner. Any order, and any of them may die."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from romancy.core.filters import Filter
from romancy.core.history import Entry, Kind
from romancy.storage.batch import BatchResult, Commit, Consumption, WaitRow
from romancy.storage.instances import InstanceRow
from tests.postgres.conftest import Place
from tests.postgres.exploring import explore
from tests.postgres.gates import Play, patient

pytestmark = patient
FILTERS = {"unfiltered": None, "filtered": Filter.build(where={"n": 1})}


class Inheritance(Play):
    """A wait is opened, its event sent, its owner taken over. After the heir there is one more."""

    def __init__(self, filter: Filter | None = None) -> None:
        self._filter = filter

    async def set(self) -> None:
        await self["owner"].register("owner", "heir", "last")
        await self["owner"].start("a", "owner")

    @property
    def wait(self) -> WaitRow:
        return self["owner"].wait(filter=self._filter)

    # --- what they do ------------------------------------------------------------------------------------------------
    def actions(self) -> dict[str, Awaitable[Any]]:
        return {"owner": self.owning(), "sender": self.sending(), "heir": self.inheriting()}

    def owning(self) -> Awaitable[Any]:
        return self.opening()

    def inheriting(self) -> Awaitable[list[int]]:
        return self.succeeding("heir", "owner")

    def opening(self) -> Awaitable[Any]:
        commit = Commit("a", 0, "waiting_for_event", self["owner"].now, opened=[self.wait])
        return self["owner"].commit("owner", commits=[commit])

    def sending(self) -> Awaitable[Any]:
        return self["sender"].commit(accepts=[self["sender"].event(data={"n": 1}, id="1")])

    async def succeeding(self, heir: str, *dead: str) -> list[int]:
        """Take over, claim, and look for what was claimed: the events that came of it."""
        storage = self[heir].storage
        storage._swept = float("-inf")  # type: ignore[attr-defined] - what was left undispatched is part of it
        await storage.take_over(heir, dead)
        return await self.claiming(heir)

    async def claiming(self, heir: str) -> list[int]:
        claimed = await self[heir].claim(heir)
        return [seq for _, seq in await self[heir].look("a", heir)] if claimed else []

    # --- how it must end ---------------------------------------------------------------------------------------------
    async def check(self) -> None:
        answer = self.result("owner")
        assert answer is None or answer.fenced or answer.commits == [True]
        if self.is_dead("heir"):
            await self._check("last", await self.succeeding("last", "heir", "owner"))
        else:
            await self._check("heir", self.result("heir"))

    async def _check(self, heir: str, found: list[int]) -> None:
        """The heir hears of the event if the instance waits for it, and takes it once."""
        db, storage = self[heir], self[heir].storage
        row, found = await self._inherited(heir, found)
        waits, stored = await storage.catalog.waits(), [each.event.seq for each in await storage.catalog.events()]
        assert len(stored) == 1 or self.is_dead("sender")
        assert set(found) == set(stored if waits else ()), "lost"
        if found:
            await db.take("a", heir, row.version, stored[0], self.wait)
            assert await db.look("a", heir) == []
            assert (await storage.mail(heir, 100)).deliveries == []

    async def _inherited(self, heir: str, found: list[int]) -> tuple[InstanceRow, list[int]]:
        """The instance is the heir's, and nobody else's any more. What it heard of.

        If it only waits it may be left as it is until there is an event.
        """
        storage = self[heir].storage
        found = [*found, *await self.succeeding(heir)]
        row = await storage.catalog.instance("a")
        assert row is not None
        if row.owner != heir and row.status == "waiting_for_event" and not await storage.catalog.events(unmatched=True):
            await self.sending()
            found += await self.claiming(heir)
            row = await storage.catalog.instance("a")
            assert row is not None
        assert row.owner == heir, "left with a dead owner"
        for version in range(row.version + 2):
            late = Commit("a", version, "failed", self["owner"].now)
            assert (await self["owner"].commit("owner", commits=[late])).commits == [False]
        return row, found + [seq for _, seq in (await storage.mail(heir, 100)).deliveries]


@pytest.mark.play
@pytest.mark.parametrize("filter", FILTERS)
async def test_a_wait_its_event_and_a_takeover_whoever_dies_where(place: Place, filter: str) -> None:
    await explore(place, Inheritance(FILTERS[filter]))


class Taking(Inheritance):
    """An event is taken and the next wait opened, the next event sent, the owner taken over."""

    async def set(self) -> None:
        await super().set()
        await self.opening()
        await self["sender"].send(data={"n": 1})

    async def owning(self) -> BatchResult | None:
        owner, wait, following = self["owner"], self.wait, self["owner"].wait("w2", filter=self._filter)
        for _, seq in await owner.look("a", "owner"):
            entry = Entry(1, Kind.EVENT_RECEIVED, "w", owner.now, wait.spec, b"{}", seq)
            taking = Commit("a", 1, "waiting_for_event", owner.now, entries=[entry], seen_deliveries=[seq])
            taking.consumed, taking.closed, taking.opened = [Consumption(seq, "go", wait)], ["w"], [following]
            return await owner.commit("owner", commits=[taking])
        return None

    async def _check(self, heir: str, found: list[int]) -> None:
        """Both events are taken once and in order, wherever the owner came to."""
        db, storage = self[heir], self[heir].storage
        row, found = await self._inherited(heir, found)
        stored, taken = [each.event.seq for each in await storage.catalog.events()][::-1], await self._taken(heir)
        assert len(stored) == 2 or self.is_dead("sender")
        assert set(found) >= set(stored[len(taken) :][:1]), "lost"
        for n in range(3):
            for op, seq in await db.look("a", heir):
                wait, following = db.wait(op, filter=self._filter), db.wait(f"next{n}", filter=self._filter)
                await db.take("a", heir, row.version + n, seq, wait, opened=[following])
        assert await self._taken(heir) == stored

    async def _taken(self, heir: str) -> list[int | None]:
        return [entry.event for entry in await self[heir].storage.catalog.history("a")]


@pytest.mark.play
@pytest.mark.parametrize("filter", FILTERS)
async def test_an_event_that_is_taken_the_next_and_a_takeover_whoever_dies_where(place: Place, filter: str) -> None:
    await explore(place, Taking(FILTERS[filter]))


class Balancing(Inheritance):
    """A wait is given up, its event sent, the instance adopted."""

    async def set(self) -> None:
        await super().set()
        await self.opening()

    def owning(self) -> Awaitable[Any]:
        commit = Commit("a", 1, "waiting_for_event", self["owner"].now, release=True)
        return self["owner"].commit("owner", commits=[commit])

    def inheriting(self) -> Awaitable[list[int]]:
        return self.adopting("heir")

    async def adopting(self, heir: str) -> list[int]:
        await self[heir].storage.claim_idle(heir, ("wf",), 10)
        return await self.claiming(heir)

    async def check(self) -> None:
        heir = "last" if self.is_dead("heir") else "heir"
        found = self.result("heir") or []
        dead = [name for name in ("owner", "heir") if self.is_dead(name)]
        found += await self.succeeding(heir, *dead)
        await self._check(heir, found + await self.adopting(heir))


class Leaving(Balancing):
    """A wait is given up by the commit that opens it: nobody has looked."""

    async def set(self) -> None:
        await Inheritance.set(self)

    def owning(self) -> Awaitable[Any]:
        commit = Commit("a", 0, "waiting_for_event", self["owner"].now, opened=[self.wait], release=True)
        return self["owner"].commit("owner", commits=[commit])


@pytest.mark.play
@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("play", [Balancing, Leaving])
async def test_an_instance_that_changes_hands_whoever_dies_where(
    place: Place, play: type[Balancing], filter: str
) -> None:
    await explore(place, play(FILTERS[filter]))


class Sharing(Inheritance):
    """Two who take over at once: what one has the other has not; what one had when it died the other gets."""

    names = "owner", "sender", "heir", "last", "next"
    ids = "a", "b", "c", "d", "e"

    async def set(self) -> None:
        await super().set()
        await self["next"].register("next")
        await self["owner"].start("b", "owner")
        for id in self.ids[2:]:
            await self["owner"].waiting(id, "owner")
        await self.sending()

    def actions(self) -> dict[str, Awaitable[Any]]:
        return {name: self.taking_some(name) for name in ("heir", "last")}

    async def taking_some(self, name: str) -> set[str]:
        await self[name].storage.take_over(name, ["owner"])
        return set(await self[name].claim(name, limit=2))

    async def check(self) -> None:
        claimed = {name: self.result(name) or set() for name in ("heir", "last")}
        assert not claimed["heir"] & claimed["last"]
        dead = [name for name in claimed if self.is_dead(name)]
        rest = next(name for name in ("heir", "last", "next") if name not in dead)
        claimed["next"] = set()
        await self[rest].storage.take_over(rest, ["owner", *dead])
        while more := set(await self[rest].claim(rest, limit=2)):
            assert not more & set().union(*claimed.values())
            claimed[rest] |= more
        assert set().union(*claimed.values()) == set(self.ids), "left behind"
        owners = {row.id: row.owner for row in await self[rest].storage.catalog.instances()}
        assert owners == {id: name for name, ids in claimed.items() for id in ids}


async def test_two_who_take_over_at_once_share_whoever_dies_where(place: Place) -> None:
    await explore(place, Sharing())


class Starting(Inheritance):
    """An event that starts a workflow is dispatched by its sender and by another."""

    async def set(self) -> None:
        await self["last"].storage.announce([("go", "wf", None)], ("wf",))

    def actions(self) -> dict[str, Awaitable[Any]]:
        return {"sender": self.sending(), "heir": self.sweeping("heir"), "last": self.sweeping("last")}

    async def sweeping(self, name: str) -> None:
        await self[name].storage._writer.dispatcher.sweep(None, (), self[name].now)  # type: ignore[attr-defined]

    async def check(self) -> None:
        await self.sweeping("owner")
        events, started = await self["owner"].storage.catalog.events(), await self["owner"].storage.catalog.instances()
        assert len(started) == len(events)
        assert len(events) == 1 or self.is_dead("sender")


async def test_an_event_starts_once_whoever_dispatches_it_or_dies_over_it(place: Place) -> None:
    await explore(place, Starting())
