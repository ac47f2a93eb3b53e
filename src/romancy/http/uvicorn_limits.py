"""The patience uvicorn lacks, or has too much of.

It waits for ever for the headers of a request and for a client to take its answer, headers may have any length, and
what comes after a body counts as headers, too. A `Patience` mixed into its protocol class puts a limit to each. Bodies
are `body.py`'s.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from romancy.http.responses import RETRYABLE, HTTPError, error_answer
from romancy.http.traffic import Room
from romancy.http.uvicorn_parsers import PlainParser, StrictConnection
from romancy.options import HTTPOptions, seconds

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Base
else:
    Base = object

_EXPLAINING = 1.0
"""Seconds a connection for which there is no room is kept, to tell it so."""
_PHRASES = {
    400: "Bad Request",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


def patient(options: HTTPOptions, room: Room, base: type[Any] | None = None) -> type[asyncio.Protocol]:
    """uvicorn's protocol with these limits: the faster one, where its parser is installed."""
    made = type("Patient", (Patience, base or _fastest()), {"options": options, "room": room})
    return cast("type[asyncio.Protocol]", made)


def _fastest() -> type[Any]:
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol  # an extra: not everybody has it
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol

        return H11Protocol
    return HttpToolsProtocol


_NEEDED = ("loop", "transport", "flow", "cycle", "connections")
"""What `Patience` uses of a protocol of uvicorn's, besides `parser` or `conn`."""


def absent_in(protocol: Any) -> list[str]:
    """What a protocol lacks of that, so that `Patience` can't do its work."""
    missing = [name for name in _NEEDED if not hasattr(protocol, name)]
    return missing if hasattr(protocol, "parser") or hasattr(protocol, "conn") else [*missing, "parser or conn"]


def plain_of(patient_class: type[Any]) -> type[asyncio.Protocol]:
    """The class of uvicorn's that was made patient; any other is what it is."""
    return patient_class.__mro__[2] if issubclass(patient_class, Patience) else patient_class


class Patience(Base):
    """One connection."""

    options: HTTPOptions
    room: Room
    _headers_due: asyncio.TimerHandle | None = None
    _answer_due: asyncio.TimerHandle | None = None
    _has_room = True
    _unread = 0
    _in_headers = False
    """Known with httptools only; h11 limits its headers by itself."""
    conn: StrictConnection | None = None
    """With h11 only."""
    _earlier: Any = None
    """The request before the current one; with httptools only, which reads on while one is being answered."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # pause as soon as something is left unread, to know that it is
        if hasattr(self, "parser"):
            self.parser = PlainParser(self)
        else:
            self.conn = StrictConnection(self.options.max_headers)
        self._has_room = self.room.enter(self)
        if self._has_room:
            self._await_headers()
        elif self.room.can_explain():  # once it has asked: what is not read would take the answer with it
            self._headers_due = self.loop.call_later(_EXPLAINING, transport.abort)
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._has_room:
            self._refuse(503, "too many connections at once; try again in a moment")
            return
        if self._headers_due is None and self._is_between_requests():
            self._await_headers()
        self._unread += len(data)
        super().data_received(data)
        if not self._is_between_requests():
            self._stop_waiting()
            self.room.is_busy(self)
        if self._in_headers and self._unread > self.options.max_headers:
            self._refuse(431, f"the headers have more than the {self.options.max_headers:,} bytes allowed")

    def on_message_begin(self) -> None:
        self._in_headers, self._unread = True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_headers:  # what comes after a body is no header: nobody has checked it
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._earlier = self.cycle
        if not self.parser.should_upgrade():  # else it is about to be read once more, without that offer
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_between_requests() and not self.transport.is_closing():
            self.room.is_idle(self)

    def send_400_response(self, msg: str) -> None:
        fault = self.conn.framing.fault if self.conn is not None else None
        self._refuse(400, f"this is not a proper HTTP request{f': {fault}' if fault else ''}")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def _watch_reader(self) -> None:
        """A slow reader may be as slow as it likes; one that takes nothing at all for so long is gone."""
        left = self.transport.get_write_buffer_size()

        def look() -> None:
            if self.transport.get_write_buffer_size() >= left:
                self.transport.abort()
            else:
                self._watch_reader()

        self._answer_due = self.loop.call_later(seconds(self.options.body_timeout), look)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._answer_due is not None:
            self._answer_due.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self.room.leave(self)
        self._stop_waiting()
        if self._answer_due is not None:
            self._answer_due.cancel()
        super().connection_lost(exc)

    def _is_between_requests(self) -> bool:
        cycle = cast(Any, self.cycle)
        return cycle is None or cycle.response_complete

    def _owes_an_answer(self) -> bool:
        """A request has arrived whole, and its answer is still to come."""
        if self._is_between_requests():
            return False
        return not cast(Any, self.cycle).more_body or bool(getattr(self, "pipeline", ()))

    def _last_to_answer(self) -> Any:
        """The last request that has arrived whole. One after it, that never will, waits for its turn in vain."""
        queued: Any = getattr(self, "pipeline", ())
        if queued and cast(Any, self.cycle).more_body:
            queued.popleft()
            return self._earlier
        return self.cycle

    def _is_asking(self) -> bool:
        """Something of a request has arrived, and it is not the rest of a body that nobody wanted."""
        cycle = cast(Any, self.cycle)
        is_discarding = cycle is not None and cycle.more_body
        return self._in_headers or (self._unread > 0 and not is_discarding)

    def _await_headers(self) -> None:
        self._unread = 0
        self._headers_due = self.loop.call_later(seconds(self.options.header_timeout), self._headers_are_late)

    def _stop_waiting(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _headers_are_late(self) -> None:
        if self._is_asking():
            self._refuse(408, f"the headers did not arrive within {seconds(self.options.header_timeout):g} s")
        else:
            self.transport.close()

    def _refuse(self, status: int, text: str) -> None:
        """In bytes: there is no request yet that could be answered in the usual way.

        While an earlier one still is, its sender would take this for its answer: that one is answered, and then the
        connection is closed.
        """
        if self._owes_an_answer():
            self.flow.pause_reading()
            self._last_to_answer().keep_alive = False
            return
        cycle = cast(Any, self.cycle)
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.close()  # in the middle of an answer no other can begin
            return
        phrase = _PHRASES[status]
        body = error_answer(HTTPError(status, text, kind=phrase.replace(" ", "")), "a request").body or b""
        head = f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\nconnection: close\r\n"
        if status in RETRYABLE:
            head += f"retry-after: {RETRYABLE[status].decode()}\r\n"
        if not self.transport.is_closing():
            self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            self.transport.close()
