"""Writes to schedules: each names what was read, and a worker without its lease writes nothing."""

from __future__ import annotations

import asyncio

import pytest

from romancy import Schedule
from romancy.core.inputs import BOUND
from romancy.storage.protocol import Storage
from romancy.storage.schedules import Firing, Order, ScheduleRow
from tests.storage.conftest import Database

T = 1_800_000_000_000_000
HOUR = 3_600_000_000


def order(**more: object) -> Order:
    values = {"name": "s", "workflow": "wf", "input": b"{}", "input_kind": BOUND, "timeout": None, "attributes": None}
    return Order(**{**values, "schedule": Schedule(every=3600), "declared": False, **more})  # type: ignore[arg-type]


def firing(n: int = 0, *, waits: bool = False) -> Firing:
    return Firing(f"s/{n}", T + n * HOUR, T + n * HOUR, T + (n + 1) * HOUR, 0, waits, T)


@pytest.fixture
def storage(db: Database) -> Storage:
    return db.storage


@pytest.fixture
async def row(storage: Storage) -> ScheduleRow:
    await storage.register("w1", 10**10, [], ["wf"])
    assert await storage.schedules.insert(order(attributes='{"tier": "\\"gold\\""}'), T)
    return await again(storage)


async def again(storage: Storage) -> ScheduleRow:
    row = await storage.schedules.get("s")
    assert row is not None
    return row


async def test_what_is_stored_comes_back(storage: Storage, row: ScheduleRow) -> None:
    full = Schedule("0 9 * * *", timezone="Europe/Berlin", spread=60, catch_up="all", overlap="cancel")
    assert await storage.schedules.change(row, order(schedule=full, timeout=5, declared=True), None)
    found = await again(storage)
    assert found.order == order(schedule=full, timeout=5, declared=True)
    assert (found.next_at, found.due_at, found.paused, found.started, found.is_busy) == (None, None, False, 0, False)
    assert [r.name for r in await storage.schedules.declared()] == ["s"]
    assert not await storage.schedules.insert(order(), T)


async def test_a_tick_is_started_together_with_the_step_to_the_next(storage: Storage, row: ScheduleRow) -> None:
    assert await storage.schedules.fire("w1", row, firing()) is True
    found = await again(storage)
    assert (found.next_at, found.done_at, found.last_at, found.last_instance) == (T + HOUR, T, T, "s/0")
    assert (found.started, found.skipped, found.is_busy) == (1, 0, True)
    instance = await storage.catalog.instance("s/0")
    assert instance is not None
    assert (instance.schedule, instance.scheduled_at, instance.workflow) == ("s", T, "wf")
    assert (await storage.catalog.shown(["s/0"]))["s/0"].attributes == {"tier": '"gold"'}


async def test_a_second_start_of_the_same_tick_does_nothing(storage: Storage, row: ScheduleRow) -> None:
    await storage.register("w2", 10**10, [], ["wf"])
    tries = [storage.schedules.fire(worker, row, firing()) for worker in ("w1", "w2") * 4]
    fired = await asyncio.gather(*tries)
    assert sorted(map(str, fired)) == ["None"] * 7 + ["True"]
    assert (await again(storage)).started == 1


async def test_a_worker_without_its_lease_starts_nothing(storage: Storage, row: ScheduleRow) -> None:
    assert await storage.schedules.fire("gone", row, firing()) is None
    assert await storage.catalog.instance("s/0") is None
    assert (await again(storage)).stamp == row.stamp


async def test_a_change_or_a_pause_comes_before_a_start_or_after_it(storage: Storage, row: ScheduleRow) -> None:
    assert await storage.schedules.pause(row, True, row.next_at)
    assert await storage.schedules.fire("w1", row, firing()) is None
    paused = await again(storage)
    assert await storage.schedules.fire("w1", paused, firing()) is None
    assert not await storage.schedules.change(row, order(timeout=1), T)
    assert not await storage.schedules.delete("s", row)
    assert await storage.schedules.pause(paused, False, T)
    assert await storage.schedules.fire("w1", await again(storage), firing()) is True
    assert not await storage.schedules.pause(paused, True, T)


async def test_an_open_instance_is_seen_by_the_write_itself(storage: Storage, row: ScheduleRow) -> None:
    assert await storage.schedules.fire("w1", row, firing())
    assert await storage.schedules.fire("w1", await again(storage), firing(1, waits=True)) is None
    assert (await again(storage)).next_at == T + HOUR
    assert await storage.schedules.fire("w1", await again(storage), firing(1)) is False  # overlap="skip"
    found = await again(storage)
    assert (found.next_at, found.started, found.skipped, found.last_instance) == (T + 2 * HOUR, 1, 1, "s/0")
    assert await storage.catalog.instance("s/1") is None


async def test_what_is_due(storage: Storage, row: ScheduleRow) -> None:
    assert await storage.schedules.next_due(0) == T
    assert await storage.schedules.next_due(T) is None
    assert await storage.schedules.due(T - 1, (0, ""), 10) == []
    assert [r.name for r in await storage.schedules.due(T, (0, ""), 10)] == ["s"]
    assert await storage.schedules.due(T, (T, "s"), 10) == []
    assert await storage.schedules.pause(row, True, T)
    assert await storage.schedules.next_due(0) is None
    assert await storage.schedules.due(T, (0, ""), 10) == []


async def test_a_trigger_with_an_id_that_is_taken_does_nothing(storage: Storage, row: ScheduleRow) -> None:
    assert await storage.schedules.trigger("s", "x", T) == "wf"
    assert await storage.schedules.trigger("s", "x", T) is None
    assert await storage.schedules.trigger("nothing", "y", T) is None
    found = await again(storage)
    assert (found.started, found.last_instance, found.next_at) == (1, "x", T)
