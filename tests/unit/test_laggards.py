"""Items that take too long alone, beside a stream of others."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest

from romancy.core.clock import SystemClock
from romancy.core.model import Event
from romancy.core.registry import Registry
from romancy.engine.committer import Committer
from romancy.engine.metrics import Metrics
from romancy.engine.outage import Outage
from romancy.storage.batch import Batch, BatchResult, Commit, Offer
from romancy.storage.errors import TookTooLong
from romancy.storage.protocol import Answered


class Waiting:
    """Batches wait here until they are answered."""

    is_remote, over = False, None

    def __init__(self) -> None:
        self.batches: list[tuple[Batch, Answered]] = []

    def append(self, commit: Commit, worker: str | None) -> bool:
        return False

    def commit(self, batch: Batch, answered: Answered) -> None:
        self.batches.append((batch, answered))

    async def next(self) -> tuple[Batch, Answered]:
        async with asyncio.timeout(10):
            while not self.batches:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        return self.batches.pop(0)


@pytest.fixture
def storage() -> Waiting:
    return Waiting()


def offered(instance: str) -> BatchResult:
    event = Event(id="1", source="s", type="go")
    return BatchResult(offers=[Offer(instance, "w", "me", event, None)])


def commit(instance: str) -> Commit:
    return Commit(instance, 0, "running", 0)


class Case:
    def __init__(self, storage: Any) -> None:
        self.offers: list[str] = []
        self.looked: list[str] = []
        lease: Any = Mock(worker="me")
        self.committer = Committer(
            storage,
            SystemClock(),
            Registry(),
            lease,
            Outage(),
            Metrics(),
            on_events=lambda batch, answer: None,
            on_answer=lambda answer: self.offers.extend(offer.instance for offer in answer.offers),
            on_settled=lambda: None,
            room=lambda: 0,
            emissions=Mock(heads={}),
        )

    def look(self, instance: str) -> None:
        self.committer.look(instance, None, lambda: self.looked.append(instance))


async def test_what_a_late_look_finds_is_handed_over(storage: Waiting) -> None:
    case = Case(storage)
    case.look("a")
    _, answered = await storage.next()
    answered(None, TookTooLong("too long"))
    assert not case.committer.is_idle
    _, answered = await storage.next()
    answered(offered("a"), None)
    assert (case.offers, case.looked) == (["a"], ["a"])
    assert case.committer.is_idle


async def test_an_instance_that_went_on_meanwhile_looks_again(storage: Waiting) -> None:
    """What it was offered it may have taken by now: the same event would be taken twice."""
    case = Case(storage)
    case.look("a")
    _, answered = await storage.next()
    answered(None, TookTooLong("too long"))
    _, late = await storage.next()
    case.committer.commit(commit("a"), lambda applied, refusal: None)
    batch, answered = await storage.next()
    assert [each.instance for each in batch.commits] == ["a"], "others are not held up"
    answered(BatchResult(commits=[True]), None)
    late(offered("a"), None)
    assert (case.offers, case.looked) == ([], [])
    batch, answered = await storage.next()
    assert list(batch.looks) == [("a", None)]
    answered(BatchResult(), None)
    assert case.looked == ["a"]


async def test_those_who_wait_hear_that_the_app_was_stopped(storage: Waiting) -> None:
    case = Case(storage)
    told: list[bool] = []
    case.committer.commit(commit("a"), lambda applied, refusal: told.append(applied))
    case.look("b")
    for _ in range(3):  # both, then each alone
        _, answered = await storage.next()
        answered(None, TookTooLong("too long"))
    case.committer.close()
    assert told == [False]
    assert case.looked == [], "nobody may think that there was nothing to be found"
    await case.committer.drained()
