"""Hearing of others at once: NOTIFY, and session locks as signs of life. Without them, everything still works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from romancy.core.clock import SystemClock
from romancy.core.schedules import Schedule
from romancy.engine.timetable import make_order
from romancy.storage.batch import CANCEL, Commit, Request
from romancy.storage.errors import TransientError
from romancy.storage.postgres import leases
from tests.postgres.conftest import Place
from tests.storage.conftest import Database


def heard(db: Database) -> asyncio.Event:
    event = asyncio.Event()
    db.storage.watch(event.set)
    return event


async def within(event: asyncio.Event, seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        await event.wait()


async def started(a: Database, b: Database) -> None:
    await a.start("free")


async def delivered(a: Database, b: Database) -> None:
    await a.send("go")


async def asked(a: Database, b: Database) -> None:
    await a.commit(requests=[Request("of b", CANCEL, b"", a.now)])


async def ended(a: Database, b: Database) -> None:
    await a.step("of a", "a", 0, status="completed")


async def released(a: Database, b: Database) -> None:
    await a.storage.release("a")


async def let_go(a: Database, b: Database) -> None:
    await a.commit("a", commits=[Commit("of a", 0, "running", a.now, release=True)])


@pytest.mark.parametrize("what", [started, delivered, asked, ended, released, let_go])
async def test_others_are_told_and_oneself_is_not(place: Place, what: Callable[..., Any]) -> None:
    a, b = await place.worker("a"), await place.worker("b")
    await a.start("of a", "a")
    await b.waiting("of b", "b")
    await asyncio.sleep(0.05)  # what came before is told by now
    mine, theirs = heard(a), heard(b)
    await what(a, b)
    await within(theirs)
    await asyncio.sleep(0.02)
    assert not mine.is_set(), "a process that hears itself never rests"


async def test_who_is_not_concerned_is_left_in_peace(place: Place) -> None:
    a, b, c = [await place.worker(name) for name in "abc"]
    await b.waiting("of b", "b")
    await asyncio.sleep(0.05)
    concerned, other = heard(b), heard(c)
    await a.send("go")
    await within(concerned)
    await asyncio.sleep(0.02)
    assert not other.is_set()


async def test_a_lost_connection_is_made_anew(place: Place) -> None:
    a, b = await place.worker("a"), await place.worker("b")
    await b.waiting("of b", "b")
    theirs = heard(b)
    raw = await place.raw()
    pid = b.storage._listener._connection.get_server_pid()  # type: ignore[attr-defined]
    await raw.execute("SELECT pg_terminate_backend($1)", pid)
    await within(theirs)  # it may have missed something
    assert b.storage._listener.holds("b")  # type: ignore[attr-defined]
    theirs.clear()
    await a.send("go")
    await within(theirs)


async def test_without_notices_everything_is_found_by_looking(place: Place) -> None:
    a, b = await place.worker("a", listen=False), await place.worker("b", listen=False)
    await b.waiting("of b", "b")
    seq = (await a.send("go")).seq
    assert (await b.storage.mail("b", 10)).deliveries == [("of b", seq)]


async def test_a_way_to_another_database_is_not_used(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Notices and session locks are a database's own: others would take the worker for dead."""
    direct = await place.worker("a", notify_url=place.url + "&application_name=direct")
    assert direct.storage._listener.holds("a")  # type: ignore[attr-defined]
    assert caplog.text == ""
    raw, other = await place.raw(), f"{place.schema}_other"
    await raw.execute(f"CREATE DATABASE {other}")
    try:
        b = await place.worker("b", notify_url=place.url.replace("/postgres?", f"/{other}?"))
        assert not b.storage._listener.holds("b")  # type: ignore[attr-defined]
        assert caplog.text.count(f"notify_url leads to another database ({other!r}) than the app's ('postgres')") == 1
        assert not await direct.storage.take_over("a")
    finally:
        await raw.execute(f"DROP DATABASE {other} WITH (FORCE)")


