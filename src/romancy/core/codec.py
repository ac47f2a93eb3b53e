"""Values to bytes and back, exactly: a stored value comes back equal and with the same types, or is rejected.

pydantic writes JSON according to the annotation. Its schema is adjusted in the few places where JSON would lose
something. Then the written JSON is read back and compared; a value that would come back changed raises an error.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
import types
import typing
from collections.abc import Callable
from datetime import datetime, time, timedelta, timezone
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple, NoReturn, Union, cast, get_args, get_origin
from zoneinfo import ZoneInfo

import typing_extensions
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationUnexpectedValue as UnexpectedValue
from pydantic_core import SchemaSerializer, SchemaValidator, TzInfo, core_schema, to_json

from romancy.core.round_trip import Schema, Unfit, compare, culprit, describe, describe_given, found_at, marshalled_same
from romancy.errors import NotStorable

# Models and dataclasses have their own settings. These override them, or else bytes and NaN inside would be lost.
_EXACT: Schema = {
    "ser_json_bytes": "base64",
    "val_json_bytes": "base64",
    "ser_json_inf_nan": "constants",
    "ser_json_timedelta": "iso8601",
    "ser_json_temporal": "iso8601",
}
_CHILDREN = frozenset(
    "schema items_schema keys_schema values_schema extras_schema choices fields definitions steps json_schema "
    "python_schema lax_schema strict_schema arguments_schema var_args_schema var_kwargs_schema return_schema "
    "serialization".split()
)
# For these types, equal `marshal` dumps mean deep equality with exactly the same types. (bytes are missing on purpose:
# marshal writes a bytearray the same way.)
_PLAIN = frozenset(
    "any str int float bool none list dict nullable union literal typed-dict typed-dict-field tuple default".split()
)
_SCALARS: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool, "none": type(None)}
typed_dict: Callable[..., Any] = cast(Any, typing_extensions.TypedDict)
_HIDDEN = "\0"  # prefix of tags for choices added here, which are not in the annotation
_MOST_DIGITS = 4000  # Python and pydantic read ints of at most 4300 digits


class Codec:
    """Encodes and decodes one value according to its annotation."""

    def __init__(self, annotation: Any, what: str) -> None:
        self.what = what
        self._annotated = annotation not in (Any, inspect.Parameter.empty)
        self._annotation = annotation if self._annotated else Any
        self.wire = Wire(self._annotation, what)

    def __repr__(self) -> str:
        return f"Codec({_named(self._annotation)}, {self.what!r})"

    @property
    def annotation(self) -> Any:
        return self._annotation

    @cached_property
    def fingerprint(self) -> str:
        """Changes only when the shape of the annotation changes; '' without an annotation."""
        return self.wire.fingerprint if self._annotated else ""

    def encode(self, value: Any) -> bytes:
        try:
            return self.wire.write(value)
        except Unfit as unfit:
            message = f"{self.what} can't be stored: {describe(unfit)}"
        annotated = (
            f"it is annotated {_named(self._annotation)}" if self._annotated else "unannotated, it must be plain JSON"
        )
        raise NotStorable(f"{message}; {annotated}: annotate it with its actual type, or convert it")

    def decode(self, raw: bytes) -> Any:
        try:
            return self.wire.read(raw)
        except Unfit as unfit:
            message = f"can no longer be read as {_named(self._annotation)}: {describe(unfit)}"
        advice = "restore the annotation it was stored with, or use one that also accepts the old form"
        raise NotStorable(f"{self.what} was stored but {message}; {advice}")

    def judge(self, raw: bytes) -> Any:
        """Decode data from outside; raise `NotStorable` if it does not fit."""
        try:
            return self.wire.read(raw)
        except Unfit as unfit:
            reason = describe_given(unfit, "data")
        raise NotStorable(f"it does not fit {_named(self._annotation)}: {reason}")


class Wire:
    """Writes and reads values of one annotation as bytes."""

    def __init__(self, annotation: Any, what: str, *, closed: bool = False) -> None:
        self._annotation = annotation
        self._adapter, schema, kinds = _schema_of(annotation, what)
        if closed:  # only the outermost object: a setting in its config would also apply to nested ones
            root = schema["schema"] if schema["type"] == "definitions" else schema
            root["extra_behavior"] = "forbid"
        config = cast(core_schema.CoreConfig, _EXACT | {"allow_inf_nan": True})
        # Prebuilt serializers and validators of nested models would use their own settings again.
        self._dump = SchemaSerializer(cast(Any, schema), config, _use_prebuilt=False).to_json
        self.validator = SchemaValidator(cast(Any, schema), config, _use_prebuilt=False)
        self._load = self.validator.validate_json
        self._plain = kinds <= _PLAIN
        self._open = "any" in kinds
        self._scalar = _SCALARS.get(schema["type"]) if len(kinds) == 1 and len(schema) == 1 else None

    @cached_property
    def fingerprint(self) -> str:
        try:
            shape = _shape(self._adapter.json_schema(schema_generator=_ShapeOnly))
        except Exception:  # types with a custom form have no schema: use their name
            shape = _named(self._annotation)
        return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:16]

    def json_schema(self) -> dict[str, Any]:
        """Return the type as JSON Schema. Raise pydantic's error if it has none."""
        return self._adapter.json_schema()

    def write(self, value: Any, known: bool = False) -> bytes:
        """Write a value. `known`: it contains only scalars of exactly the annotated types."""
        try:
            raw = self._dump(value, by_alias=False, round_trip=True, warnings=False)
        except Exception as error:  # user-written serializers can raise anything
            raise culprit(value, (), str(error).partition("\n")[0]) from error
        if (known or type(value) is self._scalar) and (len(raw) <= _MOST_DIGITS or self._scalar is str):
            return raw
        back = self.read(raw, value)
        if not (self._plain and marshalled_same(value, back)):
            self._compare(value, back)
        return raw

    def read(self, raw: bytes, original: Any = inspect.Parameter.empty) -> Any:
        try:
            return self._load(raw, by_name=True)  # stored values use names; events from outside can use aliases
        except ValidationError as error:
            unfit = unfit_of(error, "can't be read back")
            is_a = "" if original is inspect.Parameter.empty else found_at(original, unfit.path)
            raise Unfit(unfit.path, is_a + unfit.problem, unfit.reason) from error
        except Exception as error:  # user-written validators can raise anything
            raise Unfit((), "can't be read back", f"{type(error).__name__}: {error}") from error

    def _compare(self, value: Any, back: Any) -> None:
        try:
            compare(value, back, ())
        except Unfit:
            # Under Any, tuples may become lists. Strict validation guards tuples that are annotated.
            if not self._open:
                raise
            compare(value, back, (), True)
            try:
                self.validator.validate_python(value, strict=True, by_name=True)
            except ValidationError as error:
                raise unfit_of(error, "does not fit") from error


