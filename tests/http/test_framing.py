"""Requests that say two things about where they end. Whoever believes the other one reads a second request: refused.

The whole suite runs on both of uvicorn's parsers, byte by byte and at once.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from romancy import App, WorkerOptions
from romancy.http import server as serving
from romancy.http import uvicorn_limits
from romancy.http.message_length import Framing
from romancy.http.traffic import Room, Traffic
from romancy.http.uvicorn_limits import patient
from romancy.options import HTTPOptions
from tests.http.conftest import WORKFLOWS, Live, event, read_all

ANSWER = re.compile(rb"HTTP/1\.1 (\d\d\d) ")
PARSERS = [H11Protocol, HttpToolsProtocol]
POST = b"POST / HTTP/1.1\r\n"
HOST = b"host: localhost\r\n"
TYPE = b"content-type: application/cloudevents+json\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
HIDDEN = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
BODY = json.dumps(event("good")).encode()
LENGTH = b"content-length: %d\r\n" % len(BODY)
GOOD = POST + HOST + TYPE + LENGTH + b"\r\n" + BODY
CHUNKS = b"%x\r\n%b\r\n" % (len(BODY), BODY)


def head(*lines: bytes, first: bytes = POST, host: bytes = HOST) -> bytes:
    return first + host + TYPE + b"".join(lines) + b"\r\n"


REFUSED: dict[str, bytes] = {
    # --- two lengths
    "length and chunks": head(b"content-length: 4\r\n", CHUNKED) + b"0\r\n\r\n" + HIDDEN,
    "chunks and length": head(CHUNKED, LENGTH) + CHUNKS + b"0\r\n\r\n" + HIDDEN,
    "length 0 and chunks": head(b"content-length: 0\r\n", CHUNKED) + b"0\r\n\r\n" + HIDDEN,
    "two lengths": head(b"content-length: 0\r\ncontent-length: 50\r\n") + HIDDEN,
    "two lengths in one": head(b"content-length: 0, 50\r\n") + HIDDEN,
    "one length twice": head(LENGTH, LENGTH) + BODY + HIDDEN,
    "length with a sign": head(b"content-length: +%d\r\n" % len(BODY)) + BODY + HIDDEN,
    "negative length": head(b"content-length: -1\r\n") + HIDDEN,
    "hexadecimal length": head(b"content-length: 0x10\r\n") + HIDDEN,
    "length with an underscore": head(b"content-length: 1_0\r\n") + HIDDEN,
    "empty length": head(b"content-length:\r\n") + HIDDEN,
    "endless length": head(b"content-length: %b\r\n" % (b"9" * 40)) + HIDDEN,
    "length as text": head(b"content-length: many\r\n") + HIDDEN,
    # --- transfer encodings
    "two encodings": head(CHUNKED, CHUNKED) + b"0\r\n\r\n" + HIDDEN,
    "an encoding that is not there": head(b"transfer-encoding: identity\r\n") + HIDDEN,
    "chunked and something": head(b"transfer-encoding: gzip, chunked\r\n") + b"0\r\n\r\n" + HIDDEN,
    "chunked, but not last": head(b"transfer-encoding: chunked, identity\r\n") + b"0\r\n\r\n" + HIDDEN,
    "nearly chunked": head(b"transfer-encoding: xchunked\r\n") + b"0\r\n\r\n" + HIDDEN,
    "chunked with a vertical tab": head(b"transfer-encoding:\x0bchunked\r\n") + b"0\r\n\r\n" + HIDDEN,
    "empty encoding": head(b"transfer-encoding:\r\n") + HIDDEN,
    "chunks in HTTP/1.0": head(CHUNKED, first=b"POST / HTTP/1.0\r\n") + CHUNKS + b"0\r\n\r\n" + HIDDEN,
    "kept alive chunks in HTTP/1.0": head(CHUNKED, b"connection: keep-alive\r\n", first=b"POST / HTTP/1.0\r\n")
    + b"0\r\n\r\n"
    + HIDDEN,
    # --- host
    "no host": head(LENGTH, host=b"") + BODY + HIDDEN,
    "two hosts": head(b"host: localhost\r\n", LENGTH) + BODY + HIDDEN,
    "two different hosts": head(b"host: example.org\r\n", LENGTH) + BODY + HIDDEN,
    "two hosts in HTTP/1.0": head(b"host: a\r\n", LENGTH, first=b"POST / HTTP/1.0\r\n") + BODY + HIDDEN,
    # --- versions
    "HTTP/0.9": b"GET /health/live\r\n" + HIDDEN,
    "HTTP/0.9 with a version": head(first=b"GET /health/live HTTP/0.9\r\n") + HIDDEN,
    "HTTP/1.2": head(first=b"GET /health/live HTTP/1.2\r\n") + HIDDEN,
    "HTTP/2.0": head(first=b"GET /health/live HTTP/2.0\r\n") + HIDDEN,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
    "http in small letters": head(first=b"GET /health/live http/1.1\r\n") + HIDDEN,
    "HTTP/1.10": head(first=b"GET /health/live HTTP/1.10\r\n") + HIDDEN,
    "no version": head(first=b"GET /health/live HTTP/\r\n") + HIDDEN,
    "a tab": head(first=b"GET\t/health/live HTTP/1.1\r\n") + HIDDEN,
    # --- lines
    "folded header": head(b"x-a: b\r\n c\r\n", LENGTH) + BODY + HIDDEN,
    "folded with a tab": head(b"x-a: b\r\n\tc\r\n", LENGTH) + BODY + HIDDEN,
    "folded encoding": head(b"transfer-encoding:\r\n chunked\r\n", LENGTH) + BODY + HIDDEN,
    "folded first header": POST + b" x: y\r\n" + HOST + b"\r\n" + HIDDEN,
    "space before the colon": head(b"content-length : 4\r\n", CHUNKED) + b"0\r\n\r\n" + HIDDEN,
    "tab before the colon": head(b"transfer-encoding\t: chunked\r\n", LENGTH) + BODY + HIDDEN,
    "no colon": head(b"content-length\r\n") + HIDDEN,
    "no name": head(b": x\r\n") + HIDDEN,
    "a name with a space": head(b"content length: 4\r\n") + HIDDEN,
    "NUL in a name": head(b"content-\x00length: 4\r\n") + HIDDEN,
    "NUL in a value": head(b"x: a\x00b\r\n") + HIDDEN,
    "bell in a value": head(b"x: a\x07b\r\n") + HIDDEN,
    "bare line feeds": GOOD.replace(b"\r\n", b"\n") + HIDDEN,
    "one bare line feed": head(b"x: y\ncontent-length: 4\r\n", CHUNKED) + b"0\r\n\r\n" + HIDDEN,
    "a bare line feed at the end": POST + HOST + TYPE + CHUNKED + b"\n" + b"0\r\n\r\n" + HIDDEN,
    "two bare line feeds end it": POST + HOST + TYPE + b"x: y\n\n" + HIDDEN,
    "bare carriage return": head(b"x: y\rcontent-length: 4\r\n", CHUNKED) + b"0\r\n\r\n" + HIDDEN,
    "bare carriage returns": GOOD.replace(b"\r\n", b"\r") + HIDDEN,
    "carriage return, carriage return, line feed": head(b"x: y\r\r\n") + HIDDEN,
    # --- chunks
    "size with a sign": head(CHUNKED) + b"+1\r\n{\r\n0\r\n\r\n" + HIDDEN,
    "size with 0x": head(CHUNKED) + b"0x1\r\n{\r\n0\r\n\r\n" + HIDDEN,
    "size with an underscore": head(CHUNKED) + b"1_0\r\n" + b"{" * 16 + b"\r\n0\r\n\r\n" + HIDDEN,
    "size after a space": head(CHUNKED) + b" 1\r\n{\r\n0\r\n\r\n" + HIDDEN,
    "no size": head(CHUNKED) + b"\r\n{\r\n0\r\n\r\n" + HIDDEN,
    "size beyond 64 bits": head(CHUNKED) + b"10000000000000001\r\n{\r\n0\r\n\r\n" + HIDDEN,
    "size that is not a number": head(CHUNKED) + b"xyz\r\n{\r\n0\r\n\r\n" + HIDDEN,
    "bare line feed after a size": head(CHUNKED) + b"1\n{\r\n0\r\n\r\n" + HIDDEN,
    "bare carriage return after a size": head(CHUNKED) + b"1\r{\r\n0\r\n\r\n" + HIDDEN,
    "bare line feed in an extension": head(CHUNKED) + b"1;a\nb\r\n{\r\n0\r\n\r\n" + HIDDEN,
    "bare carriage return in an extension": head(CHUNKED) + b"1;a\rb\r\n{\r\n0\r\n\r\n" + HIDDEN,
    "more than the size says": head(CHUNKED) + b"1\r\n{}\r\n0\r\n\r\n" + HIDDEN,
    "bare line feed after a chunk": head(CHUNKED) + b"1\r\n{\n0\r\n\r\n" + HIDDEN,
    "bare line feed after the last size": head(CHUNKED) + b"0\n\r\n" + HIDDEN,
    "bare line feed for the end": head(CHUNKED) + b"1\r\n{\r\n0\r\n\n" + HIDDEN,
    "bare line feed in a trailer": head(CHUNKED) + b"0\r\nx: y\n\r\n" + HIDDEN,
    "a request for a trailer": head(CHUNKED) + b"0\r\n" + HIDDEN,
    "folded trailer": head(CHUNKED) + b"0\r\nx: y\r\n z\r\n\r\n" + HIDDEN,
}
TAKEN: dict[str, bytes] = {
    "a length": GOOD,
    "chunks": head(CHUNKED) + CHUNKS + b"0\r\n\r\n",
    "many chunks": head(CHUNKED) + b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n",
    "chunked in capitals": head(b"Transfer-Encoding: CHUNKED\r\n") + CHUNKS + b"0\r\n\r\n",
    "chunks with leading zeros": head(CHUNKED) + b"000%b0\r\n\r\n" % CHUNKS,
    "an extension": head(CHUNKED) + CHUNKS.replace(b"\r\n", b";a=b\r\n", 1) + b"0\r\n\r\n",
    "a trailer": head(CHUNKED) + CHUNKS + b"0\r\nx: y\r\nz: \xc3\xa4\r\n\r\n",
    "an empty header": head(b"x:\r\n", LENGTH) + BODY,
    "spaces and tabs around values": head(b"x: \t a b \t \r\n", LENGTH) + BODY,
    "Latin letters": head(b"x: \xe4\r\n", LENGTH) + BODY,
    "HTTP/1.0": head(LENGTH, first=b"POST / HTTP/1.0\r\n") + BODY,
    "HTTP/1.0 without a host": head(LENGTH, first=b"POST / HTTP/1.0\r\n", host=b"") + BODY,
}


@pytest.fixture(scope="module", params=PARSERS, ids=["h11", "httptools"])
def live(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder: Path = tmp_path_factory.mktemp("framing")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ROMANCY_TOKENS", raising=False)
        patch.setattr(serving, "patient", lambda options, room: patient(options, room, request.param))
        running = Live(App(folder / "http.db", workflows=WORKFLOWS, worker=WorkerOptions(grace=2)))
        yield running
        running.stop()


def said(live: Live, text: bytes, piece: int | None = None) -> bytes:
    """Everything that is answered until the connection is closed, which must not take long."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", live.port), timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found = b""
        try:
            for place in range(0, len(text), piece or len(text)):
                connection.sendall(text[place : place + (piece or len(text))])
            found = read_all(connection)
        except (BrokenPipeError, ConnectionResetError):  # refused before all of it was sent
            pass
    assert time.monotonic() - began < 4, "the connection stayed open"
    return found


