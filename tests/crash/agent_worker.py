"""A worker with an agent that kills it, once at each place: `database schema folder`. Calls are noted in the folder."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from pydantic_ai import Agent, DeferredToolRequests, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import FunctionToolset

from romancy import App, Database, WorkflowContext, workflow
from romancy.contrib.pydantic_ai import RomancyDurability, approve_tools

FOLDER = Path(sys.argv[3]) if len(sys.argv) > 3 else Path()
PLACES = ("model 2", "get_order B", "refund")


def note(what: str) -> None:
    """Note a call. The first one at some places is the last thing that the process does."""
    with (FOLDER / "calls").open("a") as file:
        file.write(f"{what}\n")
    died = FOLDER / f"died in {what}"
    if what in PLACES and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)


async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    returns = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    await asyncio.to_thread(note, f"model {len(returns)}")
    if not returns:
        return ModelResponse(parts=[ToolCallPart("get_order", {"order_id": o}, o) for o in "AB"])
    if len(returns) == 2:
        return ModelResponse(parts=[ToolCallPart("refund", {"order_id": "A", "amount": 5}, "r")])
    return ModelResponse(parts=[TextPart(f"done: {returns[-1].content}")])


tools: FunctionToolset[None] = FunctionToolset(id="shop")


@tools.tool
async def get_order(ctx: RunContext[None], order_id: str) -> str:
    if order_id == "B":
        await asyncio.sleep(0.5)  # by then, what A returned is recorded
    note(f"get_order {order_id}")
    return f"order {order_id}"


@tools.tool(requires_approval=True)
def refund(ctx: RunContext[None], order_id: str, amount: float) -> str:
    note("refund")
    return f"refunded {amount} of {order_id}"


agent = Agent(
    FunctionModel(model),
    name="support",
    toolsets=[tools],
    output_type=[str, DeferredToolRequests],
    capabilities=[RomancyDurability()],
)


@workflow
async def support(ctx: WorkflowContext, prompt: str) -> str:
    result = await agent.run(prompt)
    while isinstance(result.output, DeferredToolRequests):
        answers = await approve_tools(ctx, result.output, people=["ann"])
        result = await agent.run(message_history=result.all_messages(), deferred_tool_results=answers)
    return result.output


async def main(url: str, schema: str, folder: str) -> None:
    async with App(Database(url, schema=schema or None), workflows=[support], lease=0.5):
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
