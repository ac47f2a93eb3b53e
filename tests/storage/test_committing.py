"""Conformance: the one write path. Every item is a compare-and-set; a repeated batch gets the same answer."""

from __future__ import annotations

from typing import Any

import pytest

from romancy.core.failure import Failure
from romancy.core.history import Entry, Kind
from romancy.storage.attempts import Attempt
from romancy.storage.batch import CANCEL, Commit, Request
from romancy.storage.errors import RefusedValue
from romancy.storage.records import FIRST_MAIL, StoredRequest
from tests.storage.conftest import Database, offers


def entry(n: int) -> Entry:
    return Entry(n, Kind.TIMER_FIRED, f"sleep:{n}", 0, None, b"x")


async def history(db: Database, id: str) -> list[int]:
    return [e.n for e in await db.storage.catalog.history(id)]


# --- compare and set -------------------------------------------------------------------------------------------------
async def test_a_commit_needs_owner_and_version(db: Database) -> None:
    await db.register("other")
    await db.start("a", "me")
    wrong = [("me", 1), ("me", -1), ("other", 0), (None, 0), ("nobody", 0)]
    for worker, version in wrong:
        commit = Commit("a", version, "completed", db.now, entries=[entry(1)])
        assert (await db.commit(worker, commits=[commit])).commits == [False], (worker, version)
    assert await history(db, "a") == []
    await db.step("a", "me", 0, status="running", entries=[entry(1)])
    assert await db.version("a") == 1
    assert await history(db, "a") == [1]


async def test_a_refused_item_leaves_its_neighbours_alone(db: Database) -> None:
    for id in "abc":
        await db.start(id, "me")
    commits = [Commit(id, 7 if id == "b" else 0, "running", db.now, entries=[entry(1)]) for id in "abc"]
    answer = await db.commit("me", commits=commits, accepts=[db.event()])
    assert answer.commits == [True, False, True]
    assert [await history(db, id) for id in "abc"] == [[1], [], [1]]
    assert answer.accepts[0].seq > 0


async def test_a_refused_item_writes_none_of_its_rows(db: Database) -> None:
    await db.waiting("a", "me")
    seq = (await db.send()).seq
    refused = Commit(
        "a",
        9,
        "running",
        db.now,
        entries=[entry(1)],
        opened=[db.wait("v")],
        closed=["w"],
        seen_deliveries=[seq],
        sent=[db.event("sent")],
        attempts=[Attempt("act", 1, 0)],
    )
    answer = await db.commit("me", commits=[refused])
    assert answer.commits == [False]
    assert answer.sent == []
    snapshot = await db.storage.load("a")
    assert snapshot is not None
    assert (list(snapshot.waits), snapshot.attempts, snapshot.deliveries) == (["w"], [], [seq])
    assert await db.rows("SELECT 1 FROM romancy.events WHERE type = 'sent'") == []


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled", "blocked"])
async def test_what_has_ended_stays_so(db: Database, end: str) -> None:
    await db.waiting("a", "me")
    await db.step("a", "me", 1, status=end, closed=["w"], output=b"1", error=b"{}", release=True)
    for version in (1, 2, 3):
        late = Commit("a", version, "running", db.now, entries=[entry(1)])
        assert (await db.commit("me", commits=[late])).commits == [False]
    row = await db.storage.catalog.instance("a")
    assert row is not None
    assert (row.status, row.owner, row.finished_at is not None) == (end, None, end != "blocked")


async def test_ending_leaves_nothing_to_do(db: Database) -> None:
    await db.waiting("a", "me", db.wait(), db.wait("t", due=db.now + 5))
    await db.send()
    await db.commit(requests=[Request("a", CANCEL, b"", db.now)])
    await db.step("a", "me", 1, status="completed", closed=["w", "t"])
    assert (await db.storage.mail("me", 10)).deliveries == []
    assert (await db.storage.mail("me", 10)).requests == []
    assert await db.storage.due("me", db.now + 10, 10) == []
    for table in ("waits", "wait_keys", "deliveries", "requests"):
        assert await db.rows(f"SELECT * FROM romancy.{table}") == [], table


# --- unknown outcome -------------------------------------------------------------------------------------------------
async def test_the_same_batch_again_gives_the_same_answer_and_changes_nothing(db: Database) -> None:
    await db.register("me2", workflows=("triggered",), triggers=[("placed", "triggered", None)])
    for id in "ab":
        await db.start(id, "me")
    batch = db.batch(
        "me",
        workflows=("wf", "triggered"),
        starts=[db.starting("new", mine=True), db.starting("b", input=b"other")],
        commits=[
            Commit("a", 0, "running", db.now, entries=[entry(1)], opened=[db.wait()], sent=[db.event("go", id="s")]),
            Commit("b", 5, "running", db.now, entries=[entry(1)]),
        ],
        accepts=[db.event("placed", id="p"), db.event("go", id="g"), db.event("go", id="g")],
    )
    first = await db.submit(batch)
    before = await everything(db)
    again = await db.submit(batch)
    assert again == first
    assert await everything(db) == before
    assert first.commits == [True, False]
    assert [s.created for s in first.starts] == [True, False]
    assert [a.duplicate for a in first.accepts] == [False, False, True]
    assert [s.workflow for s in first.accepts[0].started] == ["triggered"]


