"""Admission, on every database: a compare-and-set on the version of the queue."""

from __future__ import annotations

import asyncio
from typing import Any

from romancy import Queue, Rate
from romancy.core.admission import Admission, QueueState
from romancy.core.history import Entry, Kind
from romancy.core.model import SECOND
from romancy.core.queues import Place
from romancy.storage.batch import CANCEL, RESUME, BatchResult, Commit, Request, Start
from romancy.storage.instances import Admitted
from romancy.storage.queues import Queues
from tests.storage.admitters import admitter
from tests.storage.conftest import Database


def queued(db: Database, id: str, key: str = "", priority: int = 0) -> Start:
    return Start(id, "wf", b"{}", 0, db.now, place=Place("q", key, priority))


async def state_of(queues: Queues, limit: int) -> QueueState:
    return (await queues.glance(Queue("q", max_concurrent=limit))).state


async def fill(db: Database, *ids: str) -> None:
    await db.register("w1", "w2", "w3")
    answer = await db.commit(starts=[queued(db, id) for id in ids])
    assert [start.created for start in answer.starts] == [True] * len(ids)


async def test_nobody_claims_a_queued_instance(db: Database) -> None:
    await fill(db, "a")
    assert await db.storage.claim("w1", ["wf"], 10, db.now) == []
    assert await db.storage.claim_idle("w1", ["wf"], 10) == 0
    assert (await db.storage.shares(["wf"], 10)).free == 0


async def test_of_two_admissions_that_read_the_same_only_one_counts(db: Database) -> None:
    await fill(db, "a", "b", "c")
    queues = db.storage.queues
    state = await state_of(queues, 1)
    assert (state.running, state.has_waiting) == (0, True)
    pairs = (("w1", "a"), ("w2", "b"), ("w3", "c"))
    tries = [(worker, Admission("q", state.version, "", 0, [id])) for worker, id in pairs]
    answers = await asyncio.gather(*(queues.admit(made, worker, db.now, ["wf"]) for worker, made in tries))
    assert sorted(answer is None for answer in answers) == [False, True, True]
    assert (await state_of(queues, 5)).running == 1


async def test_a_worker_that_was_taken_over_admits_nothing(db: Database) -> None:
    await fill(db, "a")
    state = await state_of(db.storage.queues, 1)
    await db.storage.take_over("w1", ["w2"])
    assert await db.storage.queues.admit(Admission("q", state.version, "", 0, ["a"]), "w2", db.now, ["wf"]) is None
    assert (await state_of(db.storage.queues, 1)).running == 0


async def test_one_that_was_cancelled_meanwhile_is_not_admitted(db: Database) -> None:
    await fill(db, "a", "b")
    state = await state_of(db.storage.queues, 2)
    answer = await db.commit(requests=[Request("a", CANCEL, b"", db.now)])
    assert answer.requests[0].took
    made = Admission("q", state.version, "", 0, ["a", "b"])
    admitted = await db.storage.queues.admit(made, "w1", db.now, [])
    assert [(one.id, one.is_mine) for one in admitted or ()] == [("b", False)]
    assert (await state_of(db.storage.queues, 5)).running == 1
    assert [one.id for one in await db.storage.claim("w2", ["wf"], 10, db.now)] == ["b"]


async def test_keys_in_order_and_the_first_of_each(db: Database) -> None:
    await db.register("w1")
    given = [("a1", "a", 0), ("a2", "a", 9), ("a3", "a", 0), ("c1", "c", 0), ("b1", "b", 0), ("n1", "", 0)]
    await db.commit(starts=[queued(db, *start) for start in given])
    queues = db.storage.queues
    assert [key.key for key in await queues.keys("q", None, 10, 1)] == ["", "a", "b", "c"]
    assert [key.key for key in await queues.keys("q", "a", 1, 1)] == ["b"]
    assert await queues.first("q", ["c", "a"], 2) == {"c": ["c1"], "a": ["a2", "a1"]}
    state = await state_of(queues, 10)
    await queues.admit(Admission("q", state.version, "a", 77, ["a2"], {"a": 55}), "w1", db.now, ["wf"])
    [none, a, *_] = await queues.keys("q", None, 10, 5)
    assert (none.running, a.running, a.reserved) == (0, 1, 55)
    state = await state_of(queues, 10)
    assert (state.turn, state.reserved, state.running) == ("a", 77, 1)
    await queues.forget_keys(56)
    assert (await queues.keys("q", None, 10, 5))[1].reserved == 0


