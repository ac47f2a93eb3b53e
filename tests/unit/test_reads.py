"""Reads of instances: what can't be read now, or not together, holds up nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from romancy.engine import reads
from romancy.engine.outage import Outage
from romancy.engine.reads import Read, Reads
from romancy.storage.errors import TookTooLong, TransientError
from romancy.storage.protocol import Storage
from romancy.storage.records import Snapshot


class FakeStorage:
    """A database whose snapshots are the ids. Reads together can fail, and so can reads of `large` instances."""

    def __init__(self, *failures: Exception, large: Sequence[str] = ()) -> None:
        self.failures, self.large = list(failures), large
        self.asked: list[list[str]] = []

    async def load_many(self, instances: Sequence[str]) -> dict[str, Any]:
        self.asked.append(list(instances))
        if self.failures:
            raise self.failures.pop(0)
        if set(self.large) & set(instances):
            raise TookTooLong("canceling statement due to statement timeout")
        return {id: id for id in instances}

    async def load(self, instance: str) -> Any:
        if instance in self.large:
            raise TookTooLong("canceling statement due to statement timeout")
        return instance


class Case:
    def __init__(self, storage: FakeStorage) -> None:
        self.arrived: list[str] = []
        self.outage = Outage()
        self.reads = Reads(cast("Storage", storage), self.outage, self._arrive)

    def _arrive(self, read: Read, snapshot: Snapshot | None) -> None:
        assert snapshot is not None
        self.arrived.append(read.instance)

    def want(self, *instances: str) -> None:
        for instance in instances:
            self.reads.add(Read(instance, crashed=False))

    async def all_arrive(self, *instances: str) -> None:
        async with asyncio.timeout(10):
            while sorted(self.arrived) != sorted(instances):  # noqa: ASYNC110 - what is waited for is a list
                await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """All pauses, which take no time here."""
    made: list[float] = []
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        if seconds:
            made.append(seconds)
        await sleep(0)

    monkeypatch.setattr(reads.asyncio, "sleep", pause)
    return made


async def test_what_is_too_large_together_is_read_alone(pauses: list[float]) -> None:
    storage = FakeStorage(TookTooLong("canceling statement due to statement timeout"))
    case = Case(storage)
    case.want("a", "b", "c")
    await case.all_arrive("a", "b", "c")
    assert (storage.asked, pauses) == ([["a", "b", "c"]], [])


async def test_one_that_is_too_large_holds_up_nobody() -> None:
    case = Case(FakeStorage(large=["huge"]))
    case.want("huge", "a", "b")
    await case.all_arrive("a", "b")
    case.want("c")
    await case.all_arrive("a", "b", "c")
    case.reads.stop()


async def test_after_a_long_outage_reads_go_on_soon(pauses: list[float]) -> None:
    """All wait for the same pause, also those that are wanted when the database is back."""
    case = Case(FakeStorage(*(TransientError("the server is starting") for _ in range(20))))
    case.want("a")
    await case.all_arrive("a")
    assert (len(pauses), max(pauses)) == (20, 2.0)


@pytest.mark.parametrize("large", [[], ["a"]], ids=["together", "alone"])
async def test_reads_stopped_in_an_outage_leave_it(large: list[str]) -> None:
    """A worker that was taken over reads no more. An outage that never ended would hide the next one."""
    gone = TransientError("the server is starting")
    case = Case(FakeStorage(*([] if large else [gone] * 1000), large=large))
    case.want("a")
    async with asyncio.timeout(10):
        while not case.outage._noticed_by:  # noqa: ASYNC110
            await asyncio.sleep(0)
    case.reads.stop()
    async with asyncio.timeout(10):
        while case.outage._noticed_by:  # noqa: ASYNC110
            await asyncio.sleep(0)
