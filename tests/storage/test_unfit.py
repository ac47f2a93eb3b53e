"""Instances that are blocked because some builds of the code could not follow their history."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from romancy.core.continuation import NextRun
from romancy.storage.batch import CANCEL, Commit, Continuation, Request
from romancy.storage.records import MOST_BUILDS, Unfit, build_names, to_builds, with_build
from tests.storage.conftest import Database

START = ("", "")


async def unfit(db: Database, id: str, *builds: str, workflow: str = "wf") -> None:
    """An instance that the worker `me` had to block."""
    await db.start(id, "me", workflow)
    await db.step(id, "me", 0, status="blocked", release=True, error=b"{}", builds=json.dumps(builds))


async def builds_of(db: Database, id: str) -> str | None:
    snapshot = await db.storage.load(id)
    row = await db.storage.catalog.instance(id)
    assert snapshot is not None
    assert row is not None
    assert snapshot.row.builds == row.builds
    return row.builds


def test_the_list_of_builds() -> None:
    assert to_builds(None) == []
    assert to_builds(with_build(None, "a")) == ["a"]
    assert to_builds(with_build(with_build(with_build(None, "a"), 'b"\n'), "a")) == ['b"\n', "a"]
    many = None
    for n in range(MOST_BUILDS + 5):
        many = with_build(many, str(n))
    assert to_builds(many) == [str(n) for n in range(5, MOST_BUILDS + 5)]


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("v7", "v7"),
        ("v7 with key 2026", "v7 (codec key 2026)"),
        ("v7 with keys 2026, 2025", "v7 (codec keys 2026, 2025)"),
        ("v7 with a codec", "v7 (with a codec)"),
        ("with key 2026", "with key 2026"),
        ("2\nlines with key a b", "2\nlines (codec key a b)"),
    ],
)
def test_people_read_which_keys_a_build_had(stored: str, shown: str) -> None:
    assert build_names(with_build(None, stored)) == [shown]


async def test_they_are_found_in_order_page_by_page(db: Database) -> None:
    for id, workflow in (("1", "b"), ("2", "a"), ("3", "c"), ("4", "b"), ("5", "a")):
        await unfit(db, id, "x", workflow=workflow)
    await db.start("fine", "me", "a")
    await db.start("broken", "me", "a")
    await db.step("broken", "me", 0, status="blocked", release=True, error=b"{}")
    names, found, after = ["b", "a"], list[Unfit](), START
    while page := await db.storage.unfit(names, after, 3):
        found += page
        after = page[-1].position
    assert [(one.workflow, one.id, to_builds(one.builds)) for one in found] == [
        ("a", "2", ["x"]),
        ("a", "5", ["x"]),
        ("b", "1", ["x"]),
        ("b", "4", ["x"]),
    ]


async def test_one_worker_takes_it_and_only_as_it_was_read(db: Database) -> None:
    await db.register("other")
    await unfit(db, "i", "x")
    [found] = await db.storage.unfit(["wf"], START, 10)
    assert await db.storage.claim_unfit("nobody", [found]) == set()
    assert await db.storage.claim_unfit("other", [replace(found, builds='["y"]')]) == set()
    assert await db.storage.claim_unfit("other", [found]) == {"i"}
    assert await db.storage.claim_unfit("me", [found]) == set()
    row = await db.storage.catalog.instance("i")
    assert row is not None
    assert (row.status, row.owner, row.builds, row.error) == ("running", "other", '["x"]', None)
    assert await db.storage.unfit(["wf"], START, 10) == []
    await db.step("i", "other", row.version, status="blocked", release=True, builds='["x", "y"]')
    assert await db.storage.claim_unfit("me", [found]) == set()  # it has been tried since


async def test_a_commit_can_clear_the_builds(db: Database) -> None:
    for id in ("step", "run", "worse"):
        await unfit(db, id, "x")
    await db.storage.claim_unfit("me", await db.storage.unfit(["wf"], START, 10))
    version = await db.version("step")
    await db.commit("me", commits=[Commit("step", version, "running", db.now, same_status=True)])
    await db.commit("me", commits=[Commit("step", version + 1, "running", db.now)])
    assert await builds_of(db, "step") == '["x"]'  # unless it says so, it leaves them alone
    goes_on = Continuation(NextRun("wf", b"{}", 0), 0, 0)
    answer = await db.commit(
        "me",
        commits=[
            Commit("step", version + 2, "waiting_for_event", db.now, builds=""),
            Commit("run", version, "running", db.now, continuation=goes_on),
            Commit("worse", version, "blocked", db.now, release=True, builds='["x", "y"]'),
        ],
    )
    assert answer.commits == [True, True, True]
    assert [await builds_of(db, id) for id in ("step", "run", "worse")] == [None, None, '["x", "y"]']


async def test_being_resumed_or_cancelled_clears_the_builds(db: Database) -> None:
    await unfit(db, "resumed", "x")
    await unfit(db, "cancelled", "x")
    assert await db.storage.resume("resumed") == "blocked"
    await db.commit(requests=[Request("cancelled", CANCEL, b"", db.now)])
    assert await db.storage.unfit(["wf"], START, 10) == []
    assert await builds_of(db, "resumed") is None
    assert await builds_of(db, "cancelled") is None
