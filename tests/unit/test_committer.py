"""The committer with a database that answers when it is told to."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest

from romancy.core.clock import SystemClock
from romancy.core.history import Entry, Kind
from romancy.core.model import Event
from romancy.core.registry import Registry
from romancy.engine.committer import MAX_BATCH, MAX_WEIGHT, Committer
from romancy.engine.metrics import Metrics
from romancy.engine.outage import Outage
from romancy.errors import AppNotRunning, Outdated
from romancy.storage.batch import Accept, AcceptAnswer, Batch, BatchResult, Commit, Start, StartAnswer
from romancy.storage.errors import RefusedValue, TransientError
from romancy.storage.protocol import Answered


class Database:
    """Batches wait here until they are answered."""

    is_remote, over = False, None

    def __init__(self) -> None:
        self.batches: list[tuple[Batch, Answered]] = []
        self.appended: list[str] = []
        self.appends = False

    def append(self, commit: Commit, worker: str | None) -> bool:
        if self.appends:
            self.appended.append(f"{commit.instance} by {worker}")
        return self.appends

    def commit(self, batch: Batch, answered: Answered) -> None:
        self.batches.append((batch, answered))

    async def next(self) -> tuple[Batch, Answered]:
        async with asyncio.timeout(10):
            while not self.batches:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        return self.batches.pop(0)


class Case:
    """Writes down what others hear of the committer, in order."""

    def __init__(self) -> None:
        self.database: Any = Database()
        self.heard: list[Any] = []
        self.worker = "me"
        self.committer = Committer(
            self.database,
            SystemClock(),
            Registry(),
            self,  # type: ignore[arg-type]
            Outage(),
            Metrics(),
            on_events=lambda batch, answer: self.heard.append("events"),
            on_answer=lambda answer: self.heard.append("answer"),
            on_settled=lambda: self.heard.append("settled"),
            room=lambda: 0,
            emissions=Mock(heads={}),
        )

    # --- a lease
    def fenced(self, worker: str | None) -> None:
        self.heard.append(f"{worker} is fenced")

    def retire(self, error: Outdated) -> None:
        self.heard.append("outdated")

    def commit(self, instance: str, **fields: Any) -> None:
        commit = Commit(instance, 0, "running", 0, **fields)
        self.committer.commit(commit, lambda applied, refusal: self.heard.append((instance, applied, refusal)))


@pytest.fixture
async def case() -> Case:
    return Case()


def ids(batch: Batch) -> list[str]:
    return [commit.instance for commit in batch.commits]


async def test_while_one_batch_commits_the_next_gathers(case: Case) -> None:
    case.commit("a")
    batch, answered = await case.database.next()
    case.commit("b")
    case.commit("c")
    await asyncio.sleep(0)
    assert (ids(batch), batch.worker, case.database.batches) == (["a"], "me", [])
    answered(BatchResult(commits=[True]), None)
    batch, answered = await case.database.next()
    answered(BatchResult(commits=[True, False]), None)
    assert ids(batch) == ["b", "c"]
    assert case.heard == [("a", True, None), "settled", ("b", True, None), ("c", False, None), "settled"]
    assert case.committer.is_idle


async def test_a_batch_whose_outcome_is_unknown_goes_out_again_as_it_was(case: Case) -> None:
    case.commit("a")
    first, answered = await case.database.next()
    answered(None, TransientError("away"))
    case.commit("b")
    again, answered = await case.database.next()
    assert again is first, "nothing overtakes it, and its token says that it is the same"
    answered(BatchResult(commits=[True]), None)
    assert ids((await case.database.next())[0]) == ["b"]


async def test_of_a_batch_that_is_refused_only_the_culprit_suffers(case: Case) -> None:
    for id in "abcd":
        case.commit(id)
    while not case.committer.is_idle or case.committer.queued:
        batch, answered = await case.database.next()
        refused = RefusedValue("no") if "c" in ids(batch) else None
        answered(None if refused else BatchResult(commits=[True] * len(batch.commits)), refused)
    told = {said[0]: said[1:] for said in case.heard if said != "settled"}
    assert sorted(told) == list("abcd")
    assert [id for id, (applied, _) in told.items() if not applied] == ["c"]
    assert isinstance(told["c"][1], RefusedValue)


async def test_what_a_batch_brought_is_told_after_its_items_are_settled(case: Case) -> None:
    event = Accept(Event(id="1", source="s", type="go"), b"")
    accepting = asyncio.ensure_future(case.committer.accept(event))
    case.commit("a")
    await asyncio.sleep(0)
    _, answered = await case.database.next()
    answer = AcceptAnswer(1, False, [], [])
    answered(BatchResult(commits=[True], accepts=[answer]), None)
    assert case.heard == ["events", ("a", True, None), "answer", "settled"]
    assert await accepting is answer


async def test_an_instance_that_is_this_workers_begins(case: Case) -> None:
    starts = [Start(id, "wf", b"", 0, 0) for id in ("mine", "theirs")]
    asking = [asyncio.ensure_future(case.committer.start(s, lambda s: case.heard.append(s.id))) for s in starts]
    _, answered = await case.database.next()
    answered(BatchResult(starts=[StartAnswer(True, owned=True), StartAnswer(True, owned=False)]), None)
    assert [answer.owned for answer in await asyncio.gather(*asking)] == [True, False]
    assert case.heard == ["mine", "settled"]


async def test_a_lease_that_is_lost_is_heard_of(case: Case) -> None:
    case.commit("a")
    looked: list[str] = []
    case.committer.look("b", None, lambda: looked.append("b"))
    _, answered = await case.database.next()
    case.worker = "another"
    answered(BatchResult(commits=[False], fenced=True), None)
    assert "me is fenced" in case.heard, "the one that sent the batch"
    assert looked == [], "that nothing was found says nothing about events"


async def test_a_schema_that_is_newer_is_heard_of(case: Case) -> None:
    case.commit("a")
    _, answered = await case.database.next()
    answered(None, Outdated(9, 1))
    assert case.heard == ["outdated", ("a", False, None)]
    case.committer.refuse(Outdated(9, 1))
    with pytest.raises(Outdated):
        await case.committer.accept(Accept(Event(id="1", source="s", type="go"), b""))


async def test_one_entry_alone_takes_the_short_way(case: Case) -> None:
    case.database.appends = True
    entry = Entry(1, Kind.ACTIVITY_COMPLETED, "call", 0, None, b"1")
    case.commit("a", append_only=True, entries=[entry])
    await asyncio.sleep(0)
    assert (case.database.appended, case.database.batches) == (["a by me"], [])
    case.commit("b", append_only=True, entries=[entry])
    case.commit("c", append_only=True, entries=[entry])
    batch, _ = await case.database.next()
    assert (ids(batch), len(case.database.appended)) == (["b", "c"], 1)


async def test_a_batch_has_an_end(case: Case) -> None:
    for n in range(MAX_BATCH + 1):
        case.commit(str(n))
    batch, answered = await case.database.next()
    assert len(batch.commits) == MAX_BATCH
    heavy = Accept(Event(id="1", source="s", type="go", data=b"x" * MAX_WEIGHT), b"")
    asking = [asyncio.ensure_future(case.committer.accept(heavy)) for _ in range(2)]
    await asyncio.sleep(0)
    answered(BatchResult(commits=[True] * MAX_BATCH), None)
    batch, _ = await case.database.next()
    assert (len(batch.commits), len(batch.accepts)) == (1, 1)
    for task in asking:
        task.cancel()


async def test_when_too_many_wait_there_is_no_room_until_one_is_stored(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("romancy.engine.committer.MAX_WAITING", 1)
    first, second = (Accept(Event(id=id, source="s", type="go"), b"") for id in "12")
    assert case.committer.has_room
    asking = case.committer.accept_judged(first, lambda accept, answer: accept.event.id)
    assert not case.committer.has_room
    later = asyncio.ensure_future(case.committer.accept(second))
    batch, answered = await case.database.next()
    assert [accept.event.id for accept in batch.accepts] == ["1"]
    answered(BatchResult(accepts=[AcceptAnswer(1, False, [], [])]), None)
    assert await asking == "1"
    batch, answered = await case.database.next()
    answered(BatchResult(accepts=[AcceptAnswer(2, False, [], [])]), None)
    assert (await later).seq == 2
    assert case.committer.has_room
    case.committer.close()
    assert not case.committer.has_room, "it takes nothing more"


async def test_after_a_crash_callers_hear_of_it_and_instances_of_nothing(case: Case) -> None:
    asking = asyncio.ensure_future(case.committer.accept(Accept(Event(id="1", source="s", type="go"), b"")))
    await asyncio.sleep(0)
    case.commit("a")
    _, answered = await case.database.next()
    case.committer.abandon()
    answered(BatchResult(commits=[True], accepts=[AcceptAnswer(1, False, [], [])]), None)
    with pytest.raises(AppNotRunning):
        await asking
    assert case.heard == []