def stored(live: Live) -> list[str]:
    return [item["id"] for item in live.client.get("/api/events").json()["items"]]


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_it_is_refused_and_nothing_after_it_is_read(live: Live, text: bytes) -> None:
    evil = b"%04d" % list(REFUSED.values()).index(text)
    answer = said(live, text.replace(b"good", evil))
    assert ANSWER.findall(answer) == [b"400"], answer
    body = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert body["retryable"] is False
    assert b"connection: close" in answer.lower()
    assert evil.decode() not in stored(live)


@pytest.mark.parametrize("name", ["length and chunks", "no host", "bare line feed for the end", "folded header"])
def test_whatever_pieces_it_comes_in(live: Live, name: str) -> None:
    for piece in (1, 7, 50):
        answer = said(live, REFUSED[name].replace(b"good", b"evil"), piece)
        assert ANSWER.findall(answer) in ([], [b"400"])
    assert "evil" not in stored(live)


@pytest.mark.parametrize("name", ["length and chunks", "no host", "a bare line feed at the end", "size with a sign"])
def test_a_good_request_before_it_is_answered(live: Live, name: str) -> None:
    answer = said(live, HIDDEN + REFUSED[name])
    assert ANSWER.findall(answer)[0] == b"200"
    assert ANSWER.findall(answer).count(b"200") == 1, "only the first of the two"


