"""Sequences that are mostly empty: they share one empty tuple, and become lists with their first item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def added(items: Sequence[T], item: T) -> Sequence[T]:
    """Append an item, in constant time: some sequences grow very long."""
    if isinstance(items, list):
        items.append(item)
        return items
    return [*items, item]
