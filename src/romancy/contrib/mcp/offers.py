"""Which workflows are offered as tools, and how: their names, descriptions and arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar, overload
from weakref import WeakKeyDictionary

from mcp_types import Tool

from romancy.api.workflow import Workflow, definition_of
from romancy.core.model import Duration, duration_us
from romancy.core.signature import Signature
from romancy.core.versions import bare_name
from romancy.errors import InvalidInput
from romancy.http.responses import to_json

P = ParamSpec("P")
R = TypeVar("R")
RESERVED = ("get_result", "cancel")
"""The tools that every server of tools has besides."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@dataclass(frozen=True, slots=True)
class Mark:
    """How a workflow wants to be offered."""

    name: str | None = None
    description: str | None = None
    answer_within: float | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """A workflow as a tool."""

    name: str
    workflow: Workflow[..., Any]
    tool: Tool
    answer_within: float
    """Seconds a call waits for the end before it answers that the workflow is still running."""

    @property
    def signature(self) -> Signature:
        return definition_of(self.workflow).signature


_marks: WeakKeyDictionary[Workflow[..., Any], Mark] = WeakKeyDictionary()


@overload
def tool(wf: Workflow[P, R], /) -> Workflow[P, R]: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, answer_within: Duration | None = None
) -> Callable[[Workflow[P, R]], Workflow[P, R]]: ...
def tool(
    wf: Any = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    answer_within: Duration | None = None,
) -> Any:
    """Mark a workflow as a tool for `romancy mcp`. Put it above `@workflow`; the workflow itself is not changed.

    >>> @tool(answer_within=2)
    ... @workflow
    ... async def refund(ctx: WorkflowContext, order_id: str) -> str:
    ...     \"\"\"Refund an order that was paid.\"\"\"

    The name and the description are those of the workflow unless given; models choose tools by their descriptions.
    """
    if name is not None:
        _check_name(name)
    mark = Mark(name, description, None if answer_within is None else _seconds(answer_within))

    def put(wf: Any) -> Any:
        if not isinstance(wf, Workflow):
            raise TypeError(f"@tool is put on a workflow, not on {wf!r}; put it above @workflow")
        _marks[wf] = mark
        return wf  # pyright: ignore[reportUnknownVariableType]

    return put if wf is None else put(wf)


def is_marked(wf: Workflow[..., Any]) -> bool:
    return wf in _marks


def make_offers(workflows: Sequence[Workflow[..., Any]], answer_within: Duration) -> Mapping[str, Offer]:
    """Return the tools for workflows, by name. Raise an error if one can't be a tool."""
    if isinstance(workflows, Workflow) or any(not isinstance(wf, Workflow) for wf in workflows):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"tools(app, [...]) takes a list of workflows, not {workflows!r}")
    usual = _seconds(answer_within)
    offers: dict[str, Offer] = {}
    for wf in workflows:
        offer = _offer(wf, usual)
        if offer.name in offers:
            raise ValueError(f"two workflows would be the tool {offer.name!r}; leave one out, or use @tool(name=...)")
        offers[offer.name] = offer
    return offers


def _offer(wf: Workflow[..., Any], usual: float) -> Offer:
    mark, definition = _marks.get(wf, Mark()), definition_of(wf)
    name = _check_name(mark.name or bare_name(wf.name))
    if definition.on_event:
        raise ValueError(f"workflow {wf.name!r} is started by events, so it can't be a tool")
    about = mark.description or inspect.getdoc(definition.fn) or f"Run the workflow {bare_name(wf.name)}."
    shown = Tool(name=name, description=about, input_schema=definition.signature.json_schema())
    return Offer(name, wf, shown, usual if mark.answer_within is None else mark.answer_within)


def _check_name(name: str) -> str:
    if name in RESERVED:
        raise ValueError(f"{name!r} is a tool of its own; choose another one with @tool(name=...)")
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} can't be the name of a tool: these have 1 to 128 letters, digits and `_.-`; use @tool(name=...)"
        )
    return name


def _seconds(answer_within: Duration) -> float:
    return duration_us(answer_within, "answer_within") / 1e6


def read_arguments(offer: Offer, given: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return JSON arguments as the workflow takes them. Raise `InvalidInput` if they don't fit."""
    needed: Sequence[str] = offer.tool.input_schema["required"]
    missing = [name for name in needed if name not in given]
    unknown = [name for name in given if name not in offer.signature.names]
    if missing or unknown:
        says = [f"without {', '.join(map(repr, missing))}"] if missing else []
        says += (
            [f"with {', '.join(repr(name[:100]) for name in unknown[:5])}, which it does not have"] if unknown else []
        )
        known = ", ".join(offer.signature.names) or "none"
        raise InvalidInput(f"{offer.name} was called {' and '.join(says)}; its arguments: {known}")
    return offer.signature.decode_given(to_json(dict(given)))
