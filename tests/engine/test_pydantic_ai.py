"""Agents of pydantic-ai inside workflows: each model request and tool call is one recorded step."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from mcp.server import MCPServer
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, ModelRetry, RunContext
from pydantic_ai.exceptions import ModelHTTPError, UserError
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RequestUsage

from romancy import (
    NO_RETRY,
    ActivityContext,
    Invitation,
    RetryPolicy,
    WorkflowContext,
    WorkflowFailed,
    activity,
    workflow,
)
from romancy.contrib.pydantic_ai import RomancyDurability, approve_tools
from romancy.core.token_usage import usage_of
from romancy.records import HistoryEntry
from romancy.testing import Environment, replay

QUICK = RetryPolicy(max_attempts=3, initial=0.001, jitter=0)
calls: list[str] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


def returned(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


def script(*turns: list[ToolCallPart] | str) -> FunctionModel:
    """A model that says these things in turn."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = turns[sum(isinstance(message, ModelResponse) for message in messages)]
        calls.append("model")
        parts = [TextPart(turn)] if isinstance(turn, str) else turn
        return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=10, output_tokens=2))

    return FunctionModel(answer)


class Order(BaseModel):
    id: str
    total: float


async def steps(env: Environment, id: str) -> list[HistoryEntry]:
    return [e for e in await env.app.get_history(id) if e.kind.startswith("activity")]


# --- runs -------------------------------------------------------------------------------------------------------------
tools: FunctionToolset[None] = FunctionToolset(id="shop")


@tools.tool
async def get_order(ctx: RunContext[None], order_id: str) -> Order:
    await asyncio.sleep(0.003 if order_id == "A" else 0)
    calls.append(f"get_order {order_id}")
    return Order(id=order_id, total=5)


@tools.tool(requires_approval=True)
def refund(ctx: RunContext[None], order_id: str, amount: float) -> str:
    calls.append(f"refund {order_id} {'in a thread' if threading.current_thread() is not MAIN else ''}")
    return f"refunded {amount} of {order_id}"


MAIN = threading.main_thread()
SUPPORT = script(
    [ToolCallPart("get_order", {"order_id": "A"}, "c1"), ToolCallPart("get_order", {"order_id": "B"}, "c2")],
    [ToolCallPart("refund", {"order_id": "A", "amount": 5}, "c3")],
    "done",
)
support = Agent(
    SUPPORT,
    name="support",
    toolsets=[tools],
    output_type=[str, DeferredToolRequests],
    capabilities=[RomancyDurability(model_retry=QUICK, tool_retry=QUICK, timeout=30)],
)


@activity
async def deliver(ctx: ActivityContext, invitation: Invitation) -> None:
    calls.append(f"mail to {invitation.person}")


@workflow
async def helped(ctx: WorkflowContext, prompt: str) -> str:
    result = await support.run(prompt)
    while isinstance(result.output, DeferredToolRequests):
        answers = await approve_tools(ctx, result.output, people=["ann"], expires_in=timedelta(days=1), deliver=deliver)
        result = await support.run(message_history=result.all_messages(), deferred_tool_results=answers)
    return result.output + "".join(
        f", {part.tool_name}: {part.content}" for part in returned(result.all_messages())[2:]
    )


async def test_a_run_with_parallel_tools_an_approval_and_restarts(env: Environment) -> None:
    handle = await env.start(helped, "refund please")
    assert calls == ["model", "get_order B", "get_order A", "model", "mail to ann"]
    await env.restart()
    await env.answer(handle, "ann", {"approved": True})
    assert await handle.result() == "done, refund: refunded 5.0 of A"
    assert calls[5:] == ["refund A in a thread", "model"]
    done = await steps(env, handle.instance_id)
    assert [entry.operation.rpartition(":")[0] for entry in done] == [
        "support.model.request",
        "support.shop.get_order",
        "support.shop.get_order",
        "support.model.request",
        "deliver",
        "support.shop.refund",
        "support.model.request",
    ]
    assert done[0].input == {"prompt": "refund please"}
    assert sorted(str(entry.input) for entry in done[1:3]) == ["{'order_id': 'A'}", "{'order_id': 'B'}"]
    assert done[3].input == {"tool_returns": [{"get_order": {"id": o, "total": 5.0}} for o in "AB"]}
    assert replay(helped, await env.app.get_history(handle.instance_id)) == "completed"


