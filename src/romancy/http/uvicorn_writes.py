"""Sends an answer in one go.

uvicorn writes the head of an answer and its body separately, and each write is a system call that wakes the client.
"""

from __future__ import annotations

import asyncio
from typing import Any

_START, _END = b"HTTP/1.", b"\r\n\r\n"


class JoiningTransport:
    """A transport that holds the head of an answer until the body is written, at most until the loop's next turn.

    What is taken for a head need not be one: it is only sent a moment later.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head = b""
        self._flush: asyncio.Handle | None = None
        # Looked up once: uvicorn asks before each write.
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._head:
            self._transport.write(self._taken() + data)
        elif data.startswith(_START) and data.endswith(_END):
            self._head = data
            self._flush = self._loop.call_soon(self.flush)
        else:
            self._transport.write(data)

    def flush(self) -> None:
        """Send a head that is held."""
        if self._head:
            self._transport.write(self._taken())

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def _taken(self) -> bytes:
        head, self._head = self._head, b""
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        return head
