"""Learning a shape: the log is indexed for the fields that a wait filters by, and only then may a wait rely on it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest

from romancy.core.filters import Filter
from romancy.storage.batch import Batch, BatchResult, Commit
from romancy.storage.errors import TransientError
from tests.postgres.conftest import Place
from tests.postgres.exploring import explore
from tests.postgres.gates import THOROUGH, Play, patient
from tests.storage.conftest import Database, offers

pytestmark = patient
NARROW = Filter.build(where={"n": 1})
INSTANCES = {"owner": "a", "other": "b", "heir": "c"}


async def persistently(db: Database, batch: Batch) -> BatchResult:
    """As the committer does it: a batch whose outcome is unknown goes out again as it was."""
    while True:
        try:
            return await db.submit(batch)
        except TransientError:
            pass


class Learning(Play):
    """Two workers filter by fields that nobody filtered by before; the event both wait for is in the log already."""

    names = "owner", "other", "sender", "heir"
    learners: Sequence[str] = ("owner", "other")

    async def set(self) -> None:
        await self["owner"].register(*INSTANCES)
        for worker, instance in INSTANCES.items():
            await self[worker].start(instance, worker)
        self.first = (await self["sender"].send(data={"n": 1}, id="first")).seq

    def actions(self) -> dict[str, Awaitable[Any]]:
        learning = {"owner": self.opening("owner"), "other": self.hearing()}
        return learning | {"sender": self.sending()} if THOROUGH else learning  # 25,000 states

    def opening(self, worker: str) -> Awaitable[BatchResult]:
        db = self[worker]
        commit = Commit(INSTANCES[worker], 0, "waiting_for_event", db.now, opened=[db.wait(filter=NARROW)])
        return persistently(db, db.batch(worker, commits=[commit]))

    async def hearing(self) -> BatchResult:
        """Whoever sends an event hears of all shapes of its type, also of those that somebody is still learning."""
        await self["other"].storage._writer.shapes.refresh(["go"])  # type: ignore[attr-defined]
        return await self.opening("other")

    def sending(self) -> Awaitable[BatchResult]:
        return self["sender"].commit(accepts=[self["sender"].event(data={"n": 1}, id="second")])

    async def check(self) -> None:
        """The oldest event reaches every wait that is stored; nobody's death keeps others from learning."""
        heir = self["heir"]
        await heir.storage._writer.dispatcher.sweep(None, (), heir.now)  # type: ignore[attr-defined]
        assert offers(await self.opening("heir")) == [("c", "w", self.first)], "the next who needs it learns it"
        dead = [name for name in self.learners if self.is_dead(name)]
        await heir.storage.take_over("heir", dead)
        claimed = await heir.claim("heir")
        waiting = {wait.instance for wait in await heir.storage.catalog.waits()}
        for worker in self.learners:
            instance = INSTANCES[worker]
            if worker not in dead:
                assert offers(self.result(worker)) == [(instance, "w", self.first)], "lost"
            elif instance in waiting:
                assert instance in claimed, "nobody would ever look"
                assert await heir.look(instance, "heir") == [("w", self.first)], "lost"


class LosingConnections(Learning):
    """The one who learns loses its connection over it, and lives."""

    learners = fragile = ("owner",)

    def actions(self) -> dict[str, Awaitable[Any]]:
        return {"owner": self.opening("owner"), "sender": self.sending()}


@pytest.mark.play
@pytest.mark.parametrize("play", [Learning, LosingConnections])
async def test_no_event_is_lost_whoever_learns_and_dies_where(place: Place, play: type[Learning]) -> None:
    await explore(place, play())


# --- one by one ------------------------------------------------------------------------------------------------------
async def test_a_connection_cut_while_the_log_is_indexed_loses_no_event(place: Place) -> None:
    db = await place.worker("me", listen=False)
    await db.start("a", "me")
    seq = (await db.send(data={"n": 1})).seq
    connections: Any = db.storage._connections  # type: ignore[attr-defined]
    write, cut = connections.write, ["insert_event_keys"]

    async def breaking(statement: Any, given: Any) -> Any:
        if cut and statement is connections.statements.get(cut[-1]):
            cut.pop()
            raise TransientError("the connection was lost")
        return await write(statement, given)

    connections.write = breaking
    opening = Commit("a", 0, "waiting_for_event", db.now, opened=[db.wait(filter=NARROW)])
    answer = await persistently(db, db.batch("me", commits=[opening]))
    assert not cut
    assert offers(answer) == [("a", "w", seq)]


