"""Workflows as tools of an AI agent, over the Model Context Protocol (MCP).

A quick workflow returns its result at once. One that takes longer keeps running after the call,
and the agent asks for its result by the instance id. Here the client is in this process;
`romancy mcp examples/mcp_tools.py` serves a real one.
"""

import asyncio
from typing import Any

from mcp import Client

from romancy import App, WorkflowContext, wait_event, workflow
from romancy.contrib.mcp import tool, tools


@tool
@workflow
async def quote(ctx: WorkflowContext, sku: str, count: int = 1) -> dict[str, str | int]:
    """Tell the price of an article, in cents."""
    return {"sku": sku, "cents": 250 * count}


@tool(answer_within=0.2)
@workflow
async def order(ctx: WorkflowContext, sku: str) -> str:
    """Order an article, and wait for the payment."""
    paid = await wait_event(ctx, "payment.completed")
    return f"{sku}, paid by {paid.data['by']}"


WORKFLOWS = [quote, order]


async def main() -> None:
    app = App(":memory:", workflows=WORKFLOWS)
    server = tools(app, WORKFLOWS)  # an ASGI application: FastAPI().mount("/mcp", server)
    async with app, Client(server.server) as agent:
        print(*[found.name for found in (await agent.list_tools()).tools], sep=", ")
        result = await agent.call_tool("quote", {"sku": "tea", "count": 2})
        print(result.structured_content)

        begun: dict[str, Any] = (await agent.call_tool("order", {"sku": "tea"})).structured_content or {}
        print(begun["status"])
        await app.send_event("payment.completed", "bank", {"by": "Ada"})
        ended = await agent.call_tool("get_result", {"instance_id": begun["instance_id"]})
        print(ended.structured_content)


if __name__ == "__main__":
    asyncio.run(main())

# expect: quote, order, get_result, cancel
# expect: {'sku': 'tea', 'cents': 500}
# expect: waiting_for_event
# expect: {'result': 'tea, paid by Ada'}