async def test_a_start_that_is_submitted_twice_is_one(db: Database) -> None:
    await db.register("w1")
    batch = db.batch("w1", starts=[queued(db, "a", "k", 3)])
    assert [(await db.submit(batch)).starts[0].created for _ in range(2)] == [True, True]
    row = (await db.storage.catalog.instance("a")) or None
    assert row is not None
    assert (row.status, row.owner, row.queue, row.queue_key, row.priority) == ("queued", None, "q", "k", 3)


async def test_a_clock_that_is_set_back_exceeds_no_rate_and_stops_nothing_for_long(db: Database) -> None:
    """The rates of the queue and of its keys are corrected after a while."""
    for queue in (Queue("q", rate=Rate(1, 60)), Queue("of keys", rate_per_key=Rate(1, 60))):
        ids = [f"{queue.name}{n}" for n in range(4)]
        await db.commit(starts=[Start(id, "wf", b"{}", 0, db.now, place=Place(queue.name, "k")) for id in ids])
        worker, counts = admitter(db, queue, "me"), list[int]()
        for seconds in (0, -24 * 3600, 29, 1, 59, 1, 60):
            db.clock.turn_to(db.now + seconds * SECOND)
            await worker._admit_all(queue, "me")
            counts.append((await db.storage.queues.glance(Queue(queue.name, max_concurrent=10))).state.running)
        assert counts == [1, 1, 1, 1, 1, 2, 3]


async def ends_with(db: Database, made: Admission, *, outdated: bool = False) -> BatchResult:
    """Commit the end of `a`, which was admitted, and with it the admission of another one."""
    snapshot = await db.storage.load("a")
    assert snapshot is not None
    version = snapshot.row.version - outdated
    end = Commit("a", version, "completed", db.now, output=b"1", admits=made)
    return await db.commit(worker="w1", workflows=["wf"], commits=[end])


async def test_the_slot_of_one_that_ends_goes_to_the_next(db: Database) -> None:
    await fill(db, "a", "b")
    state = await state_of(db.storage.queues, 1)
    await db.storage.queues.admit(Admission("q", state.version, "", 0, ["a"]), "w1", db.now, ["wf"])
    state = await state_of(db.storage.queues, 1)
    answer = await ends_with(db, Admission("q", state.version, "", 5, ["b"]))
    assert (answer.commits, answer.admitted) == ([True], [Admitted("b", "wf", is_mine=True)])
    after = await state_of(db.storage.queues, 1)
    assert (after.version, after.running, after.reserved, after.has_waiting) == (state.version + 1, 1, 5, False)
    snapshot = await db.storage.load("b")
    assert snapshot is not None
    assert (snapshot.row.owner, snapshot.row.status) == ("w1", "running")


async def succeeded(db: Database, id: str) -> Admitted:
    """Have an instance admitted with the end of `a`."""
    state = await state_of(db.storage.queues, 1)
    await db.storage.queues.admit(Admission("q", state.version, "", 0, ["a"]), "w1", db.now, ["wf"])
    state = await state_of(db.storage.queues, 1)
    [admitted] = (await ends_with(db, Admission("q", state.version, "", 5, [id]))).admitted
    assert (admitted.id, admitted.is_mine) == (id, True)
    return admitted


async def test_a_new_instance_need_not_be_read_after_its_admission(db: Database) -> None:
    await fill(db, "a")
    start = Start("b", "wf", b'{"n": 1}', 1, db.now, deadline=db.now + SECOND, place=Place("q", "k", 3))
    await db.commit(starts=[start])
    admitted, snapshot = await succeeded(db, "b"), await db.storage.load("b")
    assert snapshot is not None
    assert (snapshot.history, snapshot.waits, snapshot.attempts, snapshot.requests) == ([], {}, [], [])
    assert admitted.row == (snapshot.row if db.storage.is_remote else None), "a file is read at once anyway"