@pytest.mark.parametrize("at_first", [None, "tokens"])
async def test_a_topic_is_turned_on_and_off_while_instances_run(env: Environment, at_first: str | None) -> None:
    async def streamed(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        if returned(messages):
            yield "done"
        else:
            yield {0: DeltaToolCall("get_order", '{"order_id": "B"}', tool_call_id="c1")}

    whole = script([ToolCallPart("get_order", {"order_id": "B"}, "c1")], "done")
    both = FunctionModel(whole.function, stream_function=streamed)
    topic = at_first

    @workflow
    async def helping(ctx: WorkflowContext) -> str:
        durability = RomancyDurability(topic=topic)
        return (await Agent(both, name="both", toolsets=[tools], capabilities=[durability]).run("help")).output

    handle = await env.start(helping)
    assert await handle.result() == "done"
    topic = "tokens" if at_first is None else None
    assert replay(helping, await env.app.get_history(handle.instance_id)) == "completed"


async def test_a_model_that_can_not_stream_is_not_asked_again(env: Environment) -> None:
    agent = Agent(script("hello"), name="mute", capabilities=[RomancyDurability(topic="tokens")])

    @workflow
    async def mute(ctx: WorkflowContext) -> str:
        return (await agent.run("speak")).output

    with pytest.raises(WorkflowFailed, match=r"must receive a `stream_function`.*is asked to stream"):
        await (await env.start(mute)).result()


@pytest.mark.parametrize("data", [{"approved": False, "reason": "too much"}, None])
async def test_denied_and_expired_calls_are_not_made(env: Environment, data: dict[str, Any] | None) -> None:
    handle = await env.start(helped, "refund please")
    if data is None:
        await env.advance(timedelta(days=1))
    else:
        await env.answer(handle, "ann", data)
    said = "too much" if data else "Nobody approved this call in time."
    assert await handle.result() == f"done, refund: {said}"
    assert not [call for call in calls if call.startswith("refund")]


async def test_outside_a_workflow_it_runs_as_usual() -> None:
    result = await support.run("refund please")
    assert isinstance(result.output, DeferredToolRequests)
    assert calls == ["model", "get_order B", "get_order A", "model"]


async def test_several_runs_at_once_in_one_workflow(env: Environment) -> None:
    @workflow
    async def crowd(ctx: WorkflowContext) -> list[str]:
        async with asyncio.timeout(60):
            results = await asyncio.gather(*(support.run(f"order {n}") for n in range(5)))
        return [type(result.output).__name__ for result in results]

    handle = await env.start(crowd)
    assert await handle.result() == ["DeferredToolRequests"] * 5
    await env.restart()
    assert replay(crowd, await env.app.get_history(handle.instance_id)) == "completed"
    assert calls.count("model") == 10


# --- errors -----------------------------------------------------------------------------------------------------------
def failing(model: Callable[..., ModelResponse], **options: Any) -> Agent[None, str]:
    return Agent(FunctionModel(model), name="bad", capabilities=[RomancyDurability(**options)])


@pytest.mark.parametrize(
    ("error", "attempts", "said"),
    [
        (ModelHTTPError(503, "m"), 3, "503"),
        (ModelHTTPError(429, "m"), 3, "429"),
        (ModelHTTPError(404, "m"), 1, "404"),
        (UserError("no such thing"), 1, "UserError: no such thing"),
        (ValueError("a bug"), 3, "a bug"),
    ],
)
async def test_each_error_is_retried_by_one_layer_or_not_at_all(
    env: Environment, error: Exception, attempts: int, said: str, recwarn: pytest.WarningsRecorder
) -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        calls.append("model")
        raise error

    agent = failing(model, model_retry=QUICK)

    @workflow
    async def asked(ctx: WorkflowContext) -> str:
        return (await agent.run("hi")).output

    handle = await env.start(asked)
    with pytest.raises(WorkflowFailed, match=said):
        await handle.result()
    assert len(calls) == attempts
    gc.collect()
    assert not [w for w in recwarn if "never awaited" in str(w.message)]


async def test_tools_have_retries_and_time_limits_of_their_own(env: Environment) -> None:
    own: FunctionToolset[None] = FunctionToolset(id="own")

    @own.tool(metadata={"romancy": {"retry": NO_RETRY}})
    async def once(ctx: RunContext[None]) -> str:
        calls.append("once")
        raise ValueError("no")

    @own.tool
    async def slow(ctx: RunContext[None]) -> str:
        calls.append("slow")
        await asyncio.sleep(60)
        return "slow"

    @own.tool
    async def picky(ctx: RunContext[None]) -> str:
        calls.append("picky")
        if calls.count("picky") == 1:
            raise ModelRetry("try again")
        return "picky"

    @own.tool(metadata={"romancy": False})
    async def inline(ctx: RunContext[None]) -> str:
        assert WorkflowContext.current()
        return "inline"

    def run(tool: str) -> Any:
        turns: list[Any] = [[ToolCallPart(tool, {}, "c1")], [ToolCallPart(tool, {}, "c2")], "done"]
        agent = Agent(
            script(*turns if tool == "picky" else turns[1:]),
            name=tool,
            toolsets=[own],
            capabilities=[RomancyDurability(tool_retry=QUICK, tools={"slow": {"timeout": 0.01, "retry": NO_RETRY}})],
        )

        @workflow(name=tool)
        async def asked(ctx: WorkflowContext) -> str:
            return (await agent.run("hi")).output

        return asked

    for tool in ("once", "slow"):
        with pytest.raises(WorkflowFailed, match="no" if tool == "once" else "Timeout"):
            await (await env.start(run(tool))).result()
        assert calls.count(tool) == 1
    assert await (await env.start(run("picky"))).result() == "done"
    assert calls.count("picky") == 2
    handle = await env.start(run("inline"))
    assert await handle.result() == "done"
    assert [entry.operation.rpartition(":")[0] for entry in await steps(env, handle.instance_id)] == [
        "inline.model.request"
    ] * 2


async def test_cancelling_ends_the_run(env: Environment, impatient: None) -> None:
    async def hang(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        calls.append("model")
        await asyncio.sleep(60)
        return ModelResponse(parts=[TextPart("late")])

    agent = Agent(FunctionModel(hang), name="slow", capabilities=[RomancyDurability()])

    @workflow
    async def asked(ctx: WorkflowContext) -> str:
        return (await agent.run("hi")).output

    handle = await env.start(asked)
    await env.cancel(handle)
    assert await handle.status() == "cancelled"


# --- determinism ------------------------------------------------------------------------------------------------------
@dataclass
class Deps:
    city: str


async def test_functions_of_the_agent_run_without_threads_and_inputs_are_stable(env: Environment) -> None:
    agent = Agent(
        script([ToolCallPart("weather", {"days": {"mon", "tue", "wed"}}, "c1")], "sunny"),  # type: ignore[dict-item]
        name="weather",
        deps_type=Deps,
        capabilities=[RomancyDurability()],
    )

    @agent.instructions
    def where(ctx: RunContext[Deps]) -> str:
        return f"You are in {ctx.deps.city}."

    @agent.output_validator
    def check(output: str) -> str:
        return output.upper()

    @agent.tool
    async def weather(ctx: RunContext[Deps], days: set[str]) -> str:
        return f"sun in {ctx.deps.city}"

    @workflow
    async def asked(ctx: WorkflowContext) -> str:
        return (await agent.run("weather?", deps=Deps("Rome"))).output

    handle = await env.start(asked)
    assert await handle.result() == "SUNNY"
    done = await steps(env, handle.instance_id)
    assert [entry.operation.rpartition(":")[0] for entry in done] == [
        "weather.model.request",
        "weather.tool.weather",
        "weather.model.request",
    ]
    assert done[1].input == {"days": ["mon", "tue", "wed"]}
    assert replay(asked, await env.app.get_history(handle.instance_id)) == "completed"


# --- MCP --------------------------------------------------------------------------------------------------------------
async def test_mcp_servers_are_asked_in_steps(env: Environment) -> None:
    server = MCPServer("files")

    @server.tool()
    async def read_file(path: str) -> str:
        calls.append(f"read {path}")
        return f"content of {path}"

    agent = Agent(
        script([ToolCallPart("read_file", {"path": p}, p) for p in ("a", "b")], "read"),
        name="reader",
        toolsets=[MCPToolset(server, id="files")],
        capabilities=[RomancyDurability()],
    )

    @workflow
    async def reading(ctx: WorkflowContext) -> list[Any]:
        result = await agent.run("read")
        return [part.content for part in returned(result.all_messages())]

    handle = await env.start(reading)
    assert await handle.result() == ["content of a", "content of b"]
    await env.restart()
    names = [entry.operation.rpartition(":")[0] for entry in await steps(env, handle.instance_id)]
    assert names.count("reader.files.read_file") == 2
    assert {n for n in names if ":" in n} <= {"reader.files:tools", "reader.files:instructions"}
    assert replay(reading, await env.app.get_history(handle.instance_id)) == "completed"
    assert sorted(c for c in calls if c != "model") == ["read a", "read b"]


# --- live events ------------------------------------------------------------------------------------------------------
async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    for word in ("durable ", "agents ", "stream"):
        yield word


async def test_live_events_go_to_the_handler_in_the_step(env: Environment) -> None:
    seen: list[str] = []

    async def handler(ctx: RunContext[None], events: Any) -> None:
        step_id = ActivityContext.current().activity_id
        seen.extend([f"{event.event_kind} in {step_id}" async for event in events])

    durability = RomancyDurability(event_stream_handler=handler)
    agent = Agent(FunctionModel(stream_function=stream), name="poet", capabilities=[durability])

    @workflow
    async def poem(ctx: WorkflowContext) -> str:
        return (await agent.run("write")).output

    assert await (await env.start(poem)).result() == "durable agents stream"
    assert seen[0].startswith("part_start in poet.model.request")


async def test_model_steps_record_tokens_and_what_they_cost(env: Environment) -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(
            parts=[TextPart("hello")],
            usage=RequestUsage(input_tokens=1000, output_tokens=20),
            model_name="gpt-4o",
            provider_name="openai",
        )

    both = FunctionModel(answer, stream_function=stream, model_name="gpt-4o")
    agents = [
        Agent(both, name="whole", capabilities=[RomancyDurability()]),
        Agent(both, name="live", capabilities=[RomancyDurability(event_stream_handler=ignore)]),
    ]

    @workflow
    async def greeting(ctx: WorkflowContext) -> str | None:
        results = [await agent.run("hi") for agent in agents]
        return str(results[0].usage.cost)

    handle = await env.start(greeting)
    assert await handle.result() == "0.0027"
    used = [usage_of(entry.result) for entry in await steps(env, handle.instance_id)]
    assert str(used[0]) == "1,000 tokens in, 20 out, $0.0027"
    assert used[1] is not None


async def ignore(ctx: RunContext[None], events: Any) -> None:
    async for _ in events:
        pass


async def test_live_events_go_to_a_topic(env: Environment) -> None:
    import romancy

    if not hasattr(romancy, "emit"):
        pytest.skip("emit does not exist yet")
    agent = Agent(FunctionModel(stream_function=stream), name="poet", capabilities=[RomancyDurability(topic="tokens")])

    @workflow
    async def poem(ctx: WorkflowContext) -> str:
        return (await agent.run("write")).output

    handle: Any = await env.start(poem)
    assert await handle.result() == "durable agents stream"
    said = ""
    async for emitted in handle.emitted("tokens"):
        event = emitted.value
        if event["event_kind"] == "part_start":
            said += event["part"]["content"]
        elif event["event_kind"] == "part_delta":
            said += event["delta"]["content_delta"]
        if said == "durable agents stream":
            break


# --- messages ---------------------------------------------------------------------------------------------------------
dated = Agent(
    script(
        [ToolCallPart("get_order", {"order_id": "A"}, "c1"), ToolCallPart("nonsense", {}, "c2")],
        [ToolCallPart("final_result", {"id": "A", "total": 5}, "c3")],
        [ToolCallPart("final_result", {"id": "B", "total": 5}, "c4")],
    ),
    name="dated",
    toolsets=[tools],
    output_type=Order,
    capabilities=[RomancyDurability()],
)


@pytest.mark.sqlite
async def test_messages_are_the_same_on_replay(env: Environment) -> None:
    seen: list[bytes] = []

    @workflow
    async def talk(ctx: WorkflowContext) -> list[str]:
        first = await dated.run("which order?")
        await asyncio.sleep(60)
        second = await dated.run("and the other one?", message_history=first.all_messages())
        seen.append(second.all_messages_json())
        await asyncio.sleep(60)
        return [message.timestamp.isoformat() for message in first.new_messages() if message.timestamp]

    handle = await env.start(talk)
    await env.advance(60)
    await env.restart()
    await env.advance(60)
    times = await handle.result()
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert len(times) == 5, "also of the message after the last answer"
