"""Sends requests to a server, with retries. Besides `former`, the only module that uses httpx2."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

import httpx2

from romancy.client.former import Transport, adapted
from romancy.client.responses import About, not_romancy, to_error
from romancy.client.retries import asked_for, may_help, pause
from romancy.core.clock import SystemClock, stopwatch
from romancy.errors import InvalidInput, RomancyError, ServerUnreachable

_logger = logging.getLogger("romancy")
_AT_ONCE = 100
"""Maximum of requests under way, without those that wait for a result; further ones queue."""
_IDLE = 3.0
"""Seconds an idle connection is kept: less than servers do, so that they don't close it first."""

_QUIET = 30.0
"""Seconds without a sign of life after which a stream counts as broken, in addition to the time for an answer."""
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy"})
"""Environment variables that httpx2 reads, in lower case; it reads them in upper case, too."""


@dataclass(frozen=True)
class Call:
    """A request to send."""

    method: str
    path: str
    about: About = field(default_factory=About)
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body: bytes | None = None
    headers: Sequence[tuple[bytes, bytes]] = ()
    accepts: Collection[int] = (200,)
    lasts: float = 0.0
    """Seconds that the server may wait on purpose; above 0, the request waits for a result."""


@dataclass(frozen=True)
class Reply:
    """A successful answer: its status, its JSON, and how many attempts it took."""

    status: int
    content: Any
    attempts: int = 1


class _Again(Exception):
    """A temporary failure. `wanted` is how many seconds the server asked to wait."""

    def __init__(self, error: RomancyError, wanted: float = 0.0) -> None:
        self.error, self.wanted = error, wanted