def unfit_of(error: ValidationError, problem: str) -> Unfit:
    first = error.errors(include_url=False, include_context=False)[0]
    return Unfit(tuple(step for step in first["loc"] if str(step)[:1] != _HIDDEN), problem, first["msg"])


def _named(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)


class _Seen(NamedTuple):
    known: dict[str, Schema]  # schemas by their refs
    kinds: set[str]  # the type of every node


def _schema_of(annotation: Any, what: str) -> tuple[TypeAdapter[Any], Schema, set[str]]:
    if annotation in (NoReturn, typing.Never):
        annotation = None
    try:
        adapter = _adapter(supported(annotation))
        schema = dict(cast(Schema, adapter.core_schema))
        seen = _Seen({node["ref"]: node for node in schema.get("definitions", ())}, set())
        if schema["type"] in ("callable", "generator", "is-subclass"):
            raise TypeError("it has no JSON form")
        return adapter, _adjusted(schema, seen), seen.kinds
    except Exception as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise TypeError(
            f"{what} is annotated {_named(annotation)}, which can't be stored: {reason}; "
            "use types that pydantic supports: dataclasses, pydantic models, TypedDicts, standard library types"
        ) from error


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    adapter = TypeAdapter[Any](annotation)
    found: dict[str, Any] = {}
    while not adapter.pydantic_complete:
        try:
            adapter.rebuild(_types_namespace=found)
        except PydanticUndefinedAnnotation as error:
            # A class local to a function, named by a string in another class: search the callers' variables.
            name, frame = str(error.name), inspect.currentframe()
            while frame is not None and name not in frame.f_locals:
                frame = frame.f_back
            if frame is None or name in found:
                raise
            found[name] = frame.f_locals[name]
    return adapter


