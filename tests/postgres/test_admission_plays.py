"""Three workers admit to one queue, in every order of statements, and die at any point: no limit is exceeded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest

from romancy.engine.foresight import Foresight
from romancy.storage.batch import Commit
from tests.postgres.conftest import Place
from tests.postgres.exploring import explore
from tests.postgres.gates import Play, patient
from tests.storage.admitters import LIMITS, MOST, admit_all, fill, running

pytestmark = [patient, pytest.mark.play]


class Admitting(Play):
    """Three admit, and the heir comes after."""

    names: Sequence[str] = ("one", "two", "three", "heir")
    admitters: Sequence[str] = ("one", "two", "three")

    def __init__(self, limits: str) -> None:
        self._queue, self._most = LIMITS[limits], MOST[limits]

    async def set(self) -> None:
        await self["heir"].register(*self.names)
        await fill(self["heir"])

    def actions(self) -> dict[str, Awaitable[Any]]:
        return {name: self.admitting(name) for name in self.admitters}

    def admitting(self, name: str) -> Awaitable[Any]:
        return admit_all(self[name], self._queue, name)

    async def check(self) -> None:
        before = await running(self["heir"])
        assert len(before) <= self._most
        assert len(before) == self._most or all(map(self.is_dead, self.admitters)), "somebody left a slot free"
        await self.admitting("heir")
        after = await running(self["heir"])
        assert before == {id: after[id] for id in before}
        assert len(after) == self._most
        assert self._queue.rate is not None or max(Counter(id[0] for id in after).values()) == 1
        await self._is_run()

    async def _is_run(self) -> None:
        """What the dead have admitted is run by the heir."""
        dead = [name for name in self.admitters if self.is_dead(name)]
        await self["heir"].storage.take_over("heir", dead)
        await self["heir"].claim("heir")
        assert not {None, *dead} & set((await running(self["heir"])).values())


class Ending(Admitting):
    """Two admit while an instance ends and gives its slot back."""

    names = "one", "two", "owner", "heir"
    admitters = "one", "two"

    async def set(self) -> None:
        await super().set()
        await self.admitting("owner")

    def actions(self) -> dict[str, Awaitable[Any]]:
        ending = Commit("a1", 1, "completed", self["owner"].now, output=b"null")
        return {**super().actions(), "owner": self["owner"].commit("owner", commits=[ending])}

    async def check(self) -> None:
        ended = await self["heir"].storage.catalog.instance("a1")
        assert ended is not None
        assert ended.status == "completed" or self.is_dead("owner")
        assert len(await running(self["heir"])) <= self._most
        await self.admitting("heir")
        after = await running(self["heir"])
        assert len(after) == self._most, "the slot that was given back is taken, once"
        assert ("a1" in after) == (ended.status != "completed")


class PassingOn(Admitting):
    """The owner of an instance passes its slot on with its end, while a rival takes the owner over; a third one admits.

    The rival is wrong: the owner lives. Its commit comes before it is fenced, or stores nothing.
    """

    names = "owner", "rival", "one", "heir"
    admitters = "owner", "rival", "one"

    async def set(self) -> None:
        await super().set()
        await self.admitting("owner")

    def actions(self) -> dict[str, Awaitable[Any]]:
        return {"owner": self._pass_on(), "rival": self._take_over(), "one": self.admitting("one")}

    async def _pass_on(self) -> tuple[bool, bool]:
        """Return whether the end was stored, and whether the next one was admitted with it."""
        owner, foresight = self["owner"], Foresight()
        foresight.keep(self._queue.name, await owner.storage.queues.glance(self._queue), {"a1": "a", "b1": "b"})
        made = foresight.successor(self._queue, "a1", owner.now)
        assert made is not None
        ending = Commit("a1", 1, "completed", owner.now, output=b"null", admits=made)
        answer = await owner.commit("owner", commits=[ending])
        return answer.commits[0], bool(answer.admitted)

    async def _take_over(self) -> None:
        await self["rival"].storage.take_over("rival", ["owner"])
        await self["rival"].claim("rival")
        await self.admitting("rival")

    async def check(self) -> None:
        ended = await self["heir"].storage.catalog.instance("a1")
        assert ended is not None
        has_ended = ended.status == "completed"
        before = await running(self["heir"])
        assert len(before) == self._most, "the slot and its successor are stored together"
        assert ("a1" in before) != has_ended
        if self.result("owner") is not None:
            assert self.result("owner") == (has_ended, has_ended), "it was told what came of it"
        await self.admitting("heir")
        assert set(await running(self["heir"])) == set(before)
        dead = [name for name in self.admitters if self.is_dead(name)]
        await self["heir"].storage.take_over("heir", ["owner", *dead])
        await self["heir"].claim("heir")
        assert not {None, "owner", *dead} & set((await running(self["heir"])).values()), "somebody runs each of them"


@pytest.mark.parametrize("limits", LIMITS)
async def test_no_limit_is_exceeded_whoever_dies_where(place: Place, limits: str) -> None:
    await explore(place, Admitting(limits))


async def test_a_slot_is_passed_on_by_one_that_is_fenced_meanwhile(place: Place) -> None:
    await explore(place, PassingOn("slots"))


async def test_a_slot_that_is_given_back_meanwhile_is_taken_once(place: Place) -> None:
    await explore(place, Ending("slots"))
