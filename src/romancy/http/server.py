"""The server behind `romancy serve`: uvicorn, with uvloop and httptools if they are installed."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, Protocol

import uvicorn

from romancy.http.responses import Receive, Scope, Send
from romancy.http.traffic import Room, Traffic, most_connections
from romancy.http.uvicorn_limits import absent_in, patient, plain_of
from romancy.service import Service, runtime_of
from romancy.signals import on_first_signal

_logger = logging.getLogger("romancy")
_AT_ONCE, _QUEUE = 16, 2048
"""Connections accepted in one go before the limit is checked, and connections that can queue in the kernel.

asyncio has one number for both, so a large queue could use up all file descriptors before any connection is closed.
"""


class Face(Protocol):
    """An ASGI application to serve, with what it counts."""

    traffic: Traffic

    def drain(self) -> None:
        """The server is about to stop: finish what is under way, accept nothing new."""
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


def run(main: Coroutine[Any, Any, None]) -> None:
    """`asyncio.run`, with uvloop if it is installed."""
    try:
        import uvloop  # an optional extra

        factory: Callable[[], asyncio.AbstractEventLoop] | None = uvloop.new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)


async def serve(
    app: Service, face: Face, bound: socket.socket, on_started: Callable[[], None], lifeline: int | None = None
) -> None:
    """Start the app and answer requests until a signal arrives, or `lifeline` reaches its end.

    A second signal ends the process at once.
    """
    async with app:
        server = Server(face, app, on_started)

        def stop() -> None:
            face.drain()
            server.should_exit = True

        on_first_signal(stop, lifeline)
        await server.serve(sockets=[bound])


class Server(uvicorn.Server):
    """uvicorn, without its handling of signals and lifespan."""

    def __init__(self, face: Face, app: Service, on_started: Callable[[], None]) -> None:
        logging.getLogger("uvicorn").setLevel(logging.ERROR)  # clients could flood the log with warnings
        runtime = runtime_of(app)
        limits = runtime.http
        options = uvicorn.Config(
            face,
            http=patient(limits, Room(limits.max_connections or most_connections(), face.traffic)) or "auto",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=max(1, round(runtime.grace)),
            h11_max_incomplete_event_size=limits.max_headers,
            backlog=_AT_ONCE,
        )
        super().__init__(options)
        self._on_started = on_started

    def _check_protocol(self) -> None:
        """The limits rely on a few internal names of uvicorn. If some are missing, serve without the limits."""
        chosen: Any = self.config.http_protocol_class
        missing = absent_in(chosen, self.config)
        if missing:
            self.config.http_protocol_class = plain_of(chosen)
            _logger.warning(
                "uvicorn %s is not compatible (%s is missing): serving without limits for slow clients, "
                "connections and malformed requests; install another version, or put a proxy in front of the server",
                uvicorn.__version__,
                ", ".join(missing),
            )

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._check_protocol()
        await super().startup(sockets)
        for bound in sockets or ():
            bound.listen(_QUEUE)
        self._on_started()
