"""Conformance: instances that are reopened, their events and children, and copies of instances."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from romancy.core.given_back import copy_for, original_id, own_copy
from romancy.core.history import Entry, Kind
from romancy.core.model import SECOND
from romancy.core.operations import WaitRow
from romancy.core.retrial import RetryAsk
from romancy.storage.batch import (
    CANCEL,
    CHILD_CANCELLED,
    CHILD_COMPLETED,
    CHILD_FAILED,
    CHILD_SPENT,
    GIVEN_UP,
    RETRY,
    Accept,
    Commit,
    Ending,
    Rejoin,
    Request,
    Start,
)
from romancy.storage.forks import Fork
from romancy.storage.records import Snapshot
from tests.storage.conftest import Database

HEAD = RetryAsk().head
ERROR = b'{"error_type": "Broken"}'


async def end(db: Database, id: str, status: str = "failed", **fields: Any) -> None:
    await db.step(id, "me", await db.version(id), status=status, error=ERROR, **fields)


async def loaded(db: Database, id: str) -> Snapshot:
    snapshot = await db.storage.load(id)
    assert snapshot is not None
    return snapshot


def requests_of(snapshot: Snapshot) -> list[tuple[int, bytes, str | None]]:
    return [(r.kind, bytes(r.payload), r.op) for r in snapshot.requests]


async def test_only_failed_and_cancelled_instances_are_reopened(db: Database) -> None:
    for id, status in (("f", "failed"), ("c", "cancelled"), ("d", "completed"), ("b", "blocked")):
        await db.start(id, "me")
        await end(db, id, status, release=status == "blocked")
    await db.start("open", "me")
    ids = ["f", "c", "d", "b", "open", "nosuch", "f\0"]
    assert await db.storage.reopen(ids, db.now, HEAD) == {"f", "c"}
    assert await db.storage.reopen(ids, db.now, HEAD) == set(), "only once"
    snapshot = await loaded(db, "f")
    assert (snapshot.row.status, snapshot.row.owner, snapshot.row.error, snapshot.row.finished_at) == (
        "running",
        None,
        None,
        None,
    )
    assert requests_of(snapshot) == [(RETRY, HEAD + ERROR, None)]
    assert set(await db.claim("me")) == {"f", "c"}


async def test_which_instances_have_undone_their_steps(db: Database) -> None:
    for id, op in (("a", "undo book:1:1"), ("b", "book:1"), ("c", "undoing:1")):
        await db.start(id, "me")
        await end(db, id, entries=[Entry(1, Kind.ACTIVITY_COMPLETED, op, db.now)])
    assert await db.storage.catalog.undone(["a", "b", "c", "nosuch"]) == {"a"}
    assert await db.storage.catalog.undone([]) == set()


async def test_an_instance_that_has_undone_its_steps_is_not_reopened(db: Database) -> None:
    await db.start("a", "me")
    await end(db, "a", entries=[Entry(1, Kind.ACTIVITY_COMPLETED, "undo book:1:1", db.now)])
    assert await db.storage.reopen(["a"], db.now, HEAD) == set()
    assert (await loaded(db, "a")).row.status == "failed"


async def test_the_time_limit_begins_again(db: Database) -> None:
    start = Start("a", "wf", b"{}", 0, db.now, db.now + 60 * SECOND, mine=True)
    await db.commit("me", starts=[start])
    db.clock.turn_to(db.now + 100 * SECOND)
    await end(db, "a")
    db.clock.turn_to(db.now + 100 * SECOND)
    await db.storage.reopen(["a"], db.now, HEAD)
    assert (await loaded(db, "a")).row.deadline == db.now + 60 * SECOND


async def test_what_its_last_owner_submits_is_refused(db: Database) -> None:
    await db.start("a", "me")
    version = await db.version("a")
    await end(db, "a")
    await db.storage.reopen(["a"], db.now, HEAD)
    late = Commit("a", version, "running", db.now, entries=[Entry(1, Kind.TIMER_FIRED, "t", db.now)])
    assert (await db.commit("me", commits=[late])).commits == [False]


async def test_a_request_to_cancel_comes_after_the_retry(db: Database) -> None:
    await db.start("a", "me")
    await end(db, "a")
    await db.storage.reopen(["a"], db.now, HEAD)
    answer = await db.commit(requests=[Request("a", CANCEL, b"enough", db.now)])
    assert answer.requests[0].took
    assert [kind for kind, *_ in requests_of(await loaded(db, "a"))] == [RETRY, CANCEL]


async def test_an_event_that_is_given_back_can_be_taken_again(db: Database) -> None:
    wait = db.wait()
    await db.waiting("a", "me", wait)
    first = (await db.send(id="first")).seq
    assert await db.look("a", "me") == [("w", first)]
    await db.take("a", "me", 1, first, wait)
    again = db.wait()
    answer = await db.step("a", "me", 2, opened=[again], given_back=[first], status="waiting_for_event")
    assert [(offer.op, offer.event.seq) for offer in answer.offers] == [("w", first)]


def given_back(db: Database, instance: str, *ids: str) -> list[Accept]:
    return [Accept(copy_for(instance, db.event("go", 1, id=id).event, db.now), b"{}", is_restored=True) for id in ids]


async def test_an_event_that_was_removed_is_stored_again_and_another_is_left_as_it_is(db: Database) -> None:
    """Each instance gets a copy of its own, and the id is free for an event from outside."""
    await db.commit(accepts=[db.event("go", 1, id="kept")])
    for id in ("a", "b"):
        await db.waiting(id, "me", db.wait("w", "other"))
        answer = await db.step(id, "me", 1, opened=[db.wait("w2")], sent=given_back(db, id, "kept", "removed"))
        assert [a.duplicate for a in answer.sent] == [True, False]
        assert not any(a.differs for a in answer.sent)
        assert [original_id(offer.event) for offer in answer.offers] == ["removed"]
    stored = await db.rows("SELECT id, target, differed_at FROM romancy.events ORDER BY target")
    copies = [(own_copy(given_back(db, id, "removed")[0].event).id, id, None) for id in ("a", "b")]
    assert sorted(stored, key=str) == sorted([("kept", None, None), *copies], key=str)
    assert not (await db.send(id="removed")).duplicate


async def test_an_event_that_was_removed_is_stored_again_only_once(db: Database) -> None:
    await db.waiting("a", "me", db.wait("w", "other"))
    for version, duplicate in ((1, False), (2, True)):
        answer = await db.step("a", "me", version, opened=[db.wait(f"w{version}")], sent=given_back(db, "a", "removed"))
        assert [a.duplicate for a in answer.sent] == [duplicate]
    assert len(await db.rows("SELECT id FROM romancy.events")) == 1


# --- children -------------------------------------------------------------------------------------------------------
async def family(db: Database, **ends: str) -> None:
    """A parent that failed, and children that ended like this, without telling their parent."""
    await db.start("p", "me")
    starts = [Start(c, "wf", b"{}", 0, db.now, mine=True, parent="p", parent_op=f"op {c}") for c in ends]
    await db.commit("me", starts=starts)
    await end(db, "p")
    for child, status in ends.items():
        if status in ("failed", "cancelled", "completed", "undone"):
            entries = [Entry(1, Kind.ACTIVITY_COMPLETED, "undo x:1", db.now)] if status == "undone" else []
            output = b"7" if status == "completed" else None
            await end(db, child, "failed" if status == "undone" else status, entries=entries, output=output)
    await db.storage.reopen(["p"], db.now, HEAD)
    await db.claim("me")


async def rejoin(db: Database, *children: str, reopens: bool = True) -> list[tuple[int, bytes, str | None]]:
    """The parent waits for its children again; returns what it is told about them."""
    rejoins = [Rejoin(child, f"op {child}", reopens) for child in children]
    requests = [request.id for request in (await loaded(db, "p")).requests]
    await db.step("p", "me", await db.version("p"), rejoins=rejoins, requests_done=requests)
    return sorted(requests_of(await loaded(db, "p")), key=lambda r: r[2] or "")


async def test_children_are_reopened_with_their_parent(db: Database) -> None:
    await family(db, a="failed", b="cancelled", c="completed", d="undone", e="open")
    assert await rejoin(db, "a", "b", "c", "d", "e", "nosuch") == [
        (CHILD_COMPLETED, b"7", "op c"),
        (CHILD_SPENT, ERROR, "op d"),
    ]
    for child, status in (("a", "running"), ("b", "running"), ("c", "completed"), ("d", "failed"), ("e", "running")):
        assert (await loaded(db, child)).row.status == status
    assert requests_of(await loaded(db, "a")) == [(RETRY, HEAD + ERROR, None)]


async def test_children_that_do_not_depend_on_their_parent_only_tell_how_they_ended(db: Database) -> None:
    await family(db, a="failed", b="cancelled", c="completed")
    assert await rejoin(db, "a", "b", "c", reopens=False) == [
        (CHILD_FAILED, ERROR, "op a"),
        (CHILD_CANCELLED, ERROR, "op b"),
        (CHILD_COMPLETED, b"7", "op c"),
    ]
    assert (await loaded(db, "a")).row.status == "failed"


@pytest.mark.parametrize("kind", [CHILD_FAILED, CHILD_COMPLETED])
async def test_children_that_ended_since_their_parent_was_reopened(db: Database, kind: int) -> None:
    """Those that failed are retried with it: their end must not let it fail again."""
    await family(db, a="open")
    status = "failed" if kind == CHILD_FAILED else "completed"
    await end(db, "a", status, output=b"7", ending=Ending("p", "op a", kind, b"7"))
    assert (kind, b"7", "op a") in requests_of(await loaded(db, "p"))
    requests = [request.id for request in (await loaded(db, "p")).requests if request.kind == RETRY]
    rejoins = [Rejoin("a", "op a", reopens=True)]
    await db.step("p", "me", await db.version("p"), rejoins=rejoins, requests_done=requests)
    left = [] if kind == CHILD_FAILED else [(kind, b"7", "op a")]
    assert requests_of(await loaded(db, "p")) == left
    assert (await loaded(db, "a")).row.status == ("running" if kind == CHILD_FAILED else "completed")


@pytest.mark.parametrize("is_found", [False, True])
@pytest.mark.parametrize("kind", [CHILD_FAILED, CHILD_COMPLETED])
@pytest.mark.parametrize("ends_first", [False, True])
async def test_a_child_that_ends_in_the_batch_in_which_its_parent_waits_for_it_again(
    db: Database, is_found: bool, kind: int, ends_first: bool
) -> None:
    """Its parent hears of one end. It is never told that the child is spent, in whose place it would start another."""
    await family(db, a="open")
    requests = [request.id for request in (await loaded(db, "p")).requests if request.kind == RETRY]
    again = Rejoin("a", "op a", reopens=not is_found, is_found=is_found)
    waits = Commit("p", await db.version("p"), "waiting_for_child", db.now, rejoins=[again], requests_done=requests)
    is_failed = kind == CHILD_FAILED
    status, output, error = ("failed", None, ERROR) if is_failed else ("completed", b"7", None)
    ended = Commit("a", await db.version("a"), status, db.now, output=output, error=error)
    ended.ending = Ending("p", "op a", kind, error or output or b"")
    answer = await db.commit("me", commits=[ended, waits] if ends_first else [waits, ended])
    assert answer.commits == [True, True]
    told, child = requests_of(await loaded(db, "p")), (await loaded(db, "a")).row.status
    is_reopened = child == "running"  # only if the database stores one commit after the other
    assert is_reopened <= (is_failed and not is_found)
    assert told == ([] if is_reopened else [(kind, error or output, "op a")])


async def test_children_that_are_found_instead_of_started(db: Database) -> None:
    await family(db, a="failed", b="cancelled", c="completed", d="undone", e="open", f="open")
    await db.commit(requests=[Request("e", GIVEN_UP, b"enough", db.now)])
    await end(db, "f", ending=Ending("p", "op f", CHILD_FAILED, ERROR))
    rejoins = [Rejoin(c, f"op {c}", reopens=False, is_found=True) for c in "abcdef"]
    requests = [request.id for request in (await loaded(db, "p")).requests if request.kind == RETRY]
    await db.step("p", "me", await db.version("p"), rejoins=rejoins, requests_done=requests)
    told = sorted((op or "", kind) for kind, _, op in requests_of(await loaded(db, "p")))
    assert told == [*((f"op {c}", CHILD_SPENT) for c in "abcd"), ("op f", CHILD_FAILED)]
    assert (await loaded(db, "a")).row.status == "failed"
    assert [kind for kind, *_ in requests_of(await loaded(db, "e"))] == [GIVEN_UP]


async def test_the_child_of_another_parent_is_left_alone(db: Database) -> None:
    await family(db, a="failed")
    await db.start("other", "me")
    await end(db, "other")
    assert await rejoin(db, "other") == []
    assert (await loaded(db, "other")).row.status == "failed"


# --- forks ----------------------------------------------------------------------------------------------------------
async def test_a_copy_has_the_entries_and_the_events_that_were_asked_for(db: Database) -> None:
    wait: WaitRow = db.wait()
    await db.waiting("a", "me", wait)
    seqs = [(await db.send(id=f"e{n}")).seq for n in range(2)]
    await db.take("a", "me", 1, seqs[0], wait, opened=[db.wait("v")])
    await db.take("a", "me", 2, seqs[1], db.wait("v"))
    [first, _] = (await loaded(db, "a")).history
    db.clock.turn_to(db.now + SECOND)
    fork = Fork("a", "f", db.now, os.urandom(16), [first], json.dumps([[1, "a", 7]]), HEAD)
    assert await db.storage.fork(fork)
    assert not await db.storage.fork(Fork("a", "f", db.now, os.urandom(16))), "the id is taken"
    assert not await db.storage.fork(Fork("nosuch", "g", db.now, os.urandom(16)))
    late = Fork("a", "g", db.now, os.urandom(16), generation=1)
    assert not await db.storage.fork(late), "another run is meant"
    copy, origin = await loaded(db, "f"), await loaded(db, "a")
    assert copy.history == [first]
    assert (copy.row.created_at, copy.row.run.began_at) == (db.now, origin.row.created_at)
    assert copy.row.run.seeds == [[1, "a", 7]]
    assert requests_of(copy) == [(RETRY, HEAD, None)]
    assert await db.rows("SELECT event, op FROM romancy.consumed WHERE instance = 'f'") == [(seqs[0], "w")]
    await db.claim("me")
    answer = await db.step("f", "me", await db.version("f"), opened=[db.wait("v")])
    assert [offer.event.seq for offer in answer.offers] == [seqs[1]], "it gets what came since its original began"


async def test_an_instance_that_has_undone_its_steps_is_copied_without_its_history_only(db: Database) -> None:
    await db.start("a", "me")
    done = Entry(1, Kind.ACTIVITY_COMPLETED, "book:1", db.now)
    await end(db, "a", entries=[done, Entry(2, Kind.ACTIVITY_COMPLETED, "undo book:1:1", db.now)])
    assert not await db.storage.fork(Fork("a", "f", db.now, os.urandom(16), [done], json.dumps([[1, "a", 7]]), HEAD))
    assert await db.storage.load("f") is None
    assert await db.storage.fork(Fork("a", "f", db.now, os.urandom(16)))
