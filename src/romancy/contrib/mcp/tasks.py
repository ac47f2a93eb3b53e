"""The tasks extension (`io.modelcontextprotocol/tasks`): a call that takes longer is a task.

The id of a task is that of its instance, so every process on the database knows it, and a restart changes nothing.

    working         the instance has not ended; the message says so if it is blocked
    input_required  it waits for an answer to a question; `inputRequests` has those that this client's user can answer
    completed       it completed or failed: the result is what the tool would have returned, perhaps an error
    cancelled       it was cancelled

The protocol uses `failed` for requests that broke, not for tools that answer with an error, so no task fails.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import require_client_extension
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolRequestParams, RequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from romancy.contrib.mcp.calls import Calls
from romancy.contrib.mcp.people import Question, answer, input_requests
from romancy.contrib.mcp.results import failure_words, refusal, result_of, status_words
from romancy.core.actor import acting_as
from romancy.core.model import FINAL, duration_us
from romancy.errors import InstanceNotFound, InvalidInput
from romancy.http.responses import error_answer
from romancy.http.serialize import time_text
from romancy.options import Retention
from romancy.records import Instance

T = TypeVar("T")
IDENTIFIER = "io.modelcontextprotocol/tasks"
POLL_MS, PEOPLE_MS = 1_000, 5_000
"""How often clients should ask: usually, and while a person is asked."""


class TaskParams(RequestParams):
    """Which task."""

    task_id: str = Field(alias="taskId", max_length=1000)


class UpdateParams(TaskParams):
    """Answers, by the keys of the input requests."""

    input_responses: dict[str, Any] = Field(alias="inputResponses")


class Tasks(Extension):
    """Answers calls that take longer with a task, and serves the methods for tasks."""

    identifier = IDENTIFIER

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def methods(self) -> Sequence[MethodBinding]:
        return (
            MethodBinding("tasks/get", TaskParams, self._get),
            MethodBinding("tasks/update", UpdateParams, self._update),
            MethodBinding("tasks/cancel", TaskParams, self._cancel),
        )

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        if params.name not in self._calls.offers or not _has_tasks(ctx):
            return await call_next(ctx)
        caller = self._calls.caller(ctx)
        try:
            instance = await self._calls.call(params, caller)
            if instance.status in FINAL:
                return result_of(instance)
            questions = await self._calls.questions(instance, caller)
        except Exception as error:
            return refusal(error, f"the tool {params.name!r}")
        return {"resultType": "task", **_task(instance, questions, self._calls.runtime.retention)}

    async def _get(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> HandlerResult:
        instance = await self._found(ctx, params)
        questions = await self._calls.questions(instance, self._calls.caller(ctx))
        found = _task(instance, questions, self._calls.runtime.retention)
        if found["status"] == "completed":
            found["result"] = result_of(instance).model_dump(by_alias=True, mode="json", exclude_none=True)
        elif found["status"] == "input_required":
            found["inputRequests"] = input_requests(questions)
        return found

    async def _update(self, ctx: ServerRequestContext[Any, Any], params: UpdateParams) -> HandlerResult:
        """Store the answers. Those to questions that are not open to this client, or no longer, are ignored."""
        instance, caller = await self._found(ctx, params), self._calls.caller(ctx)
        for question in await self._calls.questions(instance, caller):
            if question.can_be_answered and question.key in params.input_responses:
                with acting_as(caller.recorded):
                    await _told(answer(self._calls.runtime, question, params.input_responses[question.key]))
        return {}

    async def _cancel(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> HandlerResult:
        await self._found(ctx, params)
        await _told(self._calls.cancel(params.task_id, self._calls.caller(ctx)))
        return {}

    async def _found(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> Instance:
        require_client_extension(ctx, IDENTIFIER)
        return await _told(self._calls.find(params.task_id))


def _has_tasks(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether the client of this request understands tasks. What earlier ones declared does not count."""
    declared = ctx.session.client_capabilities
    known: Mapping[str, Any] = (declared.extensions if declared else None) or {}
    return IDENTIFIER in known and ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def _task(instance: Instance, questions: Sequence[Question], retention: Retention) -> dict[str, Any]:
    status, message = _status(instance, questions)
    changed = max([instance.started_at, *(wait.since for wait in instance.waits)])
    found: dict[str, Any] = {
        "taskId": instance.instance_id,
        "status": status,
        "createdAt": time_text(instance.started_at),
        "lastUpdatedAt": time_text(instance.finished_at or changed),
        "ttlMs": _ttl(instance, retention),
        "pollIntervalMs": PEOPLE_MS if questions else POLL_MS,
    }
    return found | ({"statusMessage": message} if message else {})


def _status(instance: Instance, questions: Sequence[Question]) -> tuple[str, str]:
    """Return the status of a task, and what to say about it."""
    if instance.status == "completed":
        return "completed", ""
    if instance.status in FINAL:
        return ("completed" if instance.status == "failed" else "cancelled"), failure_words(instance)
    return ("input_required" if questions else "working"), status_words(instance, questions)


def _ttl(instance: Instance, retention: Retention) -> int | None:
    """Return how long the task is kept from its start, in milliseconds. While it has not ended, it is kept."""
    kept = retention.failed if instance.status == "failed" else retention.instances
    if instance.finished_at is None or kept is None:
        return None
    return int((instance.finished_at - instance.started_at).total_seconds() * 1000) + duration_us(kept) // 1000


async def _told(work: Awaitable[T]) -> T:
    """Return what comes of it, or raise the error as the protocol tells it."""
    try:
        return await work
    except InstanceNotFound:
        raise MCPError(INVALID_PARAMS, "there is no such task: its id is wrong, or it is no longer kept") from None
    except InvalidInput as error:
        raise MCPError(INVALID_PARAMS, str(error)) from None
    except Exception as error:
        about = json.loads(error_answer(error, "a request for a task").body or b"{}")
        raise MCPError(INTERNAL_ERROR, about["error"], about) from error
