"""Clients that are slow, on purpose or not, are not waited for for ever."""

from __future__ import annotations

import json
import re
import resource
import select
import socket
import time
from contextlib import suppress
from typing import Any

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from romancy.http import server as serving
from romancy.http.traffic import Room, Traffic
from romancy.http.uvicorn_limits import patient
from romancy.options import HTTPOptions
from tests.http.conftest import Live, event, read_all

LIMITS = HTTPOptions(header_timeout=0.4, body_timeout=0.4, max_headers=8000)
HEAD = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/cloudevents+json\r\n"
CLOSED = "Broken pipe|reset"


def trickle(connection: socket.socket, piece: bytes = b"x") -> None:
    """A little now and then, until the other side has closed the connection."""
    for _ in range(500):
        connection.sendall(piece)
        time.sleep(0.01)


@pytest.fixture(params=[HttpToolsProtocol, H11Protocol])
def limited(serve: Any, request: Any, monkeypatch: pytest.MonkeyPatch) -> Live:
    """With either of uvicorn's parsers."""
    monkeypatch.setattr(serving, "patient", lambda options, room: patient(options, room, request.param))
    return serve(http=LIMITS)


def test_headers_that_never_end_in_time(limited: Live) -> None:
    assert limited.raw(b"POST / HTTP/1.1\r\nhost: lo").startswith(b"HTTP/1.1 408 ")
    assert limited.send().status_code == 202


def test_headers_that_trickle(limited: Live) -> None:
    with socket.create_connection(("127.0.0.1", limited.port), timeout=20) as connection:
        begin = time.monotonic()
        with pytest.raises(OSError, match=CLOSED):
            trickle(connection)
        assert time.monotonic() - begin < 10
    assert limited.send().status_code == 202


def test_a_connection_on_which_nothing_comes(limited: Live) -> None:
    assert limited.raw(b"") == b""


def test_slow_headers_of_a_second_request(limited: Live) -> None:
    with socket.create_connection(("127.0.0.1", limited.port), timeout=20) as connection:
        connection.sendall(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"GET /heal")
        assert b"HTTP/1.1 408 " in read_all(connection)


