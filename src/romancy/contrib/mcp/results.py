"""What a client is told about an instance: its result, its error, or that it is still running."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from mcp_types import CallToolResult, TextContent

from romancy.contrib.mcp.people import Question, in_words, shown
from romancy.core.model import FINAL
from romancy.errors import InstanceNotFound
from romancy.http.responses import error_answer, to_json
from romancy.records import Instance

INSTANCE_ID = "romancy/instance_id"
"""The key in `_meta`: of a call, the id that its instance is to have; of a result, the id that it has."""


def result_of(instance: Instance, questions: Sequence[Question] = ()) -> CallToolResult:
    """Return what became of an instance, as the result of a tool."""
    if instance.status == "completed":
        return _completed(instance)
    if instance.status in FINAL:
        return _without_result(instance)
    return _goes_on(instance, questions)


def _completed(instance: Instance) -> CallToolResult:
    output = plain(instance.output)
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    structured = cast("dict[str, Any]", output) if isinstance(output, dict) else {"result": output}
    return _told(instance, text, structured)


def _without_result(instance: Instance) -> CallToolResult:
    said = failure_words(instance)
    facts = {"instance_id": instance.instance_id, "status": instance.status, "error": said}
    return _told(instance, said, facts, is_error=True)


def _goes_on(instance: Instance, questions: Sequence[Question]) -> CallToolResult:
    id = instance.instance_id
    words = [
        f"The workflow {instance.workflow!r} is still running, as instance {id!r}.",
        status_words(instance, questions),
        f"Call get_result with instance_id {id!r} for its result; don't start it again.",
    ]
    facts: dict[str, Any] = {"instance_id": id, "status": instance.status, "questions": list(map(shown, questions))}
    if instance.view is not None:
        facts["view"] = plain(instance.view)
    return _told(instance, " ".join(filter(None, words)), facts)


def status_words(instance: Instance, questions: Sequence[Question]) -> str:
    """Say what an instance that has not ended does; empty if there is nothing special."""
    if instance.status == "blocked":
        why = instance.error["message"] if instance.error else "no reason is recorded"
        return f"It is blocked, and does nothing until an operator fixes the cause: {_first_line(why)}"
    said = in_words(questions)
    if said:
        return said[0].upper() + said[1:] + "."
    return "" if instance.description is None else f"It says: {instance.description}"


def failure_words(instance: Instance) -> str:
    """Say how an instance ended without a result. Without the traceback, which is for operators."""
    how = "was cancelled" if instance.status == "cancelled" else "failed"
    error = instance.error
    why = (
        ""
        if error is None
        else f": {error['type']}: {error['message']}"
        if how == "failed"
        else f": {error['message']}"
    )
    return f"The workflow {instance.workflow!r} {how}{why}"


def refusal(error: Exception, what: str) -> CallToolResult:
    """Return an error as the result of a tool, so that the model can read it. Unexpected ones are only logged."""
    about = json.loads(error_answer(error, what).body or b"{}")
    if isinstance(error, InstanceNotFound):  # not the words of the HTTP API
        about["error"] = f"no instance has the id {error.instance_id!r}; list_instances lists all instances"
    return CallToolResult(content=[TextContent(text=about["error"])], structured_content=about, is_error=True)


def _told(instance: Instance, text: str, facts: dict[str, Any], *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(text=text)],
        structured_content=facts,
        is_error=is_error,
        _meta={INSTANCE_ID: instance.instance_id},
    )


def plain(value: Any) -> Any:
    """Return a stored value as strict JSON: NaN becomes text."""
    return json.loads(to_json(value))


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
