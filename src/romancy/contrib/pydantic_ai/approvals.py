"""`approve_tools`: ask people whether an agent may call the tools that need approval."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.messages import ToolCallPart

from romancy.api.approvals import Invitation, Question, ask
from romancy.api.context import WorkflowContext
from romancy.contrib.pydantic_ai.visible import plain
from romancy.core.model import Duration
from romancy.core.questions import LONGEST_TEXT, LONGEST_TITLE
from romancy.errors import WaitTimeout


@dataclass
class ToolApproval:
    """What people answer when they are asked about the call of a tool."""

    approved: bool
    reason: str = ""


async def approve_tools(
    ctx: WorkflowContext,
    requests: DeferredToolRequests,
    /,
    *,
    people: Sequence[str],
    expires_in: Duration | None = None,
    deliver: Callable[[WorkflowContext, Invitation], Awaitable[Any]] | None = None,
) -> DeferredToolResults:
    """Ask people whether each tool call may be made, and wait for all answers. The first answer to each counts.

    `deliver` is an activity that sends an invitation's link: `deliver=send_mail`. Without it, people answer in the
    viewer or by `app.answer_question`. A call that nobody decided on before `expires_in` is denied.

    >>> while isinstance(result.output, DeferredToolRequests):
    ...     answers = await approve_tools(ctx, result.output, people=["ann@shop.example"])
    ...     result = await agent.run(message_history=result.all_messages(), deferred_tool_results=answers)

    Calls that are to be made elsewhere (`requests.calls`) are yours to answer: add them to `calls` of the result.
    """
    decisions = await asyncio.gather(*(_decide(ctx, call, people, expires_in, deliver) for call in requests.approvals))
    calls = (call.tool_call_id for call in requests.approvals)
    return DeferredToolResults(approvals=dict(zip(calls, decisions, strict=True)))


async def _decide(
    ctx: WorkflowContext,
    call: ToolCallPart,
    people: Sequence[str],
    expires_in: Duration | None,
    deliver: Callable[[WorkflowContext, Invitation], Awaitable[Any]] | None,
) -> ToolApproved | ToolDenied:
    question: Question[ToolApproval] = await ask(
        ctx,
        ToolApproval,
        title=f"Call {call.tool_name}?"[:LONGEST_TITLE],
        people=people,
        text=_arguments(call),
        expires_in=expires_in,
    )
    if deliver is not None:
        await asyncio.gather(*(deliver(ctx, invitation) for invitation in question.invitations.values()))
    try:
        answer = await question.answer()
    except WaitTimeout:
        return ToolDenied("Nobody approved this call in time.")
    if answer.data.approved:
        return ToolApproved()
    return ToolDenied(answer.data.reason or f"{answer.by} denied this call.")


def _arguments(call: ToolCallPart) -> str:
    return json.dumps(plain(call.args_as_dict()), indent=1, ensure_ascii=False)[:LONGEST_TEXT]
