"""Waits of one instance that are alike: an event looks for one of them, at the same price however many there are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from romancy.core.filters import Filter
from romancy.storage.batch import AcceptAnswer, WaitRow
from romancy.storage.postgres import PostgresStorage
from tests.storage.conftest import Database

FEW, MANY = 20, 1_000


def alike(db: Database, count: int, *types: str, name: str = "w", **fields: Any) -> list[WaitRow]:
    """So many waits, all but the first of which follow."""
    return [db.wait(f"{name}{n}", *types, follows=n > 0, **fields) for n in range(count)]


def where(**wanted: Any) -> Filter:
    return Filter.build(where=wanted)


def matched(answer: AcceptAnswer) -> list[tuple[str, str]]:
    """In an order of our own: no backend promises one."""
    return sorted((match.instance, match.op) for match in answer.matched)


async def test_an_event_finds_one_of_them(db: Database) -> None:
    await db.waiting("a", "me", *alike(db, 5))
    await db.waiting("b", "me", *alike(db, 1))
    await db.waiting("c", "me", *alike(db, 5))
    accepted = await db.send()
    assert [instance for instance, _ in matched(accepted)] == ["a", "b", "c"]
    assert await db.rows("SELECT instance, event FROM romancy.deliveries ORDER BY 1") == [
        (i, accepted.seq) for i in "abc"
    ]


async def test_followers_are_found_when_the_first_is_gone(db: Database) -> None:
    waits = alike(db, 3)
    await db.waiting("a", "me", *waits)
    for n, wait in enumerate(waits):
        accepted = await db.send()
        assert len(accepted.matched) == 1
        [(op, seq)] = await db.look("a", "me", accepted.matched[0].op)
        assert (op, seq) == (accepted.matched[0].op, accepted.seq)
        await db.take("a", "me", n + 1, seq, wait)
    assert matched(await db.send()) == []
    assert await db.rows("SELECT * FROM romancy.wait_keys") == []


async def test_every_kind_is_found_in_every_instance(db: Database) -> None:
    for instance in ("a", "b"):
        kinds = [
            alike(db, 3, name="any"),
            alike(db, 3, name="model", model="M"),
            alike(db, 3, "go", "stop", name="types"),
            [db.wait("now", since="now")],
            [db.wait("time", since=5)],
        ]
        await db.waiting(instance, "me", *(wait for kind in kinds for wait in kind))
        # The first of each is gone.
        await db.step(instance, "me", 1, closed=["any0", "model0", "types0"])
    found = [(instance, op.rstrip("012")) for instance, op in matched(await db.send())]
    assert sorted(found) == [(i, kind) for i in "ab" for kind in ("any", "model", "now", "time", "types")]
    assert [(i, op.rstrip("012")) for i, op in matched(await db.send("stop"))] == [("a", "types"), ("b", "types")]


async def test_which_comes_first_does_not_depend_on_who_follows(db: Database) -> None:
    kinds = [alike(db, 2, name="z"), alike(db, 2, name="a", model="M"), alike(db, 2, name="m", model="L")]
    await db.waiting("a", "me", *(wait for kind in kinds for wait in kind))
    first = [m.model for m in (await db.send()).matched]
    await db.step("a", "me", 1, closed=["z0", "m0"])
    assert [m.model for m in (await db.send()).matched] == first


async def test_an_event_for_one_instance_finds_its_followers_only(db: Database) -> None:
    for instance in ("a", "b", "c"):
        await db.waiting(instance, "me", *alike(db, 3), *alike(db, 3, name="m", model="M"))
        await db.step(instance, "me", 1, closed=["w0"])
    assert [(i, op[0]) for i, op in matched(await db.send(target="b"))] == [("b", "m"), ("b", "w")]
    assert matched(await db.send(target="bb")) == []
    assert matched(await db.send(target="d")) == []


async def test_filters_and_anchors(db: Database) -> None:
    odd = [where(**{f"f{n}": 1}) for n in range(20)]  # too many for an index each
    for n, narrow in enumerate([where(by="ada"), *odd]):
        await db.waiting(f"i{n:02}", "me", *alike(db, 3, filter=narrow))
        await db.step(f"i{n:02}", "me", 1, closed=["w0"])
    found = sorted(i for i, _ in matched(await db.send(data={"by": "ada", "f19": 1, "f3": 1})))
    assert found == ["i00", "i04", "i20"]


async def test_waits_that_were_stored_before_there_were_followers(db: Database) -> None:
    """They are found one by one, and still count as one."""
    await db.waiting("a", "me", *(db.wait(f"w{n}") for n in range(5)))
    assert matched(await db.send()) == [("a", "w0")]


# --- the price --------------------------------------------------------------------------------------------------------
async def price(db: Database, act: Callable[[], Awaitable[object]]) -> int:
    """Rows that PostgreSQL's statements read, or instructions of SQLite's machine."""
    done: list[float] = []
    storage: Any = db.storage
    if not isinstance(storage, PostgresStorage):
        await storage._writer.call(lambda c: c.set_progress_handler(lambda: done.append(1), 1))
        try:
            await act()
        finally:
            await storage._writer.call(lambda c: c.set_progress_handler(None, 0))
        return len(done)
    connections: Any = storage._connections
    do, write = connections.do, connections.write_timed

    async def explain(name: str, **given: Any) -> Any:
        statement = connections.statements.get(name)
        done.append(await db.rows_read(statement, given))
        return await do(name, **given)

    async def explain_write(statement: Any, given: Any) -> Any:
        done.append(await db.rows_read(statement, given))
        return await write(statement, given)

    connections.do, connections.write_timed = explain, explain_write
    try:
        await act()
    finally:
        connections.do, connections.write_timed = do, write
    return round(sum(done))


async def prices(db: Database, act: Callable[[str], Awaitable[object]]) -> tuple[int, int]:
    """Of something that happens to an instance with few waits, and to one with many."""
    if isinstance(db.storage, PostgresStorage):
        await db.analyze()
    few = await price(db, lambda: act("few"))
    return few, await price(db, lambda: act("many"))


async def crowds(db: Database, narrow: Filter | None = None) -> dict[str, list[WaitRow]]:
    """An instance with few waits that are alike, and one with many; the first of each is gone."""
    waits = {name: alike(db, count, name, filter=narrow) for name, count in (("few", FEW), ("many", MANY))}
    for name in waits:
        await db.waiting(name, "me", *waits[name])
        await db.step(name, "me", 1, closed=["w0"])
    return waits


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("narrow", [None, where(by="ada")], ids=["any", "filtered"])
async def test_what_an_event_costs_does_not_grow_with_them(db: Database, targeted: bool, narrow: Filter | None) -> None:
    await crowds(db, narrow)

    async def send(name: str) -> None:
        accept = db.event(name, {"by": "ada"}, target=name if targeted else None)
        answer = await db.commit("me", accepts=[accept])
        assert [m.instance for m in answer.accepts[0].matched] == [name]
        assert [offer.instance for offer in answer.offers] == [name]

    few, many = await prices(db, send)
    assert many < 2 * few, f"{few} for {FEW} waits, {many} for {MANY}"


async def test_what_taking_an_event_costs_does_not_grow_with_them(db: Database) -> None:
    waits = await crowds(db)
    sent = {name: (await db.send(name)).seq for name in waits}
    few, many = await prices(db, lambda n: db.take(n, "me", 2, sent[n], waits[n][1], looks=["w2"]))
    assert many < 2 * few, f"{few} for {FEW} waits, {many} for {MANY}"


async def test_what_opening_waits_with_filters_costs_grows_with_their_number(db: Database) -> None:
    """Each of them looks for itself."""
    for name in ("few", "many"):
        await db.start(name, "me")

    async def open(name: str) -> None:
        count = FEW if name == "few" else MANY
        await db.step(name, "me", 0, opened=[db.wait(f"w{n}", filter=where(n=n)) for n in range(count)])

    few, many = await prices(db, open)
    assert many < 2 * few * MANY / FEW, f"{few} for {FEW} waits, {many} for {MANY}"
