"""Limits that uvicorn lacks.

uvicorn waits forever for the headers of a request and for a client to read its answer, allows headers of any length,
and takes what follows a body for headers, too. `Patience`, mixed into its protocol class, limits each of these.
`body.py` limits bodies.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from uvicorn.server import ServerState

from romancy.http.responses import RETRYABLE, HTTPError, error_answer
from romancy.http.traffic import Room
from romancy.http.uvicorn_parsers import PlainParser, StrictConnection
from romancy.http.uvicorn_writes import JoiningTransport
from romancy.options import HTTPOptions, seconds

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Base
else:
    Base = object

_EXPLAINING = 1.0
"""Seconds a refused connection is kept, to tell it why."""
_PHRASES = {
    400: "Bad Request",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


def patient(options: HTTPOptions, room: Room, base: type[Any] | None = None) -> type[asyncio.Protocol] | None:
    """uvicorn's faster protocol class that is installed, with these limits; None if there is none."""
    base = base or _fastest()
    if base is None:
        return None
    return cast("type[asyncio.Protocol]", type("Patient", (Patience, base), {"options": options, "room": room}))


def _fastest() -> type[Any] | None:
    for module, name in (("httptools_impl", "HttpToolsProtocol"), ("h11_impl", "H11Protocol")):
        with suppress(ImportError, AttributeError):  # httptools is an extra: not everybody has it
            return getattr(import_module(f"uvicorn.protocols.http.{module}"), name)
    return None


_ATTRIBUTES = ("loop", "transport", "flow", "cycle", "connections")
_METHODS = (
    "connection_made data_received connection_lost pause_writing resume_writing on_response_complete send_400_response"
).split()
_PARSED = "on_message_begin on_header on_headers_complete on_message_complete".split()
"""With httptools only."""
_CYCLE = ("response_started", "response_complete", "more_body", "keep_alive")


def absent_in(chosen: type[Any], config: Any) -> list[str]:
    """What a protocol class lacks of all that `Patience` uses of uvicorn, and so can't do its work."""
    if not issubclass(chosen, Patience):
        return ["HttpToolsProtocol or H11Protocol"]
    plain = plain_of(chosen)
    try:
        made = chosen(config=config, server_state=ServerState(), app_state={})
    except Exception as error:  # whatever the constructor of a later version raises
        return [f"its constructor ({error})"]
    modules = [vars(sys.modules[base.__module__]) for base in plain.__mro__]
    cycle = next((found["RequestResponseCycle"] for found in modules if "RequestResponseCycle" in found), None)
    answers = () if cycle is None else cycle.__init__.__code__.co_names  # the names it sets
    methods = [*_METHODS, *_PARSED] if hasattr(made, "parser") else _METHODS
    missing = [name for name in _ATTRIBUTES if not hasattr(made, name)]
    missing += [name for name in methods if not hasattr(plain, name)]
    missing += [name for name in _CYCLE if name not in answers]
    return missing if hasattr(made, "parser") or made.conn is not None else [*missing, "parser or conn"]


def plain_of(chosen: type[Any]) -> type[asyncio.Protocol]:
    """uvicorn's own class behind one made by `patient`; any other class unchanged."""
    return chosen.__mro__[2] if issubclass(chosen, Patience) else chosen


class Patience(Base):
    """One connection."""

    options: HTTPOptions
    room: Room
    _headers_due: asyncio.TimerHandle | None = None
    _answer_due: asyncio.TimerHandle | None = None
    _has_room = True
    _unread = 0
    _in_headers = False
    """With httptools only; h11 limits headers by itself."""
    conn: StrictConnection | None = None
    """With h11 only."""
    _earlier: Any = None
    """The request before the current one; with httptools only, which reads ahead during an answer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, JoiningTransport(transport, self.loop)))
        transport.set_write_buffer_limits(high=0)  # pause as soon as something is left unread, so that we notice it
        if hasattr(self, "parser"):
            self.parser = PlainParser(self)
        else:
            self.conn = StrictConnection(self.options.max_headers)
        self._has_room = self.room.enter(self)
        if self._has_room:
            self._await_headers()
        elif self.room.can_explain():  # after its request, since unread data would discard the answer
            self._headers_due = self.loop.call_later(_EXPLAINING, transport.abort)
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._has_room:
            self._refuse(503, "too many connections at once; try again in a moment")
            return
        if self._headers_due is None and self._is_between_requests():
            self._unread = 0
        self._unread += len(data)
        super().data_received(data)
        if not self._is_between_requests():
            self._stop_waiting()
            self.room.is_busy(self)
        elif self._headers_due is None:
            self._await_headers()
        if self._in_headers and self._unread > self.options.max_headers:
            self._refuse(431, f"the headers are larger than the {self.options.max_headers:,} bytes allowed")

    def on_message_begin(self) -> None:
        self._in_headers, self._unread = True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_headers:  # ignore trailers after a body: they are unchecked
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._earlier = self.cycle
        if not self.parser.should_upgrade():  # else it is read again without the offer
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
        self._refuse(400, f"malformed HTTP request{f': {fault}' if fault else ''}")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def _watch_reader(self) -> None:
        """A reader can be slow, but one that reads nothing within the time limit is disconnected."""
        left = self.transport.get_write_buffer_size()

        def check() -> None:
            if self.transport.get_write_buffer_size() >= left:
                self.transport.abort()
            else:
                self._watch_reader()

        self._answer_due = self.loop.call_later(seconds(self.options.body_timeout), check)

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
        """Whether a complete request has not been answered yet."""
        if self._is_between_requests():
            return False
        return not cast(Any, self.cycle).more_body or bool(getattr(self, "pipeline", ()))

    def _last_to_answer(self) -> Any:
        """The last complete request. An incomplete one queued after it is dropped."""
        queued: Any = getattr(self, "pipeline", ())
        if queued and cast(Any, self.cycle).more_body:
            queued.popleft()
            return self._earlier
        return self.cycle

    def _is_asking(self) -> bool:
        """Whether part of a request has arrived that is not the rest of a discarded body."""
        cycle = cast(Any, self.cycle)
        is_discarding = cycle is not None and cycle.more_body
        return self._in_headers or (self._unread > 0 and not is_discarding)

    def _await_headers(self) -> None:
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
        """Write the answer as bytes, since no complete request exists yet that could be answered in the usual way.

        If an earlier request is still unanswered, its sender would take this for its answer. Then that request is
        answered, and the connection closed.
        """
        if self._owes_an_answer():
            self.flow.pause_reading()
            self._last_to_answer().keep_alive = False
            return
        cycle = cast(Any, self.cycle)
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.close()  # another answer can't begin in the middle of one
            return
        phrase = _PHRASES[status]
        body = error_answer(HTTPError(status, text, kind=phrase.replace(" ", "")), "a request").body or b""
        head = f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\nconnection: close\r\n"
        if status in RETRYABLE:
            head += f"retry-after: {RETRYABLE[status].decode()}\r\n"
        if not self.transport.is_closing():
            self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            self.transport.close()
