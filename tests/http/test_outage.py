"""What happens when the database does not answer, too much comes at once, or the server is about to stop."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx2
import pytest

from romancy import App
from romancy.app import http_app
from romancy.http.backpressure import Backpressure
from romancy.options import HTTPOptions
from tests.helpers import eventually
from tests.http.conftest import Live, assert_error

SHORT = HTTPOptions(database_timeout=0.3)


@contextmanager
def locked(live: Live) -> Iterator[None]:
    """Another program holds the file for writing."""
    other = sqlite3.connect(live.app.database, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        yield
    finally:
        other.close()


def test_while_the_database_is_locked_senders_are_told_to_try_again(serve: Any) -> None:
    live = serve(http=SHORT)
    live.start("nap", id="n")
    live.until("n", "waiting_for_timer")
    with locked(live):
        found = assert_error(live.send("during"), 503, "DatabaseUnavailable")
        assert "unknown" in found["error"]
        started = assert_error(live.client.post("/api/workflows/nap/start"), 503)
        assert "instance_id" in started["error"]
        assert_error(live.client.post("/cancel/n"), 503)
        assert_error(live.client.get("/health/ready"), 503)
        assert live.client.get("/health/live").status_code == 200
        assert live.client.get("/api/instances/n").status_code == 200, "reading goes on"
    answers = []  # a slow machine may need a moment to notice that the lock is gone
    eventually(lambda: answers.append(live.send("during")) or answers[-1].status_code == 202, 30)
    assert answers[-1].json()["duplicate"], "what was given is stored once the database is back"
    eventually(lambda: live.client.get("/health/ready").status_code == 200, 30)
    assert live.result("n")["status"] == "cancelled"
    assert [e["id"] for e in live.client.get("/api/events").json()["items"]] == ["during"]


def test_the_id_of_a_start_whose_outcome_is_unknown_can_be_used_to_ask_again(serve: Any) -> None:
    live = serve(http=SHORT)
    with locked(live):
        text = assert_error(live.client.post("/api/workflows/nap/start"), 503)["error"]
    id = text.partition("instance_id '")[2].rstrip("'")
    again = live.client.post("/api/workflows/nap/start", json={"instance_id": id})
    assert (again.status_code, again.json()) == (200, {"instance_id": id})


def test_an_outage_does_not_fill_the_memory(serve: Any) -> None:
    live = serve(http=HTTPOptions(database_timeout=0.2, max_waiting=3 * 2500))
    with locked(live):
        answers = [live.send(str(n)) for n in range(5)]
        assert [answer.status_code for answer in answers] == [503, 503, 503, 429, 429]
        assert_error(answers[-1], 429, "Overloaded")
    eventually(lambda: live.send("1").json().get("duplicate"), 20, "there is room again")
    assert live.send("4").json()["duplicate"] is False


def test_a_read_that_takes_too_long(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    live = serve(http=SHORT)

    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(_storage(live).catalog, "instances", never)
    assert_error(live.client.get("/api/instances"), 503, "DatabaseUnavailable")


def _storage(live: Live) -> Any:
    async def find() -> Any:
        return live.app._runtime.engine.storage

    return live.on_loop(find)


def test_an_unexpected_error_is_logged_and_not_told(serve: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    live = serve()

    async def breaks(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a secret detail")

    monkeypatch.setattr(live.app, "list_instances", breaks)
    found = assert_error(live.client.get("/api/instances"), 500, "InternalError")
    assert "secret" not in found["error"]
    assert "a secret detail" in caplog.text
    assert live.send().status_code == 202


HALF = (
    b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/cloudevents+json\r\ncontent-length: 99\r\n\r\n{"
)


def test_too_many_requests_at_once(serve: Any) -> None:
    live = serve(http=HTTPOptions(max_requests=2))
    with ExitStack() as stack:
        for _ in range(2):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", live.port)))
            slow.sendall(HALF)
        eventually(lambda: live.face.active == 2, 20)
        assert_error(live.send(), 503, "Overloaded")
        assert live.client.get("/health/ready").status_code == 200, "whoever watches the process is let in"
    eventually(lambda: live.face.active == 0, 20, "those who hung up")
    assert live.send().status_code == 202


def test_who_waits_for_a_result_takes_nobodys_place(serve: Any) -> None:
    live = serve(http=HTTPOptions(max_requests=2))
    live.start("nap", id="n")
    found: list[httpx2.Response] = []

    def wait() -> None:
        found.append(httpx2.get(f"{live.url}/api/instances/n/result", params={"timeout": 30}, timeout=40))

    waiting = [threading.Thread(target=wait) for _ in range(2)]
    for thread in waiting:
        thread.start()
    eventually(lambda: live.face.waiting == 2, 20)
    assert live.send().status_code == 202
    assert_error(live.client.get("/api/instances/n/result", params={"timeout": 30}), 503, "Overloaded")
    live.drain()
    for thread in waiting:
        thread.join(20)
    assert [answer.json()["status"] for answer in found] == ["waiting_for_timer"] * 2, "waiting ends when it stops"


def test_who_hangs_up_does_not_go_on_waiting(live: Live) -> None:
    live.start("nap", id="n")
    with socket.create_connection(("127.0.0.1", live.port)) as connection:
        connection.sendall(b"GET /api/instances/n/result?timeout=60 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        eventually(lambda: live.face.waiting == 1, 20)
    eventually(lambda: live.face.waiting == 0, 5, "the one that hung up")


def test_a_write_that_ends_in_a_refusal_ends_the_outage_too(serve: Any) -> None:
    live = serve(http=SHORT)
    live.start("pay", "one", id="p")
    with locked(live):
        body = {"args": ["another"], "instance_id": "p"}
        assert_error(live.client.post("/api/workflows/pay/start", json=body), 503)
        assert_error(live.client.get("/health/ready"), 503)
    eventually(lambda: live.client.get("/health/ready").status_code == 200, 10, "the database answers again")


def test_while_it_stops_nothing_new_is_begun(live: Live) -> None:
    live.drain()
    assert_error(live.send(), 503, "AppNotRunning")
    assert_error(live.client.get("/health/ready"), 503)
    assert live.client.get("/health/live").status_code == 200


async def test_an_app_that_was_not_started() -> None:
    transport = httpx2.ASGITransport(http_app(App(":memory:")))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        assert_error(await client.post("/", content=b"x" * 100), 503, "AppNotRunning")
        assert_error(await client.get("/api/instances"), 503, "AppNotRunning")
        assert_error(await client.get("/health/ready"), 503, "AppNotRunning")
        assert (await client.get("/health/live")).status_code == 200


async def test_a_write_that_fails_after_everybody_left_is_told_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    backpressure = Backpressure(HTTPOptions(database_timeout=0.01))
    late = asyncio.Event()

    async def write() -> None:
        await late.wait()
        raise ValueError("it was too large")

    with pytest.raises(Exception, match="did not answer within"):
        await backpressure.store(write(), 0, "")
    late.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert "it was too large" in caplog.text
    assert "held=0" in repr(backpressure)
