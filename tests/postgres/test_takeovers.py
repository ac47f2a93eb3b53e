"""Three at once: an owner, a sender, and whoever takes over from the owner. Any order, and any of them may die."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from romancy.core.matching import Filter
from romancy.storage.postgres import dispatching
from romancy.storage.protocol import Commit
from tests.postgres.conftest import Place
from tests.postgres.gates import Gate, deaths, patient, play, schedules
from tests.storage.conftest import Database

pytestmark = patient
FILTERS = {"unfiltered": None, "filtered": Filter.build(where={"n": 1})}
OWNER, SENDER, HEIR = range(3)


class Cast:
    """Who takes part, and a stage that is new for every run."""

    def __init__(self, *databases: Database) -> None:
        self.owner, self.sender, self.heir, self.last = databases
        self._runs = 0

    async def set(self, filter: Filter | None = None) -> None:
        self._runs += 1
        n = self._runs
        self.instance, self.type = f"i{n}", f"type{n}"
        self.names = {self.owner: f"owner{n}", self.heir: f"heir{n}", self.last: f"last{n}"}
        for database, name in self.names.items():
            await database.register(name)
        await self.owner.start(self.instance, self.names[self.owner])
        self.wait = self.owner.wait("w", self.type, filter=filter)
        self.gates = [Gate(each.storage) for each in (self.owner, self.sender, self.heir)]  # type: ignore[arg-type]

    async def strike(self) -> None:
        """The run is over: nothing of it is left to be claimed by the next."""
        for database, name in self.names.items():
            await database.storage.release(name)
        await self.owner.rows("DELETE FROM instances RETURNING id")

    # --- what they do ------------------------------------------------------------------------------------------------
    def opening(self) -> Awaitable[Any]:
        commit = Commit(self.instance, 0, "waiting_for_event", self.owner.now, opened=[self.wait])
        return self.owner.commit(self.names[self.owner], commits=[commit])

    def giving_up(self) -> Awaitable[Any]:
        commit = Commit(self.instance, 1, "waiting_for_event", self.owner.now, release=True)
        return self.owner.commit(self.names[self.owner], commits=[commit])

    def sending(self) -> Awaitable[Any]:
        return self.sender.commit(accepts=[self.sender.event(self.type, {"n": 1}, id=self.type)])

    async def succeeding(self, heir: Database, *dead: Database) -> list[int]:
        """Take over, claim, and look for what was claimed: the events that came of it."""
        heir.storage._swept = float("-inf")  # type: ignore[attr-defined] - what was left undispatched is part of it
        await heir.storage.take_over(self.names[heir], [self.names[each] for each in dead])
        return await self.claiming(heir)

    async def claiming(self, heir: Database) -> list[int]:
        claimed = await heir.claim(self.names[heir])
        return [seq for _, seq in await heir.look(self.instance, self.names[heir])] if claimed else []

    async def adopting(self) -> list[int]:
        await self.heir.storage.adopt(self.names[self.heir], ("wf",), 10)
        return await self.claiming(self.heir)

    async def begin(self, *actions: Awaitable[Any]) -> None:
        for gate, action in zip(self.gates, actions, strict=True):
            await gate.begin(action)

    async def counts(self, *actions: Awaitable[Any]) -> list[int]:
        """How many statements each takes, at most."""
        await self.begin(*actions)
        for gate in self.gates:
            await gate.finish()
        await self.strike()
        return [gate.count + 1 for gate in self.gates]

    # --- how it must end ---------------------------------------------------------------------------------------------
    async def check(self, heir: Database, found: list[int], order: object) -> None:
        """The instance is the heir's; if it waits and the event is stored it hears of it, and takes it once.

        If it only waits it may be left as it is until there is an event.
        """
        found = [*found, *await self.succeeding(heir)]
        name = self.names[heir]
        row = await heir.storage.instance(self.instance)
        assert row is not None
        if row.owner != name and row.status == "waiting_for_event" and not await heir.storage.events(type=self.type):
            await self.sending()
            found += await self.claiming(heir)
            row = await heir.storage.instance(self.instance)
            assert row is not None
        assert row.owner == name, f"left with a dead owner when the order was {order}"
        found += [seq for instance, seq in (await heir.storage.mail(name, 100)).deliveries if instance == self.instance]
        waits = await heir.storage.waits(instance=self.instance)
        stored = [each.event.seq for each in await heir.storage.events(type=self.type)]
        assert len(stored) <= 1
        assert set(found) == set(stored if waits else ()), f"lost when the order was {order}"
        if found:
            await heir.take(self.instance, name, row.version, stored[0], self.wait)
            assert await heir.look(self.instance, name) == []
            assert (await heir.storage.mail(name, 100)).deliveries == []
        late = [Commit(self.instance, version, "failed", heir.now) for version in range(4)]
        for commit in late:
            assert (await self.owner.commit(self.names[self.owner], commits=[commit])).commits == [False]
        await self.strike()


@pytest.fixture
async def cast(place: Place, monkeypatch: pytest.MonkeyPatch) -> Cast:
    monkeypatch.setattr(dispatching, "STALE", -1_000_000)  # an event is swept up at once
    return Cast(*[Database(await place.storage(listen=False), place.clock) for _ in range(4)])


# --- a wait is opened, its event sent, its owner taken over -----------------------------------------------------------
def all_three(cast: Cast) -> tuple[Awaitable[Any], ...]:
    return cast.opening(), cast.sending(), cast.succeeding(cast.heir, cast.owner)


@pytest.mark.parametrize("filter", FILTERS)
async def test_in_every_order(cast: Cast, filter: str) -> None:
    await cast.set(FILTERS[filter])
    for order in schedules(*await cast.counts(*all_three(cast))):
        await cast.set(FILTERS[filter])
        await cast.begin(*all_three(cast))
        await play(order, cast.gates)
        answer, _, found = [await gate.finish() for gate in cast.gates]
        assert answer.fenced or answer.commits == [True]
        await cast.check(cast.heir, found, order)


@pytest.mark.parametrize("dies", [OWNER, SENDER, HEIR], ids=["owner", "sender", "heir"])
async def test_any_of_them_may_die_anywhere(cast: Cast, dies: int) -> None:
    """After the heir there is one more."""
    await cast.set()
    for order in deaths(*await cast.counts(*all_three(cast)), actor=dies):
        await cast.set()
        await cast.begin(*all_three(cast))
        await play(order, cast.gates)
        await cast.gates[dies].crash()
        answers = [None if n == dies else await gate.finish() for n, gate in enumerate(cast.gates)]
        if dies == HEIR:
            await cast.check(cast.last, await cast.succeeding(cast.last, cast.heir, cast.owner), order)
        else:
            await cast.check(cast.heir, answers[HEIR], order)


# --- a wait is given up, its event sent, the instance adopted ---------------------------------------------------------
def balancing(cast: Cast) -> tuple[Awaitable[Any], ...]:
    return cast.giving_up(), cast.sending(), cast.adopting()


async def test_an_instance_that_changes_hands_in_every_order(cast: Cast) -> None:
    await cast.set()
    await cast.opening()
    for order in schedules(*await cast.counts(*balancing(cast))):
        await cast.set()
        await cast.opening()
        await cast.begin(*balancing(cast))
        await play(order, cast.gates)
        _, _, found = [await gate.finish() for gate in cast.gates]
        await cast.heir.storage.adopt(cast.names[cast.heir], ("wf",), 10)
        await cast.check(cast.heir, found, order)


# --- two heirs -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dies", [False, True], ids=["both live", "one dies"])
async def test_two_who_take_over_at_once_share(cast: Cast, dies: bool) -> None:
    """What one has the other has not; what one had when it died the other gets."""

    async def claiming(heir: Database) -> set[str]:
        await heir.storage.take_over(cast.names[heir], [cast.names[cast.owner]])
        return set(await heir.claim(cast.names[heir], limit=2))

    heirs = cast.heir, cast.last
    for order in deaths(5, 5, actor=0) if dies else schedules(5, 5):
        await cast.set()
        ids = {f"{cast.instance}.{n}" for n in range(4)}
        for n, id in enumerate(ids):
            if n < 2:
                await cast.owner.start(id, cast.names[cast.owner])
            else:
                await cast.owner.waiting(id, cast.names[cast.owner], cast.wait)
        await cast.sending()
        gates = [Gate(heir.storage) for heir in heirs]  # type: ignore[arg-type]
        for gate, heir in zip(gates, heirs, strict=True):
            await gate.begin(claiming(heir))
        await play(order, gates)
        if dies:
            await gates[0].crash()
        claimed = [set[str]() if dies and n == 0 else await gate.finish() for n, gate in enumerate(gates)]
        assert not claimed[0] & claimed[1]
        if dies:
            await cast.last.storage.take_over(cast.names[cast.last], [cast.names[cast.heir]])
        while more := await cast.last.claim(cast.names[cast.last], limit=2):
            assert not set(more) & (claimed[0] | claimed[1])
            claimed[1] |= set(more)
        assert claimed[0] | claimed[1] == ids | {cast.instance}, f"left behind when the order was {order}"
        await cast.strike()


# --- an event that starts a workflow, dispatched by two --------------------------------------------------------------
@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
async def test_an_event_starts_once_whoever_dispatches_it(cast: Cast, dies: bool) -> None:
    async def sweeping() -> None:
        await cast.heir.storage._writer.dispatcher.sweep(None, (), cast.heir.now)  # type: ignore[attr-defined]

    for order in deaths(4, 4, actor=0) if dies else schedules(4, 4):
        await cast.set()
        await cast.last.storage.announce([(cast.type, "wf", None)], ("wf",))
        gates = cast.gates[SENDER], cast.gates[HEIR]
        await gates[0].begin(cast.sending())
        await gates[1].begin(sweeping())
        await play(order, gates)
        if dies:
            await gates[0].crash()
        else:
            await gates[0].finish()
        await gates[1].finish()
        await sweeping()
        events = await cast.heir.storage.events(type=cast.type)
        started = [row.id for row in await cast.heir.storage.instances() if row.id != cast.instance]
        assert len(started) == len(events), f"{started} when the order was {order}"
        assert dies or len(events) == 1
        await cast.strike()
