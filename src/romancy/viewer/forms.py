"""A workflow's signature as a form, and the source of its function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from romancy.core.registry import WorkflowDefinition

_LOCATION = re.compile(r"(?P<file>.*):(?P<line>\d+) in .*", re.DOTALL)


@dataclass(frozen=True)
class Source:
    """A function's lines by number; `marked`: those where something waits now."""

    file: str
    lines: Sequence[tuple[int, str]]
    marked: Collection[int]


def fields_of(definition: WorkflowDefinition) -> list[dict[str, Any]]:
    """Each parameter with its JSON schema; one that has none ({}) is asked for as JSON."""
    _, *parameters = inspect.signature(inspect.unwrap(definition.fn)).parameters.values()
    return [_field(definition, parameter) for parameter in parameters]


def _field(definition: WorkflowDefinition, parameter: inspect.Parameter) -> dict[str, Any]:
    schema = _schema(definition.signature.annotations[parameter.name])
    if parameter.kind is parameter.VAR_POSITIONAL:
        schema = {"type": "array", "items": schema, "$defs": schema.pop("$defs", {})}
    elif parameter.kind is parameter.VAR_KEYWORD:
        schema = {}
    required = parameter.default is parameter.empty and parameter.kind not in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
    )
    found = {"name": parameter.name, "kind": parameter.kind.name.lower(), "schema": schema, "required": required}
    if parameter.default is not parameter.empty:
        found["default"] = to_jsonable_python(parameter.default, fallback=str)
    return found


def _schema(annotation: Any) -> dict[str, Any]:
    try:
        return TypeAdapter[Any](annotation).json_schema()
    except Exception:  # types with a form of their own have no schema: people write JSON
        return {}


def source_of(definition: WorkflowDefinition, locations: Collection[str]) -> Source | None:
    """The workflow's function; None where its source is not at hand. No other file is ever read."""
    fn: Any = inspect.unwrap(definition.fn)
    try:
        lines, first = inspect.getsourcelines(fn)
        file = inspect.getsourcefile(fn) or ""
    except (OSError, TypeError):
        return None
    found = [_LOCATION.fullmatch(location) for location in locations]
    marked = {int(m["line"]) for m in found if m and m["file"] in (file, fn.__code__.co_filename)}
    numbered = [(first + i, line.rstrip("\n")) for i, line in enumerate(lines)]
    return Source(file, numbered, marked)
