"""Conformance: which events are kept for whom, and what is remembered of interest."""

from __future__ import annotations

from typing import Any

import pytest

from romancy.core.interests import Interest
from romancy.core.model import SECOND
from romancy.storage.interests import (
    CROWD,
    FIRST,
    KNOWN,
    MOST_TYPES,
    OPEN,
    SETTLED,
    SLACK,
    Floor,
    Floors,
    Keeping,
    Plan,
    Row,
)
from tests.storage.conftest import Database

DAY = 24 * 3600 * SECOND
WEEK = 7 * DAY


async def prune(db: Database, limit: int = 100) -> int:
    return await db.storage.prune(0, db.now - WEEK, limit)


async def kept(db: Database) -> set[str]:
    return {stored.event.id for stored in await db.storage.catalog.events(limit=1000)}


async def rows(db: Database) -> list[Row]:
    found = await db.rows("SELECT workflow, type, next, kind FROM romancy.interests ORDER BY 1, 2, 3")
    return [(workflow, type, following, kind) for workflow, type, following, kind in found]


# --- floors -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("stored", "oldest", "floor"),
    [
        ([], {}, None),
        ([("a", "*", "", SETTLED), ("a", "go", "", KNOWN)], {}, None),
        ([("a", "*", "", SETTLED), ("a", "go", "", KNOWN)], {"a": 5}, (5, "a")),
        ([("a", "*", "", SETTLED), ("a", "gone", "", KNOWN)], {"a": 5}, None),
        ([("a", "*", "", SETTLED), ("a", "g*", "", KNOWN)], {"a": 5}, (5, "a")),
        ([("a", "gone", "", KNOWN)], {"a": 5}, (5, "a")),  # a wait was seen before the workflow was registered
        ([("a", "*", "", FIRST)], {"a": 5}, (5, "a")),
        ([("a", "*", "", OPEN)], {"a": 5}, (5, "a")),
        ([("a", "*", "", FIRST), ("b", "*", "", SETTLED), ("b", "go", "", KNOWN)], {"a": 5, "b": 3}, (3, "b")),
        ([], {"never registered": 5}, (5, "never registered")),
        (
            [("a", "*", "", SETTLED), ("a", "", "b", KNOWN), ("b", "*", "", SETTLED), ("b", "go", "", KNOWN)],
            {"a": 5},
            (5, "a"),
        ),
        (
            [("a", "*", "", SETTLED), ("a", "", "b", KNOWN), ("b", "*", "", SETTLED), ("b", "", "a", KNOWN)],
            {"a": 5},
            None,
        ),
    ],
)
def test_the_floor_of_a_type(stored: list[Row], oldest: dict[str, int], floor: tuple[int, str] | None) -> None:
    expected = None if floor is None else Floor(floor[0] - SLACK, floor[1])
    assert Floors(stored, oldest).of("go") == expected


# --- registration -----------------------------------------------------------------------------------------------------
async def test_what_is_registered_adds_up(db: Database) -> None:
    await db.storage.expect([Interest("a", frozenset({"go"}), frozenset({"b"}))])
    assert await rows(db) == [("a", "", "b", KNOWN), ("a", "*", "", FIRST), ("a", "go", "", KNOWN)]
    await db.storage.expect([Interest("a", frozenset({"come"}), is_open=True)])
    assert ("a", "*", "", OPEN) in await rows(db)
    await db.storage.expect([Interest("a", frozenset({"x*"}), is_declared=True)])
    assert await rows(db) == [
        ("a", "", "b", KNOWN),
        ("a", "*", "", SETTLED),
        ("a", "come", "", KNOWN),
        ("a", "go", "", KNOWN),
        ("a", "x*", "", KNOWN),
    ]
    await db.storage.expect([Interest("a")])
    assert ("a", "*", "", SETTLED) in await rows(db), "that it is known is not forgotten"


async def test_a_wait_is_stored_with_its_interest(db: Database) -> None:
    await db.start("i", "me")
    await db.step("i", "me", 0, opened=[db.wait("w", "go", "come")], workflow="wf")
    assert await rows(db) == [("wf", "come", "", KNOWN), ("wf", "go", "", KNOWN)]
    await db.step("i", "me", 1, opened=[db.wait("v", "go", "stop")], workflow="wf")
    await db.step("i", "me", 2, opened=[db.wait("u", "stop")], workflow="wf")
    assert ("wf", "stop", "", KNOWN) in await rows(db)


# --- pruning ----------------------------------------------------------------------------------------------------------
async def test_the_first_cohort_ends_when_an_instance_has_completed(db: Database) -> None:
    await db.storage.expect([Interest("wf", frozenset({"go"}))])
    await db.waiting("open", "me", db.wait("w", "go"))
    await db.waiting("done", "me", db.wait("w", "go"))
    await db.send("go", id="wanted")
    await db.send("other", id="unwanted")
    await db.commit("me", looks=[("open", None)])
    db.clock.turn_to(db.now + 8 * DAY)
    assert await prune(db) == 0
    assert await kept(db) == {"wanted", "unwanted"}
    await db.step("done", "me", 1, status="completed", closed=["w"])
    assert await prune(db) == 1
    assert await kept(db) == {"wanted"}


