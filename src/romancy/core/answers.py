"""Answers to questions as JSON, from programs: whether they fit what was asked, and how they look.

As with forms, only what the JSON schema says is checked here, and the type's own validators run in the workflow. What
pydantic converts is let through: `"yes"` is a bool, and `"12"` is a number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, cast

from romancy.core.forms import VALUE, Field, Schema, Wrong, check_count, check_range, check_text, fields_of

_BOOLS = frozenset(("0", "off", "f", "false", "n", "no", "1", "on", "t", "true", "y", "yes"))
_KINDS = {"integer": "whole number", "decimal": "number", "area": "text", "lines": "[text, ...]"}
_MOST_CHOICES = 5


def shape_of(schema: Schema) -> str:
    """Describe how an answer looks: `{approved: true|false, reason?: text}`. A `?` marks what can be left out."""
    fields = _fields(schema)
    if fields and fields[0].name == VALUE:
        return _shape(fields[0])
    return f"{{{', '.join(f'{field.name}{_mark(field)}: {_shape(field)}' for field in fields)}}}"


def misfits(schema: Schema, answer: Any) -> list[str]:
    """Return what is wrong with an answer; nothing if the workflow may accept it."""
    fields = _fields(schema)
    if fields and fields[0].name == VALUE:
        return _misfit("it", fields[0], answer)
    if not isinstance(answer, Mapping):
        return ["it must be an object"]
    given = cast("Mapping[str, Any]", answer)
    wrong = [problem for field in fields for problem in _within(field, given)]
    known = {field.name.partition(".")[0] for field in fields}
    if not wrong and given and known.isdisjoint(given):
        return ["it has none of the fields"]
    return list(dict.fromkeys(wrong))


def _fields(schema: Schema) -> Sequence[Field]:
    return [field for field in fields_of(schema) if field.kind != "tick"]


def _mark(field: Field) -> str:
    return "" if _is_needed(field) else "?"


def _is_needed(field: Field) -> bool:
    return field.required or field.is_nullable


def _shape(field: Field) -> str:
    if field.choices:
        values = [value for value, _ in field.choices]
        return "|".join(values[:_MOST_CHOICES]) + ("|..." if len(values) > _MOST_CHOICES else "")
    return _KINDS.get(field.kind, field.kind) + (" or null" if field.is_nullable else "")


def _within(field: Field, answer: Mapping[str, Any]) -> list[str]:
    """Check a field, in its groups."""
    *groups, last = field.name.split(".")
    path = ""
    for group in groups:
        path += group
        if group not in answer:
            return [f"{path} is missing"] if path in field.groups else []
        if not isinstance(answer[group], Mapping):
            return [f"{path} must be an object"]
        answer, path = answer[group], f"{path}."
    if last not in answer:
        return [f"{field.name} is missing"] if _is_needed(field) else []
    return _misfit(field.name, field, answer[last])


def _misfit(name: str, field: Field, value: Any) -> list[str]:
    if value is None and not field.required:
        return []
    try:
        _check(field, value)
    except Wrong as wrong:
        text = str(wrong).removesuffix(".")
        return [f"{name} {text.removeprefix('It ')}" if text.startswith("It ") else f"{name}: {text}"]
    return []


def _check(field: Field, value: Any) -> None:
    if field.kind == "choice":
        _check_choice(field, value)
    elif field.kind in ("integer", "number", "decimal"):
        _check_number(field, value)
    elif field.kind == "lines":
        if not isinstance(value, list) or not all(isinstance(line, str) for line in cast("list[Any]", value)):
            raise Wrong("It must be a list of texts.")
        if not field.schema.get("uniqueItems"):  # a set is counted without duplicates
            check_count(field.schema, cast("list[str]", value))
    elif not isinstance(value, str):
        if not (isinstance(value, (int, float)) and "format" in field.schema):  # of a date or a duration
            raise Wrong("It must be a text.")
    elif field.kind in ("text", "area"):
        check_text(field.schema, value)


def _check_choice(field: Field, value: Any) -> None:
    values = [json.loads(choice) for choice, _ in field.choices]
    if values == [True, False]:
        if value in (0, 1) or (isinstance(value, str) and value.lower() in _BOOLS):
            return
        raise Wrong("It must be true or false.")
    if value not in values and str(value) not in [str(one) for one in values]:
        raise Wrong(f"It must be one of {', '.join(json.dumps(one) for one in values[:20])}.")


def _check_number(field: Field, value: Any) -> None:
    try:
        number = Decimal(str(int(value) if isinstance(value, bool) else value))
    except InvalidOperation:
        raise Wrong("It must be a number.") from None
    if not number.is_finite():
        return
    if field.kind == "integer" and number != number.to_integral_value():
        raise Wrong("It must be a whole number.")
    check_range(field.schema, number)