def supported(annotation: Any) -> Any:
    """Replace `typing.TypedDict`, which pydantic does not support before Python 3.12, by that of typing_extensions."""
    if sys.version_info >= (3, 12):
        return annotation
    if typing.is_typeddict(annotation) and type(annotation).__module__ == "typing":
        hints = typing.get_type_hints(annotation, include_extras=True)
        wrap: dict[bool, Any] = {True: typing.Required, False: typing.NotRequired}
        items = {name: wrap[name in annotation.__required_keys__][supported(hint)] for name, hint in hints.items()}
        return typed_dict(annotation.__name__, items)
    inside: tuple[Any, ...] = tuple(supported(arg) for arg in get_args(annotation))
    if inside == get_args(annotation):
        return annotation
    form: Any = Union if get_origin(annotation) is types.UnionType else get_origin(annotation)
    return form[inside[0] if len(inside) == 1 else inside]


def _adjusted(node: Schema, seen: _Seen) -> Schema:
    """Return a schema that also writes what plain JSON would lose."""
    new = {key: _adjusted_child(key, child, seen) if key in _CHILDREN else child for key, child in node.items()}
    kind = node.get("type", "parameter")  # before pydantic 2.14, the fields of a NamedTuple have no type
    seen.kinds.add(kind)
    if kind in ("model", "dataclass", "typed-dict"):
        new["config"] = {"allow_inf_nan": True} | node.get("config", {}) | _EXACT
    elif kind in ("datetime", "time"):
        return _moment(new)
    elif kind == "literal":
        members = [m for m in node["expected"] if isinstance(m, Enum) and not isinstance(m, (str, int))]
        return _found_again({to_json(member.value): member for member in members}, new, to_json)
    elif kind == "tagged-union":
        by_value = {tag.value: choice for tag, choice in new["choices"].items() if isinstance(tag, Enum)}
        new["choices"] = {**by_value, **new["choices"]}
    elif kind in ("set", "frozenset") and "serialization" not in node:
        new["serialization"] = core_schema.wrap_serializer_function_ser_schema(_write_set, when_used="json")
    elif kind == "dict" and "keys_schema" in node:
        new["keys_schema"] = _enum_keys(new["keys_schema"], seen)
    return new


def _adjusted_child(key: str, child: Any, seen: _Seen) -> Any:
    if isinstance(child, dict) and key in ("fields", "choices"):  # by name, and a name can be anything
        return {name: _adjusted_child("", inner, seen) for name, inner in cast(Schema, child).items()}
    if isinstance(child, (list, tuple)):  # a tuple is a choice and its label
        inside = [_adjusted_child("", inner, seen) for inner in cast(list[Any], child)]
        return tuple(inside) if isinstance(child, tuple) else inside
    return _adjusted(cast(Schema, child), seen) if isinstance(child, dict) else child


