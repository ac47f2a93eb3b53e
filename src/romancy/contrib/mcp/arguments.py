"""The arguments of our own tools, as models: their schemas, and what is said if they don't fit."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

from mcp_types import Tool, ToolAnnotations
from pydantic import BaseModel, ConfigDict, ValidationError

from romancy.errors import InvalidInput

M = TypeVar("M", bound=BaseModel)


class Arguments(BaseModel):
    """The arguments of a tool. Its docstring describes the tool."""

    model_config = ConfigDict(extra="forbid")


def describe(name: str, model: type[BaseModel], *, read_only: bool, description: str | None = None) -> Tool:
    """Return a tool as clients see it."""
    schema = model.model_json_schema()
    schema = {key: value for key, value in schema.items() if key not in ("title", "description")}
    return Tool(
        name=name,
        description=description or inspect.getdoc(model),
        input_schema=schema,
        annotations=ToolAnnotations(read_only_hint=read_only),
    )


def read(model: type[M], given: Mapping[str, Any]) -> M:
    """Validate arguments. The error names the first one that does not fit."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))[:100]
        known = ", ".join(model.model_fields) or "none"
        raise InvalidInput(f"the argument {where!r} does not fit: {first['msg']}; known names: {known}") from None
