"""What may stand between a client and its server: something that loses answers, or says things of its own."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx2

LOST = "lost"
"""The request is handed on and processed; then the connection is reset instead of answering."""
RESET = "reset"
"""The connection is reset before anything was handed on."""


@dataclass
class Canned:
    """An answer that is given without asking the server."""

    status: int
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])


class Proxy(ThreadingHTTPServer):
    """Does what its script says, one request after the other; then only hands on."""

    daemon_threads = True

    def __init__(self, upstream: str, script: list[Canned | str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream, self.script = upstream, script
        self.seen: list[tuple[str, str, bytes, dict[str, str]]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Proxy

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items() if name.lower() != "host"}
        self.server.seen.append((self.command, self.path, body, headers))
        step = self.server.script.pop(0) if self.server.script else None
        if isinstance(step, Canned):
            self._answer(step.status, step.body.encode(), step.headers)
            return
        if step != RESET:
            url = self.server.upstream + self.path
            # Nothing here speaks TLS; reading the certificates of all the world for each request would take long.
            answer = httpx2.request(self.command, url, content=body, headers=headers, verify=False)
            if step is None:
                self._answer(answer.status_code, answer.content, dict(answer.headers))
                return
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()  # with bytes or not, the other side sees a reset

    do_POST = do_GET

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "date", "server", "connection"):
                self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def proxy(upstream: str, *script: Canned | str) -> Iterator[Proxy]:
    with Proxy(upstream, list(script)) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