async def test_a_refused_start_beside_a_commit_of_that_instance_stays_refused(db: Database) -> None:
    await db.start("a", "me")
    batch = db.batch("me", starts=[db.starting("a", input=b"other")], commits=[Commit("a", 0, "running", db.now)])
    first = await db.submit(batch)
    assert (first.starts[0].created, first.starts[0].same) == (False, False)
    assert await db.submit(batch) == first


async def everything(db: Database) -> dict[str, object]:
    tables = "instances history waits wait_keys events event_keys deliveries consumed marks attempts requests".split()
    return {table: await db.rows(f"SELECT * FROM romancy.{table}") for table in tables}


async def test_another_batch_with_the_same_version_is_refused(db: Database) -> None:
    """Version alone would not do: the twin of a worker that thinks it owns the instance."""
    await db.start("a", "me")
    await db.step("a", "me", 0, entries=[entry(1)])
    twin = Commit("a", 0, "running", db.now, entries=[entry(1)])
    assert (await db.commit("me", commits=[twin])).commits == [False]


async def test_what_got_through_before_the_fence_is_still_told_so(db: Database) -> None:
    await db.start("a", "me")
    batch = db.batch("me", commits=[Commit("a", 0, "completed", db.now, entries=[entry(1)])])
    assert (await db.submit(batch)).commits == [True]
    await db.register("heir")
    await db.storage.take_over("heir", ["me"])
    again = await db.submit(batch)
    assert again.fenced
    assert again.commits == [True]
    assert await history(db, "a") == [1]


async def test_a_value_that_cant_be_stored_refuses_the_whole_batch(db: Database) -> None:
    for id in "ab":
        await db.start(id, "me")
    bad = Commit("b", 0, "running", db.now, entries=[Entry(1, Kind.TIMER_FIRED, "\ud800", 0)])
    with pytest.raises(RefusedValue):
        await db.commit("me", commits=[Commit("a", 0, "running", db.now, entries=[entry(1)]), bad])
    assert await history(db, "a") == []
    await db.step("a", "me", 0, entries=[entry(1)])


# --- starts ----------------------------------------------------------------------------------------------------------
async def test_an_id_is_started_once(db: Database) -> None:
    answer = await db.commit("me", starts=[db.starting("a", mine=True), db.starting("b")])
    assert [(s.created, s.owned) for s in answer.starts] == [(True, True), (True, False)]
    again = await db.commit(
        "me", starts=[db.starting("a"), db.starting("a", input=b"other"), db.starting("a", "another")]
    )
    assert [(s.created, s.same, s.owned) for s in again.starts] == [
        (False, True, False),
        (False, False, False),
        (False, False, False),
    ]
    assert again.starts[2].workflow == "wf"


async def test_twins_in_one_batch_are_one(db: Database) -> None:
    answer = await db.commit("me", starts=[db.starting("a", mine=True), db.starting("a", mine=True)])
    assert [s.created for s in answer.starts] == [True, False]


# --- attempts and requests -------------------------------------------------------------------------------------------
async def test_attempts_are_kept_until_they_are_done(db: Database) -> None:
    await db.start("a", "me")
    attempt = Attempt("act:1", 2, db.now, db.now + 9, b"{}", b"[1]", 1, True)
    await db.step("a", "me", 0, status="running", attempts=[attempt, Attempt("act:2", 1, db.now)])
    snapshot = await db.storage.load("a")
    assert snapshot is not None
    assert snapshot.attempts == [attempt, Attempt("act:2", 1, db.now)]
    await db.step("a", "me", 1, status="running", attempts_done=["act:1"])
    snapshot = await db.storage.load("a")
    assert snapshot is not None
    assert [a.op for a in snapshot.attempts] == ["act:2"]


async def test_requests_go_to_the_owner(db: Database) -> None:
    await db.start("a", "me")
    await db.start("free")
    answer = await db.commit(requests=[Request(id, CANCEL, b"why", db.now) for id in ("a", "free", "unknown")])
    assert [(r.status, r.owner) for r in answer.requests] == [("running", "me"), ("cancelled", None), (None, None)]
    assert [r.took for r in answer.requests] == [True, True, False]
    [(instance, request)] = (await db.storage.mail("me", 10)).requests
    assert (instance, request) == ("a", StoredRequest(answer.requests[0].id, CANCEL, b"why"))
    await db.step("a", "me", 0, status="running", requests_done=[request.id])
    assert (await db.storage.mail("me", 10)).requests == []


