"""Too much of everything: connections, slow bodies, events of one token, tokens that are guessed."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from romancy.http import quotas, traffic, wrong_tokens
from romancy.http import server as serving
from romancy.http.uvicorn_limits import patient
from romancy.options import HTTPOptions
from tests.helpers import eventually
from tests.http.conftest import BATCH, CE, Live, assert_error, event

LIVE = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
GOOD = "a-token-that-is-long-enough"


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


# --- connections ------------------------------------------------------------------------------------------------------
@pytest.fixture(params=[H11Protocol, HttpToolsProtocol], ids=["h11", "httptools"])
def small(serve: Any, request: Any, monkeypatch: pytest.MonkeyPatch) -> Live:
    """With either of uvicorn's parsers, and room for ten."""
    monkeypatch.setattr(serving, "patient", lambda options, room: patient(options, room, request.param))
    return serve(http=HTTPOptions(max_connections=10, header_timeout=60))  # else they are closed for being slow


@pytest.fixture
def opened() -> Iterator[Any]:
    with ExitStack() as stack:

        def connect(live: Live, sent: bytes = b"") -> socket.socket:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", live.port), timeout=20))
            connection.sendall(sent)
            return connection

        yield connect


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GET /health/live HTTP/1.1\r\nhost: lo"], ids=["nothing", "half a head"])
def test_idle_connections_make_room_for_new_ones(
    small: Live, opened: Any, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    idle = [opened(small, sent) for _ in range(40)]
    for _ in range(3):
        assert small.raw(LIVE, timeout=5).startswith(b"HTTP/1.1 200 ")
    eventually(lambda: small.face.traffic.connections <= 10, 10)
    assert all(map(is_closed, idle[:30])), "those that came first"
    assert small.face.traffic.crowded_out >= 30
    [told] = [record.message for record in caplog.records if "connections" in record.message]
    assert "the limit of 10 connections is reached" in told
    shown = small.client.get("/metrics").text
    assert re.search(r"^romancy_http_connections_crowded_out_total \d\d", shown, re.MULTILINE)


def test_connections_that_are_waited_on_are_not_closed(small: Live, opened: Any) -> None:
    id = small.start("nap")
    small.client.close()
    asks = f"GET /api/instances/{id}/result?timeout=20 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    busy = [opened(small, asks) for _ in range(10)]
    eventually(lambda: small.face.waiting == 10, 10)
    refused = small.raw(LIVE, timeout=5)
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 5\r\n" in refused
    assert not any(map(is_closed, busy))
    busy.pop().close()
    eventually(lambda: small.face.traffic.connections < 10, 10)
    assert small.raw(LIVE, timeout=5).startswith(b"HTTP/1.1 200 ")


def test_a_connection_is_idle_again_after_its_answer(small: Live, opened: Any) -> None:
    used = opened(small, LIVE.replace(b"connection: close\r\n", b""))
    assert used.recv(65536).startswith(b"HTTP/1.1 200 ")
    for _ in range(15):
        opened(small)
    eventually(lambda: is_closed(used), 4, "before it is closed for being idle")


def test_the_limit_follows_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    for descriptors, most in ((64, 16), (256, 160), (1024, 736), (1_048_576, 10_000), (resource.RLIM_INFINITY, 10_000)):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, n=descriptors: (n, n))
        assert traffic.most_connections() == most


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_400_idle_connections_and_256_descriptors(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("from romancy import App\napp = App('shop.db')\n")
    command = f"ulimit -n 256 && exec {sys.executable} -m romancy serve shop:app --port 0"
    with (tmp_path / "log").open("w+") as log, ExitStack() as stack:
        process = subprocess.Popen(
            ["sh", "-c", command], cwd=tmp_path, stderr=log, env={**os.environ, "ROMANCY_TOKENS": GOOD}
        )
        try:
            eventually(lambda: "serves http" in (tmp_path / "log").read_text(), 60)
            url = re.search(r"http://[\d.:]+", (tmp_path / "log").read_text())
            assert url is not None
            host, port = url[0].removeprefix("http://").split(":")
            for _ in range(400):
                stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
            for path, status in (("/health/live", 200), ("/health/ready", 200), ("/api/instances", 200)):
                assert httpx2.get(url[0] + path, headers=bearer(GOOD), timeout=10).status_code == status
            text = json.dumps(event())
            assert httpx2.post(url[0], content=text, headers={**CE, **bearer(GOOD)}, timeout=10).status_code == 202
        finally:
            process.terminate()
            process.wait(30)
        said = (tmp_path / "log").read_text()
    assert said.count("the limit of 160 connections is reached") == 1
    assert "Traceback" not in said


# --- bodies -----------------------------------------------------------------------------------------------------------
def test_slow_bodies_do_not_fill_the_memory(serve: Any, opened: Any) -> None:
    """Sixty of 500 kB: 30 MB, where 4 MB may wait."""
    live = serve(http=HTTPOptions(max_waiting=8 * 1024 * 1024))
    head = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/cloudevents+json\r\n"
    slow = [opened(live) for _ in range(60)]
    answers: list[bytes] = []

    def send(connection: socket.socket) -> None:
        with suppress(OSError):  # it may be refused before all of it is sent
            connection.sendall(head + b"content-length: 600000\r\n\r\n" + b" " * 500_000)

    threads = [threading.Thread(target=send, args=(connection,)) for connection in slow]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    backpressure = live.face._backpressure
    eventually(lambda: backpressure._coming >= 2 * 1024 * 1024, 20, "there is room for some")
    assert live.send("small").status_code == 202, "one that comes at once is taken meanwhile"

    def collect() -> int:
        for connection in slow:
            connection.settimeout(0.05)
            with suppress(OSError):
                answers.append(connection.recv(65536))
        return sum(answer.startswith(b"HTTP/1.1 429 ") for answer in answers)

    eventually(lambda: collect() >= 30, 20, "the others are refused")
    assert backpressure._coming <= 4 * 1024 * 1024
    refused = [answer for answer in answers if answer.startswith(b"HTTP/1.1 429 ")]
    assert all(b"retry-after: 1\r\n" in answer for answer in refused)
    for connection in slow:
        connection.close()
    eventually(lambda: backpressure._coming == 0, 10, "what is over is not counted any more")
    assert live.send("large", data="x" * 900_000).status_code == 202


def test_a_body_of_any_allowed_size_fits(serve: Any) -> None:
    live = serve(http=HTTPOptions(max_waiting=1024 * 1024))
    assert live.send("large", data="x" * 600_000).status_code == 202


# --- quotas -----------------------------------------------------------------------------------------------------------
def test_events_a_minute(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(quotas, "stopwatch", lambda: now[0])
    live = serve(
        tokens=[f"events:{GOOD}", "events:another-token-long-enough", f"control:{GOOD}-to-control"],
        http=HTTPOptions(max_events_per_minute=30),
    )

    def post(token: str, *events: Any) -> httpx2.Response:
        return live.client.post("/", content=json.dumps(events), headers={**BATCH, **bearer(token)})

    assert post(GOOD, *(event(f"a{n}") for n in range(29))).status_code == 202
    assert post(GOOD, *(event(f"b{n}") for n in range(11))).status_code == 202, "never too large, only too early"
    answer = post(GOOD, event("c"))
    found = assert_error(answer, 429, "QuotaExceeded")
    assert "its quota of 30 events per minute" in found["error"]
    assert answer.headers["retry-after"] == "22", "ten too many, and one more, at one in two seconds"
    assert post("another-token-long-enough", event("d")).status_code == 202, "each token has its own"
    now[0] += 22
    assert post(GOOD, event("c")).status_code == 202
    assert post(GOOD, event("e")).status_code == 429
    now[0] += 1000
    assert post(GOOD, *(event(f"f{n}") for n in range(30))).status_code == 202
    assert post(GOOD, event("g")).status_code == 429, "what was not used is not saved up beyond a minute's worth"
    starts = [
        live.client.post("/api/workflows/nap/start", json={}, headers=bearer(f"{GOOD}-to-control")).status_code
        for _ in range(31)
    ]
    assert starts == [201] * 30 + [429], "starts count, too"


def test_bytes_a_minute_are_refused_before_they_are_read(serve: Any) -> None:
    live = serve(tokens=[GOOD], http=HTTPOptions(max_bytes_per_minute=10_000))
    headers = {**CE, **bearer(GOOD)}
    first = live.client.post("/", content=json.dumps(event("1", data="x" * 12_000)), headers=headers)
    assert first.status_code == 202
    head = f"POST / HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {GOOD}\r\ncontent-length: 900000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", live.port), timeout=20) as connection:
        connection.sendall(head.encode())
        answer = b""
        while b"}" not in answer and (more := connection.recv(65536)):
            answer += more
    assert answer.startswith(b"HTTP/1.1 429 ")
    assert b"its quota of 10,000 bytes per minute" in answer
    shown = live.client.get("/metrics", headers=bearer(GOOD)).text
    assert "romancy_http_over_quota_total 1.0" in shown


