"""Who is in memory: room, those who make room, and requests to them."""

from __future__ import annotations

import asyncio
from typing import Any

from romancy.engine.residents import Residents


class Stay:
    """As much of a resident as matters here."""

    def __init__(self, id: str) -> None:
        self.instance = self
        self.id = id


class Case:
    def __init__(self, limit: int = 2) -> None:
        self.work = 0
        self.residents = Residents(limit, self.on_work)

    def on_work(self) -> None:
        self.work += 1

    def add(self, id: str) -> Any:
        stay: Any = Stay(id)
        self.residents.add(stay)
        return stay


def test_the_longest_idle_makes_room_and_nobody_who_is_busy() -> None:
    case = Case()
    a, b, c = (case.add(id) for id in "abc")
    assert case.residents.surplus() is None, "all are busy"
    for stay in (b, a, c):
        case.residents.rest(stay)
    case.residents.rouse(b)
    assert case.residents.surplus() is a
    case.residents.remove(a)
    assert case.residents.surplus() is None, "they are as many as may be"
    assert list(case.residents) == ["b", "c"]


def test_room_is_for_those_who_are_busy_on_their_way_or_expected() -> None:
    case = Case()
    a = case.add("a")
    assert case.residents.reserve()
    assert (case.residents.has_room, case.residents.reserve()) == (False, False)
    case.residents.unreserve()
    case.residents.loading["b"] = []
    assert not case.residents.has_room
    case.residents.rest(a)
    assert case.residents.has_room, "one that only waits leaves if it has to"


def test_who_wants_room_hears_once_when_there_is_some() -> None:
    case = Case(1)
    a = case.add("a")
    case.residents.rest(a)
    assert case.work == 0, "nobody asked"
    case.residents.rouse(a)
    case.residents.want_room()
    case.residents.rest(a)
    case.residents.remove(a)
    assert case.work == 1


def test_one_that_is_held_is_on_its_way_but_not_being_read() -> None:
    case = Case()
    case.residents.loading["a"] = []
    assert case.residents.is_loading
    case.residents.hold("a", [])
    assert (case.residents.knows("a"), case.residents.is_loading) == (True, False)
    case.residents.let_in("a")
    assert not case.residents.knows("a")


async def test_a_request_is_seen_to_when_it_is_stored_or_the_instance_leaves() -> None:
    case = Case(3)
    stays = [case.add(id) for id in "ab"]
    case.residents.loading["c"] = []
    waiting = [asyncio.ensure_future(case.residents.seen_to(id)) for id in "abc"]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    case.residents.acknowledge("a")
    case.residents.remove(stays[1])
    case.residents.stop_loading()
    async with asyncio.timeout(10):
        await asyncio.gather(*waiting)


async def test_a_request_to_one_that_is_held_or_unknown_is_not_waited_for() -> None:
    case = Case()
    case.residents.hold("a", [])
    async with asyncio.timeout(10):
        await case.residents.seen_to("a")
        await case.residents.seen_to("unknown")
