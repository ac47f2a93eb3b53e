"""Forms: a type as fields that people can fill in, and what they sent as JSON.

The fields are made from the JSON schema of the type, so a process that does not have the type can show the form. What
the schema says is checked here; the type's own validators run in the workflow.

A form has texts, numbers, dates, choices and lists of texts, in groups of groups at most. Yes and no are two choices of
which none is preselected, and defaults are not preselected either: a person who sends a form has decided. For the same
reason a form in which everything can be left empty has a box that must be ticked.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, TypeAlias, cast

Schema: TypeAlias = Mapping[str, Any]
Kind: TypeAlias = Literal[
    "text", "area", "choice", "integer", "number", "decimal", "date", "datetime", "time", "lines", "tick"
]
DEEPEST = 2
"""How deep groups can be nested."""
VALUE, TICK = "value", "(confirmed)"
"""The name of the only field of a type that is no object; of the box that must be ticked."""
LONG = 200
"""Texts that can be longer get several lines."""
NEEDED = "This is needed."
_BOUNDS: Sequence[tuple[str, Callable[[Decimal, Decimal], bool], str]] = (
    ("minimum", operator.ge, "at least"),
    ("exclusiveMinimum", operator.gt, "more than"),
    ("maximum", operator.le, "at most"),
    ("exclusiveMaximum", operator.lt, "less than"),
)


class NotAForm(TypeError):
    """A type that can't be shown as a form."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a form."""

    name: str
    label: str
    help: str
    kind: Kind
    required: bool
    schema: Schema
    choices: Sequence[tuple[str, str]] = ()
    """What can be chosen: its value as JSON, and its label."""
    group: str = ""
    """The label of the group it is in."""
    is_nullable: bool = False
    """It has no default, and is null if it is left empty."""
    groups: Sequence[str] = ()
    """The paths of the groups it is in, outermost first, without those that have a default."""

    @property
    def can_be_empty(self) -> bool:
        return not self.required or (self.kind == "lines" and not self.schema.get("minItems"))


def fields_of(schema: Schema) -> list[Field]:
    """Return the fields of a form; raise `NotAForm` if the type can't be one."""
    known = cast("Mapping[str, Schema]", schema.get("$defs", {}))
    top = _resolved(schema, known)
    if top.get("type") == "object":
        fields = list(_fields_of_object(top, known, "", "", ()))
    else:
        fields = [_field(VALUE, {"title": "Answer", **top}, known, required=True)]
    if all(field.can_be_empty for field in fields):
        fields.append(Field(TICK, "I confirm", "", "tick", True, {}))
    return fields


def _resolved(schema: Schema, known: Mapping[str, Schema]) -> Schema:
    """Follow references; what is said beside one counts more."""
    for _ in range(20):
        if "$ref" in schema:
            name = cast(str, schema["$ref"]).rpartition("/")[2]
            schema = {**known[name], **{key: value for key, value in schema.items() if key != "$ref"}}
        elif len(schema.get("allOf", ())) == 1:
            schema = {**schema["allOf"][0], **{key: value for key, value in schema.items() if key != "allOf"}}
        else:
            return schema
    raise NotAForm("its types refer to each other without end")


def _fields_of_object(
    schema: Schema, known: Mapping[str, Schema], prefix: str, group: str, groups: Sequence[str]
) -> Iterator[Field]:
    if "properties" not in schema or schema.get("additionalProperties"):
        raise NotAForm(f"{prefix[:-1] or 'it'} has no fixed fields")
    if prefix.count(".") > DEEPEST:
        raise NotAForm(f"{prefix[:-1]} is nested too deeply")
    needed = cast("Sequence[str]", schema.get("required", ()))
    for name, found in cast("Mapping[str, Schema]", schema["properties"]).items():
        part = _resolved(found, known)
        if "." in name or name in (VALUE, TICK):
            raise NotAForm(f"{name!r} can't be the name of a field")
        if part.get("type") == "object":
            label = cast(str, part.get("title", name))
            inner = (*groups, prefix + name) if name in needed else groups
            yield from _fields_of_object(part, known, f"{prefix}{name}.", label, inner)
        else:
            field = _field(prefix + name, part, known, required=name in needed)
            yield replace(field, group=group, groups=groups)


def _field(name: str, schema: Schema, known: Mapping[str, Schema], *, required: bool) -> Field:
    label = cast(str, schema.get("title") or name.rpartition(".")[2].replace("_", " ").capitalize())
    help = cast(str, schema.get("description", ""))
    schema, can_be_null = _without_null(name, schema, known)
    kind, choices = _kind_of(name, schema, known)
    is_nullable = required and can_be_null
    return Field(name, label, help, kind, required and not can_be_null, schema, choices, is_nullable=is_nullable)


def _without_null(name: str, schema: Schema, known: Mapping[str, Schema]) -> tuple[Schema, bool]:
    if "anyOf" not in schema:
        return schema, False
    others = [_resolved(one, known) for one in cast("Sequence[Schema]", schema["anyOf"])]
    rest = [one for one in others if one.get("type") != "null"]
    if {one.get("type") for one in rest} == {"number", "string"} and len(rest) == 2:  # how pydantic describes Decimal
        number = next(one for one in rest if one["type"] == "number")
        return {**number, "type": "decimal"}, len(rest) < len(others)
    if len(rest) != 1:
        raise NotAForm(f"{name} can be of several types")
    return rest[0], len(rest) < len(others)


