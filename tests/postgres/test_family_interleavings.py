"""A child ends while its parent gives it up, ends or is taken over: in any order, and whoever dies where."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

import pytest

from romancy.core.history import Entry, Kind
from romancy.storage.batch import CHILD_COMPLETED, GIVEN_UP, Ask, Commit, Ending, Start
from tests.postgres.conftest import Place
from tests.postgres.exploring import explore
from tests.postgres.gates import Play, patient
from tests.storage.conftest import Database

pytestmark = patient
PARENT, CHILD, OP = "p", "p/c:1", "c:1"


async def take_over(db: Database, heir: str, *dead: str) -> set[str]:
    await db.storage.take_over(heir, dead)
    return set(await db.claim(heir))


class GivingUp(Play):
    """The owner of a parent gives its child up, the child's own worker ends it, and somebody takes the parent over."""

    names: Sequence[str] = ("owner", "nurse", "heir", "last")
    ends = False
    """Whether the parent ends, too."""

    async def set(self) -> None:
        await self["owner"].register(*self.names)
        await self["owner"].start(PARENT, "owner")
        child = Start(CHILD, "wf", b"{}", 0, self["owner"].now, parent=PARENT, parent_op=OP)
        assert (await self["owner"].commit("owner", starts=[child])).starts[0].created
        assert set(await self["nurse"].claim("nurse")) == {CHILD}
        await self["nurse"].step(CHILD, "nurse", 1)  # it has begun: it can't be cancelled at once

    def actions(self) -> dict[str, Awaitable[Any]]:
        now = self["owner"].now
        entry = Entry(1, Kind.TIMER_FIRED, "t", now)
        given_up = Commit(PARENT, 0, "waiting_for_child", now, entries=[entry], asks=[Ask(CHILD, "too late")])
        if self.ends:
            given_up.status, given_up.output = "completed", b"null"
        end = Commit(CHILD, 2, "completed", now, output=b"7", ending=Ending(PARENT, OP, CHILD_COMPLETED, b"7"))
        return {
            "owner": self["owner"].commit("owner", commits=[given_up]),
            "nurse": self["nurse"].commit("nurse", commits=[end]),
            "heir": take_over(self["heir"], "heir", "owner"),
        }

    async def check(self) -> None:
        last = self["last"]
        rows = {row.id: row for row in await last.storage.catalog.instances()}
        gave_up = bool(await last.rows("SELECT 1 FROM history WHERE instance = 'p'"))
        child_ended, parent_ended = rows[CHILD].status == "completed", rows[PARENT].status == "completed"
        self._check_answers(gave_up, child_ended)
        assert parent_ended == (self.ends and gave_up)
        requests = await last.rows("SELECT instance, kind, payload FROM requests ORDER BY id")
        told = [(PARENT, CHILD_COMPLETED, b"7")] if child_ended and not parent_ended else []
        asked = [(CHILD, GIVEN_UP, b"too late")] if gave_up and not child_ended else []
        assert sorted(requests) == sorted(told + asked), "everybody hears once of what concerns it, and of nothing else"
        assert await self._heard() == sorted((instance, kind) for instance, kind, _ in told + asked)

    def _check_answers(self, gave_up: bool, child_ended: bool) -> None:
        for name, happened in (("owner", gave_up), ("nurse", child_ended)):
            answer = self.result(name)
            assert answer is None or answer.commits == [happened], f"{name} was told the wrong thing"

    async def _heard(self) -> list[tuple[str, int]]:
        """What those hear who own the two instances in the end."""
        await take_over(self["last"], "last", *self.names[:-1])
        mail = (await self["last"].storage.mail("last", 100)).requests
        return sorted((instance, request.kind) for instance, request in mail)


class Departing(GivingUp):
    """The same, with a parent that ends and leaves its child behind."""

    ends = True


@pytest.mark.play
@pytest.mark.parametrize("play", [GivingUp, Departing])
async def test_a_child_ends_while_its_parent_does_something_else(place: Place, play: type[Play]) -> None:
    await explore(place, play())
