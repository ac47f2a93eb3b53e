"""An MCP server as an ASGI application: access, limits, and the lifespan.

Requests are stateless: each has all that is needed to answer it, so any process behind a load balancer can. For each
request the SDK's session manager is run anew. So there is nothing to start before the first request, and nothing to
stop: it makes no difference whether the application is served by itself or mounted.

It is served at its root and at `/mcp`. Access is that of the app's own HTTP interface: see `romancy.http.access`. It
also refuses pages of other sites, and names that were made to point to this machine, so the SDK's checks are not used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from romancy.contrib.mcp.calls import CALLER
from romancy.errors import AppNotRunning
from romancy.http.access import Access
from romancy.http.backpressure import Backpressure
from romancy.http.body import read_body, read_head
from romancy.http.lifespan import live
from romancy.http.responses import ClientGone, HTTPError, Receive, Scope, Send, error_answer, send_answer
from romancy.http.routes import path_of
from romancy.http.time_limits import TimeLimit
from romancy.http.traffic import Traffic
from romancy.http.wrong_tokens import WrongTokens
from romancy.options import seconds
from romancy.service import Service, runtime_of

_logger = logging.getLogger("romancy")
_PATHS = ("/", "/mcp", "/mcp/")
_SDK = logging.getLogger("mcp.server.streamable_http_manager")


class MCPApp:
    """An MCP server over streamable HTTP. Returned by `tools` and `operations`; serve it, or mount it."""

    def __init__(self, app: Service, server: Server[Any], scope: str) -> None:
        runtime = runtime_of(app)
        self.server = server
        """The server itself, for other transports: `mcp.Client(tools(app, [order]).server)` in tests."""
        self.traffic = Traffic()
        self._app, self._scope, self._options = app, scope, runtime.http
        self._access = Access(runtime.tokens, runtime.http, public_url=runtime.public_url)
        self._backpressure = Backpressure(runtime.http)
        self._body_timeout = TimeLimit(seconds(runtime.http.body_timeout))
        self._stopping = asyncio.Event()
        self._wrong_tokens = WrongTokens(self.traffic, self._stopping)
        self._active = 0
        if _SDK.level == logging.NOTSET:
            _SDK.setLevel(logging.WARNING)  # it reports each start of the session manager, so each request

    def __repr__(self) -> str:
        return f"<MCPApp {self._scope} active={self._active}>"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})

    def drain(self) -> None:
        """The server is about to stop: accept nothing new."""
        self._stopping.set()

    # --- a request --------------------------------------------------------------------------------------------------
    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._active += 1
        try:
            inner = await self._admit(scope, receive)
        except ClientGone:
            return
        except Exception as error:
            answer = error_answer(error, f"{scope['method']} for MCP")
            if answer.status == 401 and _has_token(scope):
                await self._wrong_tokens.wrong(scope)
            await send_answer(send, answer, without_body=scope["method"] == "HEAD")
        else:
            manager = StreamableHTTPSessionManager(
                self.server, json_response=True, stateless=True, max_request_body_size=self._options.max_body
            )
            async with manager.run():
                await manager.handle_request(scope, inner, send)
        finally:
            self._active -= 1

    async def _admit(self, scope: Scope, receive: Receive) -> Receive:
        """Check a request, and return its body. Raise the reason if it is refused."""
        head = read_head(scope["headers"])
        if head.size > self._options.max_headers:
            text = f"the headers are larger than the {self._options.max_headers:,} bytes allowed"
            raise HTTPError(431, text, kind="HeadersTooLarge")
        if path_of(scope) not in _PATHS:
            raise HTTPError(404, "this MCP server is at / and at /mcp", kind="NotFound")
        self._access.check_peer(scope)
        self._access.check(head, scope, self._scope)
        if scope["method"] != "POST":  # a GET would open a stream that stays empty: nothing is sent without a request
            allow = [(b"allow", b"POST")]
            raise HTTPError(405, "this MCP server answers POST only", kind="MethodNotAllowed", headers=allow)
        if self._stopping.is_set():
            raise AppNotRunning("the server is stopping; try again in a moment")
        if self._active > self._options.max_requests:
            raise HTTPError(503, "too many requests at once; try again in a moment", kind="Overloaded")
        scope[CALLER] = head.who
        with self._backpressure.receiving() as hold:
            body = await read_body(head, receive, self._options.max_body, self._body_timeout, hold)
        return _again(body, receive)

    async def _live(self, receive: Receive, send: Send) -> None:
        await live(self._app, self._stopping, self.drain, receive, send)


def _has_token(scope: Scope) -> bool:
    return any(name == b"authorization" for name, _ in scope["headers"])


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that begins with a body that was read."""
    is_read = False

    async def replay() -> Any:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


class Places:
    """Several servers at one address, each below a path of its own."""

    def __init__(self, servers: Mapping[str, MCPApp]) -> None:
        self._servers = servers
        self.traffic = Traffic()

    def drain(self) -> None:
        for server in self._servers.values():
            server.drain()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        first = "/" + path_of(scope).lstrip("/").partition("/")[0]
        found = self._servers.get(first)
        if found is None:
            text = f"there is nothing here; MCP servers are at {' and at '.join(self._servers)}"
            await send_answer(send, error_answer(HTTPError(404, text, kind="NotFound"), "a request"))
            return
        await found({**scope, "root_path": scope.get("root_path", "") + first}, receive, send)
