"""A look that is due and was not made stays due until it is made, whatever else is looked for meanwhile."""

import asyncio
from typing import Any

import pytest

from romancy.core.filters import Filter
from romancy.storage.batch import Commit
from romancy.storage.errors import TransientError
from tests.postgres.conftest import Place
from tests.storage.conftest import Database

NARROW = Filter.build(where={"n": 1})


def fail_next_look(db: Database) -> None:
    """As when the server takes too long: the commit is stored, its looks are not made, and others go on meanwhile."""
    looker: Any = db.storage._writer.looker  # type: ignore[attr-defined]
    look = looker.look

    async def fails(*args: Any) -> Any:
        looker.look = look
        raise TransientError("canceling statement due to statement timeout")

    looker.look = fails


@pytest.mark.parametrize("kind", ["plain", "filtered"])
async def test_a_look_at_another_wait_does_not_count(place: Place, kind: str) -> None:
    db = await place.worker("me", listen=False)
    narrow = NARROW if kind == "filtered" else None
    await db.waiting("a", "me", db.wait("other", "stop", filter=narrow))
    missed = (await db.send("go")).seq
    fail_next_look(db)
    with pytest.raises(TransientError):
        await db.step("a", "me", 1, opened=[db.wait("late", "go")])
    await db.send("stop", data={"n": 1})  # leads to a look at the first wait only
    await db.commit("me", looks=[("a", "other")])
    assert await db.rows("SELECT instance FROM unlooked") == [("a",)]
    await db.storage.release("me")
    await db.register("heir")
    claimed = await db.storage.claim("heir", ["wf"], 10, 0)
    assert [item.id for item in claimed] == ["a"], "the next owner is told to look"
    assert ("late", missed) in await db.look("a", "heir")
    assert await db.rows("SELECT instance FROM unlooked") == []


async def test_the_looks_of_a_later_commit_do_not_count(place: Place) -> None:
    """Its next owner may commit before it has looked at all waits, and die before it does."""
    db = await place.worker("me", listen=False)
    await db.waiting("a", "me", db.wait("other", "stop"))
    missed = (await db.send("go")).seq
    fail_next_look(db)
    with pytest.raises(TransientError):
        await db.step("a", "me", 1, opened=[db.wait("late", "go")])
    await db.step("a", "me", 2, opened=[db.wait("more", "more")])
    assert await db.rows("SELECT instance FROM unlooked") == [("a",)]
    assert ("late", missed) in await db.look("a", "me")
    assert await db.rows("SELECT instance FROM unlooked") == []


async def test_a_commit_without_looks_does_not_count(place: Place) -> None:
    """It may share a batch with a look at one wait of the same instance."""
    db = await place.worker("me", listen=False)
    await db.waiting("a", "me", db.wait("other", "stop"))
    fail_next_look(db)
    with pytest.raises(TransientError):
        await db.step("a", "me", 1, opened=[db.wait("late", "go")])
    await db.commit("me", commits=[Commit("a", 2, "waiting_for_event", db.now)], looks=[("a", "other")])
    assert await db.rows("SELECT instance FROM unlooked") == [("a",)]


async def test_a_look_under_way_does_not_count_for_a_later_commit(place: Place) -> None:
    """It began before the waits of that commit were there, and ends after; the commit has written the mark anew."""
    db = await place.worker("me", listen=False)
    await db.waiting("a", "me", db.wait("other", "stop"))
    fail_next_look(db)
    with pytest.raises(TransientError):
        await db.step("a", "me", 1, opened=[db.wait("late", "go")])
    later = await db._postgres()
    try:
        await later.execute("BEGIN")
        await later.execute("UPDATE unlooked SET instance = instance")
        look = asyncio.create_task(db.look("a", "me"))
        while not await db.rows("SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await later.execute("COMMIT")
    finally:
        await later.close()
    await look
    assert await db.rows("SELECT instance FROM unlooked") == [("a",)]
    await db.look("a", "me")
    assert await db.rows("SELECT instance FROM unlooked") == []


async def test_a_commit_writes_the_mark_of_an_earlier_one_anew(place: Place) -> None:
    db = await place.worker("me", listen=False)
    await db.waiting("a", "me", db.wait("other", "stop"))
    for version, op in ((1, "late"), (2, "later")):
        fail_next_look(db)
        with pytest.raises(TransientError):
            await db.step("a", "me", version, opened=[db.wait(op, "go")])
        [(mark,)] = await db.rows("SELECT xmin::text FROM unlooked")
        if op == "late":
            first = mark
    assert mark != first


async def test_a_scan_under_way_does_not_count_for_a_later_commit(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waits without an index are looked for in several statements; a commit may come between them."""
    monkeypatch.setattr("romancy.storage.postgres.shapes.MAX_SHAPES", 0)
    db = await place.worker("me", listen=False)
    await db.waiting("a", "me", db.wait("other", "stop", filter=NARROW))
    fail_next_look(db)
    with pytest.raises(TransientError):
        await db.step("a", "me", 1, opened=[db.wait("late", "go")])
    looker: Any = db.storage._writer.looker  # type: ignore[attr-defined]
    best = looker._best

    async def overtaken(*args: Any) -> Any:
        monkeypatch.setattr(looker, "_best", best)
        fail_next_look(db)
        with pytest.raises(TransientError):
            await db.step("a", "me", 2, opened=[db.wait("latest", "go")])
        return await best(*args)

    monkeypatch.setattr(looker, "_best", overtaken)
    await db.look("a", "me")
    assert looker._best == best, "the scan was overtaken"
    assert await db.rows("SELECT instance FROM unlooked") == [("a",)]
    await db.look("a", "me")
    assert await db.rows("SELECT instance FROM unlooked") == []