def test_a_body_that_does_not_come(limited: Live) -> None:
    answer = limited.raw(HEAD + b"content-length: 100\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"error_type":"RequestTimeout"' in answer
    assert limited.send().status_code == 202


def test_a_body_that_trickles(limited: Live) -> None:
    with socket.create_connection(("127.0.0.1", limited.port), timeout=20) as connection:
        connection.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        # Only until the answer is there: what is sent after it would reset the connection.
        while not select.select([connection], [], [], 0.02)[0]:
            connection.sendall(b"1\r\n{\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 408 ")


def test_the_rest_of_a_body_nobody_wants_may_not_take_long(limited: Live) -> None:
    with socket.create_connection(("127.0.0.1", limited.port), timeout=20) as connection:
        connection.sendall(HEAD + b"content-length: 50000000\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
        with pytest.raises(OSError, match=CLOSED):
            trickle(connection)


@pytest.mark.parametrize("parser", [HttpToolsProtocol, H11Protocol])
def test_headers_without_end(serve: Any, parser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "patient", lambda options, room: patient(options, room, parser))
    live = serve(http=HTTPOptions(max_headers=8000))  # and ten seconds for them: it is their size that ends it
    with socket.create_connection(("127.0.0.1", live.port), timeout=20) as connection:
        connection.sendall(HEAD)
        with pytest.raises(OSError, match=CLOSED):
            trickle(connection, b"x: " + b"y" * 500 + b"\r\n")
    assert live.send().status_code == 202


def test_headers_that_are_too_large_by_a_little(limited: Live) -> None:
    answer = limited.client.get("/health/live", headers={"x": "y" * 7990})
    assert answer.status_code in (400, 431)
    assert limited.client.get("/health/live", headers={"x": "y" * 7000}).status_code == 200


def test_an_answer_that_is_not_taken(limited: Live) -> None:
    for n in range(40):
        limited.send(str(n), "x", data="x" * 100_000)
    with socket.create_connection(("127.0.0.1", limited.port), timeout=20) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"GET /api/events HTTP/1.1\r\nhost: localhost\r\n\r\n" * 3)
        time.sleep(1.5)
        assert limited.server is not None
        assert len(limited.server.server_state.connections) <= 1, "only the other client's is left"


def test_requests_one_after_the_other_on_one_connection(limited: Live) -> None:
    body = json.dumps(event()).encode()
    one = HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
    answer = limited.raw(one * 3 + one.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
    assert answer.count(b"HTTP/1.1 202 ") == 4
    assert answer.count(b'"duplicate":true') == 3


def test_the_faster_parser_is_used_where_it_is() -> None:
    assert issubclass(patient(LIMITS, Room(10, Traffic())) or object, HttpToolsProtocol)


# --- requests that offer another protocol, and what comes after a request ---------------------------------------------
OFFER = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
BODY = json.dumps(event("up", data={"amount": 5})).encode()
UPGRADE = HEAD + OFFER + b"content-length: %d\r\n\r\n" % len(BODY)
LIVE = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize("pieces", [[UPGRADE + BODY], [UPGRADE, BODY], [UPGRADE + BODY[:10], BODY[10:]]])
def test_an_offer_to_speak_http_2_changes_nothing(limited: Live, pieces: list[bytes]) -> None:
    """Every Java client makes it; the body is the event's all the same, and what follows is the next request."""
    with socket.create_connection(("127.0.0.1", limited.port), timeout=20) as connection:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.05)
        connection.sendall(LIVE)
        answers = read_all(connection)
    assert answers.startswith(b"HTTP/1.1 202 ")
    assert answers.count(b"HTTP/1.1 200 ") == 1
    [stored] = limited.client.get("/api/events").json()["items"]
    assert (stored["id"], stored["data"]) == ("up", {"amount": 5})


def test_an_offer_in_binary_mode_keeps_the_data(limited: Live) -> None:
    ce = b"ce-id: b\r\nce-source: s\r\nce-type: paid\r\nce-specversion: 1.0\r\ncontent-type: application/json\r\n"
    head = b"POST / HTTP/1.1\r\nhost: localhost\r\n" + ce + OFFER + b"transfer-encoding: chunked\r\n\r\n"
    assert limited.raw(head + b'c\r\n{"amount":7}\r\n0\r\n\r\n' + LIVE).startswith(b"HTTP/1.1 202 ")
    [stored] = limited.client.get("/api/events").json()["items"]
    assert stored["data"] == {"amount": 7}


def test_there_are_no_tunnels(limited: Live) -> None:
    answer = limited.raw(b"CONNECT example.com:443 HTTP/1.1\r\nhost: example.com\r\n\r\n")
    assert re.match(rb"HTTP/1.1 4\d\d ", answer)


def test_what_comes_after_a_body_is_no_header(serve: Any) -> None:
    live = serve(tokens=["SECRET"])
    head = b"POST /cancel/x HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    answer = live.raw(head + b"0\r\nauthorization: Bearer SECRET\r\n\r\n" + LIVE)
    assert answer.startswith(b"HTTP/1.1 401 ")


def test_trailers_without_end_are_not_kept(serve: Any) -> None:
    live = serve(tokens=["SECRET"], http=HTTPOptions(header_timeout=1.0, body_timeout=1.0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with socket.create_connection(("127.0.0.1", live.port), timeout=20) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n")
        with suppress(OSError):
            for n in range(3000):
                connection.sendall(b"".join(b"x%d-%d: %b\r\n" % (n, i, b"y" * 200) for i in range(50)))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100_000, f"{grown:,} kB for trailers nobody reads"


def test_garbage_after_a_good_request_does_not_take_its_answer(limited: Live) -> None:
    good = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    assert limited.raw(good + b"\x00garbage\r\n\r\n").startswith(b"HTTP/1.1 202 ")


def test_what_is_no_request_gets_an_error_in_json(live: Live) -> None:
    answer = live.raw(b"\x00garbage\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["retryable"] is False
