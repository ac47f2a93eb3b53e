"""The server did what was asked, and the answer never came: what is this worker's now is found all the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from romancy import App, Database, WorkflowContext, sleep, wait_event, workflow
from romancy.storage.errors import TransientError
from romancy.storage.postgres.connection import _give_back
from romancy.storage.postgres.listener import Listener
from tests.postgres.conftest import Place


@workflow
async def waits(ctx: WorkflowContext) -> Any:
    return (await wait_event(ctx, "go")).data


@workflow
async def sleeps(ctx: WorkflowContext) -> str:
    await sleep(ctx, 3)
    return "slept"


def app(place: Place, **options: Any) -> App:
    return App(Database(place.url, schema=place.schema), workflows=[waits, sleeps], **options)


def deaf_to_claims(app: App) -> None:
    """The first claim that took something is answered to nobody."""
    storage: Any = app._runtime.engine.storage
    claim = storage.claim

    async def lost(*args: Any) -> Any:
        claimed = await claim(*args)
        if claimed:
            storage.claim = claim
            raise TransientError("the connection was lost")
        return claimed

    storage.claim = lost


async def rest(place: Place, wf: Any) -> None:
    """An instance that waits, and nobody's."""
    async with app(place) as first:
        handle = await first.start_workflow(wf, instance_id="it")
        while not (await handle.status()).startswith("waiting"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_an_event_that_nobody_looked_for_yet_arrives(place: Place) -> None:
    await rest(place, waits)
    raw = await place.raw()
    async with app(place, worker=False) as sender:
        await sender.send_event("go", "test", 42)
    # As if the one who registered the wait had died just before it looked, and the event had been there before.
    await raw.execute("DELETE FROM deliveries; INSERT INTO unlooked VALUES ('it')")
    second = app(place)
    async with second:
        deaf_to_claims(second)
        assert await second.handle("it").result(12) == 42


async def test_a_timer_rings_in_time(place: Place) -> None:
    await rest(place, sleeps)
    async with app(place) as second:
        deaf_to_claims(second)
        assert await second.handle("it").result(10) == "slept"


async def test_those_who_come_while_the_listener_connects_are_held_too(place: Place) -> None:
    listener = Listener(place.url, place.schema, "sender", lambda: None)
    take = listener._take

    async def taking(connection: Any, worker: str) -> None:
        await take(connection, worker)
        if worker == "a":
            await listener.hold("b")  # there is no connection yet to take it on
            listener.drop("c")

    listener._take = taking  # type: ignore[method-assign]
    for worker in "ac":
        await listener.hold(worker)
    await listener.open()
    assert listener.holds("a")
    assert listener.holds("b")
    listener.close()


async def test_a_listener_goes_on_whatever_happens(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Listener(place.url, place.schema, "sender", lambda: None)
    await listener.open()
    connect = listener._connect

    async def surprised() -> None:
        monkeypatch.setattr(listener, "_connect", connect)
        raise RuntimeError("a surprise")

    monkeypatch.setattr(listener, "_connect", surprised)
    listener._connection.terminate()
    async with asyncio.timeout(10):
        while "a surprise" not in caplog.text or listener._connection is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    listener.close()


class Stubborn:
    """A pool and a connection of it, on a line that is dead."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def terminate(self) -> None:
        self.did.append("terminated")

    async def release(self, connection: object) -> None:
        self.did.append("released")
        raise ConnectionError("no line")


@pytest.mark.parametrize(
    ("error", "did"),
    [(asyncio.CancelledError(), ["terminated", "released"]), (OSError("lost"), ["released"])],
    ids=["cancelled", "failed"],
)
async def test_a_connection_given_back_on_a_dead_line_hides_nothing(error: BaseException, did: list[str]) -> None:
    """Who was cancelled is told so, at once: another error instead would keep a stopped duty going."""
    stubborn = Stubborn()
    await _give_back(stubborn, stubborn, error)
    assert stubborn.did == did
