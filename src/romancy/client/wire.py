"""Requests to a server and back, repeated while that may help. The one place that knows httpx."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import socket
import ssl
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

import httpx

from romancy.client.responses import About, not_romancy, to_error
from romancy.client.retries import asked_for, may_help, pause
from romancy.core.clock import SystemClock, stopwatch
from romancy.errors import RomancyError, ServerUnreachable

_logger = logging.getLogger("romancy")
_AT_ONCE = 100
"""Requests under way at a time, without those that wait for a result; more wait their turn."""
_IDLE = 3.0
"""Seconds a connection is kept for the next request: less than servers do, so that they don't hang up first."""


@dataclass(frozen=True)
class Call:
    """A request to be made."""

    method: str
    path: str
    about: About = field(default_factory=About)
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body: bytes | None = None
    headers: Sequence[tuple[bytes, bytes]] = ()
    accepts: Collection[int] = (200,)
    lasts: float = 0.0
    """Seconds the server may take over it on purpose; above 0 it waits for a result."""


@dataclass(frozen=True)
class Reply:
    """An accepted answer: its status and its JSON, and how often the request was made for it."""

    status: int
    content: Any
    attempts: int = 1


class _Again(Exception):
    """An attempt that failed in a way that may pass; `wanted`: seconds the server asked to wait."""

    def __init__(self, error: RomancyError, wanted: float = 0.0) -> None:
        self.error, self.wanted = error, wanted


class Wire:
    """The connections to one server."""

    def __init__(
        self, url: str, token: str | None, retry_for: float, timeout: float, transport: httpx.AsyncBaseTransport | None
    ) -> None:
        self.url = url
        self._with_token = token is not None
        self._retry_for, self._timeout = retry_for, timeout
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._closed = False
        self._http = httpx.AsyncClient(
            headers={} if token is None else {b"authorization": b"Bearer " + token.encode()},
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=_AT_ONCE, keepalive_expiry=_IDLE),
            transport=transport,
        )

    async def close(self) -> None:
        self._closed = True
        await self._http.aclose()

    async def ask(self, call: Call, retry_for: float | None = None) -> Reply:
        """The answer to a request; `retry_for` bounds the time in which it is repeated further."""
        if self._closed:
            raise RomancyError("the client is closed; use it inside `async with Client(...) as client:`")
        patience = self._retry_for if retry_for is None else min(retry_for, self._retry_for)
        begun, attempts = stopwatch(), 0
        while True:
            attempts += 1
            try:
                return replace(await self._attempt(call), attempts=attempts)
            except _Again as again:
                rest = pause(attempts, again.wanted, patience - (stopwatch() - begun), random.random())
                if rest is None:
                    raise again.error from again.__cause__
                _logger.debug("%s %s is tried again in %.1f s: %s", call.method, call.path, rest, again.error)
            await asyncio.sleep(rest)

    async def _attempt(self, call: Call) -> Reply:
        try:
            async with AsyncExitStack() as stack:
                if not call.lasts:
                    await stack.enter_async_context(self._turns)
                answer = await self._request(call)
        except httpx.TimeoutException as error:
            text = f"the server at {self.url} did not answer within {self._timeout + call.lasts:g} s{call.about}"
            raise _Again(ServerUnreachable(text)) from error
        except httpx.TransportError as error:
            unreachable = self._unreachable(error, call.about)
            if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error)):
                raise unreachable from error
            raise _Again(unreachable) from error
        return self._read(call, answer)

    async def _request(self, call: Call) -> httpx.Response:
        query = urlencode({name: value for name, value in call.query.items() if value is not None}, doseq=True)
        return await self._http.request(
            call.method,
            f"{self.url}{call.path}{'?' if query else ''}{query}",
            content=call.body,
            headers=list(call.headers),
            timeout=httpx.Timeout(self._timeout, read=self._timeout + call.lasts, pool=None),
        )

    def _read(self, call: Call, answer: httpx.Response) -> Reply:
        status, content = answer.status_code, _json(answer)
        if status in call.accepts or 200 <= status < 300:
            if not isinstance(content, dict) and status != 204:
                kind = answer.headers.get("content-type", "no content type")
                raise not_romancy(self.url, f"{call.method} {call.path} gave {status} with {kind}")
            return Reply(status, content)
        if answer.is_redirect:
            raise not_romancy(self.url, f"it says to look at {answer.headers.get('location')!r}")
        error = to_error(self.url, status, content, call.about, with_token=self._with_token)
        if may_help(status, content):
            raise _Again(error, asked_for(answer.headers.get("retry-after"), SystemClock().now()))
        raise error

    def _unreachable(self, error: httpx.TransportError, about: About) -> ServerUnreachable:
        said = [_reason(cause) for cause in _causes(error) if isinstance(cause, OSError) and cause.errno]
        why = (said[-1] if said else str(error)) or type(error).__name__
        text = f"can't reach a server at {self.url}: {why}{about}; is it running, and is the address right?"
        return ServerUnreachable(text)


def _json(answer: httpx.Response) -> Any:
    """None if it is none."""
    try:
        return json.loads(answer.content)
    except (ValueError, RecursionError):
        return None


def _reason(error: OSError) -> str:
    """In the system's words; asyncio's own only repeat the address."""
    is_own = isinstance(error, socket.gaierror | ssl.SSLError)
    return (error.strerror if is_own else os.strerror(error.errno or 0)) or str(error)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what led to it, as deep as it goes."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            yield from _causes(error.exceptions[-1])  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        error = error.__cause__ or error.__context__