async def test_an_interest_that_is_new_during_a_round_counts(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round has decided what to remove, and an instance begins to wait for that before it is removed."""
    await db.storage.expect([Interest("wf", frozenset({"go"}), is_declared=True)])
    await db.start("i", "me")
    wanted = (await db.send("new", id="wanted")).seq
    await db.send("new", id="wanted later")
    await db.send("unwanted", id="unwanted")
    db.clock.turn_to(db.now + 8 * DAY)
    plan = Keeping.plan

    async def slow(self: Keeping, *given: Any) -> Plan:
        made = await plan(self, *given)
        assert "new" in {type for type, _ in made.types}
        answer = await db.step("i", "me", 0, opened=[db.wait("w", "new")], status="waiting_for_event", workflow="wf")
        assert [offer.event.seq for offer in answer.offers] == [wanted]
        return made

    with monkeypatch.context() as patch:
        patch.setattr(Keeping, "plan", slow)
        await prune(db)
    assert await kept(db) >= {"wanted", "wanted later"}
    assert await db.look("i", "me") == [("w", wanted)], "also by a worker that was not told"
    await prune(db)
    assert await kept(db) == {"wanted", "wanted later"}


async def test_a_round_removes_no_more_than_its_share(db: Database) -> None:
    await db.commit(accepts=[db.event(type=f"t{n % 3}") for n in range(10)])
    db.clock.turn_to(db.now + 8 * DAY)
    assert [await prune(db, limit=4) for _ in range(4)] == [4, 4, 2, 0]


async def test_a_cut_says_up_to_when(db: Database) -> None:
    await db.start("i", "me")
    await db.send("go", id="a")
    await db.send("come", id="b")
    last = db.now
    db.clock.turn_to(db.now + 8 * DAY)
    await db.send("go", id="young")
    assert await prune(db) == 0, "for an instance of which nothing is known"
    cuts = await db.storage.cut(db.now - WEEK, 100)
    assert [(cut.type, cut.count, cut.upto) for cut in cuts] == [("come", 1, last + 1), ("go", 1, last + 1)]
    assert await kept(db) == {"young"}
    assert await db.rows("SELECT type, upto FROM romancy.cuts ORDER BY 1") == [("come", last + 1), ("go", last + 1)]
    assert await db.storage.cut(db.now - WEEK, 100) == []


async def test_what_is_held_names_the_oldest_instance(db: Database) -> None:
    await db.storage.expect([Interest("wf", frozenset({"go"}), is_declared=True)])
    await db.start("first", "me")
    await db.send("go", id="a")
    await db.send("other", id="b")
    db.clock.turn_to(db.now + DAY)
    await db.start("second", "me")
    [held] = await db.storage.held(db.now, 10)
    assert (held.type, held.count, held.workflow, held.instance) == ("go", 1, "wf", "first")
    assert not held.is_addressed


async def test_what_is_held_for_its_addressee(db: Database) -> None:
    await db.storage.expect([Interest("wf", is_declared=True)])
    await db.start("first", "me")
    for id in ("a", "b"):
        await db.send("go", id=id, target="first")
    await db.send("come", id="c", target="first")
    await db.send("go", id="d", target="nobody")
    db.clock.turn_to(db.now + DAY)
    await db.start("second", "me")
    await db.send("go", id="e", target="second")
    held = await db.storage.held(db.now, 10)
    assert [(one.type, one.count, one.workflow, one.instance) for one in held if one.is_addressed] == [
        ("come", 1, "wf", "first"),
        ("go", 2, "wf", "first"),
    ]
    assert len(held) == 2, "an event of today is not old, and nobody waits for one without an addressee"
    await db.step("first", "me", 0, status="completed")
    assert await db.storage.held(db.now, 10) == []


@pytest.mark.parametrize("is_registered", [True, False])
async def test_a_type_for_each_instance_is_not_remembered_for_ever(db: Database, is_registered: bool) -> None:
    """What is remembered is read in every round: ten thousand types of one workflow count as all types."""
    if is_registered:
        await db.storage.expect([Interest("wf", is_open=True)])
    await db.send("type 9999", id="wanted")
    await db.start("i", "me")
    for n in range(0, 10_000, 50):
        waits = [db.wait(f"w{m}", f"type {m}") for m in range(n, n + 50)]
        await db.step("i", "me", n // 50, opened=waits, closed=[f"w{m}" for m in range(n - 50, n)], workflow="wf")
    found = await rows(db)
    assert len(found) <= (1 if is_registered else MOST_TYPES + 1)
    assert ("wf", "*", "", OPEN) in found
    db.clock.turn_to(db.now + 8 * DAY)
    assert await prune(db) == 0
    assert await kept(db) == {"wanted"}


async def test_types_that_many_processes_learned_are_too_many_in_the_end(db: Database) -> None:
    types = frozenset(f"type {n}" for n in range(CROWD + 1))
    await db.storage.expect([Interest("wf", types), Interest("few", frozenset({"go"}))])
    await prune(db)
    assert {(w, kind) for w, type, _, kind in await rows(db) if type == "*"} == {("wf", OPEN), ("few", FIRST)}


async def test_an_event_that_expires_is_removed_some_time_after_that(db: Database) -> None:
    """Until then its id is known, for duplicates. Neither an address nor a limit removes it earlier."""
    for id, target in (("all", None), ("one", "nobody")):
        await db.send("go", id=id, target=target, expires_at=db.now + 20 * DAY)
    db.clock.turn_to(db.now + 26 * DAY)
    assert await prune(db) == 0
    assert await db.storage.cut(db.now - WEEK, 100) == []
    assert await kept(db) == {"all", "one"}
    db.clock.turn_to(db.now + 2 * DAY)
    assert await prune(db) == 2
    assert await kept(db) == set()
