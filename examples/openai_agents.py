"""An agent of the OpenAI Agents SDK in a workflow, without a plug-in.

`Recorded` runs each request of a model as a step, and a tool calls an activity or a step. The model here is
a fake, so the example needs no network; wrap `OpenAIResponsesModel(...)` in the same way.
"""

import asyncio
import json
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from pydantic import TypeAdapter

from romancy import App, WorkflowContext, step, workflow

RESPONSE: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)


class Recorded(Model):
    """Asks another model in a step, so that each answer is recorded and paid for once."""

    def __init__(self, model: Model) -> None:
        self.model = model

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        async def request() -> dict[str, Any]:
            return RESPONSE.dump_python(await self.model.get_response(*args, **options), mode="json")

        prompt = options["input"] if "input" in options else args[1]
        return RESPONSE.validate_python(await step(WorkflowContext.current(), "model", request, input=prompt))

    def stream_response(self, *args: Any, **options: Any) -> Any:
        raise TypeError("call Runner.run in a workflow, not Runner.run_streamed")


class Fake(Model):
    """Stands for a real model: asks for the weather, then tells it."""

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        items = args[1] if len(args) > 1 else options["input"]
        results = [item["output"] for item in items if "output" in item] if isinstance(items, list) else []
        if not results:
            arguments = json.dumps({"city": "Rome"})
            call = ResponseFunctionToolCall(call_id="c1", name="weather", arguments=arguments, type="function_call")
            return ModelResponse(output=[call], usage=Usage(input_tokens=9, output_tokens=3), response_id=None)
        text = ResponseOutputText(text=f"Today: {results[0]}", type="output_text", annotations=[])
        said = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse(output=[said], usage=Usage(input_tokens=20, output_tokens=5), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> Any: ...


@function_tool
async def weather(city: str) -> str:
    """Tell the weather."""
    return await step(WorkflowContext.current(), "weather", lambda: f"sun in {city}", result=str, input=city)


reporter: Agent[None] = Agent(name="reporter", tools=[weather], model=Recorded(Fake()))


@workflow
async def report(ctx: WorkflowContext, question: str) -> str:
    result = await Runner.run(reporter, question, run_config=RunConfig(tracing_disabled=True))
    return result.final_output_as(str)


WORKFLOWS = [report]


async def main() -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        print(await (await app.start_workflow(report, "How is the weather?")).result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
# expect: Today: sun in Rome