async def test_an_instance_with_a_request_is_read_after_its_admission(db: Database) -> None:
    await fill(db, "a", "b")
    await db.commit("w1", requests=[Request("b", RESUME, b"{}", db.now)])
    admitted, snapshot = await succeeded(db, "b"), await db.storage.load("b")
    assert snapshot is not None
    assert [request.kind for request in snapshot.requests] == [RESUME]
    assert admitted.row is None


async def test_an_instance_that_is_retried_is_read_after_its_admission(db: Database) -> None:
    await fill(db, "a", "b")
    state = await state_of(db.storage.queues, 1)
    await db.storage.queues.admit(Admission("q", state.version, "", 0, ["b"]), "w1", db.now, ["wf"])
    snapshot = await db.storage.load("b")
    assert snapshot is not None
    done = Entry(1, Kind.ACTIVITY_COMPLETED, "x:1", db.now, b"", b"1")
    await db.step("b", "w1", snapshot.row.version, status="failed", error=b"{}", entries=[done])
    assert await db.storage.reopen(["b"], db.now, b"") == {"b"}
    assert (await succeeded(db, "b")).row is None


async def test_no_slot_is_passed_on_after_another_admission(db: Database) -> None:
    await fill(db, "a", "b", "c")
    state = await state_of(db.storage.queues, 2)
    await db.storage.queues.admit(Admission("q", state.version, "", 0, ["a"]), "w1", db.now, ["wf"])
    state = await state_of(db.storage.queues, 2)
    await db.storage.queues.admit(Admission("q", state.version, "", 0, ["c"]), "w2", db.now, ["wf"])
    answer = await ends_with(db, Admission("q", state.version, "", 0, ["b"]))
    assert (answer.commits, list(answer.admitted)) == ([True], [])
    assert (await state_of(db.storage.queues, 2)).running == 1


async def test_no_slot_is_passed_on_by_one_that_has_not_ended(db: Database) -> None:
    await fill(db, "a", "b")
    state = await state_of(db.storage.queues, 1)
    await db.storage.queues.admit(Admission("q", state.version, "", 0, ["a"]), "w1", db.now, ["wf"])
    state = await state_of(db.storage.queues, 1)
    answer = await ends_with(db, Admission("q", state.version, "", 0, ["b"]), outdated=True)
    assert (answer.commits, list(answer.admitted)) == ([False], [])
    after = await state_of(db.storage.queues, 1)
    assert (after.version, after.running, after.has_waiting) == (state.version, 1, True)


async def test_one_that_was_cancelled_gets_no_slot(db: Database) -> None:
    await fill(db, "a", "b")
    state = await state_of(db.storage.queues, 1)
    await db.storage.queues.admit(Admission("q", state.version, "", 0, ["a"]), "w1", db.now, ["wf"])
    state = await state_of(db.storage.queues, 1)
    await db.commit(requests=[Request("b", CANCEL, b"{}", db.now)])
    answer = await ends_with(db, Admission("q", state.version, "", 0, ["b"]))
    assert (answer.commits, list(answer.admitted)) == ([True], [])


async def test_slots_beyond_a_lowered_limit_are_not_forgotten_when_several_end_together(db: Database) -> None:
    """Five hold slots, and the limit is one by now. Three of them end: nothing is admitted."""
    ids = [f"i{n}" for n in range(7)]
    await fill(db, *ids)
    high, low = Queue("q", max_concurrent=5), Queue("q", max_concurrent=1)
    worker: Any = admitter(db, high, "w1")
    worker._residents.loading = ids[:5]
    await worker._admit_all(high, "w1")
    await worker._admit_all(low, "w1")
    for id in ids[:3]:
        snapshot = await db.storage.load(id)
        assert snapshot is not None
        await db.commit(worker="w1", commits=[Commit(id, snapshot.row.version, "completed", db.now, output=b"1")])
        worker.freed("q", id)
    await worker._admit_all(low, "w1")
    assert (await state_of(db.storage.queues, 10)).running == 2
