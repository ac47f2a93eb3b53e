"""An answer is sent in one go: head and body together, and a head alone without delay."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from romancy.http import server as serving
from romancy.http.uvicorn_limits import patient
from romancy.http.uvicorn_writes import JoiningTransport
from tests.http.conftest import Live

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Wire:
    """A transport that writes down what it is told."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def write(self, data: bytes) -> None:
        self.said.append(data)

    def close(self) -> None:
        self.said.append("close")

    def is_closing(self) -> bool:
        return "close" in self.said

    def get_write_buffer_size(self) -> int:
        return 7


def joined() -> tuple[Wire, JoiningTransport]:
    wire = Wire()
    return wire, JoiningTransport(wire, asyncio.get_running_loop())  # type: ignore[arg-type]


async def test_head_and_body_are_one_write() -> None:
    wire, transport = joined()
    for _ in range(2):
        transport.write(HEAD)
        transport.write(b"ok")
    await asyncio.sleep(0)
    assert wire.said == [HEAD + b"ok"] * 2


async def test_a_head_without_a_body_is_sent_in_the_next_turn() -> None:
    wire, transport = joined()
    transport.write(HEAD)
    assert wire.said == []
    await asyncio.sleep(0)
    transport.write(b"ok")
    assert wire.said == [HEAD, b"ok"], "the body of a stream may come much later"


async def test_before_the_connection_is_closed_everything_is_sent() -> None:
    wire, transport = joined()
    transport.write(HEAD)
    transport.close()
    assert wire.said == [HEAD, "close"]
    assert transport.is_closing()
    await asyncio.sleep(0)
    assert wire.said == [HEAD, "close"]


async def test_the_rest_is_passed_on() -> None:
    wire, transport = joined()
    transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n{}")
    assert (wire.said, transport.get_write_buffer_size()) == ([b"HTTP/1.1 400 Bad Request\r\n\r\n{}"], 7)


@pytest.mark.parametrize("parser", [HttpToolsProtocol, H11Protocol])
def test_with_either_parser_of_uvicorn(serve: Any, parser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []

    class Counting(JoiningTransport):
        def __init__(self, transport: Any, loop: Any) -> None:
            inner = transport

            class Inner:
                def __getattr__(self, name: str) -> Any:
                    return getattr(inner, name)

                def write(self, data: bytes) -> None:
                    if data:  # h11 also writes nothing, which is nothing
                        written.append(len(data))
                    inner.write(data)

            super().__init__(Inner(), loop)  # type: ignore[arg-type]

    monkeypatch.setattr("romancy.http.uvicorn_limits.JoiningTransport", Counting)
    monkeypatch.setattr(serving, "patient", lambda options, room: patient(options, room, parser))
    live: Live = serve()
    written.clear()
    assert live.send().status_code == 202
    assert len(written) == 1
