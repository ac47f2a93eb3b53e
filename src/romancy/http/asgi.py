"""The entry point: takes every request and answers it, whatever happens."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from romancy.core.actor import acting_as
from romancy.core.redaction import redacting
from romancy.core.visible import printable
from romancy.errors import AppNotRunning
from romancy.http import control, emissions, handshake, health, inbox, metrics, questions, schedules, sinks, workers
from romancy.http.access import Access, bearer_of, take_from_url
from romancy.http.backpressure import Backpressure, out_of_time
from romancy.http.body import Head, read_body, read_head, read_model, read_query
from romancy.http.events import Events
from romancy.http.lifespan import live
from romancy.http.message_length import fault_of
from romancy.http.openapi import describe
from romancy.http.quotas import Quotas
from romancy.http.responses import (
    ClientGone,
    Header,
    HTTPError,
    Receive,
    Response,
    Scope,
    Send,
    error_answer,
    json_answer,
    send_answer,
)
from romancy.http.routes import Request, Route, Router, for_people, path_of
from romancy.http.schemas import Described
from romancy.http.sessions import Sessions
from romancy.http.stream import Hub
from romancy.http.time_limits import TimeLimit
from romancy.http.traffic import Traffic
from romancy.http.webhooks import Webhooks
from romancy.http.wrong_tokens import WrongTokens
from romancy.options import seconds
from romancy.service import Service, runtime_of
from romancy.tokens import SCOPES, SHORT, Credential

_logger = logging.getLogger("romancy")
_LOGGED = (400, 408, 413, 415, 422, 429, 431)
"""Refusals that are logged: a client with access sends something wrong and will ask why."""
_CLOSE: Header = (b"connection", b"close")


class HttpApp:
    """A service as an ASGI application, with `pages` in addition to its own routes.

    `allows` limits the scopes that can be used here, whatever a token has.
    """

    def __init__(self, app: Service, pages: Sequence[Route] = (), allows: Collection[str] = SCOPES) -> None:
        self._app, self._runtime = app, runtime_of(app)
        options, tokens = self._runtime.http, self._runtime.tokens
        self._options = options
        self._backpressure = Backpressure(options)
        self._access = Access(tokens, options, allows, self._runtime.public_url)
        self._sessions = Sessions(self._runtime)
        self._stopping = asyncio.Event()
        self.traffic = Traffic()
        self._quotas = Quotas(options, self.traffic)
        self._wrong_tokens = WrongTokens(self.traffic, self._stopping)
        _warn_of_short(tokens)
        self.active = 0
        """Requests under way."""
        self.waiting = 0
        """Requests that only wait for a result."""
        self._database_timeout = seconds(options.database_timeout)
        self._body_timeout = TimeLimit(seconds(options.body_timeout))
        own = Route("GET", "/openapi.json", self.describe_api, {200: Described})
        listed = (*control.ROUTES, *workers.ROUTES, *schedules.ROUTES, *inbox.ROUTES, *sinks.ROUTES)
        listed = (*listed, *questions.ROUTES, *emissions.ROUTES, *health.ROUTES)
        taken = (Events(options).route, handshake.ROUTE, *Webhooks(self._runtime).routes)
        self.routes = (*taken, *listed, metrics.ROUTE, own)
        # OpenAPI can describe neither pages nor streams.
        self._router = Router((*self.routes, Hub().route, *pages))
        self._described: Response | None = None

    def __repr__(self) -> str:
        return f"<HttpApp active={self.active} {self._backpressure!r}{' stopping' if self.is_stopping else ''}>"

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def drain(self) -> None:
        """The server is about to stop: finish what is under way, accept nothing new."""
        self._stopping.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})

    # --- a request --------------------------------------------------------------------------------------------------
    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        method: str = scope["method"]
        in_url = b"access_token=" in scope.get("query_string", b"")  # before it is removed
        self.active += 1
        try:
            answer = await self._respond(method, path_of(scope), scope, receive)
        except ClientGone:
            return
        except Exception as error:
            answer = error_answer(error, f"{method} {_loggable(scope['path'])!r}")
        except asyncio.CancelledError:
            if not self.is_stopping:
                raise
            answer = error_answer(_stopping(), method)  # the grace period is over; tell the client
        finally:
            self.active -= 1
        if answer.status in _LOGGED:
            is_page = any(value.startswith(b"text/html") for _, value in answer.headers)
            text = "a page" if is_page else printable((answer.body or b"")[:500].decode("utf-8", "replace"))
            _logger.info("%s %r was answered %d: %s", method, _loggable(scope["path"])[:200], answer.status, text)
        if answer.status == 401 and (in_url or _shows_token(scope)) and not await self._wrong_tokens.wrong(scope):
            answer.headers = (*answer.headers, _CLOSE)
        await send_answer(send, answer, without_body=method == "HEAD")

    async def _respond(self, method: str, path: str, scope: Scope, receive: Receive) -> Response:
        in_url = take_from_url(scope)
        head = read_head(scope["headers"])
        fault = fault_of(scope.get("http_version", "1.1"), head)
        if fault is not None:
            raise HTTPError(400, f"malformed HTTP request: {fault}", kind="BadRequest", headers=[_CLOSE])
        if head.size > self._options.max_headers:
            text = f"the headers are larger than the {self._options.max_headers:,} bytes allowed"
            raise HTTPError(431, text, kind="HeadersTooLarge", headers=[_CLOSE])
        accepted = in_url if path == "/" else None
        try:
            route, params = self._router.find(method, path)
        except HTTPError:
            if self._router.is_public(path):
                raise
            self._access.check_peer(scope)
            page = for_people(method, path, scope)
            if page is not None:
                return page
            session = await self._session(head, scope)
            self._access.check(head, scope, None, accepted, session)  # don't reveal which paths exist
            raise
        if not route.is_public:
            self._access.check_peer(scope)
        request = Request(
            self._app,
            self._backpressure,
            self._stopping,
            scope,
            head,
            receive,
            params,
            resting=self._resting,
            traffic=self.traffic,
            quotas=self._quotas,
            access=self._access,
            sessions=self._sessions,
        )
        if route.on_error is None:
            return await self._admit(route, request, accepted)
        try:
            return await self._admit(route, request, accepted)
        except ClientGone:
            raise
        except Exception as error:
            return route.on_error(request, error)

    async def _admit(self, route: Route, request: Request, in_url: bytes | None) -> Response:
        extra: Sequence[Header] = ()
        session = await self._session(request.head, request.scope) if route.scope is not None else ()
        if session:
            request.session = partial(self._session, request.head, request.scope)
        if route.on_error is not None:
            request.scopes = self._access.scopes(request.head, request.scope, session)
        if route.scope is not None:
            extra = self._access.check(request.head, request.scope, route.scope, in_url, session)
        if route.needs_room:
            self._check_room()
        if route.method == "GET" and self._runtime.redact is not None:
            with redacting(self._runtime.redact):  # only where nothing is written: code must not inherit this
                answer = await self._handle(route, request)
        elif request.head.who is None:
            answer = await self._handle(route, request)
        else:
            with acting_as(request.head.who):
                answer = await self._handle(route, request)
        if extra:
            answer.headers = (*answer.headers, *extra)
        return answer

    async def _session(self, head: Head, scope: Scope) -> Sequence[Credential]:
        """Find the visitor's session. Called only where needed: requests for style sheets have the cookie, too."""
        if self._access.is_open or bearer_of(head) is not None or head.get(b"cookie") is None:
            return ()
        return await self._sessions.find(head, scope)

    def _check_room(self) -> None:
        if self.is_stopping:
            raise _stopping()
        if self.active > self._options.max_requests:
            raise HTTPError(503, "too many requests at once; try again in a moment", kind="Overloaded")

    @contextmanager
    def _resting(self) -> Generator[None]:
        """Requests that only wait have their own limit, and don't count against that of the others."""
        if self.waiting >= self._options.max_requests:
            raise HTTPError(503, "too many requests wait for results; try again in a moment", kind="Overloaded")
        self.active -= 1
        self.waiting += 1
        try:
            yield
        finally:
            self.active += 1
            self.waiting -= 1

    async def _handle(self, route: Route, request: Request) -> Response:
        if route.contents:
            return await route.handler(request)
        if route.query is not None:
            request.query = read_query(request.scope.get("query_string", b""), route.query)
        if route.body is not None:
            await self._read_model(request, route.body)
        # A write also reads before and after, and while it writes it has its own time limit.
        limit = route.patience or self._database_timeout * (3 if route.method == "POST" else 1)
        try:
            async with asyncio.timeout(limit):
                return await route.handler(request)
        except TimeoutError:
            raise out_of_time(limit, "") from None

    async def _read_model(self, request: Request, model: Any) -> None:
        self._quotas.check(request.head.token)
        with self._backpressure.receiving() as hold:
            body = await read_body(request.head, request.receive, self._options.max_body, self._body_timeout, hold)
            request.body, request.size = read_model(request.head, body, model), len(body)
        self._quotas.take(request.head.token, 1, len(body))

    async def describe_api(self, request: Request) -> Response:
        """This API description, as OpenAPI."""
        if self._described is None:
            self._described = json_answer(200, describe(self.routes, _version(), has_tokens=bool(self._runtime.tokens)))
        return Response(200, self._described.body, self._described.headers)

    async def _live(self, receive: Receive, send: Send) -> None:
        await live(self._app, self._stopping, self.drain, receive, send)


def _shows_token(scope: Scope) -> bool:
    """Whether a request has a token, in a header or in the login form."""
    return any(name == b"authorization" for name, _ in scope["headers"]) or path_of(scope) == "/viewer/login"


def _loggable(path: str) -> str:
    """The path as the log shows it: who has a link of a question can answer it."""
    return re.sub("/ask/.+", "/ask/...", path, flags=re.DOTALL)


def _warn_of_short(tokens: Sequence[Credential]) -> None:
    short = sum(token.is_short for token in tokens)
    if short:
        names = sorted({token.name for token in tokens if token.is_short and token.name is not None})
        _logger.warning(
            "%d of %d tokens%s have fewer than %d characters and could be guessed; "
            "`python -c 'import secrets; print(secrets.token_urlsafe(32))'` creates good ones",
            short,
            len(tokens),
            f" (of {', '.join(names)})" if names else "",
            SHORT,
        )


def _stopping() -> AppNotRunning:
    return AppNotRunning("the server is stopping; try again in a moment")


def _version() -> str:
    try:
        return version("romancy")
    except PackageNotFoundError:  # a source tree that is not installed
        return "0"
