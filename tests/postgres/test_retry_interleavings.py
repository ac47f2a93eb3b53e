"""Instances and children are reopened while others retry them, run them, undo them and end them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest

from romancy.core.history import Entry, Kind
from romancy.core.retrial import RetryAsk
from romancy.storage.batch import CHILD_SPENT, RETRY, Commit, Rejoin, Start
from tests.postgres.conftest import Place
from tests.postgres.exploring import explore
from tests.postgres.gates import Play, patient
from tests.postgres.test_interleavings import _until_blocked
from tests.storage.conftest import Database

pytestmark = patient
HEAD, ERROR = RetryAsk().head, b"{}"


def undo(db: Database) -> list[Entry]:
    return [Entry(1, Kind.ACTIVITY_COMPLETED, "undo book:1:1", db.now)]


async def fail(db: Database, id: str, owner: str, entries: Sequence[Entry] = ()) -> bool:
    commit = Commit(id, await db.version(id), "failed", db.now, error=ERROR, entries=entries)
    return (await db.commit(owner, commits=[commit])).commits[0]


class Retrying(Play):
    """Two want to retry an instance. Its owner runs it as soon as it is reopened: it undoes its steps, and fails."""

    names: Sequence[str] = ("first", "second", "owner", "last")

    async def set(self) -> None:
        await self["owner"].register("owner")
        await self["owner"].start("i", "owner")
        await fail(self["owner"], "i", "owner")
        self._version = await self["owner"].version("i")

    def actions(self) -> dict[str, Awaitable[Any]]:
        retries = {n: self[n].storage.reopen(["i"], self[n].now, HEAD) for n in ("first", "second")}
        return {**retries, "owner": self._own()}

    async def _own(self) -> bool:
        db = self["owner"]
        claimed = await db.claim("owner")
        # It was reopened and claimed by then.
        end = Commit("i", self._version + 2, "failed", db.now, error=ERROR, entries=undo(db))
        return bool(claimed) and (await db.commit("owner", commits=[end])).commits[0]

    async def check(self) -> None:
        last = self["last"]
        (row,) = await last.storage.catalog.instances()
        undone = bool(await last.rows("SELECT 1 FROM history WHERE instance = 'i'"))
        retried = sum(bool(self.result(name)) for name in ("first", "second") if not self.is_dead(name))
        assert retried <= 1, "only one of them retried it"
        assert self.is_dead("owner") or self.result("owner") == undone
        assert not undone or row.status == "failed", "what has undone its steps is not reopened"
        requests = await last.rows("SELECT kind FROM requests")
        assert requests == ([(RETRY,)] if row.status == "running" else [])


@pytest.mark.play
async def test_two_retry_an_instance_that_undoes_its_steps_at_once(place: Place) -> None:
    await explore(place, Retrying())


@pytest.mark.parametrize("undoes", [True, False])
async def test_one_that_was_retried_in_between_is_judged_by_what_it_did_then(place: Place, undoes: bool) -> None:
    """A retry of many waits for the row of another instance, and sees the histories as they were when it began."""
    owner, other = await place.worker("owner", listen=False), await place.worker("other", listen=False)
    for id in ("a", "i"):
        await owner.start(id, "owner")
        await fail(owner, id, "owner")
    raw, spy = await place.raw(), await place.raw()
    transaction = raw.transaction()
    await transaction.start()
    await raw.execute("SELECT 1 FROM instances WHERE id = 'a' FOR UPDATE")
    slow = asyncio.ensure_future(other.storage.reopen(["a", "i"], other.now, HEAD))
    await _until_blocked(spy, "ended AS")
    assert await owner.storage.reopen(["i"], owner.now, HEAD) == {"i"}
    assert "i" in await owner.claim("owner")
    assert await fail(owner, "i", "owner", undo(owner) if undoes else ())
    await transaction.rollback()
    assert await slow == ({"a"} if undoes else {"a", "i"})
    statuses = {row.id: row.status for row in await owner.storage.catalog.instances()}
    assert statuses["i"] == ("failed" if undoes else "running")


@pytest.mark.parametrize("is_found", [True, False])
async def test_a_child_that_is_just_ending_is_not_reopened(place: Place, is_found: bool) -> None:
    """It has undone its steps, but the commit of its parent does not see that yet."""
    owner, nurse = await place.worker("owner", listen=False), await place.worker("nurse", listen=False)
    await owner.start("p", "owner")
    starts = [Start("c", "wf", b"{}", 0, owner.now, parent="p", parent_op="c:1")]
    await owner.commit("owner", starts=starts)
    assert set(await nurse.claim("nurse")) == {"c"}
    await fail(nurse, "c", "nurse")
    await fail(owner, "p", "owner")
    # The child was retried alone, and is about to fail again when its parent is retried, too.
    await nurse.storage.reopen(["c"], nurse.now, HEAD)
    assert "c" in await nurse.claim("nurse")
    await owner.storage.reopen(["p"], owner.now, HEAD)
    assert "p" in await owner.claim("owner")
    raw, spy = await place.raw(), await place.raw()
    transaction = raw.transaction()
    await transaction.start()
    await raw.execute("UPDATE instances SET status = 11, version = version + 1, owner = NULL WHERE id = 'c'")
    await raw.execute(
        "INSERT INTO history (instance, n, kind, op, at) VALUES ('c', 1, $1, 'undo book:1:1', 0)",
        int(Kind.ACTIVITY_COMPLETED),
    )
    snapshot = await owner.storage.load("p")
    assert snapshot is not None
    done = [request.id for request in snapshot.requests]
    rejoin = Rejoin("c", "c:1", reopens=not is_found, is_found=is_found)
    slow = asyncio.ensure_future(
        owner.step("p", "owner", await owner.version("p"), rejoins=[rejoin], requests_done=done)
    )
    await _until_blocked(spy, "applied")
    await transaction.commit()
    await slow
    child, parent = await owner.storage.load("c"), await owner.storage.load("p")
    assert child is not None
    assert child.row.status == "failed"
    assert parent is not None
    assert [(request.kind, request.op) for request in parent.requests] == ([] if is_found else [(CHILD_SPENT, "c:1")])