def test_a_quota_without_tokens_does_not_speak_of_one(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "stopwatch", lambda: 1000.0)
    live = serve(http=HTTPOptions(max_events_per_minute=1))
    assert live.client.post("/", content=json.dumps([event("a")]), headers=BATCH).status_code == 202
    found = assert_error(live.client.post("/", content=json.dumps([event("b")]), headers=BATCH), 429, "QuotaExceeded")
    assert found["error"] == "the quota of 1 events per minute for all clients is used up; try again later"


def test_without_quotas_nothing_is_counted(live: Live) -> None:
    assert live.send().status_code == 202
    assert live.face._quotas._buckets == {}


# --- tokens -----------------------------------------------------------------------------------------------------------
def guesses(live: Live, count: int, **more: Any) -> None:
    for n in range(count):
        assert live.client.get("/api/instances", headers=bearer(f"GUESS-{n}"), **more).status_code == 401


def test_wrong_tokens_leave_a_trace(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    live = serve(tokens=[GOOD])
    guesses(live, 50)
    live.client.post("/?access_token=GUESS-IN-URL", content=b"{}")
    form = {"content-type": "application/x-www-form-urlencoded", "origin": live.url}
    assert live.client.post("/viewer/login", content="token=GUESS-IN-FORM", headers=form).status_code == 401
    assert live.client.get("/api/instances").status_code == 401, "without a token nothing is guessed"
    [told] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert told.message == "a request from 127.0.0.1 had a wrong token"
    assert "GUESS" not in caplog.text
    assert "romancy_http_wrong_tokens_total 52.0" in live.client.get("/metrics", headers=bearer(GOOD)).text


def test_guessing_takes_longer_and_longer_but_for_nobody_else(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    live = serve(tokens=[GOOD])
    monkeypatch.setattr(wrong_tokens, "LONGEST", 5.0)
    began = time.monotonic()
    guesses(live, wrong_tokens.FREE)
    assert time.monotonic() - began < 2
    began = time.monotonic()
    guesses(live, 3)
    assert time.monotonic() - began >= 0.1 + 0.2 + 0.4
    waiting = [threading.Thread(target=guesses, args=(live, 1)) for _ in range(4)]
    for thread in waiting:
        thread.start()
    eventually(lambda: live.face._wrong_tokens._waiting == 4, 10)
    assert live.face.active == 0, "they take nobody's place"
    assert live.client.get("/api/instances", headers=bearer(GOOD)).status_code == 200
    assert live.face._wrong_tokens._waiting > 0, "the right token did not wait for them"
    live.drain()  # nor does stopping
    for thread in waiting:
        thread.join(2)


def test_many_who_guess_do_not_pile_up(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    live = serve(tokens=[GOOD])
    monkeypatch.setattr(wrong_tokens, "LONGEST", 5.0)
    monkeypatch.setattr(wrong_tokens, "_WAITING", 0)
    guesses(live, wrong_tokens.FREE)
    answer = live.client.get("/api/instances", headers=bearer("GUESS"))
    assert (answer.status_code, answer.headers.get("connection")) == (401, "close")


def test_addresses_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(wrong_tokens, "stopwatch", lambda: now[0])
    found: Any = wrong_tokens.WrongTokens(traffic.Traffic(), None)  # type: ignore[arg-type]
    delays = [found._delay("a") for _ in range(20)]
    assert delays[: wrong_tokens.FREE] == [0.0] * wrong_tokens.FREE
    assert delays[wrong_tokens.FREE :][:3] == [0.1, 0.2, 0.4]
    assert delays[-1] == 5.0
    now[0] += 301
    assert found._delay("a") == 0.0
    for n in range(5000):
        found._delay(str(n))
    assert len(found._wrong) == 1000


def test_short_tokens_are_warned_of(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    serve(tokens=["events:short", GOOD, "read:0123456789abcdef"])
    [told] = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert told.startswith("1 of 3 tokens have fewer than 16 characters")
    assert "short" not in told
