"""Compares a value with what was read back: whether they are exactly the same, and where they differ."""

from __future__ import annotations

import marshal
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from math import copysign
from types import CoroutineType
from typing import Any, cast
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic import BaseModel
from pydantic_core import TzInfo, to_json

Schema = dict[str, Any]
Path = tuple[Any, ...]
_Parts = Iterable[tuple[Any, Any]]
_ATOMS = frozenset((str, int, bool, type(None), bytes, date, timedelta, UUID))  # equal values are the same
_kind: Callable[[Any], Any] = type


class Unfit(Exception):
    """A value that would not come back unchanged; `path` leads to the place inside it.

    `reason` is the message of the validator, if the validator rejected it.
    """

    def __init__(self, path: Path, problem: str, reason: str = "") -> None:
        super().__init__(problem)
        self.path, self.problem, self.reason = path, problem, reason


def describe(unfit: Unfit, start: str = "it") -> str:
    """Describe a value to be stored: `it.items[0] is a set and would come back as a list`."""
    reason = f": {unfit.reason}" if unfit.reason else ""
    return f"{start}{_steps(unfit)} {unfit.problem}{reason}"


def describe_given(unfit: Unfit, start: str) -> str:
    """Describe a value from outside: `data.amount Input should be a valid integer`."""
    return f"{start}{_steps(unfit)} {unfit.reason or unfit.problem}"


def _steps(unfit: Unfit) -> str:
    return "".join(
        f".{step}" if isinstance(step, str) and step.isidentifier() else f"[{step!r}]" for step in unfit.path
    )


def marshalled_same(value: Any, back: Any) -> bool:
    try:
        return marshal.dumps(value, 2) == marshal.dumps(back, 2)  # version 2: later ones depend on reference counts
    except ValueError:  # not a plain type, or a subclass of one
        return False


def compare(value: Any, back: Any, path: Path, tuples: bool = False) -> None:
    """Raise `Unfit` at the first place where `back` is not exactly `value`. `tuples`: they may come back as lists."""
    kind, back_kind = _kind(value), _kind(back)
    if kind is not back_kind:
        if kind is int and back_kind is float and value == back:
            return
        if not (tuples and kind is tuple and back_kind is list):
            raise Unfit(path, f"is {_a(value)} and would come back as {_a(back)}")
    if kind in _ATOMS:
        same = value == back
    elif isinstance(value, dict):
        return _compare_items(cast(Schema, value), back, path, tuples)
    elif isinstance(value, (set, frozenset)):
        return _compare_sets(cast(set[Any], value), back, path, tuples)
    elif (parts := _parts(value)) is not None:
        return _compare_parts(parts, _parts(back) or (), path, tuples)
    else:
        same = _same_leaf(value, back)
    if not same:
        raise Unfit(path, f"is {value!r:.200} and would come back as {back!r:.200}")


def _compare_items(value: Schema, back: Schema, path: Path, tuples: bool) -> None:
    if len(value) != len(back):
        raise Unfit(path, f"has {len(value)} keys, but only {len(back)} would come back")
    keys = {key: key for key in back}  # a TypedDict comes back in declaration order
    for key, inner in value.items():
        if key not in keys or type(key) is not type(keys[key]):
            raise Unfit(path, f"has the key {key!r:.200}, {_a(key)}, which would not come back unchanged")
        compare(key, keys[key], (*path, key), tuples)
        compare(inner, back[key], (*path, key), tuples)


def _compare_parts(parts: _Parts, back: _Parts, path: Path, tuples: bool) -> None:
    theirs = iter(back)
    for step, inner in parts:
        back_step, back_inner = next(theirs, (_kind, None))
        if step != back_step:
            raise Unfit(path, f"would come back without its {step!r}")
        compare(inner, back_inner, (*path, step), tuples)
    for step, _ in theirs:
        raise Unfit(path, f"would come back with a new {step!r}")


def _compare_sets(value: set[Any], back: set[Any], path: Path, tuples: bool) -> None:
    if len(value) != len(back):
        raise Unfit(path, f"has {len(value)} elements, but only {len(back)} would come back")
    found = {element: element for element in back}
    for element in value:
        if element in found:
            compare(element, found[element], (*path, element), tuples)
        elif element == element or all(other == other for other in back):  # lookup does not find NaN
            raise Unfit(path, f"would come back without its {element!r:.200}")


def _parts(value: Any) -> _Parts | None:
    """Return the parts of a value, by name or index, in order; None for a leaf."""
    if isinstance(value, (list, tuple, deque)):
        return enumerate(cast(list[Any], value))
    if isinstance(value, BaseModel):
        return _model_parts(value)
    if is_dataclass(value) and not isinstance(value, type):
        return ((name, getattr(value, name, None)) for name in value.__dataclass_fields__)
    return None


def _model_parts(model: BaseModel) -> _Parts:
    for name in type(model).model_fields:
        yield name, model.__dict__.get(name)
    yield from (model.__pydantic_extra__ or {}).items()
    yield from (model.__pydantic_private__ or {}).items()


def _same_leaf(value: Any, back: Any) -> bool:
    if isinstance(value, float):
        return (value == back and copysign(1, value) == copysign(1, back)) or (value != value and back != back)
    if isinstance(value, Decimal):
        return bool(value.as_tuple() == back.as_tuple())
    if isinstance(value, (datetime, time)):
        return _same_moment(value, back)
    if _kind(value).__eq__ is object.__eq__:
        return bool(getattr(value, "__dict__", value) == getattr(back, "__dict__", back))
    return bool(value == back)


def _same_moment(value: datetime | time, back: datetime | time) -> bool:
    zone = value.tzinfo
    if value.fold != back.fold or value.replace(tzinfo=None) != back.replace(tzinfo=None):
        return False
    if zone is back.tzinfo:
        return True
    if isinstance(zone, ZoneInfo):
        return isinstance(back.tzinfo, ZoneInfo) and zone.key == back.tzinfo.key
    # Any other kind of zone would come back only as its offset on that day.
    named_same = value.tzname() == back.tzname() if isinstance(zone, timezone) else isinstance(zone, TzInfo)
    return named_same and value.utcoffset() == back.utcoffset()


def culprit(value: Any, path: Path, problem: str) -> Unfit:
    """Find the innermost part that can't be written, to name it."""
    within = cast(Schema, value).items() if isinstance(value, dict) else _parts(value)
    for step, inner in (within or ()) if len(path) < 50 else ():  # self-referencing values are rejected too
        try:
            to_json(inner)
        except Exception:
            return culprit(inner, (*path, step), problem)
    if isinstance(value, CoroutineType):
        return Unfit(path, "is a coroutine: an await is missing")
    return Unfit(path, f"is {_a(value)} and can't be written: {problem}")


def found_at(value: Any, path: Path) -> str:
    try:
        for step in path:
            value = value[step] if hasattr(value, "__getitem__") else getattr(value, step)
    except (LookupError, TypeError, AttributeError):  # a path can also name choices and keys
        return ""
    return f"is {_a(value)} and "


def _a(value: Any) -> str:
    name = type(value).__qualname__
    return "None" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
