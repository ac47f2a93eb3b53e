"""Copies of records, to be changed. Several times as fast as `copy.copy`, which matters for every step."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")
_values: dict[type, Callable[[Any], tuple[Any, ...]]] = {}


def clone(record: T) -> T:
    """Return a copy of a dataclass with slots."""
    kind = type(record)
    values = _values.get(kind)
    if values is None:
        values = _values[kind] = attrgetter(*kind.__slots__)  # type: ignore[attr-defined]
    return kind(*values(record))