@pytest.mark.parametrize("piece", [None, 1])
@pytest.mark.parametrize("text", TAKEN.values(), ids=TAKEN)
def test_what_is_right_is_taken(live: Live, text: bytes, piece: int | None) -> None:
    closing = text.replace(b"\r\n", b"\r\nconnection: close\r\n", 1)
    answer = said(live, closing, piece)
    assert answer.startswith(b"HTTP/1.1 202 "), answer
    assert b'"status":"accepted"' in answer
    assert "good" in stored(live)


def test_requests_one_after_the_other(live: Live) -> None:
    chunked = TAKEN["a trailer"]
    last = HIDDEN.replace(b"\r\n", b"\r\nconnection: close\r\n", 1)
    answer = said(live, (GOOD + chunked + HIDDEN) * 3 + last)
    assert answer.count(b"HTTP/1.1 202 ") == 6
    assert answer.count(b"HTTP/1.1 200 ") == 4


# --- the bytes alone --------------------------------------------------------------------------------------------------
def fed(text: bytes, piece: int, longest: int = 8000) -> tuple[int, str | None]:
    framing, fine = Framing(longest), 0
    for place in range(0, len(text), piece):
        part = text[place : place + piece]
        taken = framing.feed(part)
        fine += taken
        if taken < len(part):
            break
    return fine, framing.fault


