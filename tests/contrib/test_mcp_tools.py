"""Workflows as tools: calls that return at once, calls that go on, and what clients are told."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from romancy import App, MiddlewareBase, StartRequest, WorkflowContext, wait_event, workflow
from romancy.contrib.mcp import tools
from tests.contrib.mcp_kit import call, client, served


@workflow
async def add(ctx: WorkflowContext, a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@workflow
async def order(ctx: WorkflowContext, sku: str) -> dict[str, str]:
    """Order something, and wait for the payment."""
    event = await wait_event(ctx, "paid", model=str)
    return {"sku": sku, "paid": event.data}


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_a_quick_workflow_answers_at_once_over_a_socket(mode: str) -> None:
    app = App(":memory:", workflows=[add])
    async with served(tools(app, [add])) as url, client(f"{url}/mcp", mode=mode) as found:
        listed = {tool.name: tool for tool in (await found.list_tools()).tools}
        assert list(listed) == ["add", "get_result", "cancel"]
        assert listed["add"].description == "Add two numbers."
        assert listed["add"].input_schema["required"] == ["a"]
        assert listed["add"].input_schema["properties"]["b"]["default"] == 2
        result = await call(found, "add", {"a": 1})
        assert (result.content[0].text, result.structured_content, result.is_error) == ("3", {"result": 3}, False)
        (one,) = (await app.list_instances()).items
        assert result.meta["romancy/instance_id"] == one.instance_id
        assert [(act.verb, act.who) for act in (await app.get_instance(one.instance_id)).acts] == [("start", "mcp")]


async def test_a_workflow_that_takes_long_is_asked_for_by_its_id() -> None:
    app = App(":memory:", workflows=[order])
    async with app, client(tools(app, [order], answer_within=0).server) as found:
        begun = await call(found, "order", {"sku": "x"})
        id = begun.structured_content["instance_id"]
        assert not begun.is_error
        assert f"get_result with instance_id {id!r}" in begun.content[0].text
        again = await call(found, "get_result", {"instance_id": id, "wait_seconds": 0})
        assert again.structured_content["instance_id"] == id
        await app.send_event("paid", "bank", "by card")
        ended = await call(found, "get_result", {"instance_id": id})
        assert ended.structured_content == {"sku": "x", "paid": "by card"}


async def test_an_unknown_tool_is_an_error_of_the_protocol() -> None:
    app = App(":memory:", workflows=[add])
    async with app, client(tools(app, [add]).server) as found:
        with pytest.raises(MCPError, match="there is no tool 'nope'"):
            await call(found, "nope")


async def test_a_call_brings_its_trace_to_the_instance_it_starts() -> None:
    class Noting(MiddlewareBase):
        def __init__(self) -> None:
            self.brought: list[dict[str, str]] = []

        async def around_start(self, start: StartRequest, call_next: Any) -> Any:
            self.brought.append(dict(start.headers))
            return await call_next()

    around = Noting()
    app = App(":memory:", workflows=[add], middleware=around)
    first, second = (f"00-{digit * 32}-{digit * 16}-01" for digit in "12")
    async with (
        served(tools(app, [add])) as url,
        httpx2.AsyncClient(headers={"traceparent": first, "tracestate": "a=b"}) as http,
        Client(streamable_http_client(url, http_client=http), mode="2026-07-28") as found,
    ):
        await call(found, "add", {"a": 1})
        await call(found, "add", {"a": 1}, traceparent=second)
        await call(found, "add", {"a": 1}, traceparent=["no text"])
    assert around.brought == [{"traceparent": first, "tracestate": "a=b"}, {"traceparent": second}, around.brought[0]]
