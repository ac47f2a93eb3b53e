"""A graph of LangGraph in a workflow, without a checkpointer: the workflow's history is the checkpoint.

Each node does its work in a step. After a crash the graph runs again from its beginning, and recorded steps answer
at once: a node that waits for a person does not repeat what it did before.
"""

import asyncio
import operator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

from romancy import App, WorkflowContext, ask, step, workflow


class State(TypedDict):
    topic: str
    notes: Annotated[list[str], operator.add]
    text: str


@dataclass
class Review:
    approved: bool


async def model(prompt: str) -> str:
    """Stands for a real model."""
    return prompt.upper()


def researcher(source: str) -> Any:
    async def research(state: State) -> dict[str, Any]:
        prompt = f"{state['topic']} in {source}"
        return {"notes": [await step(WorkflowContext.current(), source, lambda: model(prompt), result=str)]}

    return research


async def write(state: State) -> dict[str, Any]:
    prompt = " and ".join(state["notes"])
    return {"text": await step(WorkflowContext.current(), "write", lambda: model(prompt), result=str, input=prompt)}


async def review(state: State) -> dict[str, Any]:
    question = await ask(WorkflowContext.current(), Review, title="Publish?", text=state["text"], people=["ann"])
    approved = (await question.answer()).data.approved
    return {"text": state["text"] if approved else "withdrawn"}


builder = StateGraph(State)
for source in ("books", "papers"):  # both at the same time
    builder.add_node(source, researcher(source)).add_edge(START, source)
builder.add_node(write).add_node(review).add_edge(["books", "papers"], "write")
graph = builder.add_edge("write", "review").add_edge("review", END).compile()


@workflow
async def article(ctx: WorkflowContext, topic: str) -> str:
    return (await graph.ainvoke({"topic": topic, "notes": [], "text": ""}))["text"]


WORKFLOWS = [article]


async def main() -> None:
    keys = ["change-me-32-characters-or-more-from-the-environment"]
    async with App(":memory:", workflows=WORKFLOWS, signing_keys=keys) as app:
        handle = await app.start_workflow(article, "bees")
        while not (await app.list_questions()).items:  # noqa: ASYNC110 - asked in a moment
            await asyncio.sleep(0.01)
        await app.answer_question(handle.instance_id, "ann", {"approved": True})
        print(await handle.result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
# expect: BEES IN BOOKS AND BEES IN PAPERS
