"""What people see as the input of a step: the last message to a model, or the arguments of a tool.

It is also compared on replay, so it only contains what every replay repeats: no timestamps, no generated ids, and no
instructions, which often contain the date. Earlier messages are left out: they are the inputs and results of earlier
steps, and a long conversation would be stored again with every request.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, cast

from pydantic import BaseModel
from pydantic_ai.durable_exec import (
    CapabilityOperationParams,
    DynamicToolsetCallToolParams,
    EventStreamHandlerParams,
    ModelCompactMessagesParams,
    ModelRequestParams,
    ToolsetCallToolParams,
)
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    RetryFeedbackPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_core import to_jsonable_python

_LONGEST = 2_000
"""Characters of a text that are shown."""
_DEEPEST = 20


def visible(params: object) -> Any:
    """Return what to show of an operation's parameters, or None."""
    if isinstance(params, ModelRequestParams):
        return _last_request(params.messages)
    if isinstance(params, ModelCompactMessagesParams):
        return {"messages": len(params.request_context.messages)}
    if isinstance(params, (ToolsetCallToolParams, DynamicToolsetCallToolParams)):
        return plain(params.tool_args)
    if isinstance(params, EventStreamHandlerParams):
        return params.event.event_kind
    if isinstance(params, CapabilityOperationParams):
        return plain({k: v for k, v in params.arguments.items() if not _is_context(v)})
    return None


def _is_context(value: object) -> bool:
    return type(value).__name__.endswith("RunContext")


def _last_request(messages: Sequence[ModelMessage]) -> Any:
    last = next((message for message in reversed(messages) if isinstance(message, ModelRequest)), None)
    if last is None:
        return None
    seen: dict[str, Any] = {}
    for part in last.parts:
        if isinstance(part, UserPromptPart):
            seen.setdefault("prompt", []).append(plain(part.content))
        elif isinstance(part, ToolReturnPart):
            seen.setdefault("tool_returns", []).append({part.tool_name: plain(part.content)})
        elif isinstance(part, RetryFeedbackPart):
            seen.setdefault("retry", []).append(plain(part.content))
    if len(seen.get("prompt", ())) == 1:
        seen["prompt"] = seen["prompt"][0]
    return seen or None


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON that is the same in every process: shortened, and without what JSON can't hold."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}... ({len(value):,} characters)"
    if isinstance(value, (bytes, bytearray)):
        return f"<{len(value):,} bytes>"
    if isinstance(value, BinaryContent):
        return f"<{value.media_type}, {len(value.data):,} bytes>"
    if depth > _DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        return {str(k): plain(v, depth + 1) for k, v in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, AbstractSet):
        return sorted((plain(v, depth + 1) for v in cast("AbstractSet[Any]", value)), key=json.dumps)
    if isinstance(value, (list, tuple)):
        return [plain(v, depth + 1) for v in cast("Sequence[Any]", value)]
    if isinstance(value, BaseModel):
        return {name: plain(getattr(value, name), depth + 1) for name in type(value).model_fields}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field.name for field in dataclasses.fields(value) if field.name not in ("timestamp", "tool_call_id"))
        return {name: plain(getattr(value, name), depth + 1) for name in fields}
    return to_jsonable_python(value, fallback=lambda v: f"<{type(v).__name__}>")
