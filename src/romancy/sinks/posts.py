"""HTTP posts: connections that are used again, a signed body, and an answer of which only the beginning is read."""

from __future__ import annotations

import asyncio
import base64
import hmac
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

import h11

from romancy.core.clock import SystemClock
from romancy.core.cloudevents import structured
from romancy.core.model import SECOND, Event
from romancy.core.sinks import NotDelivered

_MOST_READ = 2048
"""Bytes of an answer that are read, so that the connection can be used again. A longer answer ends it."""
_SHOWN = 200
"""Characters of an answer that are part of an error."""
_OWN_HEADERS = frozenset("host content-length content-type transfer-encoding connection".split())


@dataclass(slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def retry_after(self) -> float | None:
        """The number of seconds after which the receiver wants to be asked again. A date is ignored."""
        value = self.headers.get("retry-after", "")
        return float(value) if value.isascii() and value.isdigit() and len(value) < 9 else None


class Poster:
    """Posts events to one address."""

    def __init__(self, url: str, keys: Sequence[bytes], headers: Mapping[str, str], patience: float = 1.0) -> None:
        """`patience`: seconds for the rest of an answer, once its status is known."""
        self._place = _check_url(url)
        self._keys, self._patience = keys, patience
        self._headers = _check_headers(headers)
        self._clock = SystemClock()
        self._idle: list[_Connection] = []
        self._tls: ssl.SSLContext | None = None
        try:
            self._request(b"", [])
        except (h11.LocalProtocolError, UnicodeEncodeError) as error:
            raise ValueError(f"headers can't be sent: {error}") from None

    def __repr__(self) -> str:
        return f"<Poster {self.host!r} idle={len(self._idle)}>"

    @property
    def host(self) -> str:
        return self._place.hostname or ""

    async def post(self, event: Event) -> None:
        """Post an event. Raise `NotDelivered` unless the answer is 2xx. The caller limits the time."""
        headers, body = structured(event)
        request = self._request(body, [*headers, *_trace(event), *self._signed(event.id, body)])
        answer = await self._answer(request, body)
        if not 200 <= answer.status < 300:
            raise NotDelivered(_words(answer), answer.retry_after)

    async def close(self) -> None:
        """End the connections that are not in use."""
        while self._idle:
            await self._idle.pop().end()

    def _request(self, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> h11.Request:
        place = self._place
        target = (place.path or "/") + (f"?{place.query}" if place.query else "")
        own = {"host": place.netloc, "content-length": str(len(body)), "accept-encoding": "identity", **self._headers}
        sent = [(name.encode(), value.encode("latin-1", "strict")) for name, value in own.items()]
        return h11.Request(method="POST", target=target, headers=[*sent, *headers])

    def _signed(self, id: str, body: bytes) -> list[tuple[bytes, bytes]]:
        """Return the headers of Standard Webhooks."""
        seconds = self._clock.wall() // SECOND
        named = _header_text(id)
        headers = [(b"webhook-id", named), (b"webhook-timestamp", b"%d" % seconds)]
        if self._keys:
            signed = b"%s.%d.%s" % (named, seconds, body)
            made = [b"v1," + base64.b64encode(hmac.digest(key, signed, "sha256")) for key in self._keys]
            headers.append((b"webhook-signature", b" ".join(made)))
        return headers

    async def _answer(self, request: h11.Request, body: bytes) -> _Answer:
        """Send a request on a connection that is there, or on a new one if the server has ended that meanwhile."""
        while self._idle:
            connection = self._idle.pop()
            answer = await self._try(connection, request, body) if await connection.is_quiet() else None
            if answer is not None:
                return answer
            connection.abort()
        answer = await self._try(await self._connect(), request, body)
        if answer is None:
            raise NotDelivered("the server closed the connection without an answer")
        return answer

    async def _try(self, connection: _Connection, request: h11.Request, body: bytes) -> _Answer | None:
        try:
            answer = await connection.exchange(request, body)
        except BaseException:
            connection.abort()
            raise
        if connection.is_reusable:
            self._idle.append(connection)
        else:
            connection.abort()
        return answer

    async def _connect(self) -> _Connection:
        place = self._place
        is_safe = place.scheme == "https"
        if is_safe and self._tls is None:
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        try:
            reader, writer = await asyncio.open_connection(
                place.hostname, place.port or (443 if is_safe else 80), ssl=self._tls if is_safe else None
            )
        except OSError as error:
            raise NotDelivered(f"no connection to {self.host}: {error}") from None
        return _Connection(reader, writer, self._patience)


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience: float) -> None:
        self._reader, self._writer, self._patience = reader, writer, patience
        self._protocol = h11.Connection(h11.CLIENT)

    @property
    def is_reusable(self) -> bool:
        return self._protocol.our_state is h11.IDLE and not self._reader.at_eof()

    async def is_quiet(self) -> bool:
        """Whether nothing has come since the last answer: it would be taken for the answer to the next request."""
        try:
            async with asyncio.timeout(0):
                await self._reader.read(1)
        except TimeoutError:
            return not self._protocol.trailing_data[0]
        except OSError:
            return False  # the server has ended it
        return False

    def abort(self) -> None:
        self._writer.transport.abort()

    async def end(self) -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self.abort()

    async def exchange(self, request: h11.Request, body: bytes) -> _Answer | None:
        """Send a request, and return the answer; None if the server closed the connection instead."""
        send = self._protocol.send
        message = b"".join(part or b"" for part in (send(request), send(h11.Data(data=body)), send(h11.EndOfMessage())))
        try:
            self._writer.write(message)
            await self._writer.drain()
            head = await self._head()
        except h11.RemoteProtocolError as error:
            raise NotDelivered(f"the answer is not HTTP: {error}") from None
        except OSError:
            return None
        if head is None:
            return None
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        return _Answer(head.status_code, headers, await self._rest())

    async def _head(self) -> h11.Response | None:
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event
            if event is None or isinstance(event, h11.ConnectionClosed):
                return None

    async def _next(self) -> h11.Event | None:
        """Return what comes next; None if the server closed the connection before it."""
        while True:
            event = self._protocol.next_event()
            if event is h11.PAUSED:
                return None
            if event is not h11.NEED_DATA:
                assert not isinstance(event, type), event
                return event
            data = await self._reader.read(65536)
            if not data and self._protocol.their_state is h11.SEND_RESPONSE and not self._protocol.trailing_data[0]:
                return None
            self._protocol.receive_data(data)

    async def _rest(self) -> str:
        """Read the rest of an answer, if it is short and comes soon. Its status has decided already."""
        read = b""
        try:
            async with asyncio.timeout(self._patience):
                while len(read) <= _MOST_READ:
                    event = await self._next()
                    if isinstance(event, h11.Data):
                        read += event.data
                    elif isinstance(event, h11.EndOfMessage):
                        if self._protocol.our_state is h11.DONE and not self._protocol.trailing_data[0]:
                            self._protocol.start_next_cycle()
                        break
                    else:
                        break
        except (TimeoutError, OSError, h11.RemoteProtocolError):
            pass  # the connection is not used again
        return read[:_MOST_READ].decode("utf-8", "replace")


def _words(answer: _Answer) -> str:
    if 300 <= answer.status < 400:
        leads = answer.headers.get("location", "")[:_SHOWN]
        return f"the server answered {answer.status}, a redirect to {leads!r}, which is not followed; use that address"
    text = " ".join(answer.text.split())[:_SHOWN]
    return f"the server answered {answer.status}" + (f": {text}" if text else "")


def _header_text(text: str) -> bytes:
    """Return a text as it can be in a header: ids may have any characters."""
    return "".join(
        c if c.isascii() and c.isprintable() and c != " " else f"%{c.encode().hex('%')}" for c in text
    ).encode()


def _check_url(url: str) -> SplitResult:
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"url must be a text, not {url!r}; is the variable it comes from set?")
    place = urlsplit(url)
    try:
        is_plain = place.username is None and place.password is None and not place.fragment and place.port != 0
    except ValueError:
        is_plain = False
    if place.scheme not in ("http", "https") or not place.hostname or not is_plain or not url.isascii():
        raise ValueError(
            "url must be an address such as https://example.com/events, without a user, a password and a #fragment; "
            "pass credentials in headers="
        )
    return place


def _trace(event: Event) -> list[tuple[bytes, bytes]]:
    """Return the trace of an event as headers, so that what the receiver does becomes part of it."""
    extensions = event.extensions or {}
    found = [(name, str(extensions[name]).strip()) for name in ("traceparent", "tracestate") if name in extensions]
    return [(name.encode(), value.encode()) for name, value in found if value.isascii() and value.isprintable()]


def _check_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError("headers must be texts by name")
        if name.lower() in _OWN_HEADERS or name.lower().startswith("webhook-"):
            raise ValueError(f"the header {name!r} is set by the sink itself")
    return {"user-agent": "romancy", **{name.lower(): value for name, value in headers.items()}}
