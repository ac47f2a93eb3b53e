"""The blocking client. Import it as `romancy.sync.Client`."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

from romancy.client import Client as AsyncClient
from romancy.core.model import Duration
from romancy.errors import AppNotRunning
from romancy.sync.verbs import Background, Blocking, blocking

if TYPE_CHECKING:
    from romancy.client.former import Transport


class Client(Blocking):
    """A server's workflows, for code that blocks. Safe to use from any number of threads.

    The arguments are those of `romancy.Client`. Its thread starts with the first call, so a client can be created
    before a fork, but must not be used before it.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        retry_for: Duration = 30.0,
        timeout: Duration = 20.0,
        transport: Transport | None = None,
    ) -> None:
        self._client = AsyncClient(url, token=token, retry_for=retry_for, timeout=timeout, transport=transport)
        super().__init__(self._client)
        self._background: Background | None = None
        self._life, self._closed = threading.Lock(), False

    def __repr__(self) -> str:
        return f"<sync {self._client!r}>"

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self._client.url

    @property
    def background(self) -> Background:
        """The event loop and its thread. Internal."""
        with self._life:
            if self._closed:
                raise AppNotRunning("the client is closed; use it inside `with Client(...) as client:`")
            if self._background is None:
                self._background = Background("client")
            return self._background

    def close(self) -> None:
        """Close the connections and end the thread. `with` does it for you."""
        with self._life:
            background, self._background, self._closed = self._background, None, True
        if background is None:
            return
        try:
            background.do(self._client.close)
        finally:
            background.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    event = staticmethod(AsyncClient.event)
    """Makes an event for `send` and `send_events`, with the arguments of `send_event`."""

    send_event = blocking(AsyncClient.send_event)
    send = blocking(AsyncClient.send)
    send_events = blocking(AsyncClient.send_events)
    list_workflows = blocking(AsyncClient.list_workflows)