class Wire:
    """The connections to one server."""

    def __init__(
        self, url: str, token: str | None, retry_for: float, timeout: float, transport: Transport | None
    ) -> None:
        self.url = url
        self._with_token = token is not None
        self._retry_for, self._timeout = retry_for, timeout
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._closed = False
        with _proxies_named():
            self._http = httpx2.AsyncClient(
                headers={} if token is None else {b"authorization": b"Bearer " + token.encode()},
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=_AT_ONCE, keepalive_expiry=_IDLE),
                transport=adapted(transport),
            )

    async def close(self) -> None:
        self._closed = True
        await self._http.aclose()

    def _open(self) -> httpx2.AsyncClient:
        """The connections. Each attempt asks for them, since the client can be closed between two."""
        if self._closed:
            raise RomancyError("the client is closed; use it inside `async with Client(...) as client:`")
        return self._http

    async def ask(self, call: Call, retry_for: float | None = None) -> Reply:
        """Return the answer to a request. `retry_for` further limits the time for retries."""
        patience = self._retry_for if retry_for is None else min(retry_for, self._retry_for)
        begun, attempts = stopwatch(), 0
        while True:
            attempts += 1
            try:
                return replace(await self._attempt(call), attempts=attempts)
            except _Again as again:
                delay = pause(attempts, again.wanted, patience - (stopwatch() - begun), random.random())
                if delay is None:
                    raise again.error from again.__cause__
                _logger.debug("retrying %s %s in %.1f s: %s", call.method, call.path, delay, again.error)
            await asyncio.sleep(delay)

    async def listen(self, call: Callable[[], Call]) -> AsyncGenerator[str | None]:
        """Yield the lines of an endless answer. When it breaks off, yield None, and send the next call."""
        begun, attempts = stopwatch(), 0
        while True:
            attempts += 1
            made = call()
            try:
                async with aclosing(self._lines(made)) as lines:
                    async for line in lines:
                        begun, attempts = stopwatch(), 1
                        yield line
                raise _Again(ServerUnreachable(f"the server at {self.url} ended the stream{made.about}"))
            except _Again as again:
                delay = pause(attempts, again.wanted, self._retry_for - (stopwatch() - begun), random.random())
                if delay is None:
                    raise again.error from again.__cause__
            yield None
            await asyncio.sleep(delay)

    async def _lines(self, call: Call) -> AsyncGenerator[str]:
        with self._translated(call):
            async with self._open().stream(
                call.method,
                self._url_of(call),
                headers={"accept": "text/event-stream"},
                timeout=httpx2.Timeout(self._timeout, read=self._timeout + _QUIET, pool=None),
            ) as answer:
                if answer.headers.get("content-type", "").startswith("text/event-stream"):
                    async for line in answer.aiter_lines():
                        yield line
                    return
                await answer.aread()
                self._read(call, answer)  # raises an error for a refusal
                raise not_romancy(self.url, f"{call.method} {call.path} is not a stream")

    @contextmanager
    def _translated(self, call: Call) -> Generator[None]:
        """Turn httpx2's errors into ours."""
        try:
            yield
        except httpx2.RequestError as error:
            self._open()  # if the client was closed meanwhile, that is the reason
            raise self._failure(call, error) from error

    def _failure(self, call: Call, error: httpx2.RequestError) -> RomancyError | _Again:
        if isinstance(error, httpx2.TimeoutException):
            text = f"the server at {self.url} did not answer within {self._timeout + call.lasts:g} s{call.about}"
            return _Again(ServerUnreachable(text))
        if isinstance(error, httpx2.TransportError):
            unreachable = self._unreachable(error, call.about)
            is_certain = any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error))
            return unreachable if is_certain else _Again(unreachable)
        # Such as a body that is not compressed as its headers say.
        return not_romancy(self.url, f"its answer can't be decoded ({error})")

    async def _attempt(self, call: Call) -> Reply:
        with self._translated(call):
            async with AsyncExitStack() as stack:
                if not call.lasts:
                    await stack.enter_async_context(self._turns)
                answer = await self._request(call)
        return self._read(call, answer)

    def _url_of(self, call: Call) -> str:
        query = urlencode({name: value for name, value in call.query.items() if value is not None}, doseq=True)
        return f"{self.url}{call.path}{'?' if query else ''}{query}"

    async def _request(self, call: Call) -> httpx2.Response:
        return await self._open().request(
            call.method,
            self._url_of(call),
            content=call.body,
            headers=list(call.headers),
            timeout=httpx2.Timeout(self._timeout, read=self._timeout + call.lasts, pool=None),
        )

    def _read(self, call: Call, answer: httpx2.Response) -> Reply:
        status, content = answer.status_code, _json(answer)
        if status in call.accepts or 200 <= status < 300:
            if not isinstance(content, dict) and status != 204:
                kind = answer.headers.get("content-type", "no content type")
                raise not_romancy(self.url, f"{call.method} {call.path} answered {status} with {kind}")
            return Reply(status, content)
        if answer.is_redirect:
            raise not_romancy(self.url, f"it redirects to {answer.headers.get('location')!r}")
        error = to_error(self.url, status, content, call.about, with_token=self._with_token)
        if may_help(status, content):
            raise _Again(error, asked_for(answer.headers.get("retry-after"), SystemClock().now()))
        raise error

    def _unreachable(self, error: httpx2.TransportError, about: About) -> ServerUnreachable:
        reasons = [_reason(cause) for cause in _causes(error) if isinstance(cause, OSError) and cause.errno]
        why = (reasons[-1] if reasons else str(error)) or type(error).__name__
        text = f"can't reach the server at {self.url}: {why}{about}; is it running, and is the URL right?"
        return ServerUnreachable(text)


@contextmanager
def _proxies_named() -> Generator[None]:
    """If httpx2 can't use a proxy of the environment, name the variable. Its value may contain a password."""
    try:
        yield
    except (ImportError, ValueError, httpx2.InvalidURL) as error:
        for name, value in os.environ.items():
            if name.lower() not in _PROXIES or not value:
                continue
            try:
                scheme = httpx2.Proxy(value if "://" in value else f"http://{value}").url.scheme
            except (ValueError, httpx2.InvalidURL):
                text = f"the environment variable {name} is not the URL of a proxy; use one like http://proxy:8080"
                raise InvalidInput(text) from None
            if isinstance(error, ImportError) and scheme.startswith("socks"):
                text = f"the environment variable {name} names a SOCKS proxy; to use it: pip install 'httpx2[socks]'"
                raise InvalidInput(text) from None
        raise


def _json(answer: httpx2.Response) -> Any:
    """The JSON of an answer; None if it is not JSON."""
    try:
        return json.loads(answer.content)
    except (ValueError, RecursionError):
        return None


def _reason(error: OSError) -> str:
    """The message of the operating system; asyncio's own only repeats the address."""
    is_own = isinstance(error, socket.gaierror | ssl.SSLError)
    return (error.strerror if is_own else os.strerror(error.errno or 0)) or str(error)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and all its causes."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            yield from _causes(error.exceptions[-1])  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        error = error.__cause__ or error.__context__