async def test_a_request_to_the_finished_is_not_kept(db: Database) -> None:
    await db.start("a", "me")
    await db.step("a", "me", 0, status="completed")
    [answer] = (await db.commit(requests=[Request("a", CANCEL, b"", db.now)])).requests
    assert (answer.status, answer.id, answer.took) == ("completed", 0, False)
    assert await db.rows("SELECT * FROM romancy.requests") == []


async def test_the_error_of_a_blocked_instance_that_is_cancelled_keeps_what_is_not_undone(db: Database) -> None:
    """Whatever the messages contain: here, things that look like the member itself, or that JSON has to escape."""
    await db.waiting("a", "me")
    message = '"not_undone": ["x"] \x00 \ud800 }'
    blocked = Failure("CompensationFailed", message, not_undone=["r:2", '"]', "r:1"])
    await db.step("a", "me", 1, status="blocked", error=blocked.encode(), release=True)
    await db.commit(requests=[Request("a", CANCEL, b'"not_undone": [', db.now)])
    row = await db.storage.catalog.instance("a")
    assert row is not None
    assert row.error is not None
    kept = Failure.decode(row.error)
    assert (kept.error_type, kept.message) == ("CancelledError", '"not_undone": [')
    assert (kept.not_undone, kept.culprits) == (blocked.not_undone, [])


async def test_a_blocked_instance_is_cancelled_where_it_stands_or_resumed(db: Database) -> None:
    for id in "ab":
        await db.waiting(id, "me")
        await db.step(id, "me", 1, status="blocked", error=b"{}", release=True)
    [answer] = (await db.commit(requests=[Request("a", CANCEL, b"", db.now)])).requests
    assert (answer.status, answer.took) == ("cancelled", True)
    [again] = (await db.commit(requests=[Request("a", CANCEL, b"", db.now + 1)])).requests
    assert (again.status, again.took) == ("cancelled", False)
    assert [w.instance for w in await db.storage.catalog.waits()] == ["b"]
    assert await db.storage.resume("b") == "blocked"
    assert await db.storage.resume("b") == "running", "another one resumed it"
    assert await db.storage.resume("unknown") is None
    assert list(await db.claim("me")) == ["b"]
    row = await db.storage.catalog.instance("a")
    assert row is not None
    assert row.status == "cancelled"
    await db.storage.resume("a")
    assert await db.claim("me") == {}


async def test_offers_come_with_the_commit_that_opens_the_wait(db: Database) -> None:
    await db.start("a", "me")
    seq = (await db.send()).seq
    answer = await db.step("a", "me", 0, opened=[db.wait()])
    assert offers(answer) == [("a", "w", seq)]


async def test_two_commits_of_one_instance_share_no_batch(db: Database) -> None:
    """One is stale. If the batch came again, the token that the other left would speak for it, and its event leave."""
    await db.start("a", "me")
    await db.step("a", "me", 0, opened=[db.wait()])
    stale = Commit("a", 0, "waiting_for_event", db.now, opened=[db.wait("stale")], sent=[db.event("stale")])
    batch = db.batch("me", commits=[stale, Commit("a", 1, "waiting_for_event", db.now, opened=[db.wait("fresh")])])
    for _ in range(2):
        with pytest.raises(RefusedValue):
            await db.submit(batch)
    assert await db.rows("SELECT op FROM romancy.waits") == [("w",)]
    assert await db.rows("SELECT id FROM romancy.events") == []


async def test_mail_is_read_on_from_where_the_last_page_ended(db: Database) -> None:
    """The first page may be for instances that can't be fed for a long time."""
    ids = [f"i{n}" for n in range(5)]
    for id in ids:
        await db.waiting(id, "me")
    seqs = [(await db.send()).seq for _ in range(2)]
    for _ in range(3):
        await db.commit(requests=[Request(id, CANCEL, b"", db.now) for id in ids[:3]])
    deliveries, requests, after, pages = list[Any](), list[Any](), FIRST_MAIL, 0
    while pages == 0 or after != FIRST_MAIL:
        mail = await db.storage.mail("me", 4, after)
        new = [item for item in mail.deliveries if item not in deliveries]
        deliveries, after, pages = deliveries + new, mail.end, pages + 1
        requests += [request.id for _, request in mail.requests if request.id not in requests]
    assert deliveries == [(id, seq) for seq in seqs for id in ids]
    assert len(requests) == len(set(requests)) == 9
    assert pages == 3


async def test_long_histories_are_read_alone(db: Database) -> None:
    """Many of them in one answer would take too long, and too much memory."""
    await db.start("short", "me")
    await db.start("long", "me")
    for id, length in (("short", 500), ("long", 501)):
        await db.step(id, "me", 0, status="running", entries=[entry(n) for n in range(1, length + 1)])
    together = await db.storage.load_many(["short", "long", "unknown"])
    assert set(together) == {"short", "unknown"}
    assert together["unknown"] is None
    for id, length in (("short", 500), ("long", 501)):
        alone = await db.storage.load(id)
        assert alone is not None
        assert [e.n for e in alone.history] == list(range(1, length + 1))
