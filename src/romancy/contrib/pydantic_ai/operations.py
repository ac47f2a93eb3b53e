"""Runs the operations of pydantic-ai as steps of the workflow."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, Literal, TypedDict, TypeVar, cast

from pydantic_ai.durable_exec import (
    BoundDurableOperation,
    CallableOperationBackend,
    CapabilityOperationId,
    DurableOperation,
    DurableOperationId,
    EventStreamHandlerId,
    ModelCancelSuspendedResponseId,
    ModelCompactMessagesId,
    ModelRequestId,
    ResultCodec,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    ToolsetGetInstructionsId,
    ToolsetGetToolsId,
    ToolsetValidateToolArgumentsId,
)
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    ModelRetry,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UserError,
)
from pydantic_ai.messages import ModelResponse

from romancy.api.context import WorkflowContext
from romancy.api.step import step
from romancy.contrib.pydantic_ai.visible import visible
from romancy.core.model import Duration
from romancy.core.retry import RetryPolicy
from romancy.errors import ActivityError, TerminalError

ParamsT = TypeVar("ParamsT")
WireT = TypeVar("WireT")
ResultT = TypeVar("ResultT")

FINAL = (
    UserError,
    ModelRetry,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    ModelRequestRejectedError,
    ModelQuotaExceededError,
)
"""Errors that the same request would raise again. They are not retried, and the workflow sees them as they are."""
_PASSING = (408, 409, 425, 429)
"""HTTP statuses below 500 that are worth another attempt."""
_STREAMS = "with a topic or an event_stream_handler, the model is asked to stream: does it support that?"
_MODEL_ERRORS = frozenset({"TerminalError", "ModelHTTPError", "ModelAPIError"})


class StepOptions(TypedDict, total=False):
    """How the steps of a role or of a tool are run."""

    retry: RetryPolicy | None
    timeout: Duration | None


ToolOptions = StepOptions | Literal[False]
"""`False`: the tool is not a step. It runs in the workflow, so it must be deterministic, like workflow code."""


class Steps(CallableOperationBackend[StepOptions]):
    """Runs each operation as a step. What the step shows as its input takes the place of pydantic-ai's cache key."""

    def __init__(self, agent: str, default_model: str | None, config: RoleBasedOperationConfig[StepOptions]) -> None:
        super().__init__(namer=Names(agent, default_model), config=config)

    def bind(
        self, operation: DurableOperation[ParamsT, WireT, ResultT]
    ) -> BoundDurableOperation[ParamsT, WireT, ResultT]:
        priced = _Priced(operation.result_codec)
        return super().bind(dataclasses.replace(operation, cache_identity=_Shown(), result_codec=priced))

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: StepOptions,
    ) -> object:
        async def run() -> Any:
            try:
                return await body()
            except ModelHTTPError as error:
                if error.status_code < 500 and error.status_code not in _PASSING and not isinstance(error, FINAL):
                    raise TerminalError(f"{type(error).__name__}: {error}") from error
                raise
            except (AssertionError, NotImplementedError) as error:
                if isinstance(operation_id, ModelRequestId) and operation_id.streaming:
                    raise UserError(f"{error}; {_STREAMS}") from error
                raise

        try:
            return await step(
                WorkflowContext.current(),
                name,
                run,
                result=cast(Any, Any),
                input=cache_key[0],
                retry=config.get("retry"),
                timeout=config.get("timeout"),
                raises=FINAL,
            )
        except ActivityError as error:
            if isinstance(operation_id, ModelRequestId) and _is_of_model(error):
                # What pydantic-ai's own error handling knows, such as ModelFallback.
                raise ModelAPIError(operation_id.model_name, str(error)) from error
            raise


def _is_of_model(error: ActivityError) -> bool:
    return error.error_type in _MODEL_ERRORS or error.error_type.startswith(("_HTTPModel", "Model"))


class _Shown:
    """Projects the parameters of an operation to what people see of them."""

    def project(self, params: object) -> tuple[object, ...]:
        return (visible(params),)


class _Priced(Generic[ResultT]):
    """Adds what a request cost to the usage of its response, where pydantic-ai knows the price of the model."""

    def __init__(self, codec: ResultCodec[ResultT]) -> None:
        self._codec = codec

    def dump(self, value: ResultT) -> object:
        response = getattr(value, "response", value)
        if isinstance(response, ModelResponse) and response.usage.cost is None and response.model_name:
            with contextlib.suppress(LookupError, ValueError):  # of an unknown model
                response.usage.cost = response.cost().total_price
        return self._codec.dump(value)

    def load(self, payload: object) -> ResultT:
        return self._codec.load(payload)


@dataclasses.dataclass(frozen=True)
class _Name:
    operation_name: str
    display_name: str | None = None


class Names:
    """Names steps after the agent and what it does. Histories contain these names: they must not change."""

    def __init__(self, agent: str, default_model: str | None) -> None:
        self._agent, self._default_model = agent, default_model

    def operation_name(self, operation_id: DurableOperationId) -> str:
        return f"{self._agent}.{self._within_agent(operation_id)}"[:200]

    def invocation_name(self, operation_id: DurableOperationId, *, label: str | None) -> Any:
        name = self.operation_name(operation_id)
        return _Name(name if label is None else f"{name}{label}"[:200])

    def _within_agent(self, operation_id: DurableOperationId) -> str:
        match operation_id:
            case ModelRequestId():
                # The same with and without streaming, which can be turned on and off while instances are running.
                return f"model.request{self._model(operation_id.model_id)}"
            case ModelCompactMessagesId():
                return f"model.compact{self._model(operation_id.model_id)}"
            case ModelCancelSuspendedResponseId():
                return f"model.cancel{self._model(operation_id.model_id)}"
            case ToolsetCallToolId():
                return f"{_toolset(operation_id.toolset_id)}."
            case ToolsetValidateToolArgumentsId():
                return f"{_toolset(operation_id.toolset_id)}:validate."
            case ToolsetGetToolsId():
                return f"{_toolset(operation_id.toolset_id)}:tools"
            case ToolsetGetInstructionsId():
                return f"{_toolset(operation_id.toolset_id)}:instructions"
            case EventStreamHandlerId():
                return "events"
            case CapabilityOperationId():
                return f"{operation_id.capability_id}:{operation_id.operation}"
            case _:
                return type(operation_id).__name__

    def _model(self, model_id: str | None) -> str:
        return "" if model_id is None or model_id == self._default_model else f".{model_id}"


def _toolset(id: str) -> str:
    return "tool" if id == "<agent>" else id


def tool_options(
    tool: object | None, name: str, defaults: StepOptions, named: Mapping[str, ToolOptions]
) -> ToolOptions:
    """Return the options of a tool: those of its metadata or given by its name, over those of all tools."""
    metadata: Mapping[str, Any] = getattr(getattr(tool, "tool_def", None), "metadata", None) or {}
    own: Any = metadata.get("romancy", named.get(name))
    if own is None:
        return defaults
    if own is False:
        return False
    if not isinstance(own, Mapping) or not set(cast("Mapping[str, Any]", own)) <= {"retry", "timeout"}:
        raise UserError(
            f"the tool {name!r} has invalid options for romancy: {own!r}; write "
            "metadata={'romancy': {'retry': RetryPolicy(...), 'timeout': 30}}, or False"
        )
    return cast("StepOptions", {**defaults, **cast("StepOptions", own)})