async def test_a_shape_that_another_worker_is_still_learning_is_not_relied_on(place: Place) -> None:
    """No fault at all: one worker goes through a long log, the other hears of the shape by dispatching."""
    one, other = await place.worker("one", listen=False), await place.worker("other", listen=False)
    await one.start("a", "one")
    await other.start("b", "other")
    seq = (await one.send(data={"n": 1})).seq
    connections: Any = one.storage._connections  # type: ignore[attr-defined]
    ask, indexing, go_on = connections.ask, asyncio.Event(), asyncio.Event()

    async def slow(name: str, /, **given: Any) -> Any:
        if name == "insert_event_keys":
            indexing.set()
            await go_on.wait()
        return await ask(name, **given)

    connections.ask = slow
    learning = asyncio.ensure_future(one.step("a", "one", 0, opened=[one.wait(filter=NARROW)]))
    await indexing.wait()
    await other.send(data={"n": 2})  # by this it hears of the shape
    found = await other.step("b", "other", 0, opened=[other.wait(filter=NARROW)])
    go_on.set()
    assert offers(found) == [("b", "w", seq)]
    assert offers(await learning) == [("a", "w", seq)]


async def test_shapes_that_are_ready_cost_nothing(place: Place) -> None:
    db = await place.worker("me", listen=False)
    await db.waiting("a", "me", db.wait(filter=NARROW))
    connections: Any = db.storage._connections  # type: ignore[attr-defined]
    write, names = connections.write, list[str]()

    async def counting(statement: Any, given: Any) -> Any:
        names.append(statement.sql)
        return await write(statement, given)

    connections.write = counting
    await db.start("b", "me")
    names.clear()
    await db.step("b", "me", 0, opened=[db.wait(filter=Filter.build(where={"n": 2}))])
    assert len(names) == 2, "the commit and the look"


async def too_early(place: Place) -> tuple[Database, int]:
    """A wait that a former version stored, and looked for, while its shape was not ready. The event it missed."""
    db = await place.worker("me", listen=False)
    await db.start("a", "me")
    missed, last = [(await db.send(data={"n": 1})).seq for _ in range(2)]
    await db.step("a", "me", 0, opened=[db.wait(filter=NARROW)])
    raw = await place.raw()
    await raw.execute("UPDATE shapes SET ready = false; DELETE FROM event_keys; DELETE FROM deliveries")
    await raw.execute(
        "INSERT INTO marks SELECT k.instance, k.type, k.shape, k.key, '', e.xid, e.seq FROM wait_keys k, events e "
        f"WHERE e.seq = {last}"
    )
    assert await raw.fetch("TABLE unlooked") == []
    return Database(await place.storage(listen=False), place.clock), missed


@pytest.mark.parametrize("by", ["the next who needs it", "retention"])
async def test_a_wait_that_was_stored_too_early_is_looked_at_again(place: Place, by: str) -> None:
    db, seq = await too_early(place)
    assert (await db.storage.mail("me", 10)).deliveries == []
    if by == "retention":
        await db.storage.prune(0, 0, 10)
    else:
        await db.waiting("b", "me", db.wait(filter=NARROW))
    assert (await db.storage.mail("me", 10)).deliveries == [("a", seq)], "the owner is told to look"
    assert await db.look("a", "me") == [("w", seq)]
    assert await db.rows("SELECT ready FROM shapes") == [(True,)]


async def test_retention_leaves_alone_what_others_are_learning(place: Place) -> None:
    db = await place.worker("me", listen=False)
    await db.rows("INSERT INTO shapes (type, fields) VALUES ('go', '[]')")
    await db.storage.prune(0, 0, 10)
    assert await db.rows("SELECT ready FROM shapes") == [(False,)]


async def test_a_wait_stored_without_an_index_is_found_by_events(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby may take over between learning a shape and storing the wait: then this process knows none any more."""
    db = await place.worker("me")
    await db.start("a", "me")
    shapes = db.storage._writer.shapes  # type: ignore[attr-defined]
    learn = shapes.learn

    async def learn_and_forget(*args: Any) -> None:
        await learn(*args)
        shapes.forget()

    monkeypatch.setattr(shapes, "learn", learn_and_forget)
    await db.step("a", "me", 0, opened=[db.wait(filter=NARROW)])
    sent = await db.commit(worker="me", accepts=[db.event(data={"n": 1})])
    assert [match.instance for match in sent.accepts[0].matched] == ["a"]
