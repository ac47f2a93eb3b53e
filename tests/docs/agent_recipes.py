"""Workflows with agents of other frameworks. Run as a script, it replays histories of them."""

from __future__ import annotations

import json
import operator
import sys
from typing import Annotated, Any, TypedDict

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from langgraph.graph import END, START, StateGraph
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from examples import openai_agents
from romancy import WorkflowContext, step, wait_event, workflow
from romancy.testing import replay


# --- LangGraph --------------------------------------------------------------------------------------------------------
class State(TypedDict):
    seen: Annotated[list[str], operator.add]


def node(n: int) -> Any:
    async def run(state: State) -> dict[str, Any]:
        return {"seen": [await step(WorkflowContext.current(), "model", lambda: f"node {n}", result=str, input=n)]}

    return run


async def pause(state: State) -> dict[str, Any]:
    await wait_event(WorkflowContext.current(), "go")
    return {"seen": ["went on"]}


builder = StateGraph(State)
for number in range(8):
    builder.add_node(f"node {number}", node(number)).add_edge(START, f"node {number}")
builder.add_node(pause).add_edge([f"node {number}" for number in range(8)], "pause")
builder.add_node("last", node(9)).add_edge("pause", "last").add_edge("last", END)
graph = builder.compile()


@workflow
async def wide_graph(ctx: WorkflowContext) -> list[str]:
    return (await graph.ainvoke({"seen": []}))["seen"]


# --- OpenAI Agents SDK ------------------------------------------------------------------------------------------------
class Fake(Model):
    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        items = args[1] if len(args) > 1 else options["input"]
        results = [item["output"] for item in items if "output" in item] if isinstance(items, list) else []
        if not results:
            calls = [
                ResponseFunctionToolCall(
                    call_id=f"c{n}", name="look_up", arguments=json.dumps({"n": n}), type="function_call"
                )
                for n in range(6)
            ]
            return ModelResponse(output=[*calls], usage=Usage(), response_id=None)
        text = ResponseOutputText(text=", ".join(results), type="output_text", annotations=[])
        said = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> Any: ...


@function_tool
async def look_up(n: int) -> str:
    """Look up a number, when it may be told."""
    ctx = WorkflowContext.current()
    found = await step(ctx, "look up", lambda: f"number {n}", result=str, input=n)
    await wait_event(ctx, "go", subject=f"{n // 6}")
    return found


many: Agent[None] = Agent(name="many", tools=[look_up], model=openai_agents.Recorded(Fake()))


@workflow
async def many_tools(ctx: WorkflowContext) -> list[str]:
    result = await Runner.run(many, "numbers", run_config=RunConfig(tracing_disabled=True))
    return result.final_output_as(str).split(", ")


WORKFLOWS = {wf.name: wf for wf in (wide_graph, many_tools)}


if __name__ == "__main__":
    for name, history in json.load(sys.stdin).items():
        print(replay(WORKFLOWS[name], history))