@pytest.mark.parametrize("text", TAKEN.values(), ids=TAKEN)
def test_what_is_right_is_followed_to_its_end(text: bytes) -> None:
    for piece in (*range(1, 20), 1000):
        assert fed((text + HIDDEN) * 2, piece) == (len(text + HIDDEN) * 2, None)


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_found_before_what_is_hidden(text: bytes) -> None:
    for piece in (*range(1, 20), 1000):
        fine, fault = fed(HIDDEN + text, piece)
        assert fault
        assert len(HIDDEN) <= fine < len(HIDDEN + text), "the end of what is hidden is never passed on"


@pytest.mark.parametrize(
    "text",
    [
        head(b"x: %b\r\n" % (b"a" * 9000)),
        head(CHUNKED) + b"1;" + b"a" * 2000 + b"\r\n",
        head(CHUNKED) + b"0\r\nx: " + b"a" * 9000 + b"\r\n\r\n",
    ],
)
def test_nothing_is_without_end(text: bytes) -> None:
    for piece in (1, 100, 100_000):
        fine, fault = fed(text + HIDDEN, piece)
        assert fault
        assert "does not end within" in fault
        assert fine < len(text)


# --- other servers ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("parser", PARSERS, ids=["h11", "httptools"])
@pytest.mark.parametrize("name", ["length and chunks", "chunks in HTTP/1.0", "no host", "two hosts", "HTTP/2.0"])
def test_a_plain_uvicorn_is_told_what_its_parser_let_through(
    serve: Any, parser: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "patient", lambda options, room: parser)
    live = serve()
    assert ANSWER.findall(said(live, REFUSED[name])) == [b"400"]
    assert stored(live) == []


def test_a_uvicorn_that_is_not_the_one_we_know(
    serve: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Other(H11Protocol):
        """Has nothing of what the limits need."""

        def __getattribute__(self, name: str) -> Any:
            if name == "cycle" and type(self) is not Other:
                raise AttributeError(name)
            return super().__getattribute__(name)

    monkeypatch.setattr(serving, "patient", lambda options, room: patient(options, room, Other))
    live = serve()
    assert live.send().status_code == 202
    assert ANSWER.findall(said(live, REFUSED["length and chunks"])) == [b"400"], "by what the head says"
    [said_so] = [record.message for record in caplog.records if "uvicorn" in record.message]
    assert "without limits for slow clients" in said_so


def test_a_uvicorn_without_the_classes_we_know(
    serve: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(serving, "patient", patient)
    monkeypatch.setattr(uvicorn_limits, "import_module", refuse)
    live = serve()
    assert live.send().status_code == 202
    [said_so] = [record.message for record in caplog.records if "uvicorn" in record.message]
    assert "HttpToolsProtocol or H11Protocol is missing" in said_so


class RequestResponseCycle:
    def __init__(self) -> None:
        self.response_complete = self.response_started = self.more_body = False


class Later:
    """A protocol of a uvicorn to come: some of it has another name."""

    def __init__(self, config: Any, server_state: Any, app_state: Any) -> None:
        self.loop = self.transport = self.cycle = self.connections = self.conn = object()

    def connection_made(self, transport: Any) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def send_400_response(self, msg: str) -> None: ...


class Latest(Later):
    def __init__(self, settings: Any) -> None: ...


async def test_everything_that_is_missing_is_named() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    def missing(base: type[Any]) -> list[str]:
        made = patient(HTTPOptions(), Room(10, Traffic()), base)
        assert made is not None
        return uvicorn_limits.absent_in(made, uvicorn.Config(app, log_config=None))

    assert missing(Later) == ["flow", "on_response_complete", "keep_alive"]
    [said_so] = missing(Latest)
    assert said_so.startswith("its constructor (")
    assert missing(H11Protocol) == missing(HttpToolsProtocol) == []