# --- signs of life ---------------------------------------------------------------------------------------------------
async def test_a_worker_whose_process_died_is_taken_over_long_before_its_lease_ends(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_MISSING", 0.1)
    monkeypatch.setattr(leases, "_LOCKS_EVERY", 0.0)
    dead, heir = await place.worker("dead"), await place.worker("heir")
    await dead.start("a", "dead")
    assert await heir.storage.take_over("heir") == [], "it lives"
    await dead.storage.close()
    async with asyncio.timeout(5):
        while not (gone := await heir.storage.take_over("heir")):  # noqa: ASYNC110 - the dead tell nobody
            await asyncio.sleep(0.02)
    assert gone == ["dead"]
    assert (await heir.claim("heir"))["a"].crashed


async def test_a_worker_that_is_connecting_anew_is_left_alone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "_LOCKS_EVERY", 0.0)
    a, b = await place.worker("a"), await place.worker("b")
    raw, theirs = await place.raw(), heard(a)
    pid = a.storage._listener._connection.get_server_pid()  # type: ignore[attr-defined]
    await raw.execute("SELECT pg_terminate_backend($1)", pid)
    assert await b.storage.take_over("b") == []
    await within(theirs)
    await asyncio.sleep(1.1)
    assert await b.storage.take_over("b") == []


async def test_a_paused_worker_is_taken_over_without_blame(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Its session is still there, only its lease has ended."""
    caplog.set_level("INFO", "romancy")
    paused, heir = await place.worker("paused"), await place.worker("heir")
    await paused.start("a", "paused")
    place.clock.turn_to(place.clock.now() + 10**9)
    await heir.storage.renew("heir", 10**7)
    assert await heir.storage.take_over("heir") == ["paused"]
    assert await heir.storage.take_over("heir") == []
    assert caplog.messages == ["worker paused is gone; its 1 instance can be taken over now"]
    assert not (await heir.claim("heir"))["a"].crashed


async def test_a_worker_that_may_have_been_cut_off_with_us_is_taken_over_without_blame(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database was away for longer than a lease: nobody could renew it, and sessions were cut."""
    monkeypatch.setattr(leases, "_MISSING", 0.0)
    monkeypatch.setattr(leases, "_LOCKS_EVERY", 0.0)
    other, heir = await place.worker("other"), await place.worker("heir")
    await other.start("a", "other")
    place.clock.turn_to(place.clock.now() + 10**9)
    connections: Any = heir.storage._connections  # type: ignore[attr-defined]
    assert isinstance(connections.explain(ConnectionResetError("the server is away")), TransientError)
    await heir.storage.renew("heir", 10**7)
    await other.storage.close()
    async with asyncio.timeout(5):
        while await heir.storage.take_over("heir") == []:  # noqa: ASYNC110 - the server notices when it does
            await asyncio.sleep(0.02)
    assert not (await heir.claim("heir"))["a"].crashed
    assert (await heir.storage.mortality()).deaths == []


async def test_leases_go_by_the_clock_of_the_database(place: Place) -> None:
    """Two workers whose own clocks are hours apart do not take each other for dead."""

    class Off(SystemClock):
        def now(self) -> int:
            return super().now() + 5 * 3600 * 10**6

    right = await place.worker("right", clock=SystemClock())
    wrong = await place.worker("wrong", clock=Off())
    assert await wrong.storage.take_over("wrong") == []
    assert await right.storage.take_over("right") == []


async def test_others_hear_of_a_changed_schedule(place: Place) -> None:
    """Of every change; the process that makes it is not told by the database, and ticks are told as before."""
    a, b = await place.worker("a"), await place.worker("b")
    order = make_order("s", Schedule(every=60), None, "report", ((), {}), None)
    table = a.storage.schedules

    async def insert() -> None:
        assert await table.insert(order, a.now)

    async def change() -> None:
        row = await table.get("s")
        assert row is not None
        assert await table.change(row, order, a.now + 1)

    async def pause() -> None:
        row = await table.get("s")
        assert row is not None
        assert await table.pause(row, True, row.next_at)

    async def delete() -> None:
        assert await table.delete("s")

    for act in (insert, change, pause, delete):
        mine, theirs = asyncio.Event(), asyncio.Event()
        a.storage.watch(lambda: None, lambda: None, mine.set)
        b.storage.watch(lambda: None, lambda: None, theirs.set)
        await act()
        await within(theirs)
        assert not mine.is_set()
