"""The read-only server for operators, and for agents that help them: what happens, why, and whether the code fits."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)
from pydantic import BaseModel, Field

from romancy.app import App
from romancy.contrib.mcp.arguments import Arguments, describe, read
from romancy.contrib.mcp.bounded import bounded
from romancy.contrib.mcp.deadline import run_for
from romancy.contrib.mcp.endpoint import MCPApp
from romancy.contrib.mcp.results import refusal
from romancy.core.redaction import redacting
from romancy.errors import InvalidInput
from romancy.http import schemas, serialize
from romancy.service import runtime_of

REPLAY_SECONDS = 10.0
MOST_ENTRIES = 20_000
"""Entries of a history that is replayed here."""
_INSTRUCTIONS = (
    "Reads the durable workflows of an application; nothing is changed. Begin with list_instances (status failed or "
    "blocked). `why` says what an instance waits for and which events came close, `show_instance` shows its history, "
    "and `replay` checks whether today's code still follows it."
)
_LIMIT = Field(20, ge=1, le=100, description="Maximum number of items.")


class ListInstances(schemas.InstancesQuery):
    limit: int = _LIMIT


class ListWaits(schemas.WaitsQuery):
    limit: int = _LIMIT


class ListEvents(schemas.EventsQuery):
    limit: int = _LIMIT


class Which(Arguments):
    instance_id: str = Field(description="The id of the instance.", max_length=1000)


class ShowInstance(Which):
    entries: int = Field(50, ge=0, le=500, description="How many entries of the history to show: the last ones.")
    before: int | None = Field(None, ge=1, description="Only entries with a lower number than this one.")


@dataclass(frozen=True, slots=True)
class Operation:
    """A tool: what it is asked for, and what answers it."""

    tool: Tool
    model: type[BaseModel]
    answer: Callable[[App, Any], Awaitable[dict[str, Any]]]


def operations(app: App, /) -> MCPApp:
    """Return an MCP server for operators and coding agents, as an ASGI application. It only reads.

    >>> site.mount("/operations", operations(app))

    Its tools: `list_instances`, `show_instance`, `why`, `list_waits`, `list_events`, and `replay`, which checks whether
    the workflows registered here follow a stored history. Answers are cut to a size that models can take.

    Clients need a token with the scope `read`. Without tokens, only this machine has access.
    """
    return MCPApp(app, make_server(app), "read")


def make_server(app: App) -> Server[Any]:
    """Return the server for operators."""

    async def list_tools(ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[operation.tool for operation in OPERATIONS.values()])

    async def call_tool(ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> CallToolResult:
        operation = OPERATIONS.get(params.name)
        if operation is None:
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name[:200]!r}")
        try:
            with redacting(runtime_of(app).redact):
                answer = bounded(await operation.answer(app, read(operation.model, params.arguments or {})))
        except Exception as error:
            return refusal(error, f"the tool {params.name!r}")
        text = json.dumps(answer, ensure_ascii=False)
        return CallToolResult(content=[TextContent(text=text)], structured_content=answer)

    return Server[Any](
        "romancy operations",
        version=version("romancy"),
        instructions=_INSTRUCTIONS,
        get_tool_input_schema=_schema_of,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _schema_of(name: str) -> Mapping[str, Any] | None:
    found = OPERATIONS.get(name)
    return None if found is None else found.tool.input_schema


# --- what they answer -------------------------------------------------------------------------------------------------
async def _list_instances(app: App, query: ListInstances) -> dict[str, Any]:
    page = await app.list_instances(**query.model_dump(exclude_none=True))
    return {"items": list(map(serialize.instance_item, page.items)), "cursor": page.cursor}


async def _list_waits(app: App, query: ListWaits) -> dict[str, Any]:
    page = await app.list_waits(**query.model_dump())
    return {"items": list(map(serialize.wait_item, page.items)), "cursor": page.cursor}


async def _list_events(app: App, query: ListEvents) -> dict[str, Any]:
    page = await app.list_events(**query.model_dump())
    return {"items": list(map(serialize.event_item, page.items)), "cursor": page.cursor}


async def _show_instance(app: App, wanted: ShowInstance) -> dict[str, Any]:
    instance, history = await app.get_instance(wanted.instance_id), await app.get_history(wanted.instance_id)
    earlier = [entry for entry in history if wanted.before is None or entry.n < wanted.before]
    shown = earlier[max(0, len(earlier) - wanted.entries) :]
    return {
        **serialize.instance_item(instance),
        "waits": list(map(serialize.wait_item, instance.waits)),
        "acts": [{"verb": act.verb, "who": act.who, "at": serialize.time_text(act.at)} for act in instance.acts],
        "history": list(map(serialize.entry_item, shown)),
        "history_length": len(history),
    }


async def _why(app: App, wanted: Which) -> dict[str, Any]:
    from romancy.cli.database_target import DatabaseTarget  # imported lazily: the command line is slow to import
    from romancy.cli.screen import plain
    from romancy.cli.why import explain

    found = await explain(DatabaseTarget(app), wanted.instance_id)
    return json.loads(json.dumps(found.as_json(), default=plain))


async def _replay(app: App, wanted: Which) -> dict[str, Any]:
    from romancy.cli.database_target import DatabaseTarget
    from romancy.cli.replays import judge

    snapshot = await DatabaseTarget(app).stored(wanted.instance_id)
    id, name = snapshot.row.id, snapshot.row.workflow
    definition = runtime_of(app).registry.get(name)
    if definition is None:
        raise InvalidInput(f"the workflow {name!r} of instance {id!r} is not registered in this process")
    if len(snapshot.fed) > MOST_ENTRIES:
        raise InvalidInput(f"the history has more than {MOST_ENTRIES:,} entries; use `romancy replay {id}`")
    try:
        found = await run_for(REPLAY_SECONDS, lambda: judge(definition, snapshot))
    except TimeoutError as error:
        raise InvalidInput(f"the replay was stopped: {error}; is there an endless loop in the code?") from None
    answer: dict[str, Any] = {"instance_id": id, "follows": found.sides is None, "says": found.text}
    if found.sides is not None:
        answer |= {"recorded": found.sides[0], "code": found.sides[1]}
    return answer


def _operation(
    name: str, model: type[BaseModel], answer: Callable[[App, Any], Awaitable[dict[str, Any]]], description: str
) -> Operation:
    return Operation(describe(name, model, read_only=True, description=description), model, answer)


OPERATIONS: Mapping[str, Operation] = {
    operation.tool.name: operation
    for operation in (
        _operation("list_instances", ListInstances, _list_instances, "List instances of workflows, newest first."),
        _operation("show_instance", ShowInstance, _show_instance, "Show an instance, with its waits and its history."),
        _operation("why", Which, _why, "Explain what an instance waits for and which events came close."),
        _operation("list_waits", ListWaits, _list_waits, "List what instances wait for at present."),
        _operation("list_events", ListEvents, _list_events, "List the stored events, newest first."),
        _operation(
            "replay",
            Which,
            _replay,
            "Check whether today's code follows the history of an instance. Nothing is executed or stored.",
        ),
    )
}
