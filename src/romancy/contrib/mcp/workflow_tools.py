"""The server with one tool per workflow, and two for instances that are still running: `get_result` and `cancel`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from mcp.server.context import HandlerResult, ServerRequestContext
from mcp.server.extension import compose_tool_call_handler
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)
from pydantic import Field

from romancy.api.workflow import Workflow
from romancy.contrib.mcp.arguments import Arguments, describe, read
from romancy.contrib.mcp.calls import Caller, Calls
from romancy.contrib.mcp.endpoint import MCPApp
from romancy.contrib.mcp.offers import make_offers
from romancy.contrib.mcp.results import refusal, result_of
from romancy.contrib.mcp.tasks import Tasks
from romancy.core.model import Duration
from romancy.errors import InstanceNotFound, InvalidInput
from romancy.service import Service

LONGEST_WAIT = 50.0
"""Seconds; clients give up after a minute, usually."""
_INSTRUCTIONS = (
    "Each tool runs a durable workflow. If it takes longer, the call returns an instance id, and the workflow keeps "
    "running, even if this server is restarted. Get its result with get_result."
)


class GetResult(Arguments):
    """Return the result of a workflow that was still running when its tool returned, or its status."""

    instance_id: str = Field(description="The instance id that the tool returned.", max_length=1000)
    wait_seconds: float = Field(
        10, ge=0, le=LONGEST_WAIT, allow_inf_nan=False, description="How long to wait for it to end, at most 50."
    )


class Cancel(Arguments):
    """Cancel a workflow that is still running. Its code can clean up first."""

    instance_id: str = Field(description="The instance id that the tool returned.", max_length=1000)
    reason: str | None = Field(None, max_length=1000, description="Why; it is recorded.")


def tools(app: Service, workflows: Sequence[Workflow[..., Any]], /, *, answer_within: Duration = 5.0) -> MCPApp:
    """Return an MCP server with one tool for each of these workflows, as an ASGI application.

    >>> mcp = tools(app, [order, refund], answer_within=5.0)
    >>> site = FastAPI(lifespan=app.lifespan)
    >>> site.mount("/mcp", mcp)

    A call starts the workflow. If it ends within `answer_within`, the call returns its result, otherwise a handle: a
    task, for clients with the tasks extension, or else the instance id, for the tool `get_result`.

    Clients need a token with the scope `control`. Without tokens, only this machine has access.
    """
    offers = make_offers(workflows, answer_within)
    app.register(*workflows)
    return MCPApp(app, make_server(Calls(app, offers)), "control")


def make_server(calls: Calls) -> Server[Any]:
    """Return the server of the tools."""
    desk, tasks = _Desk(calls), Tasks(calls)
    server = Server[Any](
        "romancy",
        version=version("romancy"),
        instructions=_INSTRUCTIONS,
        get_tool_input_schema=desk.schema_of,
        on_list_tools=desk.list_tools,
    )
    server.add_request_handler("tools/call", CallToolRequestParams, compose_tool_call_handler([tasks], desk.call_tool))
    for method in tasks.methods():
        server.add_request_handler(method.method, method.params_type, method.handler)
    server.extensions[tasks.identifier] = tasks.settings()
    return server


class _Desk:
    """Lists the tools, and calls them for clients without the tasks extension."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        own = (describe("get_result", GetResult, read_only=True), describe("cancel", Cancel, read_only=False))
        self._tools = {tool.name: tool for tool in (*(offer.tool for offer in calls.offers.values()), *own)}

    def schema_of(self, name: str) -> Mapping[str, Any] | None:
        found = self._tools.get(name)
        return None if found is None else found.input_schema

    async def list_tools(
        self, ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=list(self._tools.values()))

    async def call_tool(self, ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> HandlerResult:
        calls, caller, given = self._calls, self._calls.caller(ctx), params.arguments or {}
        try:
            if params.name == "get_result":
                wanted = read(GetResult, given)
                instance = await calls.wait(wanted.instance_id, wanted.wait_seconds)
            elif params.name == "cancel":
                return await self._cancel(read(Cancel, given), caller)
            else:
                instance = await calls.call(params, caller)
            return result_of(instance, await calls.questions(instance, caller))
        except MCPError:
            raise
        except InstanceNotFound as missing:
            return refusal(InvalidInput(f"no tool of this server has started {missing.instance_id!r}"), params.name)
        except Exception as error:
            return refusal(error, f"the tool {params.name[:200]!r}")

    async def _cancel(self, wanted: Cancel, caller: Caller) -> CallToolResult:
        id = wanted.instance_id
        took = await self._calls.cancel(id, caller, wanted.reason)
        text = f"The cancellation of {id!r} was requested." if took else f"{id!r} had ended already."
        facts = {"instance_id": id, "cancelled": took}
        return CallToolResult(content=[TextContent(text=text)], structured_content=facts)
