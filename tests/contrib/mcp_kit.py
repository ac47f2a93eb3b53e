"""MCP servers on real sockets, and clients with and without tasks."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
import mcp_types
import uvicorn
from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from pydantic import ConfigDict

TASKS = "io.modelcontextprotocol/tasks"


class CreateTaskResult(mcp_types.Result):
    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"] = "task"
    taskId: str
    status: str
    pollIntervalMs: int


class _Claims(ClientExtension):
    identifier = TASKS

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=CreateTaskResult, resolve=_never)]


async def _never(result: CreateTaskResult, ctx: ClaimContext) -> Any:
    raise AssertionError("the tests look at the task itself")


class TaskRequest(mcp_types.Request[dict[str, Any], str]):
    name_param = "taskId"
    method: str
    params: dict[str, Any]


class Anything(mcp_types.Result):
    model_config = ConfigDict(extra="allow")


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """An ASGI application on a real socket: its URL."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        while not server.started:
            assert not serving.done(), await serving
            await asyncio.sleep(0.005)
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


@asynccontextmanager
async def client(server: Any, *, tasks: bool = False, token: str | None = None, mode: str = "2026-07-28") -> Any:
    """A client of a server: in this process, or by its URL."""
    extensions = [_Claims()] if tasks else []
    if not isinstance(server, str):
        async with Client(server, mode=mode, extensions=extensions) as found:
            yield found
        return
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(server, http_client=http), mode=mode, extensions=extensions) as found,
    ):
        yield found


async def call(found: Client, name: str, arguments: dict[str, Any] | None = None, **meta: Any) -> Any:
    """Call a tool; the result may be a task."""
    return await found.session.call_tool(name, arguments or {}, meta=meta or None, allow_claimed=True)  # type: ignore[call-overload]


async def task(found: Client, method: str, id: str, **params: Any) -> dict[str, Any]:
    """Send a request about a task."""
    request = TaskRequest(method=f"tasks/{method}", params={"taskId": id, **params})
    result = await found.session.send_request(request, Anything)
    return result.model_dump(by_alias=True, exclude_none=True)
