"""The input of a step as JSON: shown to people, and compared on replay. It is never read back."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from romancy.errors import InvalidInput


def encode_input(value: object, what: str) -> bytes:
    """Return a value as JSON that is the same in every process; raise `InvalidInput` if it has no JSON form."""
    try:
        return _encode(value).encode()
    except (TypeError, ValueError, RecursionError, PydanticSerializationError) as error:
        raise InvalidInput(
            f"the input of {what} can't be written as JSON: {error}; pass plain values, a dataclass or a pydantic "
            "model, or leave input= out"
        ) from None


def _plain(value: Any) -> Any:
    """Return a value that `json` does not know, one level simpler."""
    if isinstance(value, (set, frozenset)):
        return sorted(cast("set[Any]", value), key=_encode)  # iteration order depends on the process
    if isinstance(value, BaseModel):
        return value.model_dump()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return to_jsonable_python(value)


_encode = json.JSONEncoder(default=_plain, ensure_ascii=False, separators=(",", ":")).encode
