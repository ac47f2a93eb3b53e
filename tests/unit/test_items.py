"""Items of the committer's queue, each by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from romancy.core.model import Event
from romancy.engine.items import (
    CommitItem,
    EventsItem,
    Item,
    JudgedItem,
    Life,
    LookItem,
    RequestItem,
    Results,
    StartItem,
    fill,
)
from romancy.storage.batch import (
    CANCEL,
    Accept,
    AcceptAnswer,
    Batch,
    BatchResult,
    Commit,
    Request,
    RequestAnswer,
    Start,
    StartAnswer,
)
from romancy.storage.errors import RefusedValue

ERROR = RuntimeError("no")


def event(id: str, data: bytes = b"") -> Accept:
    return Accept(Event(id=id, source="s", type="go", data=data), b"")


class Told:
    """One item of each kind, and what their callers hear."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.futures = [asyncio.get_running_loop().create_future() for _ in range(4)]
        start, one, several, request = self.futures
        self.items: list[Item] = [
            StartItem(Start("a", "wf", b"12345", 0, 0), lambda start: self.heard.append(start.id), start),
            EventsItem([event("1", b"123")], True, one),
            CommitItem(Commit("b", 0, "running", 0), lambda *said: self.heard.append(said)),
            LookItem("c", None, lambda: self.heard.append("looked")),
            EventsItem([event("2", b"1"), event("3", b"2")], False, several),
            RequestItem(Request("d", CANCEL, b"", 0), request),
        ]

    @property
    def errors(self) -> list[BaseException | None]:
        return [future.exception() for future in self.futures]


async def test_each_takes_its_place_and_gets_its_own_result() -> None:
    told = Told()
    batch = fill(Batch("me", (), b"token", 0), told.items)
    assert len(batch) == 7
    assert [accept.event.id for accept in batch.accepts] == ["1", "2", "3"]
    accepted = [AcceptAnswer(n, False, [], []) for n in (1, 2, 3)]
    asked = RequestAnswer("running", None)
    started = StartAnswer(True, owned=True)
    results = Results(BatchResult(commits=[True], starts=[started], accepts=accepted, requests=[asked]))
    for item in told.items:
        item.settle(results)
    assert told.heard == ["a", (True, None)], "a look is over only once its offers were followed up"
    assert [future.result() for future in told.futures] == [started, accepted[0], accepted[1:], asked]


async def test_an_event_is_judged_even_if_its_sender_is_gone() -> None:
    judged: list[str] = []
    here, gone = (asyncio.get_running_loop().create_future() for _ in range(2))
    gone.cancel()

    def judge(accept: Accept, answer: AcceptAnswer) -> str:
        judged.append(f"{accept.event.id} is {answer.seq}")
        return judged[-1]

    results = Results(BatchResult(accepts=[AcceptAnswer(n, False, [], []) for n in (7, 8)]))
    for id, future in (("1", gone), ("2", here)):
        JudgedItem(event(id), judge, future).settle(results)
    assert judged == ["1 is 7", "2 is 8"]
    assert here.result() == "2 is 8"


async def test_a_judge_that_fails_leaves_nobody_waiting() -> None:
    def judge(accept: Accept, answer: AcceptAnswer) -> str:
        raise ERROR

    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    JudgedItem(event("1"), judge, future).settle(Results(BatchResult(accepts=[AcceptAnswer(1, False, [], [])])))
    assert future.exception() is ERROR


async def test_an_instance_begins_although_its_starter_is_gone() -> None:
    told = Told()
    told.futures[0].cancel()
    told.items[0].settle(Results(BatchResult(starts=[StartAnswer(True, owned=True)])))
    assert told.heard == ["a"]


async def test_failing_tells_callers_in_every_life_and_instances_unless_it_is_over() -> None:
    heard = {}
    for life in Life:
        told = Told()
        for item in told.items:
            item.fail(ERROR, life)
        assert told.errors == [ERROR] * 4
        heard[life] = told.heard
    assert heard == {Life.OPEN: [(False, None), "looked"], Life.CLOSED: [(False, None)], Life.DEAD: []}


async def test_a_refused_value_is_told_to_its_instance() -> None:
    told, refusal = Told(), RefusedValue("no")
    for item in told.items:
        item.refuse(refusal, Life.OPEN)
    assert told.heard == [(False, refusal), "looked"]
    assert told.errors == [refusal] * 4


@pytest.mark.parametrize("n", range(6))
async def test_weights_are_the_bytes_that_may_be_many(n: int) -> None:
    assert Told().items[n].weight == (5, 3, 0, 0, 2, 0)[n]