def _kind_of(name: str, schema: Schema, known: Mapping[str, Schema]) -> tuple[Kind, Sequence[tuple[str, str]]]:
    type = schema.get("type")
    if "const" in schema or "enum" in schema:
        values = cast("Sequence[Any]", schema["enum"] if "enum" in schema else [schema["const"]])
        return "choice", [(json.dumps(value), str(value)) for value in values]
    if type == "boolean":
        return "choice", [("true", "Yes"), ("false", "No")]
    if type in ("integer", "number", "decimal"):
        return cast("Kind", type), ()
    if type == "array" and _resolved(schema.get("items", {}), known).get("type") == "string":
        return "lines", ()
    if type == "string":
        return _kind_of_text(schema), ()
    raise NotAForm(f"{name} is of a type that no field of a form has ({type or 'any'})")


def _kind_of_text(schema: Schema) -> Kind:
    if schema.get("format") in ("binary", "base64url"):
        raise NotAForm("bytes can't be written in a form")
    formats: Mapping[Any, Kind] = {"date": "date", "date-time": "datetime", "time": "time"}
    found = formats.get(schema.get("format"))
    return found or ("area" if schema.get("maxLength", 0) > LONG else "text")


# --- what was sent ----------------------------------------------------------------------------------------------------
class Wrong(Exception):
    """What is wrong with a field, for the person."""


def read_form(fields: Sequence[Field], sent: Mapping[str, Sequence[str]]) -> tuple[Any, dict[str, str]]:
    """Return the answer as JSON, and what is wrong with it, by field."""
    found: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for field in fields:
        try:
            given, value = _read(field, sent.get(field.name, ()))
        except Wrong as error:
            wrong[field.name] = str(error)
            continue
        if (given or field.is_nullable) and field.kind != "tick":
            _put(found, field.name, value if given else None)
    for path in [path for field in fields for path in field.groups]:
        _put_group(found, path)
    is_plain = fields[0].name == VALUE
    return (found.get(VALUE) if is_plain else found), wrong


def _read(field: Field, sent: Sequence[str]) -> tuple[bool, Any]:
    """Return whether something was given, and what."""
    if len(sent) > 1:
        raise Wrong("This was sent twice.")
    text = sent[0].replace("\r\n", "\n").strip() if sent else ""
    if field.kind == "lines":
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        if lines or field.required:
            check_count(field.schema, lines)
        return bool(lines) or field.required, lines
    if not text:
        if field.required:
            raise Wrong(NEEDED)
        return False, None
    return True, _value(field, text)


def _value(field: Field, text: str) -> Any:
    if field.kind == "choice":
        if text not in [value for value, _ in field.choices]:
            raise Wrong("Choose one of these.")
        return json.loads(text)
    if field.kind in ("integer", "number", "decimal"):
        return _number(field, text)
    if field.kind in ("date", "datetime", "time"):
        return _moment(field.kind, text)
    if field.kind in ("text", "area"):
        check_text(field.schema, text)
    return text


def _number(field: Field, text: str) -> Any:
    plain = re.sub("[ \u00a0\u202f]", "", text)
    if "," in plain:  # 1.234,50 or 1,234.50 or 12,5: never guess
        raise Wrong("Write it with a point and without separators, as in 1234.50.")
    if not re.fullmatch(r"[+-]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})", plain, re.ASCII):
        raise Wrong("Write a number, as in 1234.50.")
    try:
        number = Decimal(plain)
    except InvalidOperation:  # pragma: no cover - the pattern allows none
        raise Wrong("Write a number, as in 1234.50.") from None
    check_range(field.schema, number)
    if field.kind == "integer":
        if number != int(number):
            raise Wrong("Write a whole number.")
        return int(number)
    return str(number) if field.kind == "decimal" else float(number)


def _moment(kind: Kind, text: str) -> str:
    """Browsers send the date and time without a zone, and the form says that they are UTC."""
    try:
        if kind == "date":
            return date.fromisoformat(text).isoformat()
        if kind == "time":
            return time.fromisoformat(text).isoformat()
        moment = datetime.fromisoformat(text)
    except ValueError:
        example = {"date": "2026-01-31", "time": "18:30"}.get(kind, "2026-01-31T18:30")
        raise Wrong(f"Write it as in {example}.") from None
    return moment.isoformat() + ("Z" if moment.tzinfo is None else "")


def check_range(schema: Schema, number: Decimal) -> None:
    """Raise `Wrong` if a number is too small or too large."""
    for name, holds, words in _BOUNDS:
        limit = schema.get(name)
        if limit is not None and not holds(number, Decimal(str(limit))):
            raise Wrong(f"It must be {words} {limit}.")


def check_text(schema: Schema, text: str) -> None:
    """Raise `Wrong` if a text is too short or too long."""
    if len(text) < schema.get("minLength", 0):
        raise Wrong(f"It must have at least {schema['minLength']} characters.")
    if len(text) > schema.get("maxLength", len(text)):
        raise Wrong(f"It can have at most {schema['maxLength']} characters.")


def check_count(schema: Schema, lines: Sequence[str]) -> None:
    """Raise `Wrong` if there are too few or too many lines."""
    if len(lines) < schema.get("minItems", 0):
        raise Wrong(f"Write at least {schema['minItems']} lines.")
    if len(lines) > schema.get("maxItems", len(lines)):
        raise Wrong(f"Write at most {schema['maxItems']} lines.")


def _put(found: dict[str, Any], name: str, value: Any) -> None:
    *groups, last = name.split(".")
    for group in groups:
        found = found.setdefault(group, {})
    found[last] = value


def _put_group(found: dict[str, Any], path: str) -> None:
    """Add a group of which nothing was given, unless the group around it is left out, too."""
    *outer, last = path.split(".")
    for name in outer:
        if name not in found:
            return
        found = found[name]
    found.setdefault(last, {})
