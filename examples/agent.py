"""An agent of pydantic-ai whose model requests and tools are recorded steps.

After a crash it resumes where it stopped: finished tools are not called again, and a person who
approved a refund is not asked twice. The model here is a function, so the example needs no network.
"""

import asyncio
from datetime import timedelta

from pydantic_ai import Agent, DeferredToolRequests, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import FunctionToolset

from romancy import NO_RETRY, App, WorkflowContext, workflow
from romancy.contrib.pydantic_ai import RomancyDurability, approve_tools

shop: FunctionToolset[None] = FunctionToolset(id="shop")


@shop.tool
async def get_order(ctx: RunContext[None], order_id: str) -> dict[str, float]:
    return {"total": 30.0}


@shop.tool(requires_approval=True, metadata={"romancy": {"retry": NO_RETRY, "timeout": 60}})
def refund(ctx: RunContext[None], order_id: str, amount: float) -> str:  # runs in a thread
    return f"{amount:.2f} refunded for {order_id}"


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stands for a real model: `Agent("openai:gpt-5", ...)`."""
    returns = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if not returns:
        return ModelResponse(parts=[ToolCallPart("get_order", {"order_id": o}, o) for o in ("A-1", "A-2")])
    if len(returns) == 2:
        return ModelResponse(parts=[ToolCallPart("refund", {"order_id": "A-1", "amount": 30}, "r")])
    return ModelResponse(parts=[TextPart(f"I am sorry. {returns[-1].content}.")])


agent = Agent(
    FunctionModel(model),
    name="support",
    toolsets=[shop],
    output_type=[str, DeferredToolRequests],
    capabilities=[RomancyDurability(timeout=timedelta(minutes=2))],
)


@workflow
async def support(ctx: WorkflowContext, prompt: str) -> str:
    result = await agent.run(prompt)
    while isinstance(result.output, DeferredToolRequests):
        answers = await approve_tools(ctx, result.output, people=["ann@shop.example"], expires_in=timedelta(days=2))
        result = await agent.run(message_history=result.all_messages(), deferred_tool_results=answers)
    return result.output


WORKFLOWS = [support]


async def main() -> None:
    keys = ["change-me-32-characters-or-more-from-the-environment"]
    async with App(":memory:", workflows=WORKFLOWS, signing_keys=keys) as app:
        handle = await app.start_workflow(support, "My orders A-1 and A-2 arrived broken")
        while not (questions := (await app.list_questions()).items):  # noqa: ASYNC110 - asked in a moment
            await asyncio.sleep(0.01)
        print(questions[0].title)
        await app.answer_question(handle.instance_id, "ann@shop.example", {"approved": True})
        print(await handle.result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())

# expect: Call refund?
# expect: I am sorry. 30.00 refunded for A-1.
