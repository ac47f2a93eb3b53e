"""A workflow's signature as a form, the skeleton of a value, and the source of a workflow's function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from romancy.core.registry import WorkflowDefinition

_NOT_FILES = ("<string>", "<stdin>")
"""Names that unrelated code shares: since Python 3.13, the first leads to the source given to `python -c`."""
_LOCATION = re.compile(r"(?P<file>.*):(?P<line>\d+) in .*", re.DOTALL)
_MAX_DEPTH = 6
"""Models can contain themselves."""


@dataclass(frozen=True)
class Source:
    """The numbered lines of a function; `marked` are those where something waits now, `failed` where it failed."""

    file: str
    lines: Sequence[tuple[int, str]]
    marked: Collection[int]
    failed: int | None = None


def fields_of(definition: WorkflowDefinition) -> list[dict[str, Any]]:
    """The parameters with their JSON schemas; a parameter without one ({}) is entered as JSON."""
    _, *parameters = inspect.signature(inspect.unwrap(definition.fn)).parameters.values()
    return [_field(definition, parameter) for parameter in parameters]


def _field(definition: WorkflowDefinition, parameter: inspect.Parameter) -> dict[str, Any]:
    schema = schema_of(definition.signature.annotations[parameter.name])
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


def schema_of(annotation: Any) -> dict[str, Any]:
    try:
        return TypeAdapter[Any](annotation).json_schema()
    except Exception:  # custom types may have no schema: people enter JSON
        return {}


_EMPTY: Mapping[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}


def skeleton(schema: Mapping[str, Any], defs: Mapping[str, Any] | None = None, depth: int = 0) -> Any:
    """A value with the required fields of a schema, each the empty value of its type; None where it has no type."""
    known = schema.get("$defs", {}) if defs is None else defs
    if "$ref" in schema:
        return skeleton(known.get(schema["$ref"].rpartition("/")[2], {}), known, depth + 1)
    if "default" in schema or "const" in schema:
        return schema.get("default", schema.get("const"))
    if "enum" in schema:
        return schema["enum"][0]
    choices: list[dict[str, Any]] = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf") or []
    if choices:
        return None if {"type": "null"} in choices else skeleton(choices[0], known, depth + 1)
    if schema.get("type") != "object" or depth > _MAX_DEPTH:
        return deepcopy(_EMPTY.get(schema.get("type", "")))
    parts = schema.get("properties", {})
    return {name: skeleton(parts.get(name, {}), known, depth + 1) for name in schema.get("required", ())}


def source_of(
    definition: WorkflowDefinition, locations: Collection[str], failed: tuple[int, str] | None = None
) -> Source | None:
    """The source of the workflow's function, or None if it is not available. Reads no other file.

    `failed`: the number of the line at which it failed, and what that line was then.
    """
    fn: Any = inspect.unwrap(definition.fn)
    if fn.__code__.co_filename in _NOT_FILES:
        return None
    try:
        lines, first = inspect.getsourcelines(fn)
        file = inspect.getsourcefile(fn) or ""
    except (OSError, TypeError):
        return None
    found = [_LOCATION.fullmatch(location) for location in locations]
    marked = {int(m["line"]) for m in found if m and m["file"] in (file, fn.__code__.co_filename)}
    numbered = [(first + i, line.rstrip("\n")) for i, line in enumerate(lines)]
    is_same = failed in {(number, line.strip()) for number, line in numbered}
    return Source(file, numbered, marked, failed[0] if failed and is_same else None)
