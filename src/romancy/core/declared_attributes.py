"""`@workflow(attributes={"customer": "order.customer_id"})`: attributes from the arguments of a start.

A path is the name of a parameter, then fields or keys. Where the annotations show that a path leads nowhere, that is an
error at registration. Otherwise the attribute is left out, with one warning for each workflow and attribute.
"""

from __future__ import annotations

import logging
import re
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, cast

from romancy.core.attributes import MAX_ATTRIBUTES, check_attribute_name, encode_attribute
from romancy.core.signature import Signature
from romancy.errors import InvalidInput

_logger = logging.getLogger("romancy")
Paths = Mapping[str, tuple[str, ...]]
_PATH = re.compile(r"[^\W\d]\w*(\.[\w-]+)*")
_OPEN = (Any, object)
"""Annotations that say nothing."""


class _Wrong(Exception):
    """The annotations show that a path does not lead to a scalar."""


def parse_paths(attributes: Any, what: str) -> Paths | None:
    """Check the form of declared attributes; return their paths, split."""
    if attributes is None:
        return None
    if not isinstance(attributes, Mapping):
        raise TypeError(f"{what}: attributes= takes a mapping of names to paths, got {attributes!r}")
    given = cast("Mapping[Any, Any]", attributes)
    if len(given) > MAX_ATTRIBUTES:
        raise TypeError(f"{what} declares {len(given)} attributes, more than the {MAX_ATTRIBUTES} allowed")
    paths: dict[str, tuple[str, ...]] = {}
    for name, path in given.items():
        try:
            check_attribute_name(name)
        except InvalidInput as error:
            raise TypeError(f"{what}: {error}") from None
        if not isinstance(path, str) or not _PATH.fullmatch(path):
            raise TypeError(
                f"{what}: attribute {name!r} has the path {path!r}; a path is the name of a parameter, then fields or "
                "keys, with dots between them: 'order.customer_id'"
            )
        paths[name] = tuple(path.split("."))
    return paths or None


def check_paths(paths: Paths, signature: Signature) -> None:
    """Raise `TypeError` if the signature shows that a path does not lead to a scalar."""
    for name, (parameter, *fields) in paths.items():
        if parameter not in signature.annotations:
            raise TypeError(
                f"{signature.what}: attribute {name!r} begins at {parameter!r}, which is not one of its parameters"
                f" ({', '.join(signature.names) or 'it has none'})"
            )
        try:
            _check_scalar(_annotation_at(signature.annotations[parameter], fields))
        except _Wrong as wrong:
            path = ".".join((parameter, *fields))
            raise TypeError(f"{signature.what}: attribute {name!r} has the path {path!r}, but {wrong}") from None


def parse_key(key: Any, what: str) -> tuple[str, ...] | None:
    """Check the form of the path to the key of a queue; return it, split."""
    if key is None:
        return None
    if not isinstance(key, str) or not _PATH.fullmatch(key):
        raise TypeError(
            f"{what}: key= is a path into the arguments: the name of a parameter, then fields or keys, with dots "
            f"between them, such as 'order.customer_id'; got {key!r}. For a fixed key, use options(key=...)"
        )
    return tuple(key.split("."))


def check_key_path(path: Sequence[str], signature: Signature) -> None:
    """Raise `TypeError` if the signature shows that the path to a key does not lead to a scalar."""
    parameter, *fields = path
    if parameter not in signature.annotations:
        raise TypeError(
            f"{signature.what}: key={'.'.join(path)!r} begins at {parameter!r}, which is not one of its parameters"
            f" ({', '.join(signature.names) or 'it has none'})"
        )
    try:
        _check_scalar(_annotation_at(signature.annotations[parameter], fields))
    except _Wrong as wrong:
        raise TypeError(f"{signature.what}: key={'.'.join(path)!r}: {wrong}") from None


def _annotation_at(annotation: Any, fields: Sequence[str]) -> Any:
    for field in fields:
        annotation = _field(annotation, field)
    return annotation


def _members(annotation: Any) -> list[Any]:
    """Return the members of a union, without None; the annotation itself if it is none."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _members(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return [inner for each in typing.get_args(annotation) if each is not type(None) for inner in _members(each)]
    return [annotation]


def _field(annotation: Any, field: str) -> Any:
    """Return the annotation of a field or key; Any if it is not known."""
    members = _members(annotation)
    if len(members) != 1 or members[0] in _OPEN:
        return Any
    origin: Any = typing.get_origin(members[0]) or members[0]
    if not isinstance(origin, type):
        return Any
    return _field_of(cast("type[Any]", origin), typing.get_args(members[0]), field)


def _field_of(origin: type[Any], arguments: tuple[Any, ...], field: str) -> Any:
    if not typing.is_typeddict(origin) and issubclass(cast("Any", origin), Mapping):
        return arguments[1] if len(arguments) == 2 else Any
    if issubclass(cast("Any", origin), list | tuple) and field.isdigit():
        return Any
    try:
        hints = typing.get_type_hints(origin)
    except Exception:  # an annotation names something that is not known here
        return Any
    if field in hints:
        parameters: tuple[Any, ...] = getattr(origin, "__parameters__", ())
        return dict(zip(parameters, arguments, strict=False)).get(hints[field], hints[field])
    if hasattr(origin, field) or hasattr(origin, "__getattr__"):
        return Any
    raise _Wrong(f"{origin.__qualname__} has no field {field!r}")


def _check_scalar(annotation: Any) -> None:
    members = _members(annotation)
    if members and not any(map(_may_be_scalar, members)):
        shown = annotation.__qualname__ if isinstance(annotation, type) else annotation
        raise _Wrong(f"that is a {shown}; an attribute is a string, an integer or a boolean")


def _may_be_scalar(annotation: Any) -> bool:
    if annotation in _OPEN or typing.get_origin(annotation) is typing.Literal:
        return True
    kind = typing.get_origin(annotation) or annotation
    return not isinstance(kind, type) or issubclass(kind, str | int | Enum)


_warned: set[tuple[str, str]] = set()


def declared(paths: Paths, signature: Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, str]:
    """Return the attributes that the arguments of a start give, with their values as JSON."""
    bound = signature.bind(args, kwargs)
    found: dict[str, str] = {}
    for name, path in paths.items():
        try:
            value = value_at(bound, path)
            if value is not None:
                found[name] = encode_attribute(name, value)
        except InvalidInput as error:
            _warn(signature.what, name, str(error))
        except Exception as error:  # a property can raise anything
            _warn(signature.what, name, f"its path {'.'.join(path)!r} leads nowhere ({type(error).__name__}: {error})")
    return found


def value_at(bound: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return what a path leads to, from the arguments by name."""
    value: Any = bound
    for part in path:
        if value is None:
            return None
        if isinstance(value, Mapping):
            value = cast("Mapping[str, Any]", value)[part]
        elif isinstance(value, list | tuple) and part.isdigit():
            value = cast("Sequence[Any]", value)[int(part)]
        else:
            value = getattr(cast("object", value), part)
    return value.value if isinstance(value, Enum) else value


def _warn(what: str, name: str, problem: str) -> None:
    if (what, name) not in _warned:
        _warned.add((what, name))
        _logger.warning("%s: attribute %r is left out: %s", what, name, problem)
