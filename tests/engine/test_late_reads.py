"""Reads of instances whose answers are late: meanwhile, the instance may have become ours, begun, or ended."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from romancy.engine.loader import Arrival, Loader
from romancy.engine.residents import Residents


class Reads:
    """A loader with a database whose answers come when the test says so."""

    def __init__(self) -> None:
        self.residents = Residents(10, lambda: None)
        self.asked: list[asyncio.Future[Any]] = []
        self.posted: list[object] = []
        self.revived: list[Arrival] = []
        inboxes: Any = SimpleNamespace(
            residents=self.residents, is_closed=False, post=lambda resident, input: self.posted.append(input)
        )
        lease: Any = SimpleNamespace(is_mine=lambda owner: owner == "me")
        outage: Any = SimpleNamespace(over=lambda what: None, noticed=lambda what, error: None)
        self.loader = Loader(self, lease, inboxes, outage, self.revived.append)  # type: ignore[arg-type]

    async def load_many(self, instances: list[str]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked.append(future)
        return {instance: await future for instance in instances}

    async def answer(self, owner: str | None) -> None:
        self.asked.pop(0).set_result(SimpleNamespace(row=SimpleNamespace(id="x", owner=owner)))
        await settled()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def reads() -> Reads:
    return Reads()


async def test_it_is_read_again_if_it_became_ours_during_the_read(reads: Reads) -> None:
    reads.loader.load("x")
    await settled()
    reads.loader.load("x", crashed=True)  # it was claimed just now
    await reads.answer(None)
    assert not reads.revived
    await reads.answer("me")
    [arrival] = reads.revived
    assert arrival.crashed
    assert not reads.residents.knows("x")


async def test_an_instance_of_others_is_read_once(reads: Reads) -> None:
    reads.loader.load("x")
    await settled()
    await reads.answer("another")
    assert not reads.asked
    assert not reads.revived


async def test_an_instance_in_memory_is_not_read(reads: Reads) -> None:
    resident: Any = SimpleNamespace(instance=SimpleNamespace(id="x"))
    reads.residents.add(resident)
    reads.loader.load("x", "input")  # type: ignore[arg-type]
    await settled()
    assert not reads.asked
    assert reads.posted == ["input"]


async def test_what_was_read_of_an_instance_that_began_meanwhile_is_ignored(reads: Reads) -> None:
    """It may have ended by now: what was read would run it again."""
    reads.loader.load("x", "input")  # type: ignore[arg-type]
    await settled()
    assert reads.loader.overtake("x") == ["input"]
    await reads.answer("me")
    assert not reads.revived


async def test_a_later_read_counts_not_the_one_that_was_overtaken(reads: Reads) -> None:
    reads.loader.load("x")
    await settled()
    reads.loader.overtake("x")
    reads.loader.load("x")
    await settled()
    await reads.answer("me")  # the first one
    assert not reads.revived
    await reads.answer("me")
    assert len(reads.revived) == 1


async def test_what_is_wanted_right_after_a_stop_is_read(reads: Reads) -> None:
    """A worker that was taken over goes on under another name at once."""
    reads.loader.load("x")
    await settled()
    reads.loader.stop()
    reads.loader.load("x")
    await settled()
    reads.asked.pop(0)  # of the read that was stopped
    await reads.answer("me")
    assert len(reads.revived) == 1