def _moment(node: Schema) -> Schema:
    outer: Schema = {key: node.pop(key) for key in ("ref", "serialization") if key in node}
    marked = {"datetime": _read_marked_datetime, "time": _read_marked_time}[node["type"]]
    if "serialization" not in outer:
        outer["serialization"] = core_schema.wrap_serializer_function_ser_schema(
            _write_moment, schema=cast(Any, node), when_used="json"
        )
    # Not one wrapper function for both: in a union like `datetime | str`, pydantic would prefer the str.
    choices: Any = {
        _HIDDEN: core_schema.no_info_after_validator_function(_standard_zone, cast(Any, node)),
        _HIDDEN + "marked": core_schema.no_info_plain_validator_function(marked),
    }
    return {**core_schema.tagged_union_schema(choices, _is_marked), **outer}


def _is_marked(value: Any) -> str:
    return _HIDDEN + "marked" if isinstance(value, str) and value.endswith("]") else _HIDDEN


def _standard_zone(moment: Any) -> Any:
    if isinstance(moment.tzinfo, TzInfo):  # pydantic's own class; user code compares with timezone.utc
        return moment.replace(tzinfo=timezone(cast(timedelta, moment.tzinfo.utcoffset(None))))
    return moment


def _write_moment(value: Any, handler: Callable[[Any], Any]) -> Any:
    """Write what pydantic would lose, too: `2024-10-27T02:30:00+01:00[Europe/Berlin][fold=1]`."""
    if not isinstance(value, (datetime, time)):
        raise UnexpectedValue(f"not a moment: {type(value).__name__}")
    zone = value.tzinfo
    # RFC 9557: the offset alone does not say when the clocks change.
    mark = f"[{zone.key}]" if isinstance(zone, ZoneInfo) and zone.key and isinstance(value, datetime) else ""
    mark += "[fold=1]" if value.fold else ""
    return value.isoformat() + mark if mark else handler(value)


def _read_marked_datetime(value: str) -> datetime:
    text, _, mark = value.removesuffix("[fold=1]").partition("[")
    moment = datetime.fromisoformat(text).replace(fold=int(value.endswith("[fold=1]")))
    if not mark:
        return moment
    try:
        zone = ZoneInfo(mark[:-1])
    except Exception as error:
        raise ValueError(f"the time zone {mark[:-1]!r} is unknown here (is tzdata installed?)") from error
    local = moment.replace(tzinfo=zone)
    # If the rules of the zone have changed since, the instant counts.
    return local if local.utcoffset() == moment.utcoffset() else moment.astimezone(zone)


def _read_marked_time(value: str) -> time:
    return time.fromisoformat(value.removesuffix("[fold=1]")).replace(fold=1)


def _write_set(value: Any, handler: Callable[[Any], Any]) -> Any:
    if not isinstance(value, (set, frozenset)):
        raise UnexpectedValue(f"not a set: {type(value).__name__}")
    return sorted(handler(value), key=to_json)  # iteration order depends on the process


def _enum_keys(node: Schema, seen: _Seen) -> Schema:
    """Find enum members with numeric values from their keys, which are strings in JSON."""
    target = seen.known.get(node.get("schema_ref", ""), node)
    if target.get("type") != "enum" or "sub_type" in target:
        return node
    return _found_again({str(member.value): member.value for member in target["members"]}, node, str)


def _found_again(members: dict[Any, Any], node: Schema, key: Callable[[Any], Any]) -> Schema:
    def read(value: Any) -> Any:
        return members.get(key(value), value) if isinstance(value, (str, int, float)) else value

    return {**core_schema.no_info_before_validator_function(read, cast(Any, node))} if members else node


class _ShapeOnly(GenerateJsonSchema):
    def encode_default(self, dft: Any) -> Any:
        return None  # dropped below; the order of sets varies, and values that are not JSON would cause warnings


def _shape(node: Any, names: bool = False) -> Any:
    """Return a JSON schema without texts and defaults: a changed docstring does not make a new type."""
    if isinstance(node, list):
        return list(map(_shape, cast(Any, node)))
    if not isinstance(node, dict):
        return node
    return {
        key: _shape(inner, key in ("properties", "$defs", "patternProperties") and not names)
        for key, inner in cast(Schema, node).items()
        if names or key not in ("title", "description", "default", "examples")
    }
