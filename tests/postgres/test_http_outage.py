"""Over HTTP while PostgreSQL is away: whoever asks hears so in good time, and repeating it later is always right."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx2
import pytest

from romancy import App, Database, WorkerOptions
from romancy.options import HTTPOptions
from tests import pg_server
from tests.helpers import eventually
from tests.http.conftest import WORKFLOWS, Live, assert_error
from tests.postgres.conftest import Place

LIMIT = 0.25
BACK = "the database is back; work continues"
READS = ["/api/instances", "/api/instances/p", "/api/instances/p/history", "/api/waits", "/api/events"]
WRITES = ["/cancel/n", "/api/workflows/nap/start", "/api/instances/p/resume"]


@pytest.fixture(scope="module")
def server() -> Iterator[pg_server.Server]:
    """One that may be stopped."""
    server = pg_server.Server()
    yield server
    server.remove()


@pytest.fixture
def serve() -> Iterator[Callable[..., Live]]:
    running: list[Live] = []

    def start(url: str, schema: str, *, worker: bool = True) -> Live:
        http = HTTPOptions(database_timeout=LIMIT)
        running.append(
            Live(App(Database(url, schema), workflows=WORKFLOWS, worker=worker and WorkerOptions(grace=2), http=http))
        )
        return running[-1]

    yield start
    for live in running:
        live.stop()


def in_time(ask: Callable[[], httpx2.Response], within: float = LIMIT) -> httpx2.Response:
    """An answer, given soon enough: the database's time, and a little for a busy machine."""
    begun = time.monotonic()
    answer = ask()
    assert time.monotonic() - begun < within + 4
    return answer


def refused(live: Live) -> None:
    """Everything that needs the database is put off, in the shape that tells clients to come again."""
    assert_error(in_time(lambda: live.send("during", data={"amount": 5})), 503, "DatabaseUnavailable")
    for path in READS:
        assert_error(in_time(lambda path=path: live.client.get(path)), 503)
    for path in WRITES:
        # Some read before they write, and after.
        assert_error(in_time(lambda path=path: live.client.post(path), 3 * LIMIT), 503)


def cancelled(live: Live) -> None:
    """What was put off before it was asked for is asked for again."""
    assert live.client.post("/cancel/n").status_code == 200
    assert live.result("n")["status"] == "cancelled"


def back(caplog: pytest.LogCaptureFixture) -> bool:
    return any(record.getMessage() == BACK for record in caplog.records)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_server_that_is_away(
    server: pg_server.Server, how: str, serve: Callable[..., Live], caplog: pytest.LogCaptureFixture
) -> None:
    live = serve(server.url, schema=f"test_{how}")
    live.start("pay", id="p")
    live.start("nap", id="n")
    live.until("p", "waiting_for_event")
    assert live.client.get("/health/ready").status_code == 200
    with caplog.at_level(logging.WARNING, "romancy"):
        getattr(server, how)()
        refused(live)
        assert_error(in_time(lambda: live.client.get("/health/ready")), 503)
        assert in_time(lambda: live.client.get("/health/live")).status_code == 200
        assert_error(live.send("during", data={"amount": 5}), 503)
        assert f"no server answers at {server.folder}" in live.client.get("/health/ready").json()["error"]
        server.start()
        eventually(lambda: live.client.get("/health/ready").status_code == 200, 20, "ready")
        receipt = live.send("during", data={"amount": 5})
        assert (receipt.status_code, receipt.json()["duplicate"]) == (202, True), "what was given is stored"
        assert live.result("p")["output"] == 5
        cancelled(live)
        assert [e["id"] for e in live.client.get("/api/events").json()["items"]] == ["during"], "once"
        assert live.send("after").json()["duplicate"] is False
        eventually(lambda: back(caplog), 10, "told that it is over")
    lines = [record.getMessage() for record in caplog.records if record.name == "romancy"]
    assert len(lines) == 2, lines
    assert "can't be written" in lines[0]
    assert not re.search(r"Errno|released back|cannot call", lines[0]), lines[0]
    assert lines[1] == BACK


def test_who_only_receives_does_so_again_by_itself(server: pg_server.Server, serve: Callable[..., Live]) -> None:
    """A process without a worker has no lease to renew by which it would notice."""
    live = serve(server.url, schema="test_ingress", worker=False)
    server.kill()
    assert_error(in_time(lambda: live.send("during")), 503, "DatabaseUnavailable")
    server.start()
    eventually(lambda: live.client.get("/health/ready").status_code == 200, 20, "ready")
    assert live.send("during").json()["duplicate"] is True
    assert live.send("after").json()["duplicate"] is False


@asynccontextmanager
async def locked(place: Place) -> AsyncGenerator[None, None]:
    raw: Any = await asyncpg.connect(place.url, server_settings={"search_path": place.schema})
    try:
        async with raw.transaction():
            await raw.execute("LOCK TABLE instances, history, waits, events, workers IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await raw.close()


async def test_a_server_that_does_not_answer(place: Place, serve: Callable[..., Live]) -> None:
    """Connections stand and nothing comes back: somebody has every table in hand."""
    live = serve(place.url, schema=place.schema)
    live.start("pay", id="p")
    live.start("nap", id="n")
    live.until("p", "waiting_for_event")
    async with locked(place):
        refused(live)
        assert_error(in_time(lambda: live.client.get("/health/ready")), 503)
        assert in_time(lambda: live.client.get("/health/live")).status_code == 200
    eventually(lambda: live.client.get("/health/ready").status_code == 200, 20, "ready")
    assert live.send("during", data={"amount": 5}).json()["duplicate"] is True
    assert live.result("p")["output"] == 5
    cancelled(live)
