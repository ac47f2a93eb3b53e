"""The lease by itself: registered, renewed, lost, outdated, given back."""

from __future__ import annotations

from typing import Any

import pytest

from romancy.core.model import SECOND
from romancy.core.registry import Registry
from romancy.engine.leases import NEVER, Lease
from romancy.engine.outage import Outage
from romancy.errors import Outdated
from romancy.storage.errors import TransientError, Unusable


class Case:
    """A storage that writes down what is asked of it, and fails when it is told to."""

    def __init__(self, *, is_worker: bool = True) -> None:
        self.done: list[str] = []
        self.trouble: Exception | None = None
        self.renewed_with: tuple[int, str | None] | None = None
        self.is_ours = True
        this: Any = self
        self.about, self.load = "wf", 0
        about: Any = (lambda: self.about, lambda: self.load)
        told = [lambda *_, what=what: self.done.append(what) for what in ("held", "lost", "retired")]
        self.lease = Lease(this, Registry(), this, Outage(), 9 * SECOND, is_worker, *about, *told)

    async def _do(self, what: str) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.done.append(what)

    async def register(self, *_: object) -> None:
        await self._do("registered")

    async def renew(self, worker: str, lease: int, load: int, about: str | None) -> bool:
        await self._do("renewed")
        self.renewed_with = load, about
        return self.is_ours

    async def check(self) -> None:
        await self._do("checked")

    async def leave(self, _: str) -> None:
        await self._do("leaves")

    async def release(self, _: str) -> None:
        await self._do("released")

    def drop_lock(self, _: str) -> None:
        self.done.append("unlocked")

    def begin(self) -> None:
        self.done.append("announced")


async def test_it_is_registered_and_renewed_three_times_in_its_duration() -> None:
    case = Case()
    await case.lease.begin()
    worker = case.lease.worker
    assert await case.lease.round() == 3.0
    assert (case.done, case.lease.worker) == (["registered", "renewed"], worker)
    assert (case.lease.is_mine(worker), case.lease.is_mine(None)) == (True, False)


async def test_one_that_is_lost_is_registered_anew_under_another_name() -> None:
    case = Case()
    await case.lease.begin()
    old, case.is_ours = case.lease.worker, False
    assert await case.lease.round() == 0.0
    assert (case.done[1:], case.lease.worker, case.lease.is_pending) == (["renewed", "unlocked", "lost"], None, True)
    await case.lease.round()
    assert case.done[4:] == ["registered", "held"]
    assert case.lease.worker not in (None, old)


async def test_that_an_older_registration_is_lost_is_no_news() -> None:
    case = Case()
    await case.lease.begin()
    case.lease.fenced("older")
    case.lease.fenced(None)
    assert case.done == ["registered"]


async def test_a_database_that_is_away_is_registered_with_later_but_triggers_are_announced() -> None:
    case = Case()
    case.trouble = TransientError("away")
    await case.lease.begin()
    assert (case.done, case.lease.is_pending) == (["announced"], True)
    case.trouble = None
    await case.lease.round()
    assert (case.done[1:], case.lease.is_pending) == (["registered", "held"], False)


async def test_a_database_that_can_never_be_used_is_an_error() -> None:
    case = Case()
    case.trouble = Unusable("read-only")
    with pytest.raises(Unusable):
        await case.lease.begin()


@pytest.mark.parametrize("is_worker", [True, False])
async def test_one_that_is_outdated_retires_once(is_worker: bool) -> None:
    case = Case(is_worker=is_worker)
    await case.lease.begin()
    case.trouble = Outdated(9, 1)
    assert [await case.lease.round() for _ in range(2)] == [NEVER, NEVER]
    assert case.done.count("retired") == 1
    assert (case.lease.worker, case.lease.outdated, case.lease.is_pending) == (None, case.trouble, False)
    announced = case.done.count("announced")
    case.lease.announce()
    assert case.done.count("announced") == announced


async def test_one_who_leaves_says_so_first_and_is_not_fenced_any_more() -> None:
    case = Case()
    await case.lease.begin()
    case.lease.leave()
    case.lease.fenced(case.lease.worker)
    assert case.lease.leaving is not None
    await case.lease.leaving
    await case.lease.release()
    assert (case.done, case.lease.worker) == (["registered", "leaves", "released"], None)


async def test_an_app_without_a_worker_announces_and_looks_whether_it_is_outdated() -> None:
    case = Case(is_worker=False)
    await case.lease.begin()
    await case.lease.round()
    case.lease.leave()
    await case.lease.release()
    assert case.done == ["announced", "checked"]


async def test_what_a_worker_says_about_itself_is_written_once_and_its_load_always() -> None:
    case = Case()
    await case.lease.begin()
    await case.lease.round()
    assert case.renewed_with == (0, None), "it was written when it was registered"
    case.about, case.load = "wf, other", 3
    case.trouble = TransientError("gone")
    with pytest.raises(TransientError):
        await case.lease.round()
    case.trouble = None
    await case.lease.round()
    assert case.renewed_with == (3, "wf, other"), "it was not written while the database was away"
    await case.lease.round()
    assert case.renewed_with == (3, None)
