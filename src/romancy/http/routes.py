"""Routes, and how a path finds its route.

A route is declared once; the dispatcher, the input checks and `/openapi.json` all use that declaration. Ids and names
can contain slashes, so `{...}` matches as much of a path as possible, and the route with more literal text wins:
`/api/instances/a/b/history` is the history of `a/b`. Paths are compared as they were sent: the instance `a/history` is
`/api/instances/a%2Fhistory`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, cast
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel

from romancy.engine.around import trace_in
from romancy.http.access import Access
from romancy.http.backpressure import Backpressure
from romancy.http.body import Head
from romancy.http.quotas import Quotas
from romancy.http.responses import HTTPError, Receive, Response, Scope
from romancy.http.sessions import Sessions
from romancy.http.traffic import Traffic
from romancy.runtime import Runtime
from romancy.service import Service, runtime_of
from romancy.tokens import Credential


class Nothing(BaseModel, extra="forbid"):
    """No parameters."""


@dataclass(slots=True)
class Request:
    """A request as its handler gets it; path, query and body are checked and decoded."""

    app: Service
    backpressure: Backpressure
    stopping: asyncio.Event
    """Set when the server begins to stop; long waits should end then."""
    scope: Scope
    head: Head
    receive: Receive
    path: Mapping[str, str]
    query: Any = None
    body: Any = None
    size: int = 0
    resting: Callable[[], AbstractContextManager[None]] = nullcontext
    """A request that only waits does not count against the limit of requests."""
    scopes: frozenset[str] = frozenset()
    """The scopes of the visitor."""
    session: Callable[[], Awaitable[Sequence[Credential]]] | None = None
    """Checks again whether the visitor's session exists."""
    _: KW_ONLY
    traffic: Traffic
    quotas: Quotas
    access: Access
    sessions: Sessions

    @property
    def runtime(self) -> Runtime:
        """The parts of the app."""
        return runtime_of(self.app)

    @property
    def trace(self) -> dict[str, str]:
        """The trace that the request belongs to, as its headers say."""
        return trace_in({name.decode("latin-1"): value.decode("latin-1") for name, value in self.scope["headers"]})

    async def gone(self) -> None:
        """Return when the client has disconnected."""
        while (await self.receive())["type"] != "http.disconnect":
            pass


Handler = Callable[[Request], Awaitable[Response]]
OnError = Callable[[Request, Exception], Response]


@dataclass(frozen=True, eq=False)
class Route:
    """One method of one path."""

    method: str
    path: str
    handler: Handler
    answers: Mapping[int, Any]
    """The type of each successful answer by its status; None for no body."""
    errors: Sequence[int] = ()
    """Error statuses besides those that every route has."""
    scope: str | None = "read"
    """The scope that a token needs. With None, no token is needed."""
    is_public: bool = False
    """Answered to all machines, even if the app has no tokens."""
    query: type[BaseModel] | None = Nothing
    """None if the query is ignored."""
    body: type[BaseModel] | None = None
    contents: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Types of the bodies that the handler reads by itself, by content type."""
    patience: float | None = None
    """Time limit in seconds. None stands for the time limit of the database."""
    needs_room: bool = True
    """Refused while the server stops, or has too many requests. Not so for monitoring."""
    is_stream: bool = False
    """Answers with server-sent events, unless JSON is asked for."""
    on_error: OnError | None = None
    """Makes the answer to an error, or to a refused visitor, in place of JSON: for pages."""

    @property
    def summary(self) -> str:
        return (self.handler.__doc__ or "").partition("\n")[0]

    @property
    def details(self) -> str:
        """The description without the summary."""
        return " ".join((self.handler.__doc__ or "").partition("\n")[2].split())

    @property
    def name(self) -> str:
        return getattr(self.handler, "__name__", "")

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(self.path)), re.DOTALL)


class Router:
    """Finds the route for a request."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = routes
        self._exact = {(route.method, route.path): route for route in routes}
        self._ordered = sorted(routes, key=lambda route: len(re.sub(r"{\w+}", "", route.path)), reverse=True)

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        exact = self._exact.get((method, path))
        if exact is not None:
            return exact, {}
        methods: list[str] = []
        for route in self._ordered:
            found = route.pattern.fullmatch(path)
            if found is None:
                continue
            if route.method == method or (route.method == "GET" and method == "HEAD"):
                return route, {name: _decoded(part) for name, part in found.groupdict().items()}
            methods += ["GET", "HEAD"] if route.method == "GET" else [route.method]
        if methods:
            raise _not_allowed(method, list(dict.fromkeys(methods)))
        raise HTTPError(404, f"nothing found at {path[:200]!r}; see /openapi.json for all routes", kind="NotFound")

    def is_public(self, path: str) -> bool:
        """Whether some method of this path is answered to everyone."""
        return any(route.is_public and route.pattern.fullmatch(path) for route in self.routes)


def _not_allowed(method: str, methods: Sequence[str]) -> HTTPError:
    allowed = ", ".join(methods)
    headers = [(b"allow", allowed.encode())]
    return HTTPError(
        405, f"{method[:20]} is not allowed here, only {allowed}", kind="MethodNotAllowed", headers=headers
    )


def _decoded(part: str) -> str:
    return unquote_to_bytes(part).decode("utf-8", "surrogateescape")


def path_of(scope: Scope) -> str:
    """The path below the mount point, still percent-encoded if the server provides it."""
    root = cast(str, scope.get("root_path", "")).rstrip("/")
    raw = cast("bytes | None", scope.get("raw_path"))
    path = cast(str, scope["path"]) if raw is None else raw.decode("latin-1")
    below = path.removeprefix(root) if path == root or path.startswith(f"{root}/") else path
    if raw is not None and root and below is path:  # the mount point itself was sent percent-encoded
        return path_of({"path": scope["path"], "root_path": root})
    return below or "/"


def for_people(method: str, path: str, scope: Scope) -> Response | None:
    """Redirect browsers from the root, which only takes events, to the viewer."""
    headers = cast("Sequence[tuple[bytes, bytes]]", scope["headers"])
    if path != "/" or method not in ("GET", "HEAD"):
        return None
    if not any(name == b"accept" and b"text/html" in value for name, value in headers):
        return None
    root = cast(str, scope.get("root_path", "")).rstrip("/")
    return Response(303, b"", ((b"location", f"{root}/viewer/".encode()), (b"vary", b"accept")))
