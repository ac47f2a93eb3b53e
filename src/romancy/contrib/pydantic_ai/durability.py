"""`RomancyDurability`: makes the runs of an agent durable inside workflows."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from pydantic import TypeAdapter
from pydantic_ai._utils import disable_threads
from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.capabilities.abstract import WrapRunHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationId,
    RoleBasedOperationConfig,
    conversation_id_from_run_id,
)
from pydantic_ai.messages import AgentStreamEvent, ModelMessage, ModelRequest
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import RunContext

from romancy.api.context import ActivityContext, WorkflowContext
from romancy.contrib.pydantic_ai.operations import StepOptions, Steps, ToolOptions, tool_options
from romancy.core.model import Duration, duration_us
from romancy.core.retry import RetryPolicy, check_policy
from romancy.errors import TerminalError

_EVENT: TypeAdapter[AgentStreamEvent] = TypeAdapter(AgentStreamEvent)


def _terminal(error: Exception) -> BaseException:
    return TerminalError(f"the result can't be stored: {error}")


class RomancyDurability(BaseDurabilityCapability[Any]):
    """Runs an agent's model requests, tools and MCP servers as recorded steps, inside workflows.

    `model_retry` and `tool_retry` say how often steps are retried, and `timeout` limits each attempt. A tool can have
    its own: `@tools.tool(metadata={"romancy": {"retry": NO_RETRY, "timeout": 30}})`, or `tools={"refund": {...}}` here.
    With `topic`, model events are emitted while the model responds: read them with `handle.emitted(topic)`.

    `models` are further models that a run may name, `event_stream_handler` is called in the step for each event, and
    `name` replaces the agent's name in those of its steps.

    >>> agent = Agent("openai:gpt-5", name="support", toolsets=[tools], capabilities=[RomancyDurability()])
    """

    engine_spec: ClassVar[DurabilityEngineSpec] = DurabilityEngineSpec(
        engine_name="Romancy",
        durable_unit_noun="step",
        durable_container_noun="workflow",
        codec=JSON_CODEC,
        serialization_failure=_terminal,
        wrapped_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        # Steps run on another event loop than the workflow, which can leave memory between two of them: a session that
        # one step opens can't be closed by the workflow.
        toolset_lifecycles={
            "function": "enter-outside-durable",
            "mcp": "enter-outside-durable",
            "dynamic": "enter-never",
        },
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        tool_config_key="romancy",
    )

    def __init__(
        self,
        *,
        model_retry: RetryPolicy | None = None,
        tool_retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        topic: str | None = None,
        model_timeout: Duration | None = None,
        tool_timeout: Duration | None = None,
        tools: Mapping[str, ToolOptions] | None = None,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[Any] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        for policy in (model_retry, tool_retry):
            if policy is not None:
                check_policy(policy, "RomancyDurability")
        for limit in (timeout, model_timeout, tool_timeout):
            if limit is not None:
                duration_us(limit, "timeout")
        self._model_options = StepOptions(
            retry=model_retry, timeout=timeout if model_timeout is None else model_timeout
        )
        self._tool_options = StepOptions(retry=tool_retry, timeout=timeout if tool_timeout is None else tool_timeout)
        self._tools: Mapping[str, ToolOptions] = tools or {}
        self._topic = topic

    @property
    def in_durable_context(self) -> bool:
        return _workflow() is not None

    def get_durable_operation_backend(self) -> Steps:
        config = RoleBasedOperationConfig[StepOptions](
            model=self._model_options,
            event=self._tool_options,
            capability=self._tool_options,
            tool=self._tool_options,
            resolve_tool=self._resolve_tool,
        )
        return Steps(self.name, self.default_model_id, config)

    def _resolve_tool(self, operation_id: DurableOperationId, tool: object | None, name: str) -> ToolOptions:
        return tool_options(tool, name, self._tool_options, self._tools)

    # --- what must be the same on replay ------------------------------------------------------------------------------
    def get_default_run_id(self) -> str | None:
        ctx = _workflow()
        return None if ctx is None else str(ctx.uuid4())

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    def get_run_clock(self) -> Callable[[], datetime] | None:
        ctx = _workflow()
        return None if ctx is None else ctx.now

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        ctx = _workflow()
        return None if ctx is None else ctx.now()

    async def wrap_run(self, ctx: RunContext[Any], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Run `def` functions that pydantic-ai calls in the workflow, such as instructions, without a thread."""
        if not self.in_durable_context:
            return await handler()
        with disable_threads():
            result = await handler()
        _date(result.new_messages(), ctx.run_id)
        return result

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Date what is about to be sent. pydantic-ai asks the clock of the machine, which differs on replay."""
        _date(ctx.messages, ctx.run_id)
        return await super().before_model_request(ctx, request_context)

    # --- live events --------------------------------------------------------------------------------------------------
    @property
    def has_wrap_run_event_stream(self) -> bool:
        return super().has_wrap_run_event_stream or (self._topic is not None and self.in_durable_context)

    def _model_stream_event_handler(self) -> EventStreamHandler[Any] | None:
        """Return what gets the model events, in its step."""
        handler = super()._model_stream_event_handler()
        return handler if self._topic is None else _Emitter(self._topic, handler)


def _date(messages: Sequence[ModelMessage], run_id: str | None) -> None:
    """Give the last message the time of the workflow, unless it is an answer: that was dated in its step."""
    ctx, last = _workflow(), messages[-1] if messages else None
    if ctx is None or not isinstance(last, ModelRequest):
        return
    last.timestamp = now = ctx.now()
    if last.run_id == run_id:  # else it is of an earlier run, and sent again
        for part in last.parts:
            if getattr(part, "timestamp", None) is not None:
                part.timestamp = now  # type: ignore[union-attr]


class _Emitter:
    """Emits the events of a model while it answers."""

    def __init__(self, topic: str, handler: EventStreamHandler[Any] | None) -> None:
        self._topic, self._handler = topic, handler

    async def __call__(self, run: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
        if self._handler is not None:
            await self._handler(run, self._emitted(events))
        async for _ in self._emitted(events):  # the rest, if the handler stopped early
            pass

    async def _emitted(self, events: AsyncIterable[AgentStreamEvent]) -> AsyncIterable[AgentStreamEvent]:
        from romancy import emit

        ctx = ActivityContext.current()
        async for event in events:
            await emit(ctx, _EVENT.dump_python(event, mode="json"), topic=self._topic)
            yield event


def _workflow() -> WorkflowContext | None:
    """Return the context of the workflow whose code is running, if any."""
    try:
        return WorkflowContext.current()
    except RuntimeError:
        return None
