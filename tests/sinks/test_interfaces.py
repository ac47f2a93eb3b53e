"""Sinks over HTTP, with the clients, on the command line and in the metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from romancy import App, Client, DeadLetter, InvalidInput, ReceivedEvent, WorkerOptions
from romancy.cli.group import main
from romancy.sync import App as SyncApp
from romancy.sync import Client as SyncClient
from tests.http.conftest import Live, assert_error
from tests.sinks.receiver import gave_up, until


class Broken:
    """A sink that refuses everything until it is mended."""

    name, types, give_up_after = "crm", ["order.*"], 0

    def __init__(self) -> None:
        self.is_broken = True
        self.got: list[str] = []

    async def deliver(self, event: ReceivedEvent[Any]) -> None:
        if self.is_broken:
            raise ConnectionError("out of order")
        self.got.append(event.id)


@pytest.fixture
def sink() -> Broken:
    return Broken()


@pytest.fixture
def live(tmp_path: Path, sink: Broken) -> Iterator[Live]:
    live = Live(App(tmp_path / "sinks.db", sinks=[sink], worker=WorkerOptions(grace=0.5)))
    live.on_loop(lambda: live.app.send_event("order.paid", "shop", {"total": 1}, subject="1", id="e-1"))
    live.on_loop(lambda: gave_up(live.app))
    yield live
    live.stop()


async def delivered(sink: Broken) -> None:
    await until(lambda: bool(sink.got))


def test_over_http(live: Live, sink: Broken) -> None:
    http = live.client
    [item] = http.get("/api/sinks").json()["items"]
    assert item["worker_id"]
    counts = {"parked": 0, "dead": 1, "last_error": None}
    assert {**item, "worker_id": ""} == {"name": "crm", "types": ["order.*"], "worker_id": "", **counts}
    assert 'romancy_sink_dead{sink="crm"} 1.0' in http.get("/metrics").text
    page = http.get("/api/dead-letters?sink=crm").json()
    [letter] = page["items"]
    assert (letter["sink"], letter["attempts"], letter["error"]) == ("crm", 1, "ConnectionError: out of order")
    assert (letter["event"]["id"], letter["event"]["data"]) == ("e-1", {"total": 1})
    assert page["cursor"] is None
    assert_error(http.get("/api/dead-letters?sink=no%00ne"), 400)
    assert_error(http.post("/api/sinks/none/retry", json={}), 404, "NotFound")
    assert_error(http.post("/api/sinks/crm/retry", json={"limit": 0}), 400)
    sink.is_broken = False
    assert http.post("/api/sinks/crm/retry", json={"limit": 5}).json() == {"retried": 1}
    live.on_loop(lambda: delivered(sink))
    metrics = http.get("/metrics").text
    assert 'romancy_sink_deliveries_total{outcome="dead",sink="crm"} 1.0' in metrics
    assert 'romancy_sink_deliveries_total{outcome="delivered",sink="crm"} 1.0' in metrics


async def test_the_client_sees_what_the_app_sees(live: Live, sink: Broken) -> None:
    async with Client(live.url) as client:
        local = live.on_loop(lambda: live.app.list_dead_letters("crm"))
        remote = await client.list_dead_letters("crm")
        [mine], [theirs] = local.items, remote.items
        assert isinstance(theirs, DeadLetter)
        assert (mine.sink, mine.attempts, mine.error, mine.since) == (
            theirs.sink,
            theirs.attempts,
            theirs.error,
            theirs.since,
        )
        assert theirs.event.event.id == "e-1"
        assert await client.list_sinks() == live.on_loop(lambda: live.app.list_sinks())
        with pytest.raises(InvalidInput, match="there is no sink named 'none'"):
            await client.retry_dead_letters("none")
        sink.is_broken = False
        assert await client.retry_dead_letters("crm", limit=1) == 1


def test_blocking(live: Live, sink: Broken, tmp_path: Path) -> None:
    with SyncClient(live.url) as client:
        assert [record.dead for record in client.list_sinks()] == [1]
        assert len(client.list_dead_letters("crm").items) == 1
    own = Broken()
    own.is_broken = False
    with SyncApp(tmp_path / "sync.db", sinks=[own]) as app:
        app.send_event("order.paid", "shop", id="x")
        assert app.retry_dead_letters("crm") == 0
        assert app.list_sinks()[0].name == "crm"


def test_the_command(live: Live, sink: Broken) -> None:
    def call(*words: str) -> str:
        done = CliRunner().invoke(main, ["sinks", *words, "--url", live.url])
        assert done.exit_code == 0, done.output
        return done.output

    assert "crm" in call()
    assert "order.*" in call()
    shown = call("dead", "crm")
    assert "e-1" in shown
    assert "out of order" in shown
    assert json.loads(call("dead", "--json"))["items"][0]["sink"] == "crm"
    sink.is_broken = False
    assert "1 event is delivered again by sink 'crm'" in call("retry", "crm")
    live.on_loop(lambda: delivered(sink))
    assert "no event was given up" in call("dead")
    failed = CliRunner().invoke(main, ["sinks", "retry", "none", "--url", live.url])
    assert failed.exit_code != 0
    assert "there is no sink named 'none'" in failed.output


def test_the_command_on_a_database_without_sinks(tmp_path: Path) -> None:
    async def make() -> None:
        async with App(tmp_path / "empty.db"):
            pass

    asyncio.run(make())
    done = CliRunner().invoke(main, ["sinks", "-d", str(tmp_path / "empty.db")])
    assert "no app has declared a sink here" in done.output
