"""uvicorn's two parsers, each without its weakness.

h11 accepts bytes that other software may read differently (see message_length.py); `StrictConnection` does not.

httptools' parser stops at the head of a request that offers another protocol (every Java client does, and
`curl --http2`), and the body is then dropped or taken for the next request. This server speaks no other protocol, so
`PlainParser` reads the request again without the offer.
"""

from __future__ import annotations

from typing import Any

import h11

from romancy.http.message_length import Framing

_OFFER = (b"upgrade", b"http2-settings")


class PlainParser:
    """The parser of one connection. It calls the callbacks of the protocol."""

    def __init__(self, protocol: Any) -> None:
        import httptools  # an extra; installed if this protocol is used

        self._tools: Any = httptools
        self._protocol = protocol
        self._parser = self._fresh()

    def _fresh(self) -> Any:
        parser = self._tools.HttpRequestParser(self._protocol)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.should_upgrade = parser.should_upgrade  # asked for several times for each request
        return parser

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def feed_data(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except self._tools.HttpParserUpgrade as upgrade:
            head = self._head()
            self._parser = self._fresh()
            self.feed_data(head + data[upgrade.args[0] :])

    def _head(self) -> bytes:
        """The head of the request without the offer."""
        method: bytes = self._parser.get_method()
        if method == b"CONNECT":
            raise self._tools.HttpParserError("CONNECT is not supported")
        lines = [b"%b %b HTTP/%b" % (method, self._protocol.url, self._parser.get_http_version().encode())]
        for name, value in self._protocol.headers:
            if name == b"connection":
                kept = [token.strip() for token in value.split(b",") if token.strip().lower() not in _OFFER]
                value = b", ".join(kept)
            if name not in _OFFER and (value or name != b"connection"):
                lines.append(name + b": " + value)
        return b"\r\n".join([*lines, b"", b""])


class StrictConnection(h11.Connection):
    """An h11 connection that only sees unambiguous bytes."""

    def __init__(self, longest: int) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=longest)
        self.framing = Framing(longest)

    def receive_data(self, data: bytes) -> None:
        valid = data[: self.framing.feed(data)]
        if valid or not data:  # empty data would mean that the client has closed
            super().receive_data(valid)

    def next_event(self) -> Any:
        """The next event; the fault is raised after the valid bytes."""
        event = super().next_event()
        if event is h11.NEED_DATA and self.framing.fault is not None:
            raise h11.RemoteProtocolError(self.framing.fault)
        return event
